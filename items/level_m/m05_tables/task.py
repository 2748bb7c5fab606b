"""Tables to JSON: a line that has to be found and copied, and cells that have to be found and added up."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_llmbench import drawing
from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import grade_together
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

FILE = "lines.json"
COLUMNS = ("item", "depot", "boxes", "weight")
LINES = ("line", "small_line")
SUMS = {"sum": ("1",), "small_sum": ("2",)}
STARTS = (
    "Bal",
    "Cor",
    "Dav",
    "Fen",
    "Gal",
    "Hul",
    "Jor",
    "Kel",
    "Lum",
    "Mar",
    "Nor",
    "Pel",
    "Rav",
    "Sol",
    "Tam",
    "Ver",
)
ENDS = ("ado", "eka", "imo", "una", "orin", "asca", "etto", "uvi")
BOXES, WEIGHT = (12, 98), (1012, 9876)
ADDED = 3
"""Lines whose boxes are added up."""
SHOWN = 200
"""Characters of what was delivered that the evidence shows."""


@dataclass(frozen=True)
class Place:
    """Where a table stands in the picture and how large it is written."""

    lines: int
    top: int
    height: int
    size: int


UPPER = Place(lines=5, top=30, height=58, size=30)
LOWER = Place(lines=9, top=436, height=42, size=20)
EDGES = (40, 260, 480, 668, 856)
"""Left edges of the columns, and the right edge of the last one."""
PAD = 16

Line = tuple[str, str, int, int]


@dataclass(frozen=True)
class Table:
    """The lines of a table, the one to be copied and those to be added up."""

    lines: tuple[Line, ...]
    copied: int
    added: tuple[int, ...]

    @property
    def line(self) -> dict[str, str | int]:
        """The line to be copied."""
        return dict(zip(COLUMNS, self.lines[self.copied], strict=True))

    @property
    def names(self) -> str:
        """The items whose boxes are added up, in words."""
        *first, last = (self.lines[number][0] for number in self.added)
        return f"{', '.join(first)} and {last}"

    def total(self, column: int = 2) -> int:
        """The sum of a column over the lines to be added up."""
        return sum(int(self.lines[number][column]) for number in self.added)

    def below(self) -> Table:
        """The same questions, read one line too low; the last line is followed by the first one."""
        return Table((*self.lines[1:], self.lines[0]), self.copied, self.added)


Tables = tuple[Table, Table]


def answers(tables: Tables) -> dict[str, int]:
    """The two sums."""
    return {str(number): table.total() for number, table in enumerate(tables, 1)}


def settle(seed: random.Random) -> Tables:
    """Draw two tables without a repeated name or number."""
    names = [start + end for start in STARTS for end in ENDS]
    count = UPPER.lines + LOWER.lines
    while True:
        words = seed.sample(names, 2 * count)
        boxes = seed.sample([number for number in range(BOXES[0], BOXES[1] + 1) if number % 11], count)
        weights = seed.sample(
            [number for number in range(WEIGHT[0], WEIGHT[1] + 1) if len(set(str(number))) == 4], count
        )
        lines = list(zip(words[:count], words[count:], boxes, weights, strict=True))
        upper, lower = _table(seed, lines[: UPPER.lines]), _table(seed, lines[UPPER.lines :])
        if all(table.total() != table.below().total() for table in (upper, lower)):
            return upper, lower


def _table(seed: random.Random, lines: Sequence[Line]) -> Table:
    numbers = range(len(lines))
    return Table(tuple(lines), seed.choice(numbers), tuple(sorted(seed.sample(numbers, ADDED))))


def draw(tables: Tables) -> Image:
    """The two tables."""
    image, pen = drawing.canvas()
    for table, place in zip(tables, (UPPER, LOWER), strict=True):
        _grid(pen, place)
        for number, line in enumerate((COLUMNS, *table.lines)):
            y = place.top + (number + 0.5) * place.height
            for cell, left, right in zip(line, EDGES[:-1], EDGES[1:], strict=True):
                is_number = isinstance(cell, int)
                x, anchor = (right - PAD, "rm") if is_number else (left + PAD, "lm")
                drawing.write(pen, (x, y), str(cell), place.size, anchor=anchor)
    return image


def _grid(pen: ImageDraw, place: Place) -> None:
    bottom = place.top + (place.lines + 1) * place.height
    pen.rectangle((EDGES[0], place.top, EDGES[-1], place.top + place.height), fill=(222, 228, 238))
    for x in EDGES:
        pen.line((x, place.top, x, bottom), fill="black", width=2)
    for y in range(place.top, bottom + 1, place.height):
        pen.line((EDGES[0], y, EDGES[-1], y), fill="black", width=2)


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Settle the tables and the sums, then draw them."""
    tables = settle(seed)
    upper, lower = tables
    return drawing.pictured(
        item,
        variant,
        run,
        draw(tables),
        tables,
        answers(tables),
        line=upper.line["item"],
        small_line=lower.line["item"],
        three=upper.names,
        small_three=lower.names,
    )


def grade(instance: Instance, delivery: Delivery) -> Sequence[Verdict]:
    """The two lines, which must be equal as JSON, and the two sums."""
    found = _parse(delivery.files.get(FILE))
    tables: Tables = instance.data["drawn"]
    verdicts = [
        _verdict(row, table.line, found, number) for number, (row, table) in enumerate(zip(LINES, tables, strict=True))
    ]
    return [*verdicts, *grade_together(instance, delivery, SUMS)]


def _parse(text: str | None) -> list[Any] | str:
    """The delivered list; a text that says what is wrong where there is none."""
    if text is None:
        return f"{FILE} was not delivered"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return f"{FILE} is no JSON"
    return found if isinstance(found, list) else f"{FILE} is no JSON list"


def _verdict(row: str, line: Mapping[str, str | int], found: list[Any] | str, number: int) -> Verdict:
    if isinstance(found, str):
        return Verdict(row, False, found)
    if number >= len(found):
        return Verdict(row, False, f"the list has {len(found)} elements")
    shown = json.dumps(found[number], ensure_ascii=True)[:SHOWN]
    return Verdict(row, _equal(found[number], line), f"delivered {shown}; expected {json.dumps(line)}")


def _equal(one: object, line: Mapping[str, str | int]) -> bool:
    return isinstance(one, dict) and one == line and not any(isinstance(value, bool) for value in one.values())


def _deliver(lines: Sequence[Mapping[str, object]], sums: Mapping[str, int]) -> Reference:
    return Reference(answers=sums, files={FILE: json.dumps(lines) + "\n"})


def golden(instance: Instance) -> Reference:
    """What was drawn."""
    tables: Tables = instance.data["drawn"]
    return _deliver([table.line for table in tables], answers(tables))


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Wrong lines, wrong columns, wrong types, wrong digits, and half of the work."""
    tables: Tables = instance.data["drawn"]
    upper, lower = tables
    right, sums = [table.line for table in tables], answers(tables)
    turned = {**lower.line, "boxes": int(str(lower.line["boxes"])[::-1])}
    return {
        "defective": _deliver([table.below().line for table in tables], answers((upper.below(), lower.below()))),
        "text_only": _deliver([{key: str(value) for key, value in line.items()} for line in right], sums),
        "wrong_column": _deliver(right, {"1": upper.total(3), "2": lower.total(3)}),
        "digits_swapped": _deliver([upper.line, turned], sums),
        "large_only": _deliver([upper.line], {"1": sums["1"]}),
    }
