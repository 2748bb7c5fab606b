"""The ranking as a picture: places on a common scale, as shares of its width."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pytest_llmbench.report.build import LevelModel, LevelReport
from pytest_llmbench.report.figures import ModelSummary, Place

TICKS = 5
"""Marks of a scale, at most, beside the one it begins with."""
STEPS = (1, 2, 2.5, 5, 10)
"""Distances between two marks, times a power of ten."""
WHOLE = 100


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
    summary: ModelSummary | None
    """None for a reference."""
    ranked: Place | None
    """None where the analysis gives it no place."""
    parted: bool = False
    """Whether a higher place ends above it."""

    @property
    def totals(self) -> list[float]:
        """Points of its whole runs."""
        return [run.points for run in self.model.runs if run.points is not None]

    @property
    def mean(self) -> float | None:
        """Mean of its whole runs."""
        return self.summary.mean if self.summary else self.model.points_mean

    @property
    def place(self) -> str | None:
        """The places that it may have, such as ``1-3``."""
        one = self.ranked
        return None if one is None else str(one.place) if one.place == one.last else f"{one.place}-{one.last}"

    @property
    def deviation(self) -> float | None:
        return self.summary.deviation if self.summary else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Ends of its 95 % interval; None where nothing is known of the noise."""
        return self.summary.interval if self.summary else None

    @property
    def runs(self) -> str:
        """Whole runs; where some are not whole, of how many."""
        whole, of = len(self.totals), len(self.model.runs)
        return str(whole) if whole == of else f"{whole} of {of}"

    @property
    def points_max(self) -> float:
        return max((run.points_max for run in self.model.runs), default=0.0)


def lines_of(level: LevelReport) -> list[Line]:
    """The lines of a level: by place and mean where it ranks, in the session's order where not; references last."""
    analysis = level.analysis
    summaries = analysis.models if analysis else {}
    places = {one.model: one for one in (analysis.ranking if analysis else None) or ()}
    lines = [Line(ref, model, summaries.get(ref), places.get(ref)) for ref, model in level.models.items()]
    lines.sort(key=_order if places else lambda line: line.summary is None)
    return [
        replace(line, parted=before.ranked is not None and _place(before) != _place(line))
        for before, line in zip([lines[0], *lines[:-1]], lines, strict=True)
    ]


def _place(line: Line) -> float:
    return math.inf if line.ranked is None else line.ranked.place


def _order(line: Line) -> tuple[float, bool, bool, float]:
    return _place(line), line.summary is None, line.mean is None, -(line.mean or 0) if line.summary else 0


def scale_of(lines: Iterable[Line]) -> Scale:
    """A scale that holds every run and every interval of ``lines``."""
    return Scale.over(
        point for line in lines if line.mean is not None for point in (*line.totals, line.mean, *(line.bounds or ()))
    )
