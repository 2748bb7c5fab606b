"""Codes in four sizes: can a model read characters that carry no meaning, and down to which size?"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmbench import drawing
from pytest_llmbench.bank import Item
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

if TYPE_CHECKING:
    from PIL.Image import Image

FILE = "codes.txt"
SYMBOLS = "ACEFHJKLMNPRTUWXY3479"
"""No two of them look alike: 0, O, Q, D and 1, I and 5, S and 2, Z and 8, B and 6, G and V are left out."""
LENGTH = 6
ROWS = ("huge", "large", "normal", "small")
SIZES = (84, 56, 36, 22)
"""Height of the letters of each code, in pixels."""
HEIGHTS = (150, 370, 560, 730)
"""Where the middle of each code lies."""
SHIFT = 180
"""How far a code may stand to the left or right of the middle."""
SHOWN = 80
"""Characters of a line that the evidence shows."""


@dataclass(frozen=True)
class Board:
    """Four codes from the top to the bottom, and how far each is shifted to the right."""

    codes: tuple[str, ...]
    shifts: tuple[int, ...]


def settle(seed: random.Random) -> Board:
    """Draw four codes without a repeated neighbour that do not read the same backwards."""
    codes: list[str] = []
    while len(codes) < len(ROWS):
        code = "".join(seed.sample(SYMBOLS, LENGTH))
        if code not in codes and code[::-1] not in codes:
            codes.append(code)
    return Board(tuple(codes), tuple(seed.randint(-SHIFT, SHIFT) for _ in codes))


def draw(board: Board) -> Image:
    """The codes, each in its size."""
    image, pen = drawing.canvas()
    for code, shift, size, height in zip(board.codes, board.shifts, SIZES, HEIGHTS, strict=True):
        drawing.write(pen, (drawing.SIDE / 2 + shift, height), code, size)
    return image


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Settle the codes, then draw them."""
    board = settle(seed)
    return drawing.pictured(item, variant, run, draw(board), board, length=LENGTH)


def grade(instance: Instance, delivery: Delivery) -> Sequence[Verdict]:
    """One row per line of the file; empty lines, case and blanks around a code do not count."""
    board: Board = instance.data["drawn"]
    lines = [line.strip() for line in delivery.files.get(FILE, "").splitlines() if line.strip()]
    found = [lines[place] if place < len(lines) else None for place in range(len(ROWS))]
    return [_verdict(row, code, line) for row, code, line in zip(ROWS, board.codes, found, strict=True)]


def _verdict(row: str, code: str, line: str | None) -> Verdict:
    if line is None:
        return Verdict(row, False, f"there is no such line; expected {code}")
    said = line.upper()
    same = sum(one == other for one, other in zip(said, code, strict=False))
    return Verdict(row, said == code, f"read {line[:SHOWN]!r}, {same} of {LENGTH} characters in place; expected {code}")


def _lines(codes: Sequence[str]) -> Reference:
    return Reference(files={FILE: "\n".join(codes) + "\n"})


def golden(instance: Instance) -> Reference:
    """The codes that were drawn."""
    return _lines(instance.data["drawn"].codes)


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Wrong directions, one misread character, and a reader of large letters."""
    codes: tuple[str, ...] = instance.data["drawn"].codes
    *others, small = codes
    misread = small[:2] + next(symbol for symbol in SYMBOLS if symbol != small[2]) + small[3:]
    return {
        "defective": _lines([code[::-1] for code in codes]),
        "upside_down": _lines(codes[::-1]),
        "one_character": _lines([*others, misread]),
        "large_only": _lines(codes[:2]),
    }
