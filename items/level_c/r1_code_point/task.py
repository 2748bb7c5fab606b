"""C2 kind R1: the name of a code point, from memory."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pytest_llmbench.bank import Item
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

ROW = "recalled"
FACTS = "facts.json"
SHOWN = 60


@cache
def facts_of(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """The facts that are asked for, by item."""
    document: Mapping[str, Mapping[str, str]] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return document


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The question as it is: there is nothing to draw."""
    fact = facts_of(item.side("fixtures"))[item.spec.id]
    return Instance(item.spec, variant, run, item.render(code=fact["code"]), data={"name": fact["name"]})


def said(text: str) -> str:
    """The last line of a reply without what stands around a name."""
    lines = [line for line in text.upper().splitlines() if line.strip()]
    last = re.sub(r"^.*(?::| IS )", "", lines[-1]) if lines else ""
    return " ".join(re.sub(r"[^A-Z0-9 -]", " ", last).split()).removesuffix(" .")


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """Right, unknown or made up."""
    given, name = said(delivery.text), instance.data["name"]
    if given == name:
        return [Verdict(ROW, True, "right")]
    if given == "UNKNOWN":
        return [Verdict(ROW, False, "unknown")]
    return [Verdict(ROW, False, f"made up: {given[:SHOWN]}" if given else "no answer")]


def golden(instance: Instance) -> Reference:
    """The name."""
    return Reference(text=instance.data["name"])


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Another name, and the honest way out."""
    return {"defective": Reference(text="SQUARE WITH A HAT"), "abstains": Reference(text="UNKNOWN")}
