"""C1 template T3: a notice on a time zone that stopped changing its clocks, and one moment to convert."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Mapping
from typing import Any

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.twins import Side, side_instance
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

ROW = "right"
FORM = "%Y-%m-%dT%H:%MZ"
PRIOR = "prior overrides text"
"""How the evidence begins where the answer follows the clocks from before the change, against the text."""
SHOWN = 60
_MOMENT = re.compile(r"(?<!\d)\d{4}-\d\d-\d\dT\d\d:\d\dZ", re.ASCII)


def utc(local: datetime.datetime, hours: int) -> str:
    """A local moment in UTC, as the prompt wants it."""
    return (local - datetime.timedelta(hours=hours)).strftime(FORM)


def make(item: Item, facts: Mapping[str, Any], chance: random.Random) -> Side | None:
    """Draw a day of the first winter half-year that has no winter clocks any more, and a time of that day."""
    first, days = datetime.date.fromisoformat(facts["from"]), facts["days"]
    day = first + datetime.timedelta(days=chance.randrange(days))
    hour, minute = chance.randrange(24), chance.choice((0, 10, 15, 20, 30, 40, 45, 50))
    local = datetime.datetime(day.year, day.month, day.day, hour, minute)
    answer, before = utc(local, facts["summer"]), utc(local, facts["winter"])
    right = datetime.datetime.strptime(answer, FORM)
    return Side(
        template=item.read("prompt.md"),
        slots={
            "zone": facts["zone"],
            "winter": f"{facts['winter']:+03d}",
            "summer": f"{facts['summer']:+03d}",
            "last": facts["last"],
            "day": local.strftime("%Y-%m-%d"),
            "time": local.strftime("%H:%M"),
        },
        dated=frozenset({"zone", "winter", "summer", "last", "day"}),
        constraints=("last line", "form"),
        grader="moment",
        answer=answer,
        steps={
            "sign": facts["summer"] > 0,
            "rollover": (right.date() - day).days,
            "month": (right.year, right.month) != (day.year, day.month),
            "year": right.year != day.year,
            "rollover_before": answer[:10] != before[:10],
        },
        shaped=frozenset({"winter", "summer", "last", "day", "time"}),
        mistake=before,
    )


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The side of the pair that the item is, drawn like its twin."""
    return side_instance(item, variant, run, make)


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """The last moment of the reply counts; one that follows the old clocks is told apart."""
    found = _MOMENT.findall(delivery.text)
    expected, before = instance.data["side"].answer, instance.data["side"].mistake
    if not found:
        return [Verdict(ROW, False, f"no moment of the form YYYY-MM-DDTHH:MMZ; expected {expected}")]
    given = found[-1]
    if given == expected:
        return [Verdict(ROW, True, f"answered {given}")]
    if given == before:
        return [Verdict(ROW, False, f"{PRIOR}: answered {given}, as before the change; expected {expected}")]
    return [Verdict(ROW, False, f"answered {given[:SHOWN]}; expected {expected}")]


def golden(instance: Instance) -> Reference:
    """The moment by the clocks that the notice tells of."""
    return Reference(text=instance.data["side"].answer)


def defects(instance: Instance) -> Mapping[str, Reference]:
    """The moment by the clocks from before the change."""
    return {"defective": Reference(text=instance.data["side"].mistake)}
