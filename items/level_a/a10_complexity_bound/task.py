"""A10: a quadratic function is made linear; reads and comparisons of elements are counted outside."""

from __future__ import annotations

import random
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from string import Template
from typing import Any, cast

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.counting import CountedSequence
from pytest_llmbench.grading.hidden_tests import Case, judge, verdict
from pytest_llmbench.sandbox.calls import Worker, open_worker
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

FILE = "spans.py"
GOLDEN = "golden/spans.py.txt"
CALLER = "caller.py"
READS = 4
COMPARISONS = 8
DEADLINE_S = 60.0
"""Of one counted call, which takes a second or two; the caps end what is quadratic long before."""
LISTED = frozenset({"twins", "steps"})
"""Quantities that a function of one pass keeps in lists."""

Values = Sequence[int]


@dataclass(frozen=True)
class Setting:
    """What differs between instances: names, weights, which side is strict, and whether higher or lower closes off."""

    name: str
    levels: str
    limit: str
    first_strict: bool
    """The window before a position ends at a strictly higher (lower) level and the one after it at an equal one too;
    else the other way round."""
    higher: bool
    weights: Mapping[str, int]
    """Of before, after, twins and steps, in the order of the terms; the last one is negative."""

    @property
    def fills(self) -> dict[str, object]:
        """The texts that take the places of the markers in the files beside the item."""
        left = {"near": "left", "near_inside": "left >= 0", "back": "-", "sweep": "place - 1, -1, -1"}
        right = {"near": "right", "near_inside": "right < size", "back": "+", "sweep": "place + 1, size"}
        near, far = (left, right) if self.first_strict else (right, left)
        up, down = ("size", "size - 1, -1, -1") if self.first_strict else ("size - 1, -1, -1", "size")
        above, below = (">", "<") if self.higher else ("<", ">")
        return {
            **near,
            "far": far["near"],
            "far_inside": far["near_inside"],
            "onward": far["back"],
            "window": "left[place] + 1 : place" if self.first_strict else "place + 1 : right[place]",
            "order": up,
            "reverse_order": down,
            "above": above,
            "below": below,
            "not_above": f"{below}=",
            "function": self.name,
            "levels": self.levels,
            "reach": self.limit,
            "score": self.score(""),
            "indexed_score": self.score("[place]"),
        }

    def score(self, index: str) -> str:
        """The expression that makes one number of four quantities; ``index`` follows those that are kept in lists."""
        *added, subtracted = (
            f"{abs(weight)} * {term}{index if term in LISTED else ''}" for term, weight in self.weights.items()
        )
        return f"{' + '.join(added)} - {subtracted}"


def expected(setting: Setting, values: Values, limit: int | None = None) -> list[int]:
    """The results of the original, in linear time.

    The row is turned until the strict side comes first and higher levels close off. What is open are falling levels,
    each with its position and the number of equal levels before it in its window.
    """
    row = [value if setting.higher else -value for value in (values if setting.first_strict else reversed(values))]
    far = [len(row)] * len(row)
    found: list[tuple[int, int, int]] = []
    opened: list[tuple[int, int, int]] = []
    for place, level in enumerate(row):
        twins = 0
        while opened and opened[-1][0] <= level:
            closed, where, before = opened.pop()
            far[where] = place
            twins = before + 1 if closed == level else 0
        found.append((opened[-1][1] if opened else -1, twins, len(opened)))
        opened.append((level, place, twins))
    most = len(row) + 1 if limit is None else limit
    near_term, far_term = ("before", "after") if setting.first_strict else ("after", "before")
    weight = setting.weights
    scores = [
        weight[near_term] * min(place - near, most)
        + weight[far_term] * min(far[place] - place, most)
        + weight["twins"] * twins
        + weight["steps"] * steps
        for place, (near, twins, steps) in enumerate(found)
    ]
    return scores if setting.first_strict else scores[::-1]


def shuffled(size: int, chance: random.Random) -> list[int]:
    """Different numbers in any order."""
    return chance.sample(range(-size, 9 * size), size)


