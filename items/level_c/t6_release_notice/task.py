"""C1 template T6: a short notice about a dated release that keeps four prohibitions."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.twins import Side, side_instance
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

FILE = "notice.txt"
ROW = "right"
SENTENCES = 3
BANNED = ("release", "new", "update", "package", "available", "features", "users", "version", "improvements", "has")
SIGNS = frozenset("!?:;(),")
SHOWN = 60
_END = re.compile(r"\.(?=\s|\Z)")


def sentences(text: str) -> list[list[str]]:
    """The words of every sentence; what follows the last full stop is one too."""
    return [words for part in _END.split(text) if (words := part.split())]


def plain(word: str) -> str:
    """A word without the signs around it, in lower case."""
    return re.sub(r"^\W+|\W+$", "", word).lower()


def offence(text: str, facts: Mapping[str, str], banned: tuple[str, ...], most: int) -> str | None:
    """What is wrong with a notice; None where nothing is."""
    found = sentences(text)
    if len(found) != SENTENCES or not text.rstrip().endswith("."):
        return f"{len(found)} sentences, or no full stop at the end; {SENTENCES} are asked for"
    flat = " ".join(text.split())
    for name, value in facts.items():
        if not re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-]|\.\w)", flat):
            return f"the {name} is not there as given"
    if signs := sorted(SIGNS & set(text)):
        return f"forbidden sign {signs[0]!r}"
    for words in found:
        if plain(words[0]) == "the":
            return "a sentence begins with the"
        if len(words) > most:
            return f"a sentence of {len(words)} words"
    # the words of the name and of the month are given, not chosen
    rest = flat
    for value in facts.values():
        rest = rest.replace(value, " ")
    used = {plain(word) for word in rest.split()}
    if hit := sorted(set(banned) & used):
        return f"forbidden word {hit[0]}"
    return None


def notice(facts: Mapping[str, str]) -> str:
    """A notice that keeps every prohibition."""
    return (
        f"In {facts['month']} {facts['name']} came out as {facts['version']}.\n"
        "Older copies keep on working.\nNobody needs to hurry.\n"
    )


def make(item: Item, facts: Mapping[str, Any], chance: random.Random) -> Side | None:
    """Draw the forbidden words and the longest sentence."""
    banned, most = chance.sample(BANNED, 4), chance.randrange(9, 14)
    given = {name: facts[name] for name in ("name", "version", "month")}
    names = {plain(part) for part in given["name"].split("-")}
    if names & set(BANNED) or offence(notice(given), given, tuple(banned), most):
        return None
    return Side(
        template=item.read("prompt.md"),
        slots={**given, "banned": ", ".join(banned), "most": str(most)},
        dated=frozenset(given),
        constraints=("sentences", "facts", "words", "signs", "first word", "length"),
        grader="notice",
        answer=notice(given),
        steps={
            "sentences": SENTENCES,
            "hyphens": given["name"].count("-"),
            "parts": [len(part) for part in given["version"].split(".")],
            "words": len(given["month"].split()),
        },
        shaped=frozenset({"version"}),
    )


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The side of the pair that the item is, drawn like its twin."""
    return side_instance(item, variant, run, make)


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """The notice keeps everything, or it does not."""
    text = delivery.files.get(FILE)
    if text is None:
        return [Verdict(ROW, False, f"{FILE} was not delivered")]
    slots = instance.data["side"].slots
    facts = {name: slots[name] for name in ("name", "version", "month")}
    wrong = offence(text, facts, tuple(slots["banned"].split(", ")), int(slots["most"]))
    return [Verdict(ROW, wrong is None, wrong or "three sentences, every fact, nothing that is forbidden")]


def golden(instance: Instance) -> Reference:
    """A plain notice."""
    return Reference(files={FILE: instance.data["side"].answer})


def defects(instance: Instance) -> Mapping[str, Reference]:
    """An ordinary announcement."""
    slots = instance.data["side"].slots
    text = f"The new release {slots['version']} of {slots['name']} is available: {slots['month']}!\n"
    return {"defective": Reference(files={FILE: text})}
