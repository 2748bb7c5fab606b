"""Folders that a hostile program wrote to: walked, measured, given away and removed without following a link."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pytest_llmbench.sandbox import kernel as k

MAX_DEPTH: Final = 64
"""Levels of folders below the work directory; deeper ones are not entered."""
OWNER_ONLY: Final = 0o700
OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True)
class Entry:
    """One thing in a tree of folders, named by the open folder that holds it."""

    folder: int
    """Descriptor, open while this entry is looked at."""
    name: str
    path: str
    """Relative to the top, with ``/``."""
    depth: int
    status: os.stat_result
    problem: str = ""
    """Why a folder was not entered: ``unreadable`` or ``deep``."""


def walk(top: Path, deepest: int = MAX_DEPTH) -> Iterator[Entry]:
    """Everything below a folder, parents first, in the order of names. No link is followed, and no path is resolved but
    the top's, so nothing that changes meanwhile leads outside. What vanishes is passed over.

    Raises:
        OSError: where the top itself cannot be opened.
    """
    opened = [os.open(top, OPEN_FOLDER)]
    pending: list[list[tuple[str, str]]] = [_names(opened[0], "")]
    try:
        while pending:
            if not pending[-1]:
                pending.pop()
                os.close(opened.pop())
                continue
            name, path = pending[-1].pop()
            folder, depth = opened[-1], len(opened)
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                yield Entry(folder, name, path, depth, status)
            elif depth > deepest:
                yield Entry(folder, name, path, depth, status, "deep")
            else:
                try:
                    inner = os.open(name, OPEN_FOLDER, dir_fd=folder)
                except PermissionError:
                    yield Entry(folder, name, path, depth, status, "unreadable")
                    continue
                except OSError:
                    continue
                yield Entry(folder, name, path, depth, status)
                opened.append(inner)
                pending.append(_names(inner, path + "/"))
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _names(folder: int, prefix: str) -> list[tuple[str, str]]:
    try:
        names = sorted(os.listdir(folder), reverse=True)
    except OSError:
        return []
    return [(name, prefix + name) for name in names]


@dataclass
class Meter:
    """Measures folders again and again while a program writes to them."""

    tops: tuple[Path, ...]
    _unreadable: set[tuple[int, int]] = field(default_factory=set)

    def measure(self, most_files: int) -> tuple[int, int]:
        """Bytes on disk and number of files, links and folders; counting ends above ``most_files``. Folders that are
        nested too deep to be entered count as too many files.

        A folder that stays unreadable from one measurement to the next is made readable: it could hide anything.
        """
        size = count = 0
        unreadable: set[tuple[int, int]] = set()
        for top in self.tops:
            with suppress(OSError):
                for entry in walk(top):
                    count += 1
                    size += entry.status.st_blocks * k.BLOCK_BYTES
                    if entry.problem == "deep":
                        return size, most_files + 1
                    if entry.problem == "unreadable":
                        key = entry.status.st_dev, entry.status.st_ino
                        unreadable.add(key)
                        if key in self._unreadable:
                            _open_up(entry)
                    if count > most_files:
                        return size, count
        self._unreadable = unreadable
        return size, count


def _open_up(entry: Entry) -> None:
    if not hasattr(os, "O_PATH"):
        return
    with suppress(OSError):
        held = os.open(entry.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=entry.folder)
        try:
            if stat.S_ISDIR(os.fstat(held).st_mode):
                os.chmod(f"/proc/self/fd/{held}", OWNER_ONLY)
        finally:
            os.close(held)


def give(top: Path, user: int) -> None:
    """Make a user the owner of a folder and of what is in it; files with several names stay as they are, for another
    name could lie outside.

    Raises:
        OSError: where that is not allowed.
    """
    os.chown(top, user, user, follow_symlinks=False)
    for entry in walk(top):
        if stat.S_ISDIR(entry.status.st_mode) or entry.status.st_nlink == 1:
            os.chown(entry.name, user, user, dir_fd=entry.folder, follow_symlinks=False)


def remove_tree(path: Path) -> None:
    """Remove a folder whatever is in it: nested thousands deep, without rights, under any names. Nothing happens where
    it does not exist; a link is removed, not followed. Nobody may be writing to it any more.

    Folders are taken out of their parents one by one, so neither depth nor length of a path matters.

    Raises:
        OSError: where something cannot be removed.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(path)
        return
    os.chmod(path, OWNER_ONLY)
    top = os.open(path, OPEN_FOLDER)
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(path)


def _empty(top: int) -> None:
    while names := os.listdir(top):
        for name in names:
            if not _is_folder(name, top):
                os.unlink(name, dir_fd=top)
                continue
            inner = os.open(name, OPEN_FOLDER, dir_fd=top)
            try:
                for below in os.listdir(inner):
                    if _is_folder(below, inner):
                        os.rename(below, f".{secrets.token_hex()}", src_dir_fd=inner, dst_dir_fd=top)
                    else:
                        os.unlink(below, dir_fd=inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)


def _is_folder(name: str, folder: int) -> bool:
    """Whether this is a folder and no link to one; if so, its owner can do everything with it from here on."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    os.chmod(name, OWNER_ONLY, dir_fd=folder)
    return True
