"""Twins: two instances that differ in their dated material and in nothing else, as decided by program."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from string import Template
from typing import Any, Final

from pytest_llmbench.bank import Item
from pytest_llmbench.harness.references import CONSTANT
from pytest_llmbench.spec import Instance

LENGTH_SHARE: Final = 0.03
"""Part by which the lengths of two prompts may differ, in characters and in words and signs."""
CODE_LENGTH_SHARE: Final = 0.04
"""The same where code is asked for: the documentation of two functions is never of one length."""
ANSWER_CHARS: Final = 4
ANSWER_SHARE: Final = 0.25
"""Characters, or part, by which the lengths of two answers may differ; the larger of both counts."""
MOST_DRAWS: Final = 400
"""Draws after which a pair without a twin is given up."""

NUMBER: Final = "answers:integer"
"""Grader of a side whose answer is one whole number."""
PAIRS_FILE: Final = "pairs.json"
SIDES: Final = ("pre", "post")

_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Side:
    """One side of a pair, as its template makes it."""

    template: str
    """The prompt before its places are filled."""
    slots: Mapping[str, str]
    """What fills the places, in the order of the template."""
    dated: frozenset[str]
    """Places that hold dated material; every other one holds the same on both sides."""
    constraints: tuple[str, ...]
    """What is demanded of the reply, in order."""
    grader: str
    """Name of what judges the reply."""
    answer: Any
    """The expected answer: text, numbers, lists and objects with text keys."""
    steps: Mapping[str, Any]
    """What the reference solver did on the way to the answer; the dated material itself is no part of it."""
    shaped: frozenset[str] = frozenset()
    """Places whose letters and digits stand in the same pattern on both sides."""
    code: bool = False
    """Whether code is asked for."""
    mistake: Any = None
    """What a reader who errs in the usual way answers; it is not compared."""

    @property
    def prompt(self) -> str:
        """The prompt as the model gets it."""
        return Template(self.template).substitute(self.slots).strip()


def twin(pre: Side, post: Side) -> dict[str, str]:
    """Why two sides are no twins; empty where they are.

    Returns:
        What differs, by the name of the check: ``template``, ``slots``, ``fixed``, ``constraints``, ``grader``,
        ``answer_type``, ``steps``, ``shape``, ``characters``, ``tokens``, ``lines``, ``answer_length``.
    """
    found: dict[str, str] = {}

    def same(name: str, one: object, other: object) -> None:
        if one != other:
            found.setdefault(name, f"{one!r} and {other!r}")

    def near(name: str, one: int, other: int, most: float) -> None:
        if abs(one - other) > most:
            found[name] = f"{one} and {other}, at most {most:g} apart"

    same("template", _digest(pre.template), _digest(post.template))
    same("slots", [list(pre.slots), sorted(pre.dated)], [list(post.slots), sorted(post.dated)])
    if "slots" not in found:
        for name in pre.slots:
            if name not in pre.dated:
                same("fixed", (name, pre.slots[name]), (name, post.slots[name]))
        for name in sorted(pre.shaped | post.shaped):
            same("shape", (name, shape(pre.slots[name])), (name, shape(post.slots[name])))
    same("constraints", pre.constraints, post.constraints)
    same("grader", (pre.grader, pre.code), (post.grader, post.code))
    same("answer_type", type_tree(pre.answer), type_tree(post.answer))
    for name in dict.fromkeys([*pre.steps, *post.steps]):
        same("steps", (name, pre.steps.get(name)), (name, post.steps.get(name)))
    if "template" in found or "slots" in found:
        return found
    one, other = pre.prompt, post.prompt
    share = CODE_LENGTH_SHARE if pre.code else LENGTH_SHARE
    near("characters", len(one), len(other), share * max(len(one), len(other)))
    words = len(_TOKEN.findall(one)), len(_TOKEN.findall(other))
    near("tokens", *words, share * max(words))
    same("lines", one.count("\n"), other.count("\n"))
    lengths = len(json.dumps(pre.answer)), len(json.dumps(post.answer))
    near("answer_length", *lengths, max(ANSWER_CHARS, ANSWER_SHARE * max(lengths)))
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def shape(text: str) -> str:
    """The text with 9 for each digit, a for each lower-case and A for each upper-case letter."""
    return "".join("9" if c.isdigit() else "A" if c.isupper() else "a" if c.isalpha() else c for c in text)


def type_tree(value: object) -> object:
    """The types of a JSON value, with the keys of its objects and the lengths of its lists."""
    if isinstance(value, Mapping):
        return {key: type_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [type_tree(item) for item in value]
    return type(value).__name__


class NotTwins(Exception):
    """A pair whose sides are no twins: the message names the pair and what differs."""


@dataclass(frozen=True)
class Pair:
    """The dated material of one pair."""

    id: str
    placebo: bool
    """Both sides are old: the true gap is zero."""
    facts: tuple[Mapping[str, Any], Mapping[str, Any]]
    """Of the two sides, each with ``source`` and ``known_from``."""


@cache
def read_pairs(folder: Path) -> Mapping[str, Pair]:
    """Every pair of a ``pairs.json``, by id.

    Raises:
        ValueError: where the file is not as it should be.
    """
    document = json.loads((folder / PAIRS_FILE).read_text(encoding="utf-8"))
    return {entry["id"]: Pair(entry["id"], entry["placebo"], (entry["pre"], entry["post"])) for entry in document}


Maker = Callable[[Mapping[str, Any], random.Random], Side | None]
"""Makes a side of its facts. The other side gets the same chance; None where that makes no good instance."""
ItemMaker = Callable[[Item, Mapping[str, Any], random.Random], Side | None]
"""The same for an item, whose folder holds the template."""


def drawn(pair: Pair, variant: int, run: int, make: Maker) -> tuple[Side, Side]:
    """Both sides of a pair, drawn alike: the first draw that makes them twins and has no answer that comes for nothing.

    Raises:
        NotTwins: where no draw does.
    """
    refused: dict[str, str] = {"draw": "no draw made an instance"}
    for attempt in range(MOST_DRAWS):
        seed = f"{pair.id}/{variant}/{run}/{attempt}"
        pre, post = (make(facts, random.Random(seed)) for facts in pair.facts)
        if pre is not None and post is not None and CONSTANT not in (str(pre.answer), str(post.answer)):
            refused = twin(pre, post)
            if not refused:
                return pre, post
    raise NotTwins(f"pair {pair.id} is not used: " + "; ".join(f"{name}: {why}" for name, why in refused.items()))


def side_of(data: Mapping[str, Any], folder: Path, variant: int, run: int, make: Maker) -> Side:
    """The side that an item is, by its ``data`` (``pair`` and ``side``).

    Raises:
        NotTwins: where it has no twin; then neither of them is used.
    """
    pair = read_pairs(folder)[data["pair"]]
    return drawn(pair, variant, run, make)[SIDES.index(data["side"])]


def side_instance(item: Item, variant: int, run: int, make: ItemMaker) -> Instance:
    """The instance of an item that is one side of a pair. The item's own code finds the side as ``data["side"]``; where
    its grader is ``NUMBER``, its answer is the only one expected.

    Raises:
        NotTwins: where it has no twin.
    """
    side = side_of(item.spec.data, item.side("fixtures"), variant, run, partial(make, item))
    answers = {"1": side.answer} if side.grader == NUMBER else {}
    return Instance(item.spec, variant, run, side.prompt, answers=answers, data={"side": side})


def ranks(values: Sequence[Any]) -> list[int]:
    """Place of each value among the different ones, from 0."""
    order = sorted(set(values))
    return [order.index(value) for value in values]


def carries(values: Sequence[int]) -> int:
    """Carries made when the numbers are added up one after the other, in decimal."""
    count, total = 0, 0
    for value in values:
        one, other, carry = total, value, 0
        total += value
        while one or other or carry:
            digit = one % BASE + other % BASE + carry
            carry = int(digit >= BASE)
            count += carry
            one, other = one // BASE, other // BASE
    return count


BASE: Final = 10
"""Of the numbers that people add up."""
