"""Reading bar charts: values on the lines, values between the lines, and two series side by side."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_llmbench import drawing
from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import grade_together, right_answers
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

BARS = ("K", "M", "P", "R", "T")
GROUPS = ("W", "X", "Y", "Z")
ROWS = {"two_bars": ("1", "2"), "three_bars": ("3", "4", "5"), "north": ("6", "7", "8", "9"), "south": ("10", "11")}
STEP, MOST = 10, 90
LINES = 20
"""Distance of the lines in the lower chart."""
LEFT, RIGHT = 84, 872
UPPER_BOTTOM, UPPER_TOP = 380, 30
LOWER_BOTTOM, LOWER_TOP = 834, 514
LEGEND = 464
WIDE, NARROW = 84, 64
"""Widths of a bar."""
LABEL, SCALE = 36, 26
"""Sizes of letters below the bars and of the numbers beside the lines."""
TEAL, BLUE, ORANGE, GREY = (18, 130, 124), (31, 79, 216), (235, 124, 20), (190, 190, 190)


@dataclass(frozen=True)
class Charts:
    """The values of the upper chart, and of the two series of the lower one."""

    upper: tuple[int, ...]
    north: tuple[int, ...]
    south: tuple[int, ...]


def answers(charts: Charts) -> dict[str, int]:
    """What the eleven questions ask for."""
    tallest = charts.north.index(max(charts.north))
    figures = (*charts.upper, *charts.north, sum(charts.south), charts.south[tallest])
    return {str(number): figure for number, figure in enumerate(figures, 1)}


def swapped(charts: Charts) -> Charts:
    """North for south and south for north."""
    return replace(charts, north=charts.south, south=charts.north)


def on_lines(charts: Charts) -> Charts:
    """The lower chart as if every bar ended at a line."""
    north, south = (tuple(-(-value // LINES) * LINES for value in series) for series in (charts.north, charts.south))
    return replace(charts, north=north, south=south)


def settle(seed: random.Random) -> Charts:
    """Draw values: all different within a series, in the lower chart at least one between two lines in each, and the
    two series so far apart that mixing them up changes both rows."""
    values = range(STEP, MOST + STEP, STEP)
    while True:
        charts = Charts(*(tuple(seed.sample(values, count)) for count in (len(BARS), len(GROUPS), len(GROUPS))))
        between = [any(value % LINES for value in series) for series in (charts.north, charts.south)]
        if all(between) and charts.north != charts.south and sum(charts.north) != sum(charts.south):
            return charts


def draw(charts: Charts) -> Image:
    """The two charts."""
    image, pen = drawing.canvas()
    _lines(pen, UPPER_BOTTOM, UPPER_TOP, STEP)
    width = (RIGHT - LEFT) / len(BARS)
    for place, (name, value) in enumerate(zip(BARS, charts.upper, strict=True)):
        _bar(pen, LEFT + (place + 0.5) * width, value, WIDE, TEAL, (UPPER_BOTTOM, UPPER_TOP))
        drawing.write(pen, (LEFT + (place + 0.5) * width, UPPER_BOTTOM + 26), name, LABEL)
    _lines(pen, LOWER_BOTTOM, LOWER_TOP, LINES)
    width = (RIGHT - LEFT) / len(GROUPS)
    for place, name in enumerate(GROUPS):
        middle = LEFT + (place + 0.5) * width
        for side, value, colour in ((-1, charts.north[place], BLUE), (1, charts.south[place], ORANGE)):
            _bar(pen, middle + side * (NARROW / 2 + 4), value, NARROW, colour, (LOWER_BOTTOM, LOWER_TOP))
        drawing.write(pen, (middle, LOWER_BOTTOM + 28), name, LABEL)
    for x, name, colour in ((250, "north", BLUE), (540, "south", ORANGE)):
        pen.rectangle((x, LEGEND - 16, x + 32, LEGEND + 16), fill=colour)
        drawing.write(pen, (x + 46, LEGEND), name, LABEL, anchor="lm")
    return image


def _height(value: int, bottom: int, top: int) -> float:
    return bottom - (bottom - top) * value / 100


def _lines(pen: ImageDraw, bottom: int, top: int, step: int) -> None:
    for value in range(0, 101, step):
        y = _height(value, bottom, top)
        pen.line((LEFT, y, RIGHT, y), fill="black" if value == 0 else GREY, width=4 if value == 0 else 3)
        drawing.write(pen, (LEFT - 12, y), str(value), SCALE, anchor="rm")


def _bar(
    pen: ImageDraw, x: float, value: int, width: int, colour: tuple[int, int, int], chart: tuple[int, int]
) -> None:
    pen.rectangle((x - width / 2, _height(value, *chart), x + width / 2, chart[0]), fill=colour)


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Settle the values and the answers, then draw them."""
    charts = settle(seed)
    return drawing.pictured(item, variant, run, draw(charts), charts, answers(charts))


def grade(instance: Instance, delivery: Delivery) -> Sequence[Verdict]:
    """Two to four values a row, all of which must be right."""
    return grade_together(instance, delivery, ROWS)


golden = right_answers


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Readers of other heights, of the wrong series, and one who gives up."""
    charts: Charts = instance.data["drawn"]
    right = answers(charts)
    found = {
        "defective": {key: value - STEP for key, value in right.items()},
        "series_swapped": answers(swapped(charts)),
        "lines_only": answers(on_lines(charts)),
        "one_bar": {**right, "5": right["5"] + STEP},
        "one_chart": {key: right[key] for key in ROWS["two_bars"] + ROWS["three_bars"]},
    }
    return {name: Reference(answers=answers) for name, answers in found.items()}
