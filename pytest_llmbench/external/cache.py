"""Reading the fetched data: an allow-list of files, each held to its SHA-256 before a byte of it is used."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pytest_llmbench.spec import Strict, Unavailable

SOURCES = Path(__file__).with_name("sources.toml")
FOLDER = "level_b"
PROJECT = "pytest-llmbench"
DENIED = ("GPQA", "ds4_eval_cases")
"""Data whose authors ask that it is not passed on: nothing that holds one of these words is fetched or read."""
FETCH = "run `llmbench fetch-b`"


class Source(Strict):
    """One package that holds data or checkers."""

    distribution: str
    version: str
    archive: str
    """File name of the one archive that is fetched."""
    sha256: str
    licence: str
    """Of the files that are taken, with their authors."""
    origin: str
    """Where their authors publish them."""
    files: Mapping[str, str]
    """SHA-256 by path in the archive."""

    @property
    def folder(self) -> str:
        """Its folder in the cache."""
        return f"{self.distribution}-{self.version}"


class Refused(Exception):
    """Data is not what it has to be: the message names the file."""


@cache
def sources() -> Mapping[str, Source]:
    """Every package of the allow-list, by name."""
    entries = tomllib.loads(SOURCES.read_text(encoding="utf-8"))["sources"]
    found = [Source.model_validate(entry) for entry in entries]
    return {source.distribution: source for source in found}


def cache_folder() -> Path:
    """Where fetched data lies: below ``LLMBENCH_CACHE``, else in the user's cache."""
    stated = os.environ.get("LLMBENCH_CACHE")
    if stated:
        return Path(stated).absolute() / FOLDER
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and os.path.isabs(base) else Path.home() / ".cache") / PROJECT / FOLDER


def checked(source: Source, path: str, content: bytes) -> bytes:
    """The content of a file, once it is known to be the pinned one.

    Raises:
        Refused: where it is another file, or one that must not be used.
    """
    if any(word in path or word.encode() in content for word in DENIED):
        raise Refused(f"{source.folder}: {path} holds data that must not be used")
    found = hashlib.sha256(content).hexdigest()
    wanted = source.files.get(path)
    if wanted is None:
        raise Refused(f"{source.folder}: {path} is not on the list of files to use")
    if found != wanted:
        raise Refused(f"{source.folder}: {path} has the SHA-256 {found[:16]}…, pinned is {wanted[:16]}…")
    return content


def held(distribution: str, path: str) -> bytes:
    """A fetched file.

    Args:
        distribution: a package of the allow-list.
        path: of the file in it.

    Raises:
        Unavailable: where it was not fetched, or is not the pinned file any more; the message says what to do.
    """
    file = file_of(distribution, path)
    return _held(distribution, path, file, _stamp(file))


def file_of(distribution: str, path: str) -> Path:
    """Where a file of the allow-list lies in the cache, once it was fetched."""
    return cache_folder() / sources()[distribution].folder / path


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        known = file.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size


@cache
def _held(distribution: str, path: str, file: Path, stamp: tuple[int, int] | None) -> bytes:
    """The bytes of a file, read once for each state that it is seen in."""
    source = sources()[distribution]
    try:
        return checked(source, path, file.read_bytes())
    except OSError:
        raise Unavailable(f"the public data of level B is not here ({source.folder}); {FETCH}") from None
    except Refused as refused:
        raise Unavailable(f"{refused}; {FETCH} to get it anew") from None


def complete(folder: Path, source: Source) -> bool:
    """Whether a cache holds every file of a package, each as pinned."""
    try:
        for path in source.files:
            checked(source, path, (folder / source.folder / path).read_bytes())
    except (OSError, Refused):
        return False
    return True
