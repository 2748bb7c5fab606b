"""A run folder: what a session leaves behind, each file written whole or not at all."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from pytest_llmbench.records import Record, Transcript
from pytest_llmbench.spec import Delivery
from pytest_llmbench.store.events import EVENTS, append_line, event_line

MANIFEST, PLAN, REPORT, ENVIRONMENT = (
    "manifest.json",
    "plan.json",
    "report.json",
    "environment.json",
)
RECORDS = "records"
DECISIONS = "decisions"
"""Folder of what the workers of one session agreed on."""
TOKEN = ".token"
"""File by which the workers of one session see whether their disk is the controller's."""
HALF_WRITTEN = ".part"
"""Ending of a file that is not whole yet; no reader looks at such files."""
IRREPLACEABLE = ("transcripts/", MANIFEST, PLAN)
"""What cannot be made again from the rest: it is on the disk itself, not only in its cache, when it is in place."""

Document = TypeVar("Document", bound=BaseModel)


class StoreError(Exception):
    """A run folder cannot be written or read: the message names the path and the way out."""


def node_stem(item: str, variant: int, run: int, ref: str) -> str:
    """File name of a node without ending: readable, safe on every file system, one to one with its key."""
    slug = re.sub(r"[^A-Za-z0-9.]+", "_", ref)[:40]
    return f"{item}-v{variant}-run{run}-{slug}-{hashlib.sha256(ref.encode()).hexdigest()[:8]}"


