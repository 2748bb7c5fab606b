"""C1 template T4: a program is traced that calls functions whose documentation stands in the prompt."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import grade_answers, right_answers
from pytest_llmbench.grading.twins import NUMBER, Side, carries, side_instance
from pytest_llmbench.spec import Instance, Reference

MIRROR = 110
"""A number of the other side is this less its own: what is smallest there is largest here."""
TAKES = ("pop", "replace", "pushpop")
"""What returns an item of the heap."""


@dataclass(frozen=True)
class Trace:
    """A program with what it prints."""

    program: str
    answer: int
    wrong: int
    """What it would print by a common mistake."""
    steps: Mapping[str, Any]


def run_heap(start: list[int], calls: list[tuple[str, int | None]], least: bool) -> list[int]:
    """The items that the calls take out of a heap."""
    sign = 1 if least else -1
    heap = sorted(sign * value for value in start)
    taken = []
    for name, value in calls:
        if name == "replace":
            taken.append(heap.pop(0))
        if value is not None:
            bisect.insort(heap, sign * value)
        if name in ("pop", "pushpop"):
            taken.append(heap.pop(0))
    return [sign * value for value in taken]


def heap(facts: Mapping[str, Any], chance: random.Random) -> Trace | None:
    """A heap of four numbers and the calls of the pair."""
    least = facts["least"]
    drawn = chance.sample(range(12, 99), 4 + len(facts["calls"]))
    numbers = [value if least else MIRROR - value for value in drawn]
    start = sorted(numbers[:4], reverse=not least)
    calls = [(call, None if call == "pop" else numbers[4 + place]) for place, call in enumerate(facts["calls"])]
    lines, letters = [f"heap = {start}"], iter("abcd")
    for call, value in calls:
        target = f"{next(letters)} = " if call in TAKES else ""
        lines.append(f"{target}{call}(heap{'' if value is None else f', {value}'})")
    taken = run_heap(start, calls, least)
    other = run_heap(start, calls, not least)
    lines.append(f"print({' + '.join('abcd'[: len(taken)])})")
    if sum(taken) == sum(other):
        return None
    order = sorted(numbers, reverse=not least)
    return Trace("\n".join(lines), sum(taken), sum(other), {"taken": [order.index(value) for value in taken]})


def pieces(facts: Mapping[str, Any], chance: random.Random) -> Trace | None:
    """A list is cut into pieces of one size, and the last one is added up."""
    size = chance.randrange(3, 6)
    values = chance.sample(range(10, 60), size * chance.randrange(2, 4) + chance.randrange(1, size))
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    lines = [f"values = {values}", f"parts = list({facts['name']}(values, {size}))"]
    lines.append("print(len(parts) + sum(parts[-1]) + parts[1][0])")
    answer = len(parts) + sum(parts[-1]) + parts[1][0]
    wrong = len(parts) - 1 + sum(parts[-2]) + parts[1][0]
    if answer == wrong:
        return None
    steps = {"parts": list(map(len, parts)), "carries": carries([len(parts), *parts[-1], parts[1][0]])}
    return Trace("\n".join(lines), answer, wrong, steps)


COMBINE: Mapping[str, Callable[[int, int], int]] = {"&": min, "^": lambda one, other: abs(one - other)}


def counts(facts: Mapping[str, Any], chance: random.Random) -> Trace | None:
    """Two counters of four keys, one operator, and the sum of what is left."""
    one, other = ({key: chance.randrange(1, 30) for key in "pqrs"} for _ in range(2))
    combined = {key: COMBINE[facts["sign"]](one[key], other[key]) for key in one}
    answer = sum(combined.values()) + combined["q"]
    wrong = sum(max(one[key], other[key]) for key in one) + max(one["q"], other["q"])
    lines = [f"one = Counter({one})", f"other = Counter({other})", f"both = one {facts['sign']} other"]
    lines.append("print(sum(both.values()) + both['q'])")
    if answer == wrong or not all(combined.values()):
        return None
    return Trace("\n".join(lines), answer, wrong, {"keys": len(combined), "digits": len(str(answer))})


KINDS: Mapping[str, Callable[[Mapping[str, Any], random.Random], Trace | None]] = {
    "heap": heap,
    "pieces": pieces,
    "counts": counts,
}


def make(item: Item, facts: Mapping[str, Any], chance: random.Random) -> Side | None:
    """Draw the numbers of the program."""
    trace = KINDS[facts["kind"]](facts, chance)
    if trace is None:
        return None
    return Side(
        template=item.read("prompt.md"),
        slots={
            "origin": facts["origin"],
            "rules": "\n".join(f"- {rule}" for rule in facts["rules"]),
            "program": trace.program,
        },
        dated=frozenset({"origin", "rules", "program"}),
        constraints=("printed number",),
        grader=NUMBER,
        answer=trace.answer,
        steps={"kind": facts["kind"], "lines": trace.program.count("\n"), **trace.steps},
        mistake=trace.wrong,
    )


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The side of the pair that the item is, drawn like its twin."""
    return side_instance(item, variant, run, make)


grade = grade_answers
golden = right_answers


def defects(instance: Instance) -> Mapping[str, Reference]:
    """What it would print by a common mistake: the other end of the heap, a lost short piece, the larger count."""
    return {"defective": Reference(answers={"1": instance.data["side"].mistake})}
