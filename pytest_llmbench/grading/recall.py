"""Closed-book questions of level C: one fact of the item's ``facts.json``, asked for from memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import SHOWN_CHARS
from pytest_llmbench.spec import Instance, Reference, Verdict

ROW: Final = "recalled"
FACTS: Final = "facts.json"


@cache
def facts_of(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """The facts that are asked for, by item."""
    document: Mapping[str, Mapping[str, str]] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return document


def question(item: Item, variant: int, run: int, *, about: str, wanted: str) -> Instance:
    """The question as it is: there is nothing to draw.

    Args:
        item: whose fixtures hold the facts.
        variant: of the instance.
        run: of the instance.
        about: the part of a fact that the prompt tells, under the same name.
        wanted: the part that is asked for; the item's own code finds it as ``data["expected"]``.
    """
    fact = facts_of(item.side("fixtures"))[item.spec.id]
    prompt = item.render(**{about: fact[about]})
    return Instance(item.spec, variant, run, prompt, data={"expected": fact[wanted]})


def judged(instance: Instance, given: str, *, unknown: bool) -> list[Verdict]:
    """Right, unknown, made up, or no answer; the report tells the four apart by the evidence.

    Args:
        instance: the question.
        given: what was answered, empty for nothing.
        unknown: the reply says that it does not know.
    """
    if given == instance.data["expected"]:
        return [Verdict(ROW, True, "right")]
    if unknown:
        return [Verdict(ROW, False, "unknown")]
    return [Verdict(ROW, False, f"made up: {given[:SHOWN_CHARS]}" if given else "no answer")]


def known(instance: Instance) -> Reference:
    """The reference that knows the fact."""
    return Reference(text=instance.data["expected"])
