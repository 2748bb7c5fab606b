"""What moved between two gradings of a run, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Literal

from pytest_llmbench.campaign.measure import grader
from pytest_llmbench.records import Number, Record, Row, Saved, Status
from pytest_llmbench.store.fingerprints import fingerprint

Node = tuple[str, int, str]
"""Item, run, model."""

SHORT = 12
"""Characters of a fingerprint that are shown."""
THE_SAME_CODE = "the same code"
"""Cause of a row that moved though nothing that grades it differs: a defect of the grader."""


class MovedRow(Saved):
    """A row in one of two gradings."""

    points: Number
    earned: Number
    evidence: str


class Move(Saved):
    """A row that is not what it was."""

    node: str
    row: str
    before: MovedRow | None
    """None where the node was not measured, or the item had no such row."""
    after: MovedRow | None
    why: Sequence[str]

    @property
    def scores(self) -> bool:
        """Whether points moved, and not only the words of the evidence."""
        return _figures(self.before) != _figures(self.after)


class MovedNode(Saved):
    """A node whose record or delivery was written anew."""

    node: str
    status: tuple[Status | None, Status]
    """Before and after; None where there was no record that could be read."""
    points: tuple[Number | None, Number | None]
    why: Sequence[str]
    """The causes; for a node none of whose rows moved, what else is another than before."""


class Graders(Saved):
    """What a grading was made by."""

    harness: Mapping[str, str]
    bank: Mapping[str, str]
    grader: str


class Moves(Saved):
    """``moves.json`` of a grading that was replaced: what replaced it, and what moved by that."""

    schema_: Literal["llmbench.moves/1"] = "llmbench.moves/1"
    at: str
    before: Graders
    after: Graders
    nodes: Sequence[MovedNode]
    moves: Sequence[Move]

    model_config = Record.model_config


def node_name(node: Node) -> str:
    """The name of a node, as pytest shows it."""
    item, run, ref = node
    return f"{item}-run{run}-{ref}"


def causes(old: Record | None, lost: str | None, new: Record, foreign: bool) -> Iterator[str]:
    """What can have moved a row.

    Args:
        old: the record as it was; None where it could not be read.
        lost: why it could not.
        new: the record as it is now.
        foreign: the saved reply answers another request than the item asks now.
    """
    if lost is not None:
        yield lost
    if foreign and new.reason is not None:
        yield new.reason
    if old is None:
        return
    before, after = old.fingerprints, new.fingerprints
    if old.item_version != new.item_version:
        yield f"item version {old.item_version} → {new.item_version}"
    elif before.item != after.item:
        yield f"the item changed under version {new.item_version} ({_change(before.item, after.item)})"
    if before.grader != fingerprint([grader(), before.item]):
        yield f"grader code {_change(before.grader, after.grader)}"
    if before.harness != after.harness:
        versions = f"{old.harness_version} ({before.harness[:SHORT]}) → {new.harness_version} ({after.harness[:SHORT]})"
        yield f"harness {versions}"
    if old.confinement != new.confinement and None not in (old.confinement, new.confinement):
        yield f"confinement {old.confinement} → {new.confinement}"


def beside(old: Record | None, new: Record) -> Iterator[str]:
    """What is stamped in another way without having moved a row."""
    if old is not None and old.fingerprints.bank != new.fingerprints.bank:
        yield f"bank {_change(old.fingerprints.bank, new.fingerprints.bank)}"


def _change(before: str, after: str) -> str:
    return f"{before[:SHORT]} → {after[:SHORT]}"


def row_moves(node: Node, old: Record | None, new: Record, why: Sequence[str]) -> Iterator[Move]:
    """Every row of a node that is not what it was; ``why`` is taken over."""
    before, after = _by_id(old.rows if old else ()), _by_id(new.rows)
    for row in dict.fromkeys((*before, *after)):
        if before.get(row) != after.get(row):
            yield Move(node=node_name(node), row=row, before=before.get(row), after=after.get(row), why=why)


def _by_id(rows: Sequence[Row]) -> dict[str, MovedRow]:
    return {
        row.id: MovedRow(points=_written(row.points), earned=_written(row.earned), evidence=row.evidence)
        for row in rows
    }


def _written(value: Decimal) -> Decimal:
    """A number as a file has it."""
    return Decimal(str(float(value)))


def _figures(row: MovedRow | None) -> tuple[Decimal, Decimal] | None:
    return None if row is None else (row.points, row.earned)
