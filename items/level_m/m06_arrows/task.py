"""Following arrows: paths through a grid, from one arrow to a dozen."""

from __future__ import annotations

import random
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_llmbench import drawing
from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import grade_together, right_answers
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

ROWS = {"short": ("1", "2"), "middle": ("3", "4"), "long": ("5", "6")}
LENGTHS = ((1, 3), (4, 6), (7, 11))
"""Least and most arrows of the two paths of a row."""
SIZE = 8
NUMBERS = 9
LETTERS = "ABCDEFGH"
COLUMNS = range(SIZE)
TRIES = 40
"""Ways that are tried for one path before the whole grid is drawn anew."""
MOVES = {"right": (1, 0), "up": (0, -1), "left": (-1, 0), "down": (0, 1)}
CELL, EDGE = 96, 64
ARM, WIDTH, HEAD, SPREAD = 34, 12, 26, 24
"""Half the length of an arrow, its width, the length of its head and half the width of that."""
LETTER, DIGITS = 40, 44

Cell = tuple[int, int]


@dataclass(frozen=True)
class Grid:
    """What stands in every cell, a direction or a number, and the rows in which the six paths begin."""

    cells: Mapping[Cell, str | int]
    starts: tuple[int, ...]

    def path(self, row: int) -> list[Cell] | None:
        """The cells of a path up to its number; None where it leaves the grid or runs in a circle."""
        cell, passed = (0, row), [(0, row)]
        while not isinstance(found := self.cells[cell], int):
            move = MOVES[found]
            cell = (cell[0] + move[0], cell[1] + move[1])
            if cell not in self.cells or cell in passed:
                return None
            passed.append(cell)
        return passed

    def end(self, row: int) -> int | None:
        """The number that a path ends in; None where it ends in none."""
        path = self.path(row)
        return None if path is None else int(self.cells[path[-1]])

    def turned(self, cell: Cell, direction: str) -> Grid:
        """With the arrow of one cell in another direction."""
        return replace(self, cells={**self.cells, cell: direction})

    def flipped(self) -> Grid:
        """With up for down and down for up."""
        other = {"up": "down", "down": "up"}
        return replace(self, cells={cell: other.get(str(found), found) for cell, found in self.cells.items()})


def answers(grid: Grid) -> dict[str, int | None]:
    """The six numbers."""
    return {str(number): grid.end(row) for number, row in enumerate(grid.starts, 1)}


def settle(seed: random.Random) -> Grid:
    """Draw paths that do not touch until the last arrow of each counts, and up and down count in every pair."""
    while True:
        grid = _carve(seed)
        if grid is not None and _telling(grid):
            return grid


