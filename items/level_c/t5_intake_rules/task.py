"""C1 template T5: rules with exceptions, applied to the releases of a dated notice."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import grade_answers, right_answers
from pytest_llmbench.grading.twins import NUMBER, Side, carries, side_instance
from pytest_llmbench.spec import Instance, Reference

SUMMER = ("06", "07", "08")


def marks(row: tuple[str, str, str], start: int, off: int, young: int, most: int) -> tuple[int, list[str]]:
    """The marks of a release, and what happened on the way."""
    name, version, month = row
    major, minor, patch = map(int, version.split("."))
    total, steps = start, []
    if major == 0:
        total += young
        steps.append("young")
    else:
        summer = month[-2:] in SUMMER
        total += minor if summer else patch
        steps.append("summer" if summer else "other")
    if "-" in name:
        total -= off
        steps.append("hyphen")
    if total > most:
        total = most
        steps.append("most")
    return total, steps


def make(item: Item, facts: Mapping[str, Any], chance: random.Random) -> Side | None:
    """Draw the order of the releases and the numbers of the rules; at least one exception has to bite."""
    rows = [(row[0], row[1], row[2]) for row in facts["rows"]]
    order = list(range(len(rows)))
    chance.shuffle(order)
    rows = [rows[place] for place in order]
    start, off, young = chance.randrange(10, 20), chance.randrange(3, 8), chance.randrange(2, 9)
    most = start + chance.randrange(1, 7)
    judged = [marks(row, start, off, young, most) for row in rows]
    careless = sum(marks((row[0].replace("-", ""), row[1], row[2]), start, off, young, 10**6)[0] for row in rows)
    total = sum(points for points, _ in judged)
    steps = [how for _, how in judged]
    if careless == total:
        return None
    return Side(
        template=item.read("prompt.md"),
        slots={
            "rows": "\n".join("  ".join(row) for row in rows),
            "start": str(start),
            "off": str(off),
            "young": str(young),
            "most": str(most),
        },
        dated=frozenset({"rows"}),
        constraints=("A", "B", "C", "D", "E", "sum"),
        grader=NUMBER,
        answer=total,
        steps={
            "branches": steps,
            "marks": [points for points, _ in judged],
            "carries": carries([points for points, _ in judged]),
            "careless": careless,
        },
        mistake=careless,
    )


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The side of the pair that the item is, drawn like its twin."""
    return side_instance(item, variant, run, make)


grade = grade_answers
golden = right_answers


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Hyphens and the upper bound are forgotten."""
    return {"defective": Reference(answers={"1": instance.data["side"].mistake})}
