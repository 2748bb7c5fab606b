"""What an analysis says, as it stands in ``report.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_llmbench.records import Saved

RANKING = "A"
"""The only level that orders models."""
OWN = "own"
"""A user's own test functions."""

METHOD = (
    "Models are compared on the instances (item x run) that both were given; the rows of an instance count once, "
    "together. Items are strata: noise is the spread over runs within an item (stratified variance, each item's "
    "moderated by what is usual for it in this campaign; Satterthwaite's degrees of freedom in Welch's form; Student's "
    "t, never more certain than a randomisation of signs could be). All pairs of a level are corrected together "
    "(Holm): any false order in at most 5 of 100 campaigns."
)


def level_title(level: str) -> str:
    """What a level's page or table is headed."""
    return "Own tests" if level == OWN else f"Level {level}"


def in_points(points: float, maximum: float) -> str:
    """A difference in points, and as a share of all."""
    return f"{points:.2f} points ({100 * points / maximum:.1f} %)"


class ModelSummary(Saved):
    """One model in one level. The figures in points are of whole runs, those in which every item was measured."""

    runs: int
    """Whole runs."""
    mean: float | None
    deviation: float | None
    """Standard deviation of a run's points; None below two whole runs."""
    lowest: float | None
    highest: float | None
    interval: tuple[float, float] | None
    """95 % confidence interval of the mean under repetition with other instances of the same items."""


class Pair(Saved):
    """Two models on the instances that both were measured on."""

    first: str
    second: str
    difference: float | None
    """Mean points of a run of ``first`` less those of ``second``; None where nothing is known of the noise."""
    interval: tuple[float, float] | None
    """95 % confidence interval of this pair taken alone."""
    p: float | None
    """Corrected for all pairs, and for repeated looks where there were any."""
    sustained: bool
    beyond: bool
    """Whether the order would hold for other items too, of which these are a sample: it rarely does."""
    instances: int
    left_out: int
    """Instances that one of the two was not measured on."""


class Place(Saved):
    """One model of the ranking."""

    model: str
    place: int
    """One more than the number of models that are sustainedly better."""
    last: int
    """The number of models that are not sustainedly worse: no place below this one can be its own."""
    level_with: Sequence[str]
    """Models from which it is not separated, on whatever place they are."""


class ItemPart(Saved):
    """What an item contributes to the campaign."""

    between: float | None
    """Share of the variance between the models' totals."""
    noise: float | None
    """Share of the variance over runs."""
    deviation: float | None
    """Standard deviation over runs in points, pooled over the models."""


class Analysis(Saved):
    """The statistics of one level."""

    method: str = METHOD
    models: Mapping[str, ModelSummary]
    runs: int
    """Runs of the campaign."""
    looks: int
    """Looks at the growing data that the p values are corrected for."""
    noise_floor: float | None
    """Half width of the 95 % interval of one pair's difference, in points, quadratic mean over the pairs."""
    smallest_difference: float | None
    """Difference that is sustained when all pairs are looked at together, in points, quadratic mean over the pairs."""
    points_max: float
    pairs: Sequence[Pair]
    ranking: Sequence[Place] | None
    ranking_why: str | None
    """Why there is no ranking."""
    unranked: Mapping[str, str]
    """Models that have no place in it, with the reason."""
    rows_all: Sequence[str]
    """Rows, as ``A01 q1``, that every model earned in full in every run."""
    rows_none: Sequence[str]
    """Rows of which no model earned anything in any run."""
    rows: int
    """Rows of the level that were measured."""
    items: Mapping[str, ItemPart]
    disagreeing: Sequence[str]
    """Items whose runs disagree most, the worst first."""
