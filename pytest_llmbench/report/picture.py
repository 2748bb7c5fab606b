"""The ranking as a picture: places on a common scale, as shares of its width."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_llmbench.report.build import LevelModel

TICKS = 8
"""Marks of a scale, at most, beside the one it begins with."""
STEPS = (1, 2, 2.5, 5, 10)
"""Distances between two marks, times a power of ten."""
WHOLE = 100


@dataclass(frozen=True)
class Interval:
    """What the analysis of level A says of one model."""

    ref: str
    mean: float
    low: float | None
    high: float | None
    """None where nothing is known of the noise, such as after one run."""
    place: int | None
    """None where the analysis gives no places."""


@dataclass(frozen=True)
class Scale:
    """A scale of points between two round figures."""

    low: float
    high: float
    step: float

    @classmethod
    def over(cls, points: Iterable[float]) -> Scale:
        """The narrowest scale with round ends that holds all ``points``."""
        known = list(points) or [0.0]
        least, most = min(known), max(known)
        rough = max(most - least, 1) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(step * power for step in STEPS if step * power >= rough)
        low, high = math.floor(least / step) * step, math.ceil(most / step) * step
        return cls(low, high if high > low else low + step, step)

    @property
    def ticks(self) -> list[float]:
        return [round(self.low + n * self.step, 6) for n in range(round((self.high - self.low) / self.step) + 1)]

    def at(self, points: float) -> str:
        """Where ``points`` are on the scale, as CSS and SVG write shares."""
        return f"{WHOLE * (points - self.low) / (self.high - self.low):.2f}%"


@dataclass(frozen=True)
class Line:
    """One model in the picture of a level."""

    ref: str
    model: LevelModel
    interval: Interval | None

    @property
    def totals(self) -> list[float]:
        """Points of its runs; the picture shows none of a model that lacks a node."""
        return [] if self.mean is None else [run.points for run in self.model.runs if run.points is not None]

    @property
    def mean(self) -> float | None:
        return self.model.points_mean

    @property
    def place(self) -> int | None:
        return self.interval.place if self.interval else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Ends of its interval."""
        known = self.interval
        return None if known is None or known.low is None or known.high is None else (known.low, known.high)

    @property
    def points_max(self) -> float:
        return max((run.points_max for run in self.model.runs), default=0.0)


def lines_of(models: Iterable[tuple[str, LevelModel]], intervals: Iterable[Interval] | None, ranks: bool) -> list[Line]:
    """The lines of a level's picture: by place and mean where the level ranks, in the session's order where not."""
    known = {interval.ref: interval for interval in intervals or ()} if ranks else {}
    lines = [Line(ref, model, known.get(ref)) for ref, model in models]
    return sorted(lines, key=_order) if ranks else lines


def _order(line: Line) -> tuple[float, bool, float]:
    return math.inf if line.place is None else line.place, line.mean is None, -(line.mean or 0)


def scale_of(lines: Iterable[Line]) -> Scale:
    """A scale that holds every run and every interval of ``lines``."""
    return Scale.over(point for line in lines for point in (*line.totals, *(line.bounds or ())))
