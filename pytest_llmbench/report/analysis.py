"""What a campaign's points say and what they do not: spread, noise floor, ranking in groups, items, power, comparison.

Reads records only, one level at a time. What was not measured is left out and counted, and is never a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_llmbench.harness.tools import plain
from pytest_llmbench.records import SCORED
from pytest_llmbench.report.figures import (
    RANKING,
    Analysis,
    ItemPart,
    ModelSummary,
    Pair,
    Place,
    in_points,
    level_title,
)
from pytest_llmbench.stats import (
    ALPHA,
    MOST_RUNS,
    POWER,
    Array,
    Estimate,
    across_items,
    holm,
    item_parts,
    look_alpha,
    quadratic_mean,
    runs_needed,
    stratified,
    usual_variances,
)
from pytest_llmbench.store.folder import RunFolder, StoreError

ROUNDED = 4
"""Decimals of the figures of an analysis."""
MOST_DISAGREEING = 3
"""Items that are named as those whose runs disagree most."""
WANTED = (0.01, 0.02, 0.05)
"""Differences that ``power_text`` answers for where none is named, as shares of the points."""
COMPARABLE = frozenset({"harness", "profile"})
"""Conditions in which two campaigns must agree before a difference between them is called one of the models."""
SIGNS = 12
"""Characters of a signature or checksum that are shown."""

ONE_RUN = "One run is no result: nothing is known of the noise. Repeat with --llm-runs=3."
ONE_MODEL = "One model: there is nothing to order."

Key = tuple[str, int, str]
"""Item, run, model: the node of a plan."""


@dataclass(frozen=True)
class Node:
    """What the analysis needs of one record."""

    item: str
    run: int
    model: str
    points: float | None
    """None where it was not measured."""
    points_max: float
    rows: Mapping[str, tuple[str, float, float]]
    """Title, points and earned points by row id; empty where it was not measured."""
    instance: tuple[str, int]
    """Version and variant of the item."""
    conditions: Mapping[str, str]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Node:
        """The node of a record as it is on disk.

        Raises:
            KeyError, TypeError, ValueError: where it is not one.
        """
        scored = record["status"] in SCORED
        return cls(
            item=record["item"],
            run=int(record["run"]),
            model=record["ref"],
            points=float(record["points"]) if scored else None,
            points_max=float(record["points_max"]),
            rows={row["id"]: (row["title"], float(row["points"]), float(row["earned"])) for row in record["rows"]}
            if scored
            else {},
            instance=(record["item_version"], int(record["variant"])),
            conditions=_conditions(record),
        )


def _conditions(record: Mapping[str, Any]) -> dict[str, str]:
    """What a record was made under, by the name that ``compare`` gives it."""
    prints = record["fingerprints"]
    return {
        "harness": f"{record['harness_version']} ({prints['harness'][:SIGNS]})",
        "grader": prints["grader"][:SIGNS],
        "bank": f"{record['bank_version']} ({prints['bank'][:SIGNS]})",
        "profile": record["profile"],
        "sampling": record["sampling"],
        "thinking": record["think"] or "as the model has it",
        "variant": str(record["variant"]),
        "requests at a time": str(record.get("concurrency", 1)),
    }


@dataclass(frozen=True)
class Campaign:
    """The nodes of one level as a block of points: models × items × runs."""

    models: tuple[str, ...]
    items: tuple[str, ...]
    runs: tuple[int, ...]
    nodes: Mapping[Key, Node]
    points: Array = field(repr=False)
    """NaN where a node was not measured or not planned."""
    planned: NDArray[np.bool_] = field(repr=False)
    """Which nodes of the block were to be measured."""

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]], level: str = "A", planned: Iterable[Key] = ()) -> Campaign:
        """The campaign in ``records``, whatever their order.

        Args:
            records: as ``RunFolder.records`` gives them, of any level.
            level: the one that is looked at.
            planned: nodes of this level that were to be measured; those without a record are unmeasured.

        Raises:
            KeyError, TypeError, ValueError: where one is no record.
        """
        found = [Node.of(record) for record in records if record["level"] == level]
        nodes = {(node.item, node.run, node.model): node for node in found}
        keys = dict.fromkeys([*((str(item), int(run), str(model)) for item, run, model in planned), *nodes])
        models = tuple(dict.fromkeys(model for _, _, model in keys))
        items = tuple(sorted({item for item, _, _ in keys}))
        runs = tuple(sorted({run for _, run, _ in keys}))
        place = {
            kind: {name: number for number, name in enumerate(names)}
            for kind, names in (("model", models), ("item", items), ("run", runs))
        }
        points = np.full((len(models), len(items), len(runs)), np.nan)
        wanted = np.zeros(points.shape, dtype=np.bool_)
        for key in keys:
            cell = place["model"][key[2]], place["item"][key[0]], place["run"][key[1]]
            wanted[cell] = True
            if key in nodes and (scored := nodes[key].points) is not None:
                points[cell] = scored
        return cls(models, items, runs, nodes, points, wanted)

    def of_model(self, model: str) -> Array:
        """Points of a model, ``items × runs``."""
        return np.asarray(self.points[self.models.index(model)])

    def difference(self, first: str, second: str) -> Array:
        """Points of ``first`` less those of ``second`` on the instances that both were measured on."""
        return np.asarray(self.of_model(first) - self.of_model(second))

    @cached_property
    def points_max(self) -> float:
        """What one run can give."""
        return sum({node.item: node.points_max for node in self.nodes.values()}.values())

    @cached_property
    def usual(self) -> Array:
        """Variance over runs of each item, in points², pooled over the models."""
        return usual_variances(self.points)

    @cached_property
    def pairs(self) -> tuple[tuple[str, str, Estimate | None], ...]:
        """Every pair of models with the estimate of its difference."""
        return tuple(
            (first, second, stratified(self.difference(first, second), 2 * self.usual))
            for first, second in combinations(self.models, 2)
        )

    @cached_property
    def tested(self) -> tuple[tuple[str, str, Estimate], ...]:
        """The pairs about whose noise something is known."""
        return tuple((first, second, estimate) for first, second, estimate in self.pairs if estimate is not None)


def analyse(
    records: Iterable[Mapping[str, Any]],
    level: str = "A",
    *,
    planned: Iterable[Key] = (),
    ranks_why: str | None = None,
    looks: int = 1,
) -> Analysis:
    """The statistics of one level of a campaign.

    A pair of models is judged by ``stats.stratified`` on the instances that both were measured on, all pairs together
    by ``stats.holm``. A model's place is one more than the number of models that are sustainedly better than it, so
    models that are not separated from the best share place 1. "Not separated" does not carry over: of three models the
    outer two may be separated while the middle one is level with both; ``level_with`` says so.

    Args:
        records: as ``RunFolder.records`` gives them, of any level.
        level: the one that is looked at; levels never meet.
        planned: its planned nodes (item, run, model); those without a record count as unmeasured.
        ranks_why: why these points order nothing (``Report.ranks_why``); None where they may.
        looks: how often the growing data were looked at, as ``Separation.looks`` says.

    Raises:
        KeyError, TypeError, ValueError: where one is no record, or ``looks`` is below 1.
    """
    campaign = Campaign.of(records, level, planned)
    alpha = look_alpha(looks)
    pairs = _pairs(campaign, looks)
    ranking, why, unranked = _ranking(campaign, pairs, level, ranks_why)
    every, none, rows = _rows(campaign)
    parts = item_parts(campaign.points)
    strictest = alpha / max(len(campaign.tested), 1)
    return Analysis(
        models={model: _summary(campaign, model) for model in campaign.models},
        runs=len(campaign.runs),
        looks=looks,
        noise_floor=_rounded(quadratic_mean([pair.half_width() for _, _, pair in campaign.tested])),
        smallest_difference=_rounded(quadratic_mean([pair.half_width(strictest) for _, _, pair in campaign.tested])),
        points_max=_known(campaign.points_max),
        pairs=pairs,
        ranking=ranking,
        ranking_why=why,
        unranked=unranked,
        rows_all=every,
        rows_none=none,
        rows=rows,
        items={
            item: ItemPart(
                between=_rounded(parts.between[place]),
                noise=_rounded(parts.noise[place]),
                deviation=_rounded(parts.deviation[place]),
            )
            for place, item in enumerate(campaign.items)
        },
        disagreeing=[
            campaign.items[place]
            for place in sorted(np.flatnonzero(parts.deviation > 0), key=lambda place: (-parts.deviation[place], place))
        ][:MOST_DISAGREEING],
    )


def _known(figure: float) -> float:
    return round(float(figure), ROUNDED) + 0.0


def _rounded(figure: float | None) -> float | None:
    return None if figure is None or not np.isfinite(figure) else _known(figure)


def _interval(estimate: Estimate) -> tuple[float, float]:
    half = estimate.half_width()
    return _known(estimate.value - half), _known(estimate.value + half)


def _summary(campaign: Campaign, model: str) -> ModelSummary:
    points = campaign.of_model(model)
    totals = points.sum(axis=0)
    totals = totals[~np.isnan(totals)]
    estimate = stratified(points[:, ~np.isnan(points).any(axis=0)], campaign.usual)
    return ModelSummary(
        runs=len(totals),
        mean=_known(totals.mean()) if len(totals) else None,
        deviation=_known(totals.std(ddof=1)) if len(totals) > 1 else None,
        lowest=_known(totals.min()) if len(totals) else None,
        highest=_known(totals.max()) if len(totals) else None,
        interval=_interval(estimate) if estimate else None,
    )


def _corrected(campaign: Campaign, looks: int) -> dict[tuple[str, str], float]:
    """The p values of the pairs that can be judged, corrected for all of them and for repeated looks."""
    p_values = holm([estimate.p for _, _, estimate in campaign.tested])
    return {
        (first, second): min(1.0, looks * p) for (first, second, _), p in zip(campaign.tested, p_values, strict=True)
    }


def _pairs(campaign: Campaign, looks: int) -> list[Pair]:
    p_values = _corrected(campaign, looks)
    found = []
    for first, second, estimate in campaign.pairs:
        values = campaign.difference(first, second)
        p = p_values.get((first, second))
        sustained = p is not None and p <= ALPHA
        others = across_items(values)
        both = campaign.planned[campaign.models.index(first)] & campaign.planned[campaign.models.index(second)]
        instances = int((~np.isnan(values)).sum())
        found.append(
            Pair(
                first=first,
                second=second,
                difference=_rounded(estimate.value if estimate else None),
                interval=_interval(estimate) if estimate else None,
                p=None if p is None else round(p, ROUNDED + 2),
                sustained=sustained,
                beyond=sustained and others is not None and abs(others.value) > others.half_width(),
                instances=instances,
                left_out=int(both.sum()) - instances,
            )
        )
    return found


def _ranking(
    campaign: Campaign, pairs: Sequence[Pair], level: str, ranks_why: str | None
) -> tuple[list[Place] | None, str | None, dict[str, str]]:
    """The places, why there are none, and the models that have none."""
    why = _why_unordered(campaign, level, ranks_why)
    if why is not None:
        return None, why, {}
    judged = {model for first, second, _ in campaign.tested for model in (first, second)}
    unranked = {model: _why_unranked(campaign, model) for model in campaign.models if model not in judged}
    better: dict[str, int] = dict.fromkeys(judged, 0)
    worse: dict[str, int] = dict.fromkeys(judged, 0)
    level_with: dict[str, list[str]] = {model: [] for model in judged}
    for pair in pairs:
        if pair.sustained and pair.difference is not None:
            ahead, behind = (pair.first, pair.second) if pair.difference > 0 else (pair.second, pair.first)
            better[behind] += 1
            worse[ahead] += 1
        elif {pair.first, pair.second} <= judged:
            level_with[pair.first].append(pair.second)
            level_with[pair.second].append(pair.first)
    order = sorted(
        (model for model in campaign.models if model in judged),
        key=lambda model: (better[model], -np.nanmean(campaign.of_model(model), axis=1).sum()),
    )
    return (
        [
            Place(model=model, place=1 + better[model], last=len(order) - worse[model], level_with=level_with[model])
            for model in order
        ],
        None,
        unranked,
    )


def _why_unordered(campaign: Campaign, level: str, ranks_why: str | None) -> str | None:
    if level != RANKING:
        return "Only level A ranks."
    if ranks_why is not None:
        return ranks_why
    if len(campaign.runs) < 2:
        return ONE_RUN
    if len(campaign.models) < 2:
        return ONE_MODEL
    return None if campaign.tested else "No two models were measured on every item, and twice on any, in the same runs."


def _why_unranked(campaign: Campaign, model: str) -> str:
    missing = _never_measured(campaign, model)
    return f"never measured: {', '.join(missing)}" if missing else "no two runs in common with another model"


def _never_measured(campaign: Campaign, model: str) -> list[str]:
    empty = np.isnan(campaign.of_model(model)).all(axis=1)
    return [campaign.items[place] for place in np.flatnonzero(empty)]


def _rows(campaign: Campaign) -> tuple[list[str], list[str], int]:
    """Rows that every model earned in full in every run, rows that none earned anything of, and how many there are."""
    full: dict[str, bool] = {}
    nothing: dict[str, bool] = {}
    for node in sorted(campaign.nodes.values(), key=lambda node: node.item):
        for row, (_, points, earned) in node.rows.items():
            name = f"{node.item} {row}"
            full[name] = full.get(name, True) and earned == points
            nothing[name] = nothing.get(name, True) and earned == 0
    return [name for name in full if full[name]], [name for name in nothing if nothing[name]], len(full)


@dataclass(frozen=True)
class Separation:
    """Which models need no further run."""

    settled: tuple[str, ...]
    """Their order against every other model is sustained."""
    open_pairs: tuple[tuple[str, str], ...]
    """Pairs whose order is not."""
    looks: int
    """Looks that were provided for; hand it to ``analyse``."""


def separated(
    records: Iterable[Mapping[str, Any]], planned_runs: int, already: Iterable[str] = (), level: str = "A"
) -> Separation:
    """The models that need no further run, given the records after a complete round.

    A model is settled when its order against each other model is sustained: those that it was compared with and those
    that stopped earlier, on the runs they have in common. The data are looked at after every round from the second to
    the last but one and once at the end, so alpha is divided by ``planned_runs - 1`` looks (``stats.look_alpha``: the
    linear spending function of Lan and DeMets, 1983, spent by Bonferroni's inequality) and within a look by Holm over
    the pairs. Models of which some item was never measured can neither be settled nor hold up the others.

    Args:
        records: all records of the campaign so far, of any level.
        planned_runs: runs that were planned for every model.
        already: models that an earlier look settled; they stay so.
        level: the level that orders.

    Raises:
        KeyError, TypeError, ValueError: where one is no record.
    """
    campaign = Campaign.of(records, level)
    looks = max(planned_runs - 1, 1)
    p_values = _corrected(campaign, looks)
    comparable = [model for model in campaign.models if not _never_measured(campaign, model)]
    undecided = tuple(pair for pair in combinations(comparable, 2) if p_values.get(pair, 1.0) > ALPHA)
    waiting = {model for pair in undecided for model in pair}
    kept = set(already)
    settled = tuple(
        model
        for model in campaign.models
        if model in kept or (model in comparable and model not in waiting and len(comparable) > 1)
    )
    return Separation(settled, undecided, looks)


@dataclass(frozen=True)
class RunsNeeded:
    """How many runs a wanted difference needs."""

    difference: float
    """In points."""
    share: float
    """Of the points of a run."""
    runs: int | None
    """None where ``stats.MOST_RUNS`` are not enough."""
    pairs: int
    """Pairs that are looked at together."""


def power(records: Iterable[Mapping[str, Any]], difference: float, level: str = "A") -> RunsNeeded:
    """How many runs each model needs, so that a true difference between two of them is sustained.

    Sustained at 95 % with all pairs of the campaign corrected together, with a probability of 80 %, taking the noise
    of this campaign (its mean over the pairs) for that of the next. Method and source: ``stats.power_of_runs``.

    Args:
        records: as ``RunFolder.records`` gives them, of any level.
        difference: the wanted one, in points.
        level: the one that is looked at.

    Raises:
        ValueError: where the difference is not above zero, or the campaign does not show its noise.
        KeyError, TypeError: where one is no record.
    """
    return _plan(Campaign.of(records, level), difference)


def _plan(campaign: Campaign, difference: float) -> RunsNeeded:
    if not campaign.tested:
        raise ValueError("two models, measured on every item in two common runs, are needed to see the noise")
    estimates = [estimate for _, _, estimate in campaign.tested]
    runs = [estimate.cells / len(campaign.items) for estimate in estimates]
    variance = float(np.mean([estimate.error**2 * count for estimate, count in zip(estimates, runs, strict=True)]))
    freedom = float(
        np.mean([estimate.freedom / max(count - 1, 1) for estimate, count in zip(estimates, runs, strict=True)])
    )
    needed = runs_needed(variance, freedom, difference, len(estimates))
    return RunsNeeded(difference, difference / campaign.points_max, needed, len(estimates))


@dataclass(frozen=True)
class RowChange:
    """One row that two measurements of the same instance judged differently."""

    node: str
    """Item and run."""
    row: str
    title: str
    points: float
    before: float | None
    """Points earned; None where the first measurement has no such row."""
    after: float | None


@dataclass(frozen=True)
class ModelChange:
    """One model of two campaigns, or the only model of each."""

    before: str
    after: str
    points: tuple[float, float]
    """Mean points of a run in either campaign, over the compared items and the instances measured in both."""
    estimate: Estimate | None
    """Of the second less the first; None where nothing is known of the noise."""
    p: float | None
    """Corrected for all models that are compared."""
    instances: int
    left_out: int
    """Instances of a compared item that are in one campaign only or were not measured in both."""
    rows: tuple[RowChange, ...]

    @property
    def more_than_noise(self) -> bool:
        """Whether the difference is sustained."""
        return self.p is not None and self.p <= ALPHA


@dataclass(frozen=True)
class Comparison:
    """What changed between two campaigns in one level."""

    conditions: Mapping[str, tuple[str, str]]
    """Conditions that differ: the values met in the first campaign and in the second."""
    comparable: bool
    """False where harness or profile differ: then no difference is one of the models."""
    items: tuple[str, ...]
    """Items whose version and variant are the same in both."""
    items_left_out: tuple[str, ...]
    models: tuple[ModelChange, ...]
    models_left_out: tuple[str, ...]


def compare(run_a: Iterable[Mapping[str, Any]], run_b: Iterable[Mapping[str, Any]], level: str = "A") -> Comparison:
    """Row by row what changed between two campaigns, and whether the difference is more than noise.

    Compared are the models of the same name, or, where no name is in both and each campaign has one model, those two;
    on the instances of items of the same version and variant. The differences are judged as those of a pair within a
    campaign (``stats.stratified``), all compared models together by ``stats.holm``.

    Args:
        run_a: records of the first campaign, as ``RunFolder.records`` gives them.
        run_b: records of the second.
        level: the one that is looked at.

    Raises:
        KeyError, TypeError, ValueError: where one is no record.
    """
    first, second = Campaign.of(run_a, level), Campaign.of(run_b, level)
    met = [_met(campaign) for campaign in (first, second)]
    differing = {name: (met[0][name], met[1][name]) for name in met[0] if met[0][name] != met[1].get(name)}
    versions = [_instances(campaign) for campaign in (first, second)]
    items = tuple(item for item in first.items if item in versions[1] and versions[0][item] == versions[1][item])
    shared = [(model, model) for model in first.models if model in second.models]
    if not shared and len(first.models) == len(second.models) == 1:
        shared = [(first.models[0], second.models[0])]
    changes = [_change(first, second, before, after, items) for before, after in shared]
    p_values = iter(holm([change.estimate.p for change in changes if change.estimate]))
    named = {model for pair in shared for model in pair}
    return Comparison(
        conditions=differing,
        comparable=not differing.keys() & COMPARABLE,
        items=items,
        items_left_out=tuple(sorted({*first.items, *second.items} - set(items))),
        models=tuple(replace(change, p=next(p_values)) if change.estimate else change for change in changes),
        models_left_out=tuple(model for model in dict.fromkeys([*first.models, *second.models]) if model not in named),
    )


def _met(campaign: Campaign) -> dict[str, str]:
    """Every condition with the values that occur in a campaign."""
    found: dict[str, set[str]] = {}
    for node in campaign.nodes.values():
        for name, value in node.conditions.items():
            found.setdefault(name, set()).add(value)
    return {name: ", ".join(sorted(values)) for name, values in found.items()}


def _instances(campaign: Campaign) -> dict[str, frozenset[tuple[str, int]]]:
    """Versions and variants of each item."""
    found: dict[str, set[tuple[str, int]]] = {}
    for node in campaign.nodes.values():
        found.setdefault(node.item, set()).add(node.instance)
    return {item: frozenset(instances) for item, instances in found.items()}


def _change(first: Campaign, second: Campaign, before: str, after: str, items: Sequence[str]) -> ModelChange:
    runs = sorted({*first.runs, *second.runs})
    values = np.full((2, len(items), len(runs)), np.nan)
    rows: list[RowChange] = []
    seen = 0
    for place, item in enumerate(items):
        for column, run in enumerate(runs):
            old, new = first.nodes.get((item, run, before)), second.nodes.get((item, run, after))
            seen += old is not None or new is not None
            if old is None or new is None or old.points is None or new.points is None:
                continue
            values[:, place, column] = old.points, new.points
            rows += _row_changes(f"{item}-run{run}", old, new)
    instances = int((~np.isnan(values[0])).sum())
    measured = values[:, ~np.isnan(values[0]).all(axis=1)]
    means = np.nanmean(measured, axis=2).sum(axis=1) if instances else np.zeros(2)
    return ModelChange(
        before=before,
        after=after,
        points=(_known(means[0]), _known(means[1])),
        estimate=stratified(values[1] - values[0]),
        p=None,
        instances=instances,
        left_out=seen - instances,
        rows=tuple(rows),
    )


def _row_changes(node: str, old: Node, new: Node) -> Iterator[RowChange]:
    for row in dict.fromkeys([*old.rows, *new.rows]):
        before, after = old.rows.get(row), new.rows.get(row)
        title, points, _ = after or before or ("", 0.0, 0.0)
        earned = (before[2] if before else None, after[2] if after else None)
        if earned[0] != earned[1]:
            yield RowChange(node, row, title, points, *earned)


def _records(folder: Path) -> list[dict[str, Any]]:
    """The records of a run folder.

    Raises:
        StoreError: where there are none, or one cannot be read.
    """
    records = list(RunFolder(folder).records())
    if not records:
        raise StoreError(f"{folder} holds no records; is this the folder of a run?")
    try:
        for record in records:
            Node.of(record)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{folder}: a record is not one that this version can read: {error!r}") from None
    return records


def power_text(folder: Path, difference: float | None = None) -> str:
    """What ``llmbench power RUN`` prints: the runs that a wanted difference needs.

    Args:
        folder: a run folder.
        difference: the wanted one in points; None: 1, 2 and 5 % of the points.

    Raises:
        StoreError: where the folder cannot be read, or does not show its noise; ``difference`` is not above zero.
    """
    campaign = Campaign.of(_records(folder))
    wanted = [share * campaign.points_max for share in WANTED] if difference is None else [difference]
    try:
        plans = [_plan(campaign, points) for points in wanted]
    except ValueError as error:
        raise StoreError(f"{folder}: {error}") from None
    lines = [
        f"Runs of each model that sustain a true difference at 95 % with a probability of {100 * POWER:.0f} % "
        f"({plans[0].pairs} pairs looked at together, noise as in this campaign of {len(campaign.runs)} runs):"
    ]
    lines += [
        f"  {in_points(plan.difference, campaign.points_max)}: {plan.runs or f'more than {MOST_RUNS}'} runs"
        for plan in plans
    ]
    return "\n".join(lines)


def compare_text(folder_a: Path, folder_b: Path) -> str:
    """What ``llmbench compare RUN RUN`` prints, level by level.

    Raises:
        StoreError: where one of the folders cannot be read.
    """
    run_a, run_b = _records(folder_a), _records(folder_b)
    levels = sorted({record["level"] for record in run_a} & {record["level"] for record in run_b})
    lines = [line for level in levels for line in _comparison_lines(level, compare(run_a, run_b, level))]
    return "\n".join(lines) if lines else "The two runs have no level in common."


def _comparison_lines(level: str, found: Comparison) -> Iterator[str]:
    yield level_title(level)
    for name, (before, after) in found.conditions.items():
        yield plain(f"  {name}: {before} -> {after}")
    if not found.comparable:
        yield "  These are other measurements: no difference between them is called one of the models."
    elif found.conditions:
        yield "  A difference may come from what differs above instead of from the models."
    if found.items_left_out:
        yield f"  Left out, in one run only or of another version or variant: {', '.join(found.items_left_out)}"
    if found.models_left_out:
        yield f"  Left out, in one run only: {plain(', '.join(found.models_left_out))}"
    for change in found.models:
        name = change.before if change.before == change.after else f"{change.before} -> {change.after}"
        yield f"  {plain(name)}: {_verdict(change, found.comparable)}"
        yield f"    {change.instances} instances in both{f', {change.left_out} left out' if change.left_out else ''}"
        for row in change.rows:
            earned = f"{_earned(row.before)} -> {_earned(row.after)} of {row.points:g}"
            yield plain(f"    {row.node} {row.row}: {earned}  {row.title}")


def _earned(points: float | None) -> str:
    return "-" if points is None else f"{points:g}"


def _verdict(change: ModelChange, comparable: bool) -> str:
    if not change.instances:
        return "no instance was measured in both runs"
    said = f"{change.points[0]:.2f} -> {change.points[1]:.2f} points ({change.points[1] - change.points[0]:+.2f})"
    if not comparable:
        return said
    if not change.rows and change.points[0] == change.points[1]:
        return f"{said}; every row is the same"
    if change.estimate is None:
        return f"{said}; one run has no spread, so nothing is known of the noise"
    low, high = _interval(change.estimate)
    verdict = "more than noise" if change.more_than_noise else "not more than noise"
    return f"{said}; {verdict} (95 % interval {low:+.2f} to {high:+.2f})"
