"""From a delivery to rows: hygiene, repair, and the item's grader, which is held to its specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from pytest_llmbench.grading.hygiene import check
from pytest_llmbench.harness.reply import parse_reply
from pytest_llmbench.records import Row
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.spec import Delivery, Instance, ItemSpec, RowSpec, Task, Verdict
from pytest_llmbench.store.folder import escaped


class GraderError(Exception):
    """The item's grader broke or broke its contract; nothing was measured."""


def delivery_of(spec: ItemSpec, content: str, thinking: str = "", *, exhausted: bool = False) -> Delivery:
    """What a reply to an item delivers; ``exhausted``: its budget was used up."""
    return parse_reply(
        content,
        thinking,
        files=spec.files,
        answers=spec.answers.keys if spec.answers else (),
        form=spec.answers.format if spec.answers else "integer",
        exhausted=exhausted,
    )


@dataclass(frozen=True)
class Graded:
    """What grading a delivery gives."""

    rows: tuple[Row, ...]
    """In the specification's order."""
    repairs: tuple[str, ...]
    hidden: Mapping[str, str]
    """The hidden cases behind a row, by row; never written to disk."""


def grade(task: Task, instance: Instance, delivery: Delivery, sandbox: Sandbox | None = None) -> Graded:
    """Hygiene, repair, rows. A delivery that holds nothing earns nothing.

    Args:
        task: the item's code.
        instance: what was asked.
        delivery: what was delivered.
        sandbox: needed where the item runs what was delivered.

    Raises:
        GraderError: where the item's grader raises, forgets or invents a row, or gives points out of range.
    """
    spec = instance.spec
    if delivery.no_answer is not None:
        lost = [Verdict(row.id, False, f"nothing was delivered: {delivery.no_answer}") for row in spec.rows]
        return _graded(spec, lost, delivery)
    try:
        if not spec.runs_code:
            return _graded(spec, task.grade(instance, delivery), delivery)
        if not spec.files:
            return _graded(spec, task.grade(instance, delivery, sandbox), delivery)
        hygiene = check(instance, delivery)
        return _graded(spec, [*hygiene.verdicts, *task.grade(instance, hygiene.delivery, sandbox)], hygiene.delivery)
    except GraderError:
        raise
    except Exception as error:
        raise GraderError(f"the grader of {spec.id} failed: {type(error).__name__}: {error}") from error


def _graded(spec: ItemSpec, verdicts: Sequence[Verdict], delivery: Delivery) -> Graded:
    by_row = {verdict.row: verdict for verdict in verdicts}
    expected = {row.id for row in spec.rows}
    if len(verdicts) != len(by_row) or set(by_row) != expected:
        wrong = sorted(expected.symmetric_difference(by_row)) or "one twice"
        raise GraderError(f"the grader of {spec.id} must judge each row once; wrong: {wrong}")
    hidden = {verdict.row: verdict.hidden for verdict in verdicts if verdict.hidden}
    return Graded(tuple(_row(row, by_row[row.id]) for row in spec.rows), delivery.repairs, hidden)


def _row(row: RowSpec, verdict: Verdict) -> Row:
    earned = verdict.earned
    points = (row.points if earned else Decimal(0)) if isinstance(earned, bool) else earned
    if not 0 <= points <= row.points:
        raise GraderError(f"row {row.id} earned {points} of {row.points} points")
    if not 0 <= verdict.right <= (row.parts or 0):
        raise GraderError(f"row {row.id} has {verdict.right} of {row.parts or 0} parts right")
    return Row(
        id=row.id,
        title=row.title,
        points=row.points,
        earned=points,
        kind=row.kind,
        evidence=escaped(verdict.evidence),
        parts=row.parts,
        right=verdict.right if row.parts else None,
    )
