"""The arithmetic of noise: which differences between models a campaign sustains, and what a wanted one would cost.

Everything here works on plain arrays of points, ``items × runs`` for one model or one pair of models and
``models × items × runs`` for a campaign. NaN stands for a node that was not measured: it is left out, never a zero.

Which noise is meant. A bank is a fixed list of items, and every run is a fresh instance of each of them, the same
instance for every model. So an item is a stratum, an instance (item × run) is what is sampled, the rows of an instance
are one cluster that counts once, and two models are compared on the instances that both were given. The question that
``stratified`` answers is: would this order come out again if the campaign were repeated with other instances of the
same items? ``across_items`` answers the harder question whether it would come out with *other items*, of which these
are taken as a sample; with some ten items hardly any order holds there, and no number of runs helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtr, ndtr, stdtr, stdtrit

Array = NDArray[np.float64]

ALPHA = 0.05
"""Share of campaigns in which any false order may be claimed: 95 % confidence."""
POWER = 0.8
"""Probability with which a planned campaign is to sustain the wanted difference."""
MOST_RUNS = 1_000
"""Largest number of runs that ``runs_needed`` thinks about."""
EXACT = 9
"""Decimals to which points are exact; what is behind them is the binary representation."""


@dataclass(frozen=True)
class Estimate:
    """A sum of points over all items, with what is known of its noise."""

    value: float
    """In points, such as the difference of two models' mean totals."""
    error: float
    """Standard error, in points."""
    freedom: float
    """Degrees of freedom of the standard error."""
    cells: int
    """Instances (item × run) that it rests on."""
    left_out: int
    """Instances that were not measured."""
    differing: int
    """Instances whose value is not zero."""

    def half_width(self, alpha: float = ALPHA) -> float:
        """Half of the width of the two-sided ``1 - alpha`` confidence interval, in points."""
        return float(stdtrit(self.freedom, 1 - alpha / 2)) * self.error if self.error else 0.0

    @property
    def p(self) -> float:
        """Two-sided p value of "the true value is zero".

        The larger one of two: Student's t, and the smallest p that a randomisation of signs over ``n`` differing
        instances can reach, ``2 ** (1 - n)``. The second keeps a pair that differs in few instances, and there by
        chance the same way in every run, from looking certain only because no spread was seen.

        Source: R. A. Fisher, The Design of Experiments, 1935; E. J. G. Pitman, Significance Tests Which May be
        Applied to Samples from any Populations, 1937.
        """
        if not self.value:
            return 1.0
        student = 2 * float(stdtr(self.freedom, -abs(self.value) / self.error)) if self.error else 0.0
        return max(student, 2.0 ** (1 - self.differing))


def stratified(values: Array, usual: Array | None = None) -> Estimate | None:
    """The sum over items of the mean over runs, and its standard error from the spread of runs within items.

    For a pair of models ``values`` are the differences on the instances both were given; for one model, its points.
    The variance is that of a stratified sample, the sum over items of ``s²/n``; its degrees of freedom are
    Satterthwaite's in Welch's form for variances that are themselves estimated from few runs, and never more than the
    runs have. An item with a single measured run borrows the largest variance of the other items. Where ``usual`` says
    how noisy each item is elsewhere in the campaign, it is taken as one more degree of freedom of that item: two or
    three runs that came out alike are weak evidence for an item without noise.

    Source: W. G. Cochran, Sampling Techniques, 3rd ed. 1977; F. E. Satterthwaite, An Approximate Distribution of
    Estimates of Variance Components, 1946; B. L. Welch, The Generalization of "Student's" Problem when Several
    Different Population Variances are Involved, 1947. Variances moderated by those of the whole: G. K. Smyth, Linear
    Models and Empirical Bayes Methods for Assessing Differential Expression, 2004, here with a fixed weight. Paired
    differences and clustered rows for language models: E. Miller, Adding Error Bars to Evals, 2024.

    Args:
        values: points, ``items × runs``; NaN where not measured.
        usual: variance over runs of such values, per item, in points²; NaN where it is not known.

    Returns:
        None where an item has no value at all, or no item has two: then nothing is known of the noise.
    """
    values = np.round(values, EXACT)
    known = ~np.isnan(values)
    runs = known.sum(axis=1)
    if not len(runs) or not runs.all() or runs.max() < 2:
        return None
    variances = run_variances(values)
    variances = np.where(np.isnan(variances), np.nanmax(variances), variances)
    freedoms = np.maximum(runs - 1, 1)
    if usual is not None:
        variances = np.where(np.isnan(usual), variances, (freedoms * variances + usual) / (freedoms + 1))
    parts = variances / runs
    variance = float(parts.sum())
    # divided by the largest part first: the square of a very small variance is zero
    scaled = parts / parts.max() if variance else np.ones(len(parts))
    freedom = float(scaled.sum() ** 2 / (scaled**2 / (freedoms + 2)).sum()) - 2
    freedom = min(freedom, float(freedoms.sum()))
    return Estimate(
        value=round(float(np.nanmean(values, axis=1).sum()), EXACT),
        error=variance**0.5,
        freedom=freedom,
        cells=int(runs.sum()),
        left_out=int((~known).sum()),
        differing=int((known & (values != 0)).sum()),
    )


