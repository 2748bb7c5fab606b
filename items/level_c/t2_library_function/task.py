"""C1 template T2: a library function is written from its documentation; hidden cases judge it."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.hidden_tests import Case, judge, verdict
from pytest_llmbench.grading.twins import Side, side_of
from pytest_llmbench.sandbox.calls import open_worker
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

FILE = "answer.py"
CALLER = "caller.py"
ROW = "behaviour"
CASES = 40
CLOSE = 1e-9
NAMES = (
    ("items", "entry", "extra"),
    ("data", "piece", "spare"),
    ("left", "right", "third"),
    ("store", "thing", "apart"),
    ("source", "given", "added"),
)
"""Names of the parameters, in the order of the documentation; no golden function has a variable of these names."""
BROKEN = "def {name}({parameters}):\n    return {first}\n"


def filled(text: str, names: Sequence[str]) -> str:
    """A rule, or a golden function, with the drawn names of its parameters."""
    for place, name in zip("ABC", names, strict=True):
        text = text.replace(f"<{place}>", name)
    return text


def make(item: Item, facts: Mapping[str, Any], chance: random.Random) -> Side | None:
    """Draw the names of the parameters and the order of the rules."""
    names = chance.choice(NAMES)
    order = list(range(len(facts["rules"])))
    chance.shuffle(order)
    parameters = filled(facts["parameters"], names)
    text = filled(item.read(f"golden/{facts['golden']}.py.txt"), names)
    kinds = Counter(type(node).__name__ for node in ast.walk(ast.parse(text)))
    return Side(
        template=item.read("prompt.md"),
        slots={
            "origin": facts["origin"],
            "name": facts["name"],
            "parameters": parameters,
            "rules": "\n".join(f"- {filled(facts['rules'][place], names)}" for place in order),
        },
        dated=frozenset({"origin", "name", "rules"}),
        constraints=("one function", "no import", *facts["demands"]),
        grader=f"hidden cases: {facts['cases']}",
        answer=text,
        steps={
            "parameters": parameters,
            "rules": len(order),
            "loops": kinds["For"] + kinds["While"],
            "branches": kinds["If"] + kinds["IfExp"],
            "errors": kinds["Raise"],
            "returns": kinds["Return"],
            "cases": CASES,
        },
        code=True,
    )


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The side of the pair that the item is, drawn like its twin, and its hidden cases."""
    side = side_of(item.spec.data, item.side("fixtures"), variant, run, lambda facts, chance: make(item, facts, chance))
    name = side.slots["name"]
    kind = side.grader.rpartition(": ")[2]
    chance = random.Random(f"{item.spec.data['pair']}/{variant}/{run}/cases")
    cases = tuple(MAKERS[kind](name, _function(side.answer, name), chance))
    return Instance(
        item.spec,
        variant,
        run,
        side.prompt,
        data={"item": item, "side": side, "cases": cases},
        holds={FILE: f"def {name}("},
    )


def _function(text: str, name: str) -> Callable[..., Any]:
    """The golden function; the file is our own."""
    space: dict[str, Any] = {}
    exec(compile(text, name, "exec"), space)
    return cast("Callable[..., Any]", space[name])


def grade(instance: Instance, delivery: Delivery, sandbox: Sandbox) -> list[Verdict]:
    """Every hidden case passes, or the row is lost; hygiene is judged by the machinery."""
    source = delivery.files.get(FILE)
    if source is None:
        return [Verdict(ROW, False, f"{FILE} was not delivered")]
    item = cast("Item", instance.data["item"])
    files = {FILE: source, CALLER: (item.side("hidden_tests") / CALLER).read_text(encoding="utf-8")}
    with open_worker(sandbox, files, module=CALLER.removesuffix(".py")) as worker:
        return [verdict(ROW, judge(worker, instance.data["cases"]))]


def golden(instance: Instance) -> Reference:
    """The function beside the item."""
    return Reference(files={FILE: instance.data["side"].answer})


def defects(instance: Instance) -> Mapping[str, Reference]:
    """A function of the right name that gives its first argument back."""
    slots = instance.data["side"].slots
    first = slots["parameters"].partition(",")[0]
    text = BROKEN.format(name=slots["name"], parameters=slots["parameters"], first=first)
    return {"defective": Reference(files={FILE: text})}


# --- hidden cases, by kind -------------------------------------------------------------------------------------------

Made = list[Case]


def _numbers(chance: random.Random, size: int) -> list[int]:
    return [chance.randrange(-50, 50) for _ in range(size)]


