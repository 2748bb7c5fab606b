"""Faults of an agent item's tools: a hand-written schedule per run, the same for every model."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from pytest_llmbench.spec import Strict

FaultKind = Literal["timeout", "malformed", "deceptive"]
FAULTS_FILE = "faults.toml"
NEVER_FAULTY = "finish"
GARBAGE = "\ufffd\ufffd\ufffd"
"""What the rest of a malformed result looks like: bytes that nobody could decode."""


class FaultsError(Exception):
    """A schedule cannot be used: the message names file, run and field."""


class Fault(Strict):
    """One fault: armed from a call on, fires at the first call of its tool from there."""

    call: Annotated[int, Field(ge=1)]
    """Number of the call it is armed from."""
    kind: FaultKind
    tool: str | None = None
    """None: any tool but ``finish``."""


class _Run(Strict):
    faults: tuple[Fault, ...]


class _Document(Strict):
    run: Annotated[tuple[_Run, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Schedule:
    """The faults of one run of an item."""

    faults: tuple[Fault, ...] = ()
    reused_from: int | None = None
    """The written run these faults were taken from, where none are written for this run itself."""


@dataclass(frozen=True)
class Plan:
    """Every written schedule of an item, by run from 1."""

    runs: tuple[tuple[Fault, ...], ...] = ()

    def schedule(self, run: int) -> Schedule:
        """The schedule of a run (from 1). Runs beyond the written ones take those in order."""
        if not self.runs:
            return Schedule()
        written = (run - 1) % len(self.runs) + 1
        return Schedule(self.runs[written - 1], None if written == run else written)


def load_plan(path: Path, tools: Sequence[str]) -> Plan:
    """Read a ``faults.toml``; a file that is not there is a plan without faults.

    Args:
        path: the file.
        tools: the tools of the item.

    Raises:
        FaultsError: for a file that cannot be read, an unknown key or value, a tool the item does not have.
    """
    if not path.exists():
        return Plan()
    try:
        document = _Document.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FaultsError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        wrong = "; ".join(f"{_place(fault['loc'])}: {fault['msg']}" for fault in error.errors())
        raise FaultsError(f"{path}: {wrong}") from None
    able = [tool for tool in tools if tool != NEVER_FAULTY]
    for number, run in enumerate(document.run, 1):
        for place, fault in enumerate(run.faults, 1):
            if fault.tool is not None and fault.tool not in able:
                raise FaultsError(
                    f"{path}: run {number}, faults {place}, tool: {fault.tool!r} is none of {', '.join(able)}"
                )
    return Plan(tuple(run.faults for run in document.run))


def _place(location: Sequence[int | str]) -> str:
    """``("run", 1, "faults", 0, "kind")`` → ``run 2, faults 1, kind``."""
    words = [f" {part + 1}" if isinstance(part, int) else f", {part}" for part in location]
    return "".join(words).removeprefix(", ") or "file"


@dataclass
class ArmedFault:
    """A fault and the number of the call it fired at."""

    fault: Fault
    fired_at: int | None = None


@dataclass
class Armed:
    """The faults of one conversation and what became of them. At most one fires per call, and each at most once."""

    schedule: Schedule = field(default_factory=Schedule)

    def __post_init__(self) -> None:
        self.faults = [ArmedFault(fault) for fault in self.schedule.faults]

    def due(self, number: int, tool: str) -> list[ArmedFault]:
        """The faults that may fire at call ``number``, which is one of ``tool``; the one armed first stands first."""
        if tool == NEVER_FAULTY or any(armed.fired_at == number for armed in self.faults):
            return []
        waiting = [
            armed
            for armed in self.faults
            if armed.fired_at is None and armed.fault.call <= number and armed.fault.tool in (None, tool)
        ]
        return sorted(waiting, key=lambda armed: armed.fault.call)


def malformed(result: str) -> str:
    """A result that broke off half way and ends in garbage; never equal to the true one."""
    return result[: len(result) // 2] + GARBAGE
