"""Draws the pinned samples of level B and writes the four ``items.toml``. Needs the fetched data; see ``SEED``.

    python items/level_b/draw.py

A drawn sample is released: another seed or size is another bank.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from pytest_llmbench.bank import _import_task

HERE = Path(__file__).parent
SEED = "pytest-llmbench level B"
"""With the name of the set behind it, the seed of each draw."""
READ = {"strict": "strictly", "loose": "loosely"}


@dataclass(frozen=True)
class Set:
    """One public set: how many of it are drawn, and what its items share."""

    folder: str
    size: int
    group: str
    short: str
    row: str
    title: Callable[[object], str]
    number: Callable[[object], str]
    """What tells a sample apart, as part of an item's id."""
    why: str
    runs_code: bool = False

    @property
    def task(self) -> ModuleType:
        return _import_task(HERE / self.folder / "task.py", self.group)

    def draw(self) -> Sequence[object]:
        """The samples, in the order of the set."""
        pool = list(self.task.pool())
        drawn = random.Random(f"{SEED} {self.folder}").sample(range(len(pool)), self.size)
        return [pool[place] for place in sorted(drawn, key=lambda place: self.number(pool[place]))]


SETS = (
    Set(
        "humaneval",
        40,
        "B_HUMANEVAL",
        "B_HE",
        "The public test passes",
        str,
        lambda name: f"{int(str(name).rpartition('/')[2]):03}",
        "The right signature, with None for every result.",
        runs_code=True,
    ),
    Set(
        "gsm8k",
        50,
        "B_GSM8K",
        "B_GSM",
        "The answer is the right number",
        str,
        lambda name: str(name).rpartition("-")[2],
        "A number that is off by one.",
    ),
    Set(
        "ifeval",
        60,
        "B_IFEVAL",
        "B_IFE",
        "",
        lambda key: f"IFEval {key}",
        lambda key: f"{key:0>4}",
        "Follows no instruction, neither strictly nor loosely.",
    ),
    Set(
        "mmlu",
        114,
        "B_MMLU",
        "B_MMLU",
        "The answer is the right letter",
        lambda place: f"MMLU test-tiny line {int(str(place)) + 1}",
        lambda place: f"{place:0>3}",
        "The letter behind the right one.",
    ),
)


def document(one: Set) -> str:
    """The ``items.toml`` of a set."""
    return "\n".join(_lines(one)) + "\n"


def _lines(one: Set) -> Iterator[str]:
    two = one.folder == "ifeval"
    yield "# Written by items/level_b/draw.py. The texts are other people's: `llmbench fetch-b` gets them."
    yield ""
    yield "[defaults]"
    yield 'version = "1.0.0"'
    yield 'level = "B"'
    yield 'mode = "single"'
    yield f'group = "{one.group}"'
    yield "once = true"
    yield "points = 1"
    if one.runs_code:
        yield "runs_code = true"
    row = "passed" if one.runs_code else "answer"
    if not two:
        yield f'rows = [{{ id = "{row}", title = "{one.row}", points = 1 }}]'
    yield "caps = { max_tokens = 4096 }"
    yield ""
    yield "[defaults.references.defective]"
    yield f'why = "{one.why}"'
    yield "points = 0"
    yield "loses = " + ('["prompt_strict", "prompt_loose"]' if two else f'["{row}"]')
    cases = one.task.cases()
    for sample in one.draw():
        yield ""
        yield "[[items]]"
        yield f'id = "{one.short}_{one.number(sample)}"'
        yield f'title = "{one.title(sample)}"'
        yield f"data = {{ sample = {sample if isinstance(sample, int) else repr(sample).replace(chr(39), chr(34))} }}"
        if two:
            parts = len(cases[sample]["instruction_id_list"])
            yield "rows = ["
            for kind in READ:
                title = f"Every instruction is followed, read {READ[kind]}"
                yield f'  {{ id = "prompt_{kind}", title = "{title}", points = 0.5, parts = {parts} }},'
            yield "]"


if __name__ == "__main__":
    for one in SETS:
        (HERE / one.folder / "items.toml").write_text(document(one), encoding="utf-8")