def rising(size: int, chance: random.Random) -> list[int]:
    """Different numbers, each above the one before."""
    return sorted(shuffled(size, chance))


def falling(size: int, chance: random.Random) -> list[int]:
    """Different numbers, each below the one before."""
    return rising(size, chance)[::-1]


def flat(size: int, chance: random.Random) -> list[int]:
    """One number only."""
    return [chance.randrange(-9, 100)] * size


def few(size: int, chance: random.Random) -> list[int]:
    """Three numbers in any order."""
    return chance.choices(chance.sample(range(-9, 100), 3), k=size)


def terraces(size: int, chance: random.Random) -> list[int]:
    """Runs of equal numbers, at few heights."""
    heights = chance.sample(range(-9, 100), 5)
    row: list[int] = []
    while len(row) < size:
        row += [chance.choice(heights)] * chance.randrange(1, 8)
    return row[:size]


def teeth(size: int, chance: random.Random) -> list[int]:
    """The same short way up, again and again."""
    start, width = chance.randrange(-9, 100), chance.randrange(4, 8)
    return [start + place % width for place in range(size)]


def ridge(size: int, chance: random.Random) -> list[int]:
    """Different numbers, up to the middle and down again."""
    row = rising(size, chance)
    return row[::2] + row[1::2][::-1]


def hollow(size: int, chance: random.Random) -> list[int]:
    """Different numbers, down to the middle and up again."""
    return [-value for value in ridge(size, chance)]


SHAPES: Mapping[str, Callable[[int, random.Random], list[int]]] = {
    shape.__name__: shape for shape in (shuffled, rising, falling, flat, few, terraces, teeth, ridge, hollow)
}
DEEP = "deep"
"""The one of rising and falling in which no position is closed off until the strict side has been walked."""
TIED = frozenset({"flat", "few", "terraces", "teeth"})
"""Shapes with equal elements. In the row ``bound`` they only have to be handled within the bound, so that a function
that is wrong on ties loses its behaviour and nothing else."""


