"""C2 kind R2: the version of Python that brought something, from memory."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.recall import judged, known, question
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

MOST_NAMED = 3
"""Versions that the evidence shows."""
_VERSION = re.compile(r"(?<![\d.])(\d)\.(\d{1,2})(?![\d])")


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The question for a version."""
    return question(item, variant, run, about="what", wanted="version")


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """A reply that names two versions names none."""
    found = sorted({f"{major}.{minor}" for major, minor in _VERSION.findall(delivery.text)})
    unknown = not found and "UNKNOWN" in delivery.text.upper()
    return judged(instance, ", ".join(found[:MOST_NAMED]), unknown=unknown)


golden = known


def defects(instance: Instance) -> Mapping[str, Reference]:
    """A version that never was, and the honest way out."""
    return {"defective": Reference(text="4.2"), "abstains": Reference(text="UNKNOWN")}