def across_items(values: Array) -> Estimate | None:
    """The same sum with its standard error from the spread between items: the items are the clusters.

    Source: cluster-robust standard errors as in E. Miller, Adding Error Bars to Evals, 2024, each item one
    cluster with all of its runs and rows; t with ``items - 1`` degrees of freedom for few clusters, as in
    A. C. Cameron, D. L. Miller, A Practitioner's Guide to Cluster-Robust Inference, 2015.

    Args:
        values: points, ``items × runs``; NaN where not measured.

    Returns:
        None where an item has no value at all, or there is one item only.
    """
    values = np.round(values, EXACT)
    known = ~np.isnan(values)
    if len(values) < 2 or not known.any(axis=1).all():
        return None
    means = np.nanmean(values, axis=1)
    return Estimate(
        value=round(float(means.sum()), EXACT),
        error=float(np.sqrt(len(means) * means.var(ddof=1))),
        freedom=float(len(means) - 1),
        cells=int(known.sum()),
        left_out=int((~known).sum()),
        differing=int(np.count_nonzero(means)),
    )


def run_variances(values: Array) -> Array:
    """Variance over runs (the last axis), in points²; NaN where fewer than two runs were measured."""
    known = ~np.isnan(values)
    runs = known.sum(axis=-1)
    filled = np.where(known, values, 0.0)
    centre = filled.sum(axis=-1) / np.maximum(runs, 1)
    squares = np.where(known, (filled - centre[..., None]) ** 2, 0.0).sum(axis=-1)
    return np.where(runs > 1, np.round(squares, 2 * EXACT) / np.maximum(runs - 1, 1), np.nan)


