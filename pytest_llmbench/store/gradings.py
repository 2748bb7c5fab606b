"""A new grading of a run folder: built beside the old one, then put in its place; the old one is kept for ever.

``.regrading`` holds what is under way. Until its ``commit.json`` is there, nothing of the run has changed and what lies
there is worth nothing. From then on it is a list of moves that can be done again: whoever finds it, finishes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from pytest_llmbench.store.folder import MANIFEST, PLAN, REPORT, RunFolder, StoreError, read_json

STAGING, GRADINGS, COMMIT, MOVES = ".regrading", "gradings", "commit.json", "moves.json"
PAGE = "report.html"
ARCHIVE = "archive"
"""Copy of the old grading, while it is under way."""
SCHEMA = "llmbench.regrading/1"


class Staging:
    """The new grading of a run folder that this process has locked."""

    def __init__(self, run: RunFolder, second: str) -> None:
        """Nothing is made or changed yet.

        Args:
            run: the folder.
            second: sub-folder of the deliveries of a second asking.
        """
        self.run = run
        self._places = ("", second)
        self.folder = RunFolder(run.path / STAGING)
        """Records and deliveries of the new grading, as a run folder has them."""
        self._archive = RunFolder(self.folder.path / ARCHIVE)

    def begin(self) -> None:
        """Make an empty folder for what is under way.

        Raises:
            StoreError: where the disk refuses it.
        """
        self.clear()
        try:
            self.folder.path.mkdir()
        except OSError as error:
            raise StoreError(f"{self.folder.path} cannot be written ({error.strerror or error}).") from None

    def changes_delivery(self, stem: str) -> bool:
        """Whether a new delivery of a node differs from the old one in any byte."""
        new, old = self.folder.path / "deliveries", self.run.path / "deliveries"
        return any(
            _files(new / place / stem) != _files(old / place / stem)
            for place in self._places
            if not place or (new / place / stem).is_dir()
        )

    def commit(self, stems: list[str], documents: Mapping[str, BaseModel], moves: BaseModel) -> str:
        """Copy the old grading and settle on the new one; it is not in its place yet.

        Args:
            stems: the nodes whose grading changes; their records are staged.
            documents: ``manifest.json`` and ``plan.json`` where they change.
            moves: what moved, for ``moves.json``.

        Returns:
            The name of the folder below ``gradings`` that will hold the old grading.

        Raises:
            StoreError: where the disk refuses it; nothing of the run has changed then.
        """
        try:
            self._copy_old(stems)
        except OSError as error:
            raise StoreError(
                f"{self._archive.path}: the old grading cannot be copied ({error.strerror or error}); "
                "nothing was changed."
            ) from None
        self._archive.write(MOVES, moves)
        for name, document in documents.items():
            self.folder.write(name, document)
        grading = self._free_name()
        delivered = {stem: (self.folder.path / "deliveries" / stem).is_dir() for stem in stems}
        self.folder.write(COMMIT, {"schema": SCHEMA, "grading": grading, "delivered": delivered})
        return grading

    @property
    def settled(self) -> bool:
        """Whether there is a grading that was settled on and has still to be put in place."""
        return (self.folder.path / COMMIT).exists()

    def put_in_place(self) -> str | None:
        """Put the new grading in the place of the old one, or finish doing so.

        Returns:
            The name of the folder below ``gradings`` that holds the old grading; None where nothing was settled on.

        Raises:
            StoreError: where the disk refuses it; calling it again goes on.
        """
        if not self.settled:
            return None
        settled = read_json(self.folder.path / COMMIT)
        target = self.run.path / GRADINGS / settled["grading"]
        try:
            if self._archive.path.is_dir():
                target.parent.mkdir(exist_ok=True)
                self._archive.path.rename(target)
            for stem, delivered in settled["delivered"].items():
                self._replace_node(stem, delivered)
            for name in (MANIFEST, PLAN):
                _move(self.folder.path / name, self.run.path / name)
        except OSError as error:
            raise StoreError(
                f"{self.run.path} cannot be written ({error.strerror or error}). The old grading is kept in {target}; "
                "make room and call `llmbench regrade` again, which goes on from here."
            ) from None
        return str(settled["grading"])

    def clear(self) -> None:
        """Remove what is under way."""
        (self.folder.path / COMMIT).unlink(missing_ok=True)
        shutil.rmtree(self.folder.path, ignore_errors=True)

    def _replace_node(self, stem: str, delivered: bool) -> None:
        """The record is moved last: while it is still here, the node is not finished."""
        record = self.folder.path / "records" / f"{stem}.json"
        if not record.exists():
            return
        for place in self._places:
            new, old = (folder.path / "deliveries" / place / stem for folder in (self.folder, self.run))
            if old.exists() and (new.exists() or not (place or delivered)):
                shutil.rmtree(old)
            _move(new, old)
        _move(record, self.run.path / "records" / record.name)

    def _copy_old(self, stems: list[str]) -> None:
        old, archive = self.run.path, self._archive.path
        (archive / "records").mkdir(parents=True)
        for path in sorted((old / "records").glob("*.json")):
            shutil.copyfile(path, archive / "records" / (path.name if self._readable(path) else f"{path.name}.torn"))
        for stem in stems:
            for place in self._places:
                if (old / "deliveries" / place / stem).is_dir():
                    shutil.copytree(old / "deliveries" / place / stem, archive / "deliveries" / place / stem)
        for name in (MANIFEST, PLAN, REPORT, PAGE):
            if (old / name).exists():
                shutil.copyfile(old / name, archive / name)

    def _readable(self, record: Path) -> bool:
        try:
            return self.run.record(record.stem) is not None
        except StoreError:
            return False

    def _free_name(self) -> str:
        stamp = name = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        number = 1
        while (self.run.path / GRADINGS / name).exists():
            number += 1
            name = f"{stamp}-{number}"
        return name


def check_in_place(run: Path) -> None:
    """Refuse a run folder in which old and new records stand side by side.

    Raises:
        StoreError: where a new grading was settled on and is not wholly in its place.
    """
    if (run / STAGING / COMMIT).exists():
        raise StoreError(
            f"{run}: a new grading was cut off while it was put in place. Call `llmbench regrade {run}`, which "
            "finishes it."
        )


def _move(source: Path, target: Path) -> None:
    """Move a file or a folder, unless that was done already."""
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)


def _files(folder: Path) -> dict[str, bytes]:
    """The bytes of every file below a folder, by name; nothing where there is no folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
