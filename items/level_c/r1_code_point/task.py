"""C2 kind R1: the name of a code point, from memory."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.recall import judged, known, question
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The question for a code point."""
    return question(item, variant, run, about="code", wanted="name")


def said(text: str) -> str:
    """The last line of a reply without what stands around a name."""
    lines = [line for line in text.upper().splitlines() if line.strip()]
    last = re.sub(r"^.*(?::| IS )", "", lines[-1]) if lines else ""
    return " ".join(re.sub(r"[^A-Z0-9 -]", " ", last).split()).removesuffix(" .")


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """The name in the last line counts."""
    given = said(delivery.text)
    return judged(instance, given, unknown=given == "UNKNOWN")


golden = known


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Another name, and the honest way out."""
    return {"defective": Reference(text="SQUARE WITH A HAT"), "abstains": Reference(text="UNKNOWN")}