def holm(p_values: Sequence[float]) -> list[float]:
    """P values adjusted for being looked at together, in the order given.

    Claiming all those at or below alpha makes any false claim in a share of at most alpha of the campaigns.

    Source: S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def look_alpha(looks: int, alpha: float = ALPHA) -> float:
    """Alpha of each of ``looks`` looks at growing data, so that any false claim at any look stays below ``alpha``.

    The linear spending function of K. K. G. Lan, D. L. DeMets, Discrete Sequential Boundaries for Clinical Trials,
    1983, spent by Bonferroni's inequality (O. J. Dunn, Multiple Comparisons Among Means, 1961), which needs no
    assumption on how the looks depend on each other.

    Raises:
        ValueError: where ``looks`` is below 1.
    """
    if looks < 1:
        raise ValueError(f"there is no level for {looks} looks")
    return alpha / looks


def quadratic_mean(figures: Sequence[float]) -> float | None:
    """Root of the mean square; None of nothing."""
    return float(np.sqrt(np.mean(np.square(figures)))) if len(figures) else None


@dataclass(frozen=True)
class ItemParts:
    """What each item contributes, in the order of the items; NaN where nothing is known."""

    between: Array
    """Share of the true variance between the models' totals; together 1. Below 0: the item orders the models the
    other way round than the rest."""
    noise: Array
    """Share of the variance over runs; together 1."""
    deviation: Array
    """Standard deviation over runs, in points, pooled over the models."""


def usual_variances(points: Array) -> Array:
    """Variance over runs of each item, in points², pooled over the models; NaN where no model has two runs of it.

    Args:
        points: ``models × items × runs``; NaN where not measured.
    """
    variances = run_variances(points)
    measured = (~np.isnan(variances)).sum(axis=0)
    return np.where(measured > 0, np.nansum(variances, axis=0) / np.maximum(measured, 1), np.nan)


def item_parts(points: Array) -> ItemParts:
    """Variance components of a campaign, item by item.

    The variance over runs of an item is the mean of its models' variances. The variance between models' totals is the
    sum over items of the covariance of the item's points with the total; from each covariance the part that the noise
    of a mean over runs contributes to it is taken off.

    Source: analysis-of-variance estimates as in S. R. Searle, G. Casella, C. E. McCulloch, Variance Components, 1992,
    and R. L. Brennan, Generalizability Theory, 2001, for the design models × items × runs within items.

    Args:
        points: ``models × items × runs``; NaN where not measured.
    """
    unknown = np.full(points.shape[1], np.nan)
    runs = (~np.isnan(points)).sum(axis=2)
    pooled = usual_variances(points)
    noise = pooled / np.nansum(pooled) if np.nansum(pooled) > 0 else unknown
    whole = (runs > 0).all(axis=1)
    between = unknown
    if whole.sum() > 1 and not np.isnan(pooled).any():
        means = np.nanmean(points[whole], axis=2)
        totals = means.sum(axis=1)
        covariances = ((means - means.mean(axis=0)) * (totals - totals.mean())[:, None]).sum(axis=0) / (len(totals) - 1)
        parts = covariances - pooled * (1 / runs[whole]).mean(axis=0)
        if parts.sum() > 10**-EXACT:
            between = parts / parts.sum()
    return ItemParts(between, noise, np.sqrt(pooled))


def power_of_runs(variance: float, freedom: float, difference: float, comparisons: int) -> Array:
    """Probability that a true difference is sustained, for 2, 3, … ``MOST_RUNS`` runs.

    The power of the t test that ``stratified`` does, at the strictest level that ``holm`` may ask for.

    Source: J. Cohen, Statistical Power Analysis for the Behavioral Sciences, 2nd ed. 1988, by the non-central t; for
    evaluations of language models E. Miller, Adding Error Bars to Evals, 2024.

    Args:
        variance: of a pair's difference in one run, summed over items, in points².
        freedom: degrees of freedom that each run beyond the first adds.
        difference: true difference, in points.
        comparisons: pairs that are looked at together.

    Raises:
        ValueError: where the difference is not above zero, or there is nothing to compare.
    """
    if not difference > 0 or comparisons < 1:
        raise ValueError("a difference above zero, and at least one comparison are needed")
    runs = np.arange(2, MOST_RUNS + 1)
    freedoms = freedom * (runs - 1)
    bound = np.asarray(stdtrit(freedoms, 1 - ALPHA / comparisons / 2))
    with np.errstate(divide="ignore"):
        shift = difference / np.sqrt(variance / runs)
    exact = np.asarray(nctdtr(freedoms, shift, bound))
    # beyond the range of the non-central t its normal limit is exact enough
    missed: Array = np.where(np.isfinite(exact), exact, ndtr(bound - shift))
    return np.clip(1 - missed, 0.0, 1.0)


def runs_needed(variance: float, freedom: float, difference: float, comparisons: int) -> int | None:
    """The fewest runs with which ``power_of_runs`` reaches ``POWER``; None where ``MOST_RUNS`` are not enough.

    Raises:
        ValueError: as ``power_of_runs``.
    """
    enough = np.flatnonzero(power_of_runs(variance, freedom, difference, comparisons) >= POWER)
    return int(enough[0]) + 2 if len(enough) else None
