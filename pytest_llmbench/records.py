"""What a run folder holds, as pydantic models: the published schemas are made from these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer

from pytest_llmbench.spec import Level, Mode, RowKind

Status = Literal[
    "measured",
    "not_converged",
    "runtime_error",
    "not_installed",
    "client_error",
    "unsupported",
    "prompt_truncated",
    "deadline",
    "harness_error",
]
SCORED: frozenset[str] = frozenset({"measured", "not_converged"})
BROKEN: frozenset[str] = frozenset(
    {"runtime_error", "not_installed", "client_error", "prompt_truncated", "harness_error"}
)
"""Statuses that say that something broke: their nodes fail. The other unmeasured ones are skipped."""

Number = Annotated[Decimal, PlainSerializer(float, return_type=float, when_used="json")]
"""Exact in the program, a plain JSON number on disk."""


class Saved(BaseModel):
    """Base of everything that is written: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(Saved):
    """One row of a record."""

    id: str
    title: str
    points: Number
    earned: Number
    kind: RowKind
    evidence: str
    parts: int | None = None
    """Alike parts that the row checks; None where it has none."""
    right: int | None = None
    """How many of them were right."""


class CapUse(Saved):
    """How much of a cap a node used."""

    used: float
    cap: float
    share: float


class Fingerprints(Saved):
    """What a reply depends on (``request``), and what its grading depends on (the others)."""

    request: str
    parts: Mapping[str, str]
    """The parts of the request's fingerprint, so that a difference can be named."""
    item: str
    grader: str
    harness: str
    bank: str


class Speed(Saved):
    """Times of a node. Prompt speed is None where the cache helped or the runtime does not say."""

    load_s: float | None = None
    cold: bool | None = None
    ttft_s: float | None = None
    ttfa_s: float | None = None
    prompt_tokens_per_s: float | None = None
    prompt_speed: Literal["cold", "cache_assisted", "unknown"] = "unknown"
    generation_tokens_per_s: float | None = None


class Conditions(Saved):
    """State of the machine when a node ran; None where it cannot be read."""

    swap_used_mb: float | None = None
    memory_available_mb: float | None = None
    load_1min: float | None = None
    on_battery: bool | None = None


class TokenUse(Saved):
    """Tokens and seconds of all calls of a node."""

    calls: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    elapsed_s: float = 0.0


class FaultRecord(Saved):
    """One fault of the schedule and what became of it."""

    call: int
    """Call it was armed from."""
    kind: str
    tool: str | None
    fired_at: int | None
    """Call it fired at; None: never."""


class AgentRecord(Saved):
    """How the conversation of an agent item went."""

    end: str
    """``finish``, or the name of the limit that ended it."""
    turns: int
    calls: int
    spent: int
    counters: Mapping[str, int]
    """What was counted beside the calls: problems by kind, ``invented_results``, ``extra_calls``, ``cut_chars``."""
    faults: Sequence[FaultRecord]
    faults_reused_from: int | None = None
    """Run whose schedule this run took, where none is written for it."""


class Again(Saved):
    """The same instance, asked a second time with the same seed (``--llm-determinism``)."""

    equal_text: bool | None
    """Whether every reply is the same, character by character; None where nothing came of the second time."""
    tokens: int | None
    """Reply tokens of the first time; None where the runtime does not say."""
    tokens_again: int | None
    points: Number | None
    """Points of the first time."""
    points_again: Number | None
    reason: str | None = None
    """Why nothing came of the second time."""


class Record(Saved):
    """The result of one node."""

    schema_: Literal["llmbench.record/1"] = "llmbench.record/1"
    item: str
    title: str
    item_version: str
    level: Level
    mode: Mode
    variant: int
    run: int
    ref: str
    status: Status
    reason: str | None = None
    points: Number | None
    points_max: Number
    rows: Sequence[Row]
    flags: Sequence[str] = ()
    repairs: Sequence[str] = ()
    confinement: str | None = None
    """Layer that confined what was delivered; ``unconfined`` scores never rank; None where nothing was run."""
    stop_reason: str | None = None
    usage: TokenUse = TokenUse()
    speed: Speed = Speed()
    caps: Mapping[str, CapUse] = {}
    edge: Sequence[str] = ()
    """Caps of which 80 % or more was used."""
    agent: AgentRecord | None = None
    """For an item of mode ``agent``."""
    again: Again | None = None
    """None where the node was measured once."""
    clock_jump_s: float | None = None
    """Seconds by which the clock jumped while the node was measured, as on a machine that slept: the points stand, the
    times of this run mean nothing. None where it did not."""
    concurrency: int = 1
    """Requests that its endpoint was allowed to get at a time."""
    conditions: Conditions = Conditions()
    profile: str
    sampling: str
    think: str | None
    fingerprints: Fingerprints
    harness_version: str
    bank_version: str
    started: str
    finished: str

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=lambda name: name.rstrip("_"), populate_by_name=True
    )


class Step(Saved):
    """What the harness made of one reply of an agent."""

    number: int | None = None
    """Number of the call that was run; None where none was."""
    tool: str | None = None
    failed: bool = False
    fault: str | None = None
    """Kind of the fault that fired at this call."""
    cost: int = 0
    problem: str | None = None
    """Why no call was run, such as ``truncated_call``."""
    ran: str | None = None
    """True output of a program that was run, which cannot be computed again from the transcript."""
    cut_chars: int = 0
    """Characters behind the call, which were neither run nor kept."""
    extra_calls: int = 0
    invented_results: int = 0
    repairs: Sequence[str] = ()


class Turn(Saved):
    """One message of a transcript."""

    role: Literal["system", "user", "assistant"]
    content: str
    thinking: str = ""
    thinking_field: str | None = None
    stop_reason: str | None = None
    server_stop: str | None = None
    served_model: str | None = None
    usage: Mapping[str, Any] | None = None
    flags: Sequence[str] = ()
    images: Sequence[str] = ()
    """SHA-256 of the PNG files that went with it, in order; they are drawn again from the item, variant and run."""
    step: Step | None = None
    """For a reply of an agent."""


class Transcript(Saved):
    """Everything said between harness and runtime, verbatim. Written before anything is parsed."""

    schema_: Literal["llmbench.transcript/1"] = "llmbench.transcript/1"
    item: str
    variant: int
    run: int
    ref: str
    turns: Sequence[Turn]
    failure: Mapping[str, str] | None = None
    """Status and reason where the conversation broke off unmeasured."""
    end: str | None = None
    """For an agent: ``finish``, or the name of the limit that ended the conversation."""
    max_tokens: int
    context: int | None
    seed: int
    fingerprints: Mapping[str, str]
    started: str
    finished: str

    model_config = Record.model_config


@dataclass(frozen=True)
class Left:
    """What an earlier session left of one node."""

    transcript: Transcript | None = None
    """The whole conversation about the same request; it is taken instead of asking again."""
    record: Record | None = None
    """Its record, where today's code would grade it the same way; it is kept as it is."""
    why: str | None = None
    """Why the node is measured again; None where the transcript is good."""


def now() -> str:
    """UTC with an offset, to the millisecond."""
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="milliseconds")
