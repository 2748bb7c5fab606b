"""Taking files out of a work directory that a hostile program wrote to, after it has ended."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pytest_llmbench.sandbox.files import MAX_DEPTH, Entry, walk
from pytest_llmbench.sandbox.names import UnsafeName, plain_parts

MAX_REFUSALS: Final = 100
"""Refused names that are told; more say nothing new."""


@dataclass(frozen=True)
class Caps:
    """What is taken at most. A file that is over is refused, not cut."""

    file_bytes: int
    total_bytes: int
    files: int
    depth: int = MAX_DEPTH


@dataclass(frozen=True)
class Collected:
    """What was taken out."""

    files: dict[str, bytes] = field(default_factory=dict)
    """Content by name relative to the work directory, with ``/``."""
    refused: dict[str, str] = field(default_factory=dict)
    """Reason by name. Of unspeakable names an ASCII form."""


def collect(workdir: Path, names: Collection[str] | None, caps: Caps) -> Collected:
    """Read the regular files of a work directory whose program has ended. No link is followed, nothing is waited for.

    Args:
        workdir: the folder.
        names: the files that are of interest; None: all.
        caps: what is taken at most, in the order of names.

    Returns:
        What was read, and what was refused: links, devices, pipes, files with a second name, unsafe names, what is over
        a cap. A wanted file that is not there stands in neither.
    """
    collected = Collected()
    left = caps.total_bytes
    try:
        for entry in walk(workdir, caps.depth):
            if stat.S_ISDIR(entry.status.st_mode):
                if names is not None and entry.path in names:
                    _refuse(collected, entry, "no regular file")
                elif names is None and entry.problem:
                    _refuse(collected, entry, f"folder is {entry.problem}")
                continue
            if names is not None and entry.path not in names:
                continue
            if len(collected.files) >= caps.files:
                _refuse(collected, entry, f"more than {caps.files} files")
                break
            try:
                content = _content(entry, min(caps.file_bytes, left))
            except _Refused as refused:
                _refuse(collected, entry, str(refused))
            else:
                collected.files[entry.path] = content
                left -= len(content)
    except OSError as error:
        collected.refused["."] = f"the work directory cannot be read: {error.strerror}"
    return collected


class _Refused(Exception):
    pass


def _refuse(collected: Collected, entry: Entry, reason: str) -> None:
    if len(collected.refused) < MAX_REFUSALS:
        name = entry.path if entry.path.isascii() and entry.path.isprintable() else ascii(entry.path)
        collected.refused[name] = reason


def _content(entry: Entry, most: int) -> bytes:
    try:
        plain_parts(entry.path)
    except UnsafeName as unsafe:
        raise _Refused(unsafe.reason) from None
    _check(entry.status, most)
    descriptor = -1
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(entry.name, flags, dir_fd=entry.folder)
        _check(os.fstat(descriptor), most)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise _Refused(f"cannot be read: {error.strerror}") from None
    finally:
        with suppress(OSError):
            os.close(descriptor)
    if len(content) > most:
        raise _Refused(f"more than {most} bytes")
    return content


def _check(status: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _Refused("no regular file")
    if status.st_nlink != 1:
        raise _Refused("has a second name")
    if status.st_size > most:
        raise _Refused(f"more than {most} bytes")
