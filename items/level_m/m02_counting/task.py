"""Counting shapes: how many of which colour and form, among few and among many?"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from pytest_llmbench import drawing
from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import grade_together, right_answers
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

COLOURS = {"red": (214, 39, 40), "blue": (31, 79, 216), "green": (34, 139, 58)}
FORMS = ("circle", "square", "triangle")
KINDS = tuple(product(COLOURS, FORMS))
ROWS = {
    "upper_colours": ("1", "2", "3"),
    "upper_shapes": ("4", "5", "6"),
    "lower_colours": ("7", "8", "9"),
    "lower_both": ("10", "11", "12"),
}
BOTH = (("red", "circle"), ("blue", "square"), ("green", "triangle"))
"""What is asked for by colour and form together."""
MIDDLE, LINE = 400, 10
"""Height and thickness of the line between the halves."""
MARGIN = 24


@dataclass(frozen=True)
class Half:
    """The cells that a half is divided into, and how many shapes of each kind it may hold."""

    columns: int
    rows: int
    top: int
    bottom: int
    radius: int
    each: tuple[int, int]
    total: tuple[int, int]


UPPER = Half(columns=7, rows=3, top=MARGIN, bottom=MIDDLE - MARGIN, radius=40, each=(0, 2), total=(8, 12))
LOWER = Half(
    columns=9, rows=5, top=MIDDLE + MARGIN, bottom=drawing.SIDE - MARGIN, radius=32, each=(1, 5), total=(22, 32)
)

Kind = tuple[str, str]
Shapes = tuple[tuple[int, Kind], ...]
"""Cell by cell what stands there; empty cells are left out."""


@dataclass(frozen=True)
class Board:
    upper: Shapes
    lower: Shapes


def count(shapes: Shapes, colour: str | None = None, form: str | None = None) -> int:
    """How many shapes have the colour and the form; None for any."""
    return sum((colour or found[0], form or found[1]) == found for _, found in shapes)


def answers(board: Board) -> dict[str, int]:
    """What the twelve questions ask for."""
    upper, lower = board.upper, board.lower
    figures = [count(upper, colour) for colour in COLOURS]
    figures += [count(upper, form=form) for form in FORMS]
    figures += [count(lower, colour) for colour in COLOURS]
    figures += [count(lower, *kind) for kind in BOTH]
    return {str(number): figure for number, figure in enumerate(figures, 1)}


def swapped(board: Board) -> Board:
    """The same shapes with red for blue and blue for red."""
    other = {"red": "blue", "blue": "red", "green": "green"}
    both = [
        tuple((cell, (other[colour], form)) for cell, (colour, form) in half) for half in (board.upper, board.lower)
    ]
    return Board(*both)


def settle(seed: random.Random) -> Board:
    """Draw shapes until a mix-up of red and blue changes every row that it can change, and colours of the upper half
    and kinds of the lower half are none of them missing."""
    while True:
        board = Board(_fill(seed, UPPER), _fill(seed, LOWER))
        right, mixed = answers(board), answers(swapped(board))
        told = all([right[key] for key in keys] != [mixed[key] for key in keys] for keys in list(ROWS.values())[::2])
        if told and [right[key] for key in ROWS["lower_both"]] != [mixed[key] for key in ROWS["lower_both"]]:
            return board


def _fill(seed: random.Random, half: Half) -> Shapes:
    while True:
        numbers = [seed.randint(*half.each) for _ in KINDS]
        by_colour = [sum(numbers[place : place + 3]) for place in (0, 3, 6)]
        if half.total[0] <= sum(numbers) <= half.total[1] and min(by_colour) > 0:
            break
    kinds = [kind for kind, number in zip(KINDS, numbers, strict=True) for _ in range(number)]
    cells = seed.sample(range(half.columns * half.rows), len(kinds))
    return tuple(sorted(zip(cells, kinds, strict=True)))


def draw(board: Board) -> Image:
    """The two halves and the line between them."""
    image, pen = drawing.canvas()
    pen.rectangle((0, MIDDLE - LINE / 2, drawing.SIDE, MIDDLE + LINE / 2), fill="black")
    for half, shapes in ((UPPER, board.upper), (LOWER, board.lower)):
        width = (drawing.SIDE - 2 * MARGIN) / half.columns
        height = (half.bottom - half.top) / half.rows
        for cell, (colour, form) in shapes:
            row, column = divmod(cell, half.columns)
            x, y = MARGIN + (column + 0.5) * width, half.top + (row + 0.5) * height
            _shape(pen, form, COLOURS[colour], x, y, half.radius)
    return image


def _shape(pen: ImageDraw, form: str, colour: tuple[int, int, int], x: float, y: float, radius: int) -> None:
    box = (x - radius, y - radius, x + radius, y + radius)
    if form == "circle":
        pen.ellipse(box, fill=colour)
    elif form == "square":
        pen.rectangle(box, fill=colour)
    else:
        pen.polygon([(x - radius, y + radius), (x + radius, y + radius), (x, y - radius)], fill=colour)


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Settle the shapes and the answers, then draw them."""
    board = settle(seed)
    return drawing.pictured(item, variant, run, draw(board), board, answers(board))


def grade(instance: Instance, delivery: Delivery) -> Sequence[Verdict]:
    """Three counts a row, all of which must be right."""
    return grade_together(instance, delivery, ROWS)


golden = right_answers


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Miscounts, a mix-up of colours, and a reader who gives up."""
    board: Board = instance.data["drawn"]
    right = answers(board)
    blind = {key: count(board.lower, form=form) for key, (_, form) in zip(ROWS["lower_both"], BOTH, strict=True)}
    found = {
        "defective": {key: value + 1 for key, value in right.items()},
        "colours_swapped": answers(swapped(board)),
        "one_missed": {**right, "7": right["7"] - 1, "10": right["10"] - 1},
        "colour_blind": {**right, **blind},
        "few_only": {key: right[key] for key in ROWS["upper_colours"] + ROWS["upper_shapes"]},
    }
    return {name: Reference(answers=answers) for name, answers in found.items()}
