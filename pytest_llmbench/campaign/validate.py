"""Validating the instrument in both directions, without a model and without a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from pytest_llmbench.bank import Item
from pytest_llmbench.campaign.agents import converse_scripted
from pytest_llmbench.campaign.models import ModelSpec, expand
from pytest_llmbench.grading.grade import delivery_of, grade
from pytest_llmbench.harness.assignment import deliver
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.harness.references import conversation
from pytest_llmbench.harness.single import opening
from pytest_llmbench.records import Row
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.spec import Unavailable

RUNS = (1, 2, 3)


@dataclass(frozen=True)
class Finding:
    """One reference on one item: its points (the lowest of all instances) and what is wrong, if anything."""

    item: str
    reference: str
    points: Decimal
    wrong: str | None


def deviation(spec: ModelSpec, item: Item, rows: list[Row] | tuple[Row, ...]) -> str | None:
    """What a reference earned that it should not have, or the other way round; None where all is as declared."""
    earned = sum((row.earned for row in rows), Decimal(0))
    lost = {row.id for row in rows if row.earned < row.points}
    name, points = item.spec.id, item.spec.points
    if spec.kind == "golden" and lost:
        return f"golden earned {earned} of {points} points of {name} and lost {', '.join(sorted(lost))}"
    if spec.kind == "defective":
        declared = item.spec.references[spec.name or "defective"]
        if earned != declared.points or lost != set(declared.loses):
            return (
                f"{spec.ref} earned {earned} points of {name} and lost {', '.join(sorted(lost)) or 'nothing'}; "
                f"declared are {declared.points} points and {', '.join(declared.loses)}"
            )
    if spec.kind == "null" and earned > points * Decimal(str(Profile().limit("null_share"))):
        return f"{spec.ref} earned {earned} of {points} points of {name} for nothing"
    return None


GOLDEN = ModelSpec("golden", "golden")


def golden_falls_short(item: Item, variant: int, run: int, sandbox: Sandbox | None) -> str | None:
    """What the golden reference does not earn of an instance; None where it earns every point."""
    try:
        return _score(GOLDEN, item, variant, run, sandbox)[1]
    except Unavailable:
        return None
    except Exception as error:
        return f"variant {variant} run {run}: golden of {item.spec.id} failed: {type(error).__name__}: {error}"


def score_references(item: Item, variants: int, sandbox: Sandbox | None = None) -> Iterator[Finding]:
    """Golden, every defective and every null reference of an item over variants × runs.

    Args:
        item: the item.
        variants: how many variants, from 0.
        sandbox: needed where the item runs what was delivered.

    Raises:
        Unavailable: where the item cannot be built here.
    """
    known, mode = item.spec.references, item.spec.mode
    specs = [spec for value in ("golden", "defective:all", "null") for spec in expand(value, (), known, mode)]
    for spec in specs:
        scores = [_score(spec, item, variant, run, sandbox) for variant, run in _instances(item, variants)]
        wrong = next((text for _, text in scores if text), None)
        yield Finding(item.spec.id, spec.ref, min(points for points, _ in scores), wrong)


def _instances(item: Item, variants: int) -> Iterator[tuple[int, int]]:
    """Variants and runs that differ: one for an item that is always the same."""
    if item.spec.once:
        yield 0, RUNS[0]
        return
    for variant in range(variants):
        yield from ((variant, run) for run in RUNS)


def _score(spec: ModelSpec, item: Item, variant: int, run: int, sandbox: Sandbox | None) -> tuple[Decimal, str | None]:
    instance = item.build(variant, run)
    script = conversation(spec.kind, spec.name, item.task, instance)
    if item.spec.mode == "agent":
        delivery = deliver(instance, converse_scripted(item, instance, Profile(), script, sandbox))
    else:
        delivery = delivery_of(item.spec, script(opening(instance)))
    rows = grade(item.task, instance, delivery, sandbox).rows
    wrong = deviation(spec, item, rows)
    return sum((row.earned for row in rows), Decimal(0)), wrong and f"variant {variant} run {run}: {wrong}"