@cache
def _cases(folder: Path) -> Mapping[str, list[dict[str, Any]]]:
    return tomllib.loads((folder / "cases.toml").read_text(encoding="utf-8"))


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Draw names, sides, direction and weights, and the seed of the hidden cases."""
    data = item.spec.data
    quantities = ["before", "after", "twins", "steps"]
    seed.shuffle(quantities)
    weights = seed.sample(data["weights"], len(quantities))
    weights[-1] = -weights[-1]
    setting = Setting(
        name=seed.choice(data["names"]),
        levels=seed.choice(data["levels"]),
        limit=seed.choice(data["limits"]),
        first_strict=seed.random() < 0.5,
        higher=seed.random() < 0.5,
        weights=dict(zip(quantities, weights, strict=True)),
    )
    original = item.read("original.py.txt", **setting.fills)
    prompt = item.render(
        original=textwrap.indent(original.rstrip(), "    "),
        levels=setting.levels,
        reach=setting.limit,
    )
    return Instance(
        item.spec,
        variant,
        run,
        prompt,
        data={"item": item, "setting": setting, "cases_seed": seed.getrandbits(64)},
        holds={FILE: f"def {setting.name}("},
    )


def grade(instance: Instance, delivery: Delivery, sandbox: Sandbox) -> list[Verdict]:
    """Judge results, cost and interface of the delivered function; hygiene is judged by the machinery."""
    source = delivery.files.get(FILE)
    if source is None:
        return [
            Verdict(row.id, False, f"{FILE} was not delivered") for row in instance.spec.rows if row.kind == "check"
        ]
    item = cast("Item", instance.data["item"])
    setting = cast("Setting", instance.data["setting"])
    folder = item.side("hidden_tests")
    chance = random.Random(instance.data["cases_seed"])
    cases = _cases(folder)
    files = {FILE: source, CALLER: (folder / CALLER).read_text(encoding="utf-8")}
    with open_worker(sandbox, files, module="caller") as worker:
        behaviour = [_behaviour(setting, case, chance) for case in cases["behaviour"]]
        interface = [judged for case in cases["interface"] for judged in _interface(setting, case, chance)]
        return [
            verdict("behaviour", judge(worker, behaviour)),
            verdict("interface", judge(worker, interface)),
            _bound(setting, worker, cases["bound"], chance),
        ]


def _values(setting: Setting, case: Mapping[str, Any], chance: random.Random) -> list[int]:
    shape = case["shape"]
    if shape == DEEP:
        shape = "falling" if setting.first_strict == setting.higher else "rising"
    return SHAPES[shape](case["size"], chance)


def _behaviour(setting: Setting, case: Mapping[str, Any], chance: random.Random) -> Case:
    values = _values(setting, case, chance)
    wanted = expected(setting, values)
    return Case(
        setting.name,
        (values,),
        f"a list of {len(values)}, for the original's result",
        holds=partial(difference, wanted=wanted),
    )


def difference(given: object, wanted: Values) -> str | None:
    """What is wrong with the numbers of a result; its type and theirs are judged as interface."""
    if not isinstance(given, list | tuple):
        return f"expected a list, not {type(given).__name__}"
    return None if list(given) == wanted else f"expected {wanted}"


def _anything(given: object) -> None:
    """Whatever came back will do."""


def _interface(setting: Setting, case: Mapping[str, Any], chance: random.Random) -> Iterator[Case]:
    values: Values = _values(setting, case, chance)
    if case["type"] == "tuple":
        values = tuple(values)
    limit: int | None = case.get("limit")
    named = {} if limit is None else {setting.limit: limit}
    about = f"a {case['type']} of {len(values)}" + ("" if limit is None else f", {setting.limit} given")
    if limit is not None and limit < 1:
        yield Case(setting.name, (values,), about, raises="ValueError", named=named)
        return
    yield Case(setting.name, (values,), about, expected(setting, values, limit), named=named)
    if case["type"] == "list":
        yield Case("levels_after", (setting.name, values), f"what is left of {about}", values, named=named)


def _bound(setting: Setting, worker: Worker, cases: Sequence[Mapping[str, Any]], chance: random.Random) -> Verdict:
    made = ""
    for case in cases:
        values = _values(setting, case, chance)
        size = len(values)
        counted = CountedSequence(values, READS * size, COMPARISONS * size)
        allowed = f"{READS * size} reads and {COMPARISONS * size} comparisons"
        about = f"a counted sequence of {size}, for the original's result within {allowed}"
        right = _anything if case["shape"] in TIED else partial(difference, wanted=expected(setting, values))
        [outcome] = judge(worker, [Case(setting.name, (counted,), about, holds=right)], DEADLINE_S)
        made = f"{counted.reads} reads and {counted.comparisons} comparisons on {size} elements"
        if not outcome.passed:
            return Verdict("bound", False, f"{outcome.said} ({made})", outcome.hidden)
    return Verdict("bound", True, f"at most {READS} reads and {COMPARISONS} comparisons per element; last {made}")


def golden(instance: Instance) -> Reference:
    """The function that needs one pass."""
    return _reference(instance, GOLDEN, ())


def defects(instance: Instance) -> Mapping[str, Reference]:
    """The deliveries of ``references/edits.toml``, and a reply without a file."""
    item = cast("Item", instance.data["item"])
    edits = tomllib.loads(item.read("references/edits.toml"))
    found = {name: _reference(instance, edit["of"], edit["changes"]) for name, edit in edits.items()}
    return {**found, "no_file": Reference(text=item.read("references/no_file.txt"))}


def _reference(instance: Instance, base: str, changes: Sequence[Sequence[str]]) -> Reference:
    item = cast("Item", instance.data["item"])
    setting = cast("Setting", instance.data["setting"])
    text = item.read(base)
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{base} holds {text.count(old)} times: {old}")
        text = text.replace(old, new)
    return Reference(files={FILE: Template(text).substitute(setting.fills)})
