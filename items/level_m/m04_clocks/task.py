"""Telling the time: two hands on a dial, with numerals and without."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmbench import drawing
from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import grade_together, right_answers
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

CLOCKS = ("A", "B", "C", "D")
NUMERALED = ("A", "B")
ROWS = {"quarters": ("1",), "numerals": ("2",), "marks": ("3",), "minutes": ("4",)}
HOUR = 60
MINUTES = (
    tuple(range(0, HOUR, 15)),
    tuple(range(0, HOUR, 5)),
    tuple(range(0, HOUR, 5)),
    tuple(minute for minute in range(HOUR) if minute % 5),
)
"""What the minute hand of each clock may show."""
APART = 25
"""Least angle between the hands, in degrees, so that neither hides the other."""
RADIUS, NUMERALS = 196, 156
MARK, SHORT_MARK = 34, 18
HOUR_HAND, MINUTE_HAND, LONG_HAND = (82, 16), (130, 8), (156, 8)
"""Length and width of the hands; without numerals the minute hand reaches almost to the marks."""
SIZE, LETTER = 34, 44
MIDDLES = ((236, 220), (660, 220), (236, 668), (660, 668))
CORNER = (-190, -186)
"""Where the letter of a clock stands, from its middle."""


@dataclass(frozen=True)
class Time:
    """Hours from 1 to 12, minutes from 0 to 59."""

    hour: int
    minute: int

    @property
    def number(self) -> int:
        """As the answer has it."""
        return self.hour * 100 + self.minute

    @property
    def angles(self) -> tuple[float, float]:
        """Of the hour hand and the minute hand, in degrees from the top, clockwise."""
        return self.hour % 12 * 30 + self.minute / 2, self.minute * 6

    @property
    def mirrored(self) -> Time:
        """As it looks in a mirror."""
        return at(12 * HOUR - (self.hour % 12 * HOUR + self.minute))

    @property
    def exchanged(self) -> Time:
        """As one reads it who takes each hand for the other."""
        short, long = self.angles
        return Time(int(long // 30) or 12, round(short / 6) % HOUR)


def at(minutes: int) -> Time:
    """The time so many minutes after twelve."""
    hour, minute = divmod(minutes % (12 * HOUR), HOUR)
    return Time(hour or 12, minute)


def answers(times: Sequence[Time]) -> dict[str, int]:
    """What the four questions ask for."""
    return {str(number): time.number for number, time in enumerate(times, 1)}


def settle(seed: random.Random) -> tuple[Time, ...]:
    """Draw four times, each of another hour, whose hands are apart and that are not their own mirror image."""
    while True:
        times = tuple(Time(seed.randint(1, 12), seed.choice(minutes)) for minutes in MINUTES)
        if len({time.hour for time in times}) == len(times) and all(map(_clear, times)):
            return times


def _clear(time: Time) -> bool:
    between = abs(time.angles[0] - time.angles[1])
    return min(between, 360 - between) >= APART and time not in (time.mirrored, time.exchanged)


def draw(times: Sequence[Time]) -> Image:
    """The four clocks."""
    image, pen = drawing.canvas()
    for name, time, (x, y) in zip(CLOCKS, times, MIDDLES, strict=True):
        pen.ellipse((x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS), outline="black", width=6)
        _dial(pen, name, x, y)
        hands = HOUR_HAND, MINUTE_HAND if name in NUMERALED else LONG_HAND
        for angle, (length, width) in zip(time.angles, hands, strict=True):
            pen.line(((x, y), _point(x, y, angle, length)), fill="black", width=width)
        pen.ellipse((x - 12, y - 12, x + 12, y + 12), fill="black")
        drawing.write(pen, (x + CORNER[0], y + CORNER[1]), name, LETTER)
    return image


def _dial(pen: ImageDraw, name: str, x: int, y: int) -> None:
    if name in NUMERALED:
        for hour in range(1, 13):
            drawing.write(pen, _point(x, y, 30 * hour, NUMERALS), str(hour), SIZE)
        return
    for minute in range(0, HOUR, 1 if name == "D" else 5):
        long = minute % 5 == 0
        inner = RADIUS - (MARK if long else SHORT_MARK)
        ends = _point(x, y, 6 * minute, inner), _point(x, y, 6 * minute, RADIUS)
        pen.line(ends, fill="black", width=8 if long else 3)


def _point(x: int, y: int, angle: float, length: float) -> tuple[float, float]:
    turned = math.radians(angle)
    return x + length * math.sin(turned), y - length * math.cos(turned)


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Settle the times, then draw them."""
    times = settle(seed)
    return drawing.pictured(item, variant, run, draw(times), times, answers(times))


def grade(instance: Instance, delivery: Delivery) -> Sequence[Verdict]:
    """One clock a row, exact to the minute."""
    return grade_together(instance, delivery, ROWS)


golden = right_answers


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Exchanged hands, a mirror, and two who are near the time."""
    times: tuple[Time, ...] = instance.data["drawn"]
    ahead = [at((time.hour + 1) * HOUR + time.minute) for time in times]
    last = times[3]
    near = at(last.hour * HOUR + 5 * round(last.minute / 5))
    found = {
        "defective": [time.exchanged for time in times],
        "mirrored": [time.mirrored for time in times],
        "next_hour": [*times[:2], *ahead[2:]],
        "five_minutes": [*times[:3], near],
    }
    return {name: Reference(answers=answers(read)) for name, read in found.items()}
