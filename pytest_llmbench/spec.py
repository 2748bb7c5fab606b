"""What an item is: its specification, an instance of it, what a model leaves behind and what a grader says.

Everything an item's ``task.py`` needs is here, and nothing here knows pytest, a server or a single item.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

Level = Literal["A", "B", "C", "M", "own"]
Mode = Literal["single", "agent"]
RowKind = Literal["hygiene", "check"]
AnswerFormat = Literal["integer", "decimal"]
ToolName = Literal["list_files", "read_file", "write_file", "run_tests", "http_get", "sql", "finish"]

HYGIENE_ROWS = ("files", "syntax")
"""The rows that the machinery judges for an item that runs what was delivered."""

ItemId = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9_.]{0,39}$")]
RowId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
ReferenceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,59}$")]
AnswerKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,20}$")]
Capability = Literal["vision"]
Version = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]


def _plain_file_name(name: str) -> str:
    if name.startswith(("/", ".")) or ".." in name.split("/") or not name.isprintable() or set(name) & set('\\:*?"<>|'):
        raise ValueError(f"{name!r} is not a plain relative file name")
    return name


FileName = Annotated[str, StringConstraints(min_length=1, max_length=120), AfterValidator(_plain_file_name)]
Points = Annotated[Decimal, Field(gt=0, le=10_000)]


class Strict(BaseModel):
    """Base of all specifications: unknown keys are errors, values cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RowSpec(Strict):
    """One independent check of an item."""

    id: RowId
    title: str = Field(min_length=1)
    points: Points
    kind: RowKind = "check"
    parts: int | None = Field(default=None, gt=0)
    """Alike parts that the row checks and that must all be right; how many were is told beside its points."""


class AnswersSpec(Strict):
    """The answers an item asks for; the harness states their form in the prompt."""

    keys: tuple[AnswerKey, ...] = Field(min_length=1)
    format: AnswerFormat = "integer"


class CapsSpec(Strict):
    """Caps of an item that are smaller than the profile's. A cap can only be lowered."""

    max_tokens: int | None = Field(default=None, gt=0)


class ReferenceSpec(Strict):
    """A defective reference: the rows it loses and what is left for it."""

    why: str = Field(min_length=1)
    """What is wrong with the delivery."""
    points: Annotated[Decimal, Field(ge=0)]
    """Its exact score."""
    loses: tuple[RowId, ...]
    """Every row that it does not earn in full."""


class ItemSpec(Strict):
    """One task of the bank, as its ``item.toml`` or its entry in an ``items.toml`` states it."""

    id: ItemId
    title: str = Field(min_length=1)
    version: Version
    level: Level
    mode: Mode
    points: Points
    rows: tuple[RowSpec, ...] = Field(min_length=1)
    files: tuple[FileName, ...] = ()
    answers: AnswersSpec | None = None
    caps: CapsSpec = CapsSpec()
    tools: tuple[ToolName, ...] = ()
    """For an item of mode ``agent``, in the order in which the model is told of them; ``finish`` is one of them."""
    runs_code: bool = False
    """Grading runs what was delivered: it needs a sandbox. Where files are asked for, the machinery judges the two
    hygiene rows; where none are, the item takes the code from the reply itself and has no such row."""
    group: ItemId | None = None
    """The set, template or design of alike items that it is one of; they share its side folders."""
    needs: tuple[Capability, ...] = ()
    """What a model must be able to take; for a model that cannot, the item is unsupported."""
    once: bool = False
    """Its instance is the same in every run, such as a published question: it is measured in run 1 only."""
    references: Mapping[ReferenceName, ReferenceSpec] = Field(default_factory=dict)
    data: Mapping[str, Any] = Field(default_factory=dict)
    """Free for the item's own ``task.py``; the machinery does not look inside."""

    @model_validator(mode="after")
    def _rows_and_references_agree(self) -> ItemSpec:
        total = sum((row.points for row in self.rows), Decimal(0))
        if total != self.points:
            raise ValueError(f"item {self.id}: the rows sum to {total} points, the item declares {self.points}")
        ids = [row.id for row in self.rows]
        if repeated := sorted({row for row in ids if ids.count(row) > 1}):
            raise ValueError(f"item {self.id}: row ids are used twice: {', '.join(repeated)}")
        hygiene = sum((row.points for row in self.rows if row.kind == "hygiene"), Decimal(0))
        if hygiene > 2:
            raise ValueError(f"item {self.id}: the hygiene rows sum to {hygiene} points, at most 2 are allowed")
        if (self.mode == "agent") != ("finish" in self.tools) or len(set(self.tools)) != len(self.tools):
            raise ValueError(f"item {self.id}: an item of mode agent, and no other, names its tools, finish among them")
        if self.runs_code:
            self._has_hygiene_rows()
        by_id = {row.id: row.points for row in self.rows}
        for name, reference in self.references.items():
            if unknown := sorted(set(reference.loses) - set(by_id)):
                raise ValueError(f"item {self.id}: reference {name} loses unknown rows: {', '.join(unknown)}")
            least = self.points - sum((by_id[row] for row in set(reference.loses)), Decimal(0))
            if not least <= reference.points < self.points:
                raise ValueError(
                    f"item {self.id}: reference {name} declares {reference.points} points, which losing "
                    f"{', '.join(reference.loses) or 'no row'} out of {self.points} cannot give"
                )
        return self

    @property
    def needs_sandbox(self) -> bool:
        """Whether something that a model wrote is run: in grading, or by one of its tools."""
        return self.runs_code or "run_tests" in self.tools

    def _has_hygiene_rows(self) -> None:
        hygiene = {row.id for row in self.rows if row.kind == "hygiene"}
        if not self.files and not hygiene:
            return
        if hygiene not in ({HYGIENE_ROWS[0]}, set(HYGIENE_ROWS)) or not self.files:
            found = ", ".join(sorted(hygiene)) or "none"
            raise ValueError(
                f"item {self.id}: an item with runs_code asks for files and has the hygiene rows "
                f"{' and '.join(HYGIENE_ROWS)}, or the first of them for both, not {found}"
            )