def _heap_cases(name: str, function: Callable[..., Any], chance: random.Random, *, item: bool, made: bool) -> Made:
    """Calls of a function that changes a heap in place, whose list is looked at afterwards."""
    least = not name.endswith("_max")
    cases = []
    for number in range(CASES):
        heap = sorted(_numbers(chance, number // 2 + 1), reverse=not least) if made else _numbers(chance, number)
        # a heap that is not simply sorted
        for place in range(1, len(heap) // 2 if made else 0):
            if 2 * place + 2 < len(heap) and chance.random() < 1 / 2:
                left, right = 2 * place + 1, 2 * place + 2
                if right * 2 + 1 >= len(heap):
                    heap[left], heap[right] = heap[right], heap[left]
        arguments = [chance.randrange(-60, 60)] if item else []
        mine = list(heap)
        returned = function(mine, *arguments)
        holds = partial(_is_heap, returned=returned, content=sorted(mine), least=least)
        cases.append(Case("after", (name, heap, arguments), f"a list of {len(heap)}", holds=holds))
    return cases


def _is_heap(given: Any, returned: object, content: list[int], least: bool) -> str | None:
    value, heap = given
    if value != returned or type(value) is not type(returned):
        return f"returned {value!r}, expected {returned!r}"
    if sorted(heap) != content:
        return f"the list holds {sorted(heap)!r}, expected {content!r}"
    for place in range(1, len(heap)):
        above = heap[(place - 1) // 2]
        if (above > heap[place]) if least else (above < heap[place]):
            return f"no heap at {place}: {heap!r}"
    return None


def push(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """An item is added."""
    return _heap_cases(name, function, chance, item=True, made=True)


def pop(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """The first item is taken; an empty heap is an error."""
    empty = Case("after", (name, [], []), "an empty list", raises="IndexError")
    return [*_heap_cases(name, function, chance, item=False, made=True), empty]


def replace(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """The first item is taken and another one put in; an empty heap is an error."""
    empty = Case("after", (name, [], [1]), "an empty list", raises="IndexError")
    return [*_heap_cases(name, function, chance, item=True, made=True), empty]


def pushpop(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """An item is put in and the first one taken; an empty heap gives the item back."""
    empty = Case("after", (name, [], [7]), "an empty list", [7, []])
    return [*_heap_cases(name, function, chance, item=True, made=True), empty]


def heapify(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """Any list is made a heap."""
    return _heap_cases(name, function, chance, item=False, made=False)


def encode(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """Groups of four numbers become five characters."""
    cases = []
    for number in range(CASES):
        data = [chance.randrange(256) for _ in range(4 * (number % 6))]
        if number % 5 == 1:
            data = [0] * len(data)
        cases.append(Case("call", (name, [data]), f"a list of {len(data)}", function(data)))
    return cases


def decode(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """Five characters become four numbers; a foreign character is an error."""
    alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-^!/*?&<>()[]{}@%$#"
    cases: Made = []
    while len(cases) < CASES:
        groups = [chance.choice("012345678") + "".join(chance.choices(alphabet, k=4)) for _ in range(len(cases) % 5)]
        text = "".join(groups)
        try:
            expected = function(text)
        except ValueError:
            cases.append(Case("call", (name, [text]), f"a text of {len(text)}", raises="ValueError"))
        else:
            cases.append(Case("call", (name, [text]), f"a text of {len(text)}", expected))
    return cases


def truth(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """One value of any kind."""
    values = [None, True, False, 0, 1, -1, 0.0, 2.5, "", "a", [], [0], {}, {"a": 1}, "None", [None]]
    return [Case("call", (name, [value]), "one value", function(value)) for value in values]


def counts(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """Two dicts of counts."""
    cases = []
    for _ in range(CASES):
        one, other = (
            {key: chance.randrange(0, 6) for key in chance.sample("abcdefg", chance.randrange(0, 6))} for _ in range(2)
        )
        cases.append(Case("call", (name, [one, other]), "two dicts", function(dict(one), dict(other))))
    return cases


def pieces(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """A list is cut into pieces; a short last piece may be an error."""
    cases = []
    for number in range(CASES):
        values, size = _numbers(chance, number % 13), chance.randrange(1, 6)
        strict = bool(number % 2)
        about = f"a list of {len(values)} and a size of {size}"
        if strict and len(values) % size:
            cases.append(Case("call", (name, [values, size, strict]), about, raises="ValueError"))
        else:
            cases.append(Case("call", (name, [values, size, strict]), about, function(values, size, strict)))
    return cases


def sums(name: str, function: Callable[..., Any], chance: random.Random) -> Made:
    """Two lists of numbers; two lengths are an error."""
    cases = []
    for number in range(CASES):
        one, other = _numbers(chance, number % 9), _numbers(chance, number % 9 + (number % 4 == 3))
        about = f"lists of {len(one)} and {len(other)}"
        if len(one) != len(other):
            cases.append(Case("call", (name, [one, other]), about, raises="ValueError"))
        else:
            holds = partial(_close, wanted=function(one, other))
            cases.append(Case("call", (name, [one, other]), about, holds=holds))
    return cases


def _close(given: Any, wanted: float) -> str | None:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return f"expected a number, not {type(given).__name__}"
    return None if abs(given - wanted) <= CLOSE * max(1.0, abs(wanted)) else f"expected {wanted}"


MAKERS: Mapping[str, Callable[[str, Callable[..., Any], random.Random], Made]] = {
    "push": push,
    "pop": pop,
    "replace": replace,
    "pushpop": pushpop,
    "heapify": heapify,
    "encode": encode,
    "decode": decode,
    "truth": truth,
    "counts": counts,
    "pieces": pieces,
    "sums": sums,
}
"""What makes the hidden cases of a kind."""
