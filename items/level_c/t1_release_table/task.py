"""C1 template T1: add up what the later rows of a release table hold."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import grade_answers, right_answers
from pytest_llmbench.grading.twins import NUMBER, Side, carries, ranks, side_instance
from pytest_llmbench.spec import Instance, Reference

TEMPLATE = "prompt.md"


def minor(row: Sequence[str]) -> int:
    """The minor version of a row."""
    return int(row[1].split(".")[1])


def make(item: Item, facts: Mapping[str, Any], chance: random.Random) -> Side | None:
    """The rows in a drawn order, and a month that three or four of them follow."""
    rows = [tuple(row) for row in facts["rows"]]
    order = list(range(len(rows)))
    chance.shuffle(order)
    rows = [rows[place] for place in order]
    months = sorted({row[2] for row in rows})
    month = months[chance.randrange(len(months) - 1)]
    later = [place for place, row in enumerate(rows) if row[2] > month]
    if not 3 <= len(later) <= 4:
        return None
    added = [minor(rows[place]) for place in later]
    return Side(
        template=item.read(TEMPLATE),
        slots={"rows": "\n".join("  ".join(row) for row in rows), "month": month},
        dated=frozenset({"rows", "month"}),
        constraints=("later than the month", "minor version", "sum"),
        grader=NUMBER,
        answer=sum(added),
        steps={
            "rows": len(rows),
            "later": later,
            "added": added,
            "carries": carries(added),
            "months": ranks([row[2] for row in rows]),
            "ties": sum(row[2] == month for row in rows),
            "all": sum(map(minor, rows)),
        },
        shaped=frozenset({"month"}),
        mistake=sum(map(minor, rows)),
    )


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The side of the pair that the item is, drawn like its twin."""
    return side_instance(item, variant, run, make)


grade = grade_answers
golden = right_answers


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Every row counts, whatever its month."""
    return {"defective": Reference(answers={"1": instance.data["side"].mistake})}