def dump(document: Mapping[str, Any]) -> str:
    """JSON as every file has it: sorted, ASCII only (so that no text can break it), without NaN."""
    return json.dumps(document, sort_keys=True, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


class RunFolder:
    """A run folder that this session, or the session this worker belongs to, writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / ".lock")

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Make the folder and lock it for this session.

        Raises:
            StoreError: where it cannot be written, is in use by another session or already holds a run.
        """
        folder = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _no_folder(path, error) from None
        folder._take("Wait for it, or name another folder with --llm-report-dir.")
        if (path / MANIFEST).exists():
            folder.release()
            raise StoreError(
                f"{path} already holds a run. Go on with it by --llm-resume={path}, name another folder with "
                f"--llm-report-dir, or remove this one."
            )
        for left in path.glob(f".{MANIFEST}.*{HALF_WRITTEN}"):
            left.unlink(missing_ok=True)
        return folder

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """Lock a folder that holds a run; what a killed session left half-written, or to itself, goes.

        Raises:
            StoreError: where it holds no run, cannot be written or is in use by another session or command.
        """
        read_json(path / MANIFEST)
        folder = cls(path)
        folder._take("Wait for it.")
        for left in path.rglob(".*" + HALF_WRITTEN):
            left.unlink(missing_ok=True)
        folder.part()
        return folder

    def part(self) -> None:
        """Remove what the workers of one session have in common and no other session needs."""
        (self.path / TOKEN).unlink(missing_ok=True)
        shutil.rmtree(self.path / DECISIONS, ignore_errors=True)

    def _take(self, way_out: str) -> None:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise StoreError(f"{self.path} is being written by another session or command. {way_out}") from None
        except OSError as error:
            raise _no_folder(self.path, error) from None

    def agree(self, name: str, decide: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """What the first of a session's workers decided about ``name``; the first one decides.

        Raises:
            StoreError: where the disk refuses it.
        """
        try:
            (self.path / DECISIONS).mkdir(exist_ok=True)
            with FileLock(self.path / DECISIONS / ".lock"):
                if not (self.path / DECISIONS / name).exists():
                    self.write(f"{DECISIONS}/{name}", decide())
                return read_json(self.path / DECISIONS / name)
        except OSError as error:
            raise _refused(self.path / DECISIONS / name, error) from None

    def archive(self, stem: str, into: str) -> bool:
        """Move everything of a node into ``archive/<into>/``; whether there was anything.

        Raises:
            StoreError: where the disk refuses it.
        """
        name = f"{glob.escape(stem)}.*"
        found = [
            *(path for kind in ("transcripts", "records") for path in (self.path / kind).glob(name)),
            *(path for path in [self.path / "deliveries" / stem] if path.is_dir()),
        ]
        for path in found:
            target = self.path / "archive" / into / path.relative_to(self.path)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
            except OSError as error:
                raise _refused(target, error) from None
        return bool(found)

    def release(self) -> None:
        """Unlock the folder."""
        self._lock.release()

    def write(self, name: str, document: BaseModel | Mapping[str, Any]) -> Path:
        """Write one JSON file atomically.

        Raises:
            StoreError: where the disk refuses it; what was written before stays.
        """
        data = document.model_dump(mode="json", by_alias=True) if isinstance(document, BaseModel) else document
        return self.write_text(name, dump(data))

    def write_compact(self, name: str, document: BaseModel) -> Path:
        """Write one JSON file atomically, on one line: for what is written again and again."""
        return self.write_text(name, document.model_dump_json(by_alias=True) + "\n")

    def write_text(self, name: str, text: str) -> Path:
        """Write one text file atomically, in UTF-8; what cannot be encoded is written as an escape."""
        return self.write_bytes(name, text.encode("utf-8", "backslashreplace"))

    def write_bytes(self, name: str, content: bytes) -> Path:
        """Write one file atomically.

        Raises:
            StoreError: where the disk refuses it; what was written before stays.
        """
        target = self.path / name
        temporary = target.with_name(f".{target.name}.{os.getpid()}{HALF_WRITTEN}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(content)
                if name.startswith(IRREPLACEABLE):
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise _refused(target, error) from None
        return target

    def take_away(self) -> dict[str, bytes]:
        """Every file by its name, removed from the disk: what another folder is to be given. Records go another way,
        and decisions stay with who made them."""
        inside = (
            path
            for kind in self.path.iterdir()
            if kind.name not in (RECORDS, DECISIONS)
            for path in (kind, *kind.rglob("*"))
        )
        paths = sorted(path for path in inside if path.is_file())
        files = {path.relative_to(self.path).as_posix(): path.read_bytes() for path in paths}
        for path in paths:
            path.unlink()
        return files

    def take_in(self, files: Mapping[str, bytes]) -> None:
        """Write what was taken away from another folder; its events are added to those that are here.

        Raises:
            StoreError: for a name that leads out of the folder, or where the disk refuses it.
        """
        for name, content in files.items():
            if not (self.path / name).resolve().is_relative_to(self.path.resolve()):
                raise StoreError(f"{name!r} leads out of the run folder; nothing of it was written.")
            if name == EVENTS:
                for line in content.splitlines(keepends=True):
                    self._append(line)
            else:
                self.write_bytes(name, content)

    def wire(self, stem: str, *, more: bool = False) -> BinaryIO:
        """An open, unbuffered file for the bytes of a node's replies as they come in; ``more``: behind those before."""
        target = self.path / "transcripts" / f"{stem}.wire"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            return target.open("ab" if more else "wb", buffering=0)
        except OSError as error:
            raise _refused(target, error) from None

    def event(self, kind: str, /, **fields: object) -> None:
        """Append one event with its time to ``events.jsonl``; its type is registered in ``store.events``.

        Raises:
            EventError: where type or fields are not registered.
            StoreError: where the disk refuses it.
        """
        self._append(event_line(kind, fields))

    def _append(self, line: bytes) -> None:
        try:
            append_line(self.path / EVENTS, line)
        except OSError as error:
            raise _refused(self.path / EVENTS, error) from None

    def write_delivery(self, stem: str, delivery: Delivery) -> None:
        """Write what the reply was taken apart into; only file names that the item asked for occur."""
        self.write(
            f"deliveries/{stem}/delivery.json",
            {
                "schema": "llmbench.delivery/1",
                "answers": {key: escaped(answer.raw) for key, answer in delivery.answers.items()},
                "files": sorted(delivery.files),
                "versions": {name: [escaped(text) for text in texts] for name, texts in delivery.versions.items()},
                "flags": list(delivery.flags),
                "repairs": list(delivery.repairs),
                "unknown_files": [escaped(name) for name in delivery.unknown_files],
                "no_answer": delivery.no_answer,
                "work": None if delivery.work is None else asdict(delivery.work),
            },
        )
        for name, text in delivery.files.items():
            self.write_text(f"deliveries/{stem}/files/{name}", text)

    def write_record(self, record: Record) -> None:
        self.write(f"records/{node_stem(record.item, record.variant, record.run, record.ref)}.json", record)

    def records(self) -> Iterator[dict[str, Any]]:
        """Every record on disk as plain data, in file name order."""
        for path in sorted((self.path / "records").glob("*.json")):
            yield read_json(path)

    def transcripts(self) -> Iterator[Transcript]:
        """Every saved transcript, in file name order.

        Raises:
            StoreError: where one is torn or of another schema.
        """
        for path in sorted((self.path / "transcripts").glob("*.json")):
            saved = self.transcript(path.stem)
            if saved is not None:
                yield saved

    def record(self, stem: str) -> Record | None:
        """The record of a node, None where there is none.

        Raises:
            StoreError: where the file is torn or of another schema.
        """
        path = self.path / "records" / f"{stem}.json"
        return _model(path, Record) if path.exists() else None

    def transcript(self, stem: str) -> Transcript | None:
        """The saved transcript of a node, None where there is none.

        Raises:
            StoreError: where the file is torn or of another schema.
        """
        path = self.path / "transcripts" / f"{stem}.json"
        return _model(path, Transcript) if path.exists() else None


def _model(path: Path, kind: type[Document]) -> Document:
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        raise StoreError(
            f"{path}: not a {kind.__name__.lower()} this version can read: {error.errors()[0]['msg']}"
        ) from None


def _no_folder(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{path} cannot be written ({error.strerror or error}). Name a folder you can write with --llm-report-dir."
    )


def _refused(target: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{target} cannot be written ({error.strerror or error}). What was measured before is kept; "
        "make room or name another folder with --llm-report-dir."
    )


def write_piece(file: BinaryIO, piece: bytes) -> None:
    """Write bytes into an open file of a run folder.

    Raises:
        StoreError: where the disk refuses them or takes only a part.
    """
    try:
        if file.write(piece) != len(piece):
            raise OSError("the disk took only a part of a reply")
    except OSError as error:
        raise _refused(Path(file.name), error) from None


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object.

    Raises:
        StoreError: where it is missing, torn or no object.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_with_shared_names)
    except FileNotFoundError:
        raise StoreError(f"{path} is missing; is this the folder of a run?") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise StoreError(f"{path} holds no JSON object")
    return document


def _with_shared_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are the same strings in every file, which halves the memory of many records."""
    return {sys.intern(name): value for name, value in pairs}


def escaped(text: str) -> str:
    """``text`` with half surrogate pairs written as escapes, so that it can be encoded."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
