"""Fingerprints: what a reply depends on, what its grading depends on, and what follows when they differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path


def fingerprint(value: object) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


@cache
def code_fingerprint(folder: Path) -> str:
    """SHA-256 over the Python files of a package folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


@dataclass(frozen=True)
class Reuse:
    """What a saved result is good for under the current settings."""

    reply: bool
    """The reply is the one the current request would get."""
    differs: tuple[str, ...]
    """Parts of the request that differ, by name."""
    regrade: bool
    """The reply can be used, the grading is another one."""


def compare(
    saved: Mapping[str, object], current: Mapping[str, object], saved_grader: str, current_grader: str
) -> Reuse:
    """Hold the parts of a saved request against the current ones."""
    differs = tuple(sorted(name for name in {*saved, *current} if saved.get(name) != current.get(name)))
    return Reuse(not differs, differs, not differs and saved_grader != current_grader)
