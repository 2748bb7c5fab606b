"""C2 kind R2: the version of Python that brought something, from memory."""

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
_VERSION = re.compile(r"(?<![\d.])(\d)\.(\d{1,2})(?![\d])")


@cache
def facts_of(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """The facts that are asked for, by item."""
    document: Mapping[str, Mapping[str, str]] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return document


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The question as it is: there is nothing to draw."""
    fact = facts_of(item.side("fixtures"))[item.spec.id]
    return Instance(item.spec, variant, run, item.render(what=fact["what"]), data={"version": fact["version"]})


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """Right, unknown or made up; a reply that names two versions names none."""
    found = {f"{major}.{minor}" for major, minor in _VERSION.findall(delivery.text)}
    if found == {instance.data["version"]}:
        return [Verdict(ROW, True, "right")]
    if not found and "UNKNOWN" in delivery.text.upper():
        return [Verdict(ROW, False, "unknown")]
    return [Verdict(ROW, False, f"made up: {', '.join(sorted(found)[:3])}" if found else "no answer")]


def golden(instance: Instance) -> Reference:
    """The version."""
    return Reference(text=instance.data["version"])


def defects(instance: Instance) -> Mapping[str, Reference]:
    """A version that never was, and the honest way out."""
    return {"defective": Reference(text="4.2"), "abstains": Reference(text="UNKNOWN")}