Seed = random.Random


class Unavailable(Exception):
    """An instance cannot be built here, such as for want of data that is not ours: the message says how to get it."""


@dataclass(frozen=True)
class Instance:
    """An item built for a variant and a run: the same for every model."""

    spec: ItemSpec
    variant: int
    run: int
    prompt: str
    """The task in words, without the answer form, which the harness adds."""
    answers: Mapping[str, int | Decimal] = field(default_factory=dict)
    """Expected value per answer key; computed by program."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What the item's own grader needs to know about this instance."""
    images: tuple[bytes, ...] = ()
    """PNG files that go with the prompt, in order."""
    holds: Mapping[str, str] = field(default_factory=dict)
    """Per requested file a text without which it is not the file that was asked for, such as ``def settle``."""


@dataclass(frozen=True)
class Answer:
    """One answer as the model gave it. ``value`` is None where ``problem`` says why it is no number."""

    raw: str
    value: Decimal | None
    problem: str | None = None


@dataclass(frozen=True)
class CallMade:
    """One tool call that was run, or answered by a fault in the tool's place."""

    number: int
    """Counted from 1; calls that were not in the form are not counted."""
    tool: str
    arguments: Mapping[str, str]
    result: str
    """What the model got to see."""
    failed: bool = False
    """The model was told that the call failed."""
    fault: str | None = None
    """Kind of the fault that fired at this call."""


@dataclass(frozen=True)
class AgentWork:
    """What an agent did and what it left behind; what its words sound like is of no interest."""

    end: str
    """``finish``, or the name of the limit that ended the conversation."""
    statement: str | None
    """What it said when it called ``finish``."""
    calls: Sequence[CallMade]
    files: Mapping[str, str]
    """Every file of the work folder at the end."""
    database: Mapping[str, Any] | None
    """Every table at the end: ``{name: {"sql": …, "columns": […], "rows": [[…]]}}``."""
    spent: int = 0
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the item's own world noted down."""


@dataclass(frozen=True)
class Delivery:
    """What a transcript leaves behind once the thinking is removed and the reply is taken apart."""

    text: str = ""
    answers: Mapping[str, Answer] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Last version of every requested file that was delivered."""
    versions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """All versions of every file, oldest first."""
    flags: tuple[str, ...] = ()
    """What was noticed while parsing, such as ``unclosed_fence``."""
    unknown_files: tuple[str, ...] = ()
    """Names the model gave that the item did not ask for; never written."""
    repairs: tuple[str, ...] = ()
    no_answer: str | None = None
    """Why nothing was delivered, such as ``thinking_not_closed``; None where something was."""
    work: AgentWork | None = None
    """For an item of mode ``agent``."""


@dataclass(frozen=True)
class Verdict:
    """What a grader says of one row: earned in full, not at all, or an exact part of its points."""

    row: str
    earned: bool | Decimal
    evidence: str
    """What happened, in words that give no hidden case away."""
    hidden: str = ""
    """The hidden cases behind it, for ``--llm-show-hidden`` only."""
    right: int = 0
    """Parts that were right, for a row that has some."""


@dataclass(frozen=True)
class Reference:
    """A delivery whose exact score is known; the harness writes it in the frozen answer form."""

    answers: Mapping[str, int | str | Decimal] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None
    """The whole reply, verbatim, instead of the two above."""
    agent: Callable[[], Generator[Any, Any, None]] | None = None
    """For an item of mode ``agent``: a policy as in ``harness.scripted``, started afresh for each conversation."""


class Task(Protocol):
    """What an item's ``task.py`` provides (module-level functions). Every one of them is deterministic."""

    def build(self, item: Any, variant: int, run: int, seed: Seed) -> Instance:
        """Build the instance. All chance comes from ``seed``; ``item`` is the loaded item (``bank.Item``)."""

    def grade(self, instance: Instance, delivery: Delivery, *sandbox: Any) -> Sequence[Verdict]:
        """One verdict per row, in any order. Any delivery at all is graded without an exception.

        An item with ``runs_code`` also gets the sandbox of the session, as third argument, and a delivery that was
        repaired; its hygiene rows are judged already.
        """

    def golden(self, instance: Instance) -> Reference:
        """The delivery that earns every point."""

    def defects(self, instance: Instance) -> Mapping[str, Reference]:
        """Every defective reference that the specification declares, by name."""
