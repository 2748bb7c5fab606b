"""A run folder: what a session leaves behind, each file written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from pytest_llmbench.records import Record, Transcript, now
from pytest_llmbench.spec import Delivery

MANIFEST, PLAN, REPORT, ENVIRONMENT, EVENTS = (
    "manifest.json",
    "plan.json",
    "report.json",
    "environment.json",
    "events.jsonl",
)


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
            folder._lock.acquire(timeout=0)
        except Timeout:
            raise StoreError(
                f"{path} is being written by another session. "
                "Wait for it, or name another folder with --llm-report-dir."
            ) from None
        except OSError as error:
            raise StoreError(
                f"{path} cannot be written ({error.strerror or error}). "
                "Name a folder you can write with --llm-report-dir."
            ) from None
        if (path / MANIFEST).exists():
            folder.release()
            raise StoreError(
                f"{path} already holds a run. Name another folder with --llm-report-dir, or remove this one; "
                f"its transcripts can be graded again with --llm-model=replay:{path}."
            )
        return folder

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
        target = self.path / name
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(text.encode("utf-8", "backslashreplace"))
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise _refused(target, error) from None
        return target

    def wire(self, stem: str) -> BinaryIO:
        """An open, unbuffered file for the bytes of a node's replies as they come in."""
        target = self.path / "transcripts" / f"{stem}.wire"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            return target.open("wb", buffering=0)
        except OSError as error:
            raise _refused(target, error) from None

    def event(self, kind: str, **fields: object) -> None:
        """Append one event with its time to ``events.jsonl``."""
        line = json.dumps({"at": now(), "event": kind, **fields}, sort_keys=True, ensure_ascii=True, allow_nan=False)
        try:
            with (self.path / EVENTS).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
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


def _refused(target: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{target} cannot be written ({error.strerror or error}). What was measured before is kept; "
        "make room or name another folder with --llm-report-dir."
    )


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object.

    Raises:
        StoreError: where it is missing, torn or no object.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{path} is missing; is this the folder of a run?") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise StoreError(f"{path} holds no JSON object")
    return document


def escaped(text: str) -> str:
    """``text`` with half surrogate pairs written as escapes, so that it can be encoded."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