def _carve(seed: random.Random) -> Grid | None:
    """A grid with six paths of the wanted lengths, the shortest laid first; None where one found no way."""
    starts = seed.sample(range(SIZE), len(LENGTHS) * 2)
    numbers = seed.sample(range(10, 100), NUMBERS)
    cells: dict[Cell, str | int] = {}
    doors = {(x, row) for row in starts for x in (0, 1)}
    for place, row in enumerate(starts):
        path = _lay(seed, row, seed.randint(*LENGTHS[place // 2]), doors | set(cells))
        if path is None:
            return None
        cells.update((here, _direction(here, there)) for here, there in pairwise(path))
        cells[path[-1]] = numbers.pop()
    free = [(x, y) for y in range(SIZE) for x in range(SIZE) if (x, y) not in cells]
    others = [cell for cell in free if cell[0] > 0]
    if len(others) < len(numbers):
        return None
    for cell in free:
        cells[cell] = seed.choice(
            [name for name, there in _around(cell) if there[0] in COLUMNS and there[1] in COLUMNS]
        )
    cells.update(zip(seed.sample(others, len(numbers)), numbers, strict=True))
    return Grid(cells, tuple(starts))


def _lay(seed: random.Random, row: int, arrows: int, taken: Container[Cell]) -> list[Cell] | None:
    """A way that was found in a few tries; None where none was."""
    ways = (_walk(seed, [(0, row), (1, row)], arrows, taken) for _ in range(TRIES))
    return next((way for way in ways if way is not None), None)


def _walk(seed: random.Random, path: list[Cell], arrows: int, taken: Container[Cell]) -> list[Cell] | None:
    """A way of so many arrows, continued through free cells without coming back to the first column."""
    while len(path) <= arrows:
        there = [cell for _, cell in _around(path[-1]) if cell[0] in COLUMNS[1:] and cell[1] in COLUMNS]
        ways = [cell for cell in there if cell not in taken and cell not in path]
        if not ways:
            return None
        path.append(seed.choice(ways))
    return path


def _around(cell: Cell) -> list[tuple[str, Cell]]:
    return [(name, (cell[0] + dx, cell[1] + dy)) for name, (dx, dy) in MOVES.items()]


def _direction(here: Cell, there: Cell) -> str:
    return next(name for name, cell in _around(here) if cell == there)


def _telling(grid: Grid) -> bool:
    """Whether no path ends in its number if its last arrow is turned, and each pair changes with up and down."""
    right, other = answers(grid), answers(grid.flipped())
    if any((right[one], right[two]) == (other[one], other[two]) for one, two in ROWS.values()):
        return False
    return not any(
        grid.turned(cell, name).end(row) == grid.end(row)
        for row in grid.starts
        for cell in (grid.path(row) or ())[-2:-1]
        for name in MOVES
        if name != grid.cells[cell]
    )


def draw(grid: Grid) -> Image:
    """The grid with its arrows and numbers, and the letters of its rows."""
    image, pen = drawing.canvas()
    for row, letter in enumerate(LETTERS):
        drawing.write(pen, (EDGE / 2, EDGE + (row + 0.5) * CELL), letter, LETTER)
    for line in range(SIZE + 1):
        place, last = EDGE + line * CELL, EDGE + SIZE * CELL
        pen.line((EDGE, place, last, place), fill=(120, 120, 120), width=3)
        pen.line((place, EDGE, place, last), fill=(120, 120, 120), width=3)
    for (x, y), found in grid.cells.items():
        middle = EDGE + (x + 0.5) * CELL, EDGE + (y + 0.5) * CELL
        if isinstance(found, int):
            drawing.write(pen, middle, str(found), DIGITS)
        else:
            _arrow(pen, *middle, MOVES[found])
    return image


def _arrow(pen: ImageDraw, x: float, y: float, move: tuple[int, int]) -> None:
    dx, dy = move
    tip, neck, tail = ARM, ARM - HEAD, -ARM
    pen.line((x + dx * tail, y + dy * tail, x + dx * neck, y + dy * neck), fill=(31, 79, 216), width=WIDTH)
    corners = ((tip, 0), (neck, SPREAD), (neck, -SPREAD))
    pen.polygon([(x + dx * far - dy * side, y + dy * far + dx * side) for far, side in corners], fill=(31, 79, 216))


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Settle the grid and walk its paths, then draw it."""
    grid = settle(seed)
    expected = {key: int(value or 0) for key, value in answers(grid).items()}
    starts = {f"r{number}": LETTERS[row] for number, row in enumerate(grid.starts, 1)}
    return drawing.pictured(item, variant, run, draw(grid), grid, expected, **starts)


def grade(instance: Instance, delivery: Delivery) -> Sequence[Verdict]:
    """Two paths of about the same length a row, both of which must be right."""
    return grade_together(instance, delivery, ROWS)


golden = right_answers


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Mixed-up paths, mixed-up directions, one wrong end, and a reader who gives up."""
    grid: Grid = instance.data["drawn"]
    right = {key: int(value) for key, value in instance.answers.items()}
    other = {two: right[one] for pair in ROWS.values() for one, two in (pair, pair[::-1])}
    wrong = next(found for found in grid.cells.values() if isinstance(found, int) and found != right["6"])
    flipped = {key: found for key, found in answers(grid.flipped()).items() if found is not None}
    return {
        "defective": Reference(answers=other),
        "up_for_down": Reference(answers=flipped),
        "stays_short": Reference(answers={key: right[key] for key in ROWS["short"]}),
        "one_path": Reference(answers={**right, "6": wrong}),
    }
