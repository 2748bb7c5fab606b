"""File names that a model chose: which of them stand for a file inside of its work directory."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import Final

MAX_NAME_BYTES: Final = 255
"""Length of one part of a path."""
MAX_PATH_BYTES: Final = 1_024
"""Length of a whole path below the work directory."""
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_RESERVED: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)[ ]*(?:[.:].*)?", re.I)
_NOT_IN_NAMES: Final = frozenset('<>:"|?*')
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class UnsafeName(ValueError):
    """The name is refused; the message says why, in words that can be shown to the model."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{ascii(name)[:MAX_NAME_BYTES]}: {reason}")
        self.reason = reason


def plain_parts(name: str) -> list[str]:
    """The parts of a relative name that means the same on every system; ``./`` at its start means nothing.

    Raises:
        UnsafeName: for absolute names, drive letters, backslashes, ``..``, invisible or reserved characters, names that
            are reserved on some system, and overlong ones.
    """
    if not name:
        raise UnsafeName(name, "no name")
    if "\\" in name:
        raise UnsafeName(name, "backslash in the name")
    if name.startswith(("/", "~")):
        raise UnsafeName(name, "not relative to the work directory")
    if _DRIVE.match(name):
        raise UnsafeName(name, "drive letter")
    if any(unicodedata.category(character) in _INVISIBLE for character in name):
        raise UnsafeName(name, "invisible or control character in the name")
    if set(name) & _NOT_IN_NAMES:
        raise UnsafeName(name, "character that not every system allows in a name")
    parts = [part for part in name.split("/") if part != "."]
    if not parts or not all(parts):
        raise UnsafeName(name, "names no file")
    if ".." in parts:
        raise UnsafeName(name, "leaves the work directory")
    for part in parts:
        if _RESERVED.fullmatch(part) or part.endswith((" ", ".")):
            raise UnsafeName(name, "reserved name")
        if len(part.encode()) > MAX_NAME_BYTES:
            raise UnsafeName(name, "name too long")
    if len("/".join(parts).encode()) > MAX_PATH_BYTES:
        raise UnsafeName(name, "path too long")
    return parts


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def listed(name: str, allowed: Collection[str]) -> str:
    """The one of the ``allowed`` names that this name stands for.

    Raises:
        UnsafeName: where there is none; with the reason ``case mismatch`` where only the case differs.
    """
    plain = "/".join(plain_parts(name))
    if plain in allowed:
        return plain
    if _folded(plain) in map(_folded, allowed):
        raise UnsafeName(name, "case mismatch")
    raise UnsafeName(name, "not a file that was asked for")


def safe_path(workdir: Path, name: str) -> Path:
    """The path of a file inside of ``workdir``, where a program that is no longer running may have left links.

    Open it with ``O_NOFOLLOW``.

    Raises:
        UnsafeName: for names that ``plain_parts`` refuses, that lead through a link, that are no regular file, and
            that collide with an existing name but for the case.
    """
    top = workdir.resolve()
    path = top
    for part in plain_parts(name):
        if not path.exists():
            path = path / part
            continue
        if not path.is_dir():
            raise UnsafeName(name, "lies below a file")
        for other in os.listdir(path):
            if other != part and _folded(other) == _folded(part):
                raise UnsafeName(name, f"collides with {other!a}")
        path = path / part
        if path.is_symlink():
            raise UnsafeName(name, "leads through a link")
    if not path.parent.resolve().is_relative_to(top):
        raise UnsafeName(name, "leaves the work directory")
    if path.exists() and not stat.S_ISREG(os.lstat(path).st_mode):
        raise UnsafeName(name, "is no regular file")
    return path
