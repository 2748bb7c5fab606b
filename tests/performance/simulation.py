"""Synthetic campaigns of models of known strength, through records and analysis. Run it by hand for the table.

usage: python tests/performance/simulation.py [CAMPAIGNS]

A campaign has four models: two of the same strength, one better by the gap, one by twice the gap. Strength is the
expected number of points on this bank and is exact: each row is earned with a known probability, and a model's
ability is set so that its rows give the wanted sum. Rows of an instance stand and fall together to a stated part,
because the instance is hard for all models or because the model has a bad run; an instance may also give nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from scipy.special import ndtr

from pytest_llmbench.bank import load_bank
from pytest_llmbench.records import Fingerprints, Record, Row
from pytest_llmbench.report.analysis import Analysis, analyse, separated
from pytest_llmbench.spec import ItemSpec

BANK = Path(__file__).resolve().parents[2] / "items"
CAMPAIGNS = 200
RUNS = (1, 2, 3, 4, 5)
GAPS = (0.01, 0.02, 0.05)
STEPS = {"equal-1": 0, "equal-2": 0, "better": 1, "best": 2}
"""How many gaps each model is above the weakest."""
ABILITIES = 20.0
"""No model's ability is further from zero."""
HALVINGS = 60

Array = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """How models differ and how noisy they are."""

    weakest: float
    """Strength of the weakest model, as a share of the points."""
    hardness: float
    """Standard deviation of the hardness of rows: the larger, the fewer rows are left to chance."""
    taste: float
    """Standard deviation of what a model is better or worse at, item by item."""
    instance: float
    """Part of a row's luck that is the instance's, the same for all models."""
    mood: float
    """Part that is the model's on this instance, the same for all of its rows."""
    collapse: float
    """Probability that an instance gives nothing, whatever its rows."""


WORLDS = {
    "independent rows": World(0.5, 1.0, 0.3, 0.0, 0.0, 0.0),
    "rows in clusters": World(0.5, 1.0, 0.5, 0.2, 0.5, 0.0),
    "different talents": World(0.45, 1.5, 1.5, 0.1, 0.3, 0.05),
    "cascades": World(0.45, 1.5, 0.5, 0.1, 0.3, 0.25),
    "weak models": World(0.06, 1.5, 1.0, 0.1, 0.3, 0.05),
    "strong models": World(0.85, 1.5, 1.0, 0.1, 0.3, 0.02),
    "few rows by chance": World(0.5, 6.0, 2.0, 0.1, 0.5, 0.0),
}


class Models:
    """Models of exactly known strength on a bank."""

    def __init__(self, items: Sequence[ItemSpec], strengths: Mapping[str, float], world: World, chance: Generator):
        """Draw rows and models.

        Args:
            items: whose rows the models earn.
            strengths: expected points of each model.
            world: how they differ.
            chance: where everything random comes from.

        Raises:
            ValueError: where a strength cannot be reached in this world.
        """
        self.items, self.strengths, self.world, self.chance = items, strengths, world, chance
        self.points = [np.array([float(row.points) for row in item.rows]) for item in items]
        hardness = [chance.normal(0, world.hardness, len(points)) for points in self.points]
        self.easiness = {
            model: self._reaching(strength, [chance.normal(0, world.taste) - rows for rows in hardness])
            for model, strength in strengths.items()
        }
        self.empty = [record(item) for item in items]

    def _expected(self, easiness: Array) -> float:
        return (1 - self.world.collapse) * float(ndtr(easiness) @ np.concatenate(self.points))

    def _reaching(self, strength: float, easiness: Sequence[Array]) -> list[Array]:
        low, high = -ABILITIES, ABILITIES
        rows = np.concatenate(easiness)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._expected(rows + middle) < strength else (low, middle)
        if abs(self._expected(rows + low) - strength) > 1e-6:
            raise ValueError(f"no model reaches {strength} points here")
        return [part + low for part in easiness]

    def records(self, runs: int) -> Iterator[dict[str, Any]]:
        """The records of one campaign, as they are on disk."""
        world, chance = self.world, self.chance
        for place, (item, points) in enumerate(zip(self.items, self.points, strict=True)):
            for run in range(1, runs + 1):
                shared = chance.normal()
                for model, easiness in self.easiness.items():
                    luck = (
                        world.instance**0.5 * shared
                        + world.mood**0.5 * chance.normal()
                        + (1 - world.instance - world.mood) ** 0.5 * chance.normal(size=len(points))
                    )
                    earned = np.where(luck < easiness[place], points, 0.0)
                    if chance.random() < world.collapse:
                        earned[:] = 0.0
                    yield {
                        **self.empty[place],
                        "item": item.id,
                        "run": run,
                        "ref": model,
                        "points": float(earned.sum()),
                        "rows": [
                            {**row, "earned": float(got)}
                            for row, got in zip(self.empty[place]["rows"], earned, strict=True)
                        ],
                    }


def record(item: ItemSpec) -> dict[str, Any]:
    """A record of ``item`` in which nothing was earned."""
    rows = [
        Row(id=row.id, title=row.title, points=row.points, earned=Decimal(0), kind=row.kind, evidence="")
        for row in item.rows
    ]
    record = Record(
        item=item.id,
        title=item.title,
        item_version=item.version,
        level=item.level,
        mode=item.mode,
        variant=0,
        run=1,
        ref="model",
        status="measured",
        points=Decimal(0),
        points_max=item.points,
        rows=rows,
        profile="standard",
        sampling="standard",
        think=None,
        fingerprints=Fingerprints(request="", parts={}, item="", grader="", harness="", bank=""),
        harness_version="0.0.0",
        bank_version="0.0.0",
        started="2026-01-01T00:00:00.000+00:00",
        finished="2026-01-01T00:00:00.000+00:00",
    )
    return record.model_dump(mode="json", by_alias=True)


def level_a() -> list[ItemSpec]:
    """The items of this project's level A."""
    return [item.spec for item in load_bank(BANK) if item.spec.level == "A"]


def models(items: Sequence[ItemSpec], gap: float, world: World, chance: Generator) -> Models:
    """The four models of a campaign; ``gap`` is a share of the points."""
    total = float(sum(item.points for item in items))
    strengths = {model: total * (world.weakest + steps * gap) for model, steps in STEPS.items()}
    return Models(items, strengths, world, chance)


@dataclass
class Tally:
    """What came of a number of campaigns."""

    campaigns: int = 0
    right: int = 0
    """Campaigns in which the mean points had every pair of unequal models in the right order."""
    sustained: int = 0
    """Pairs of unequal models whose right order was claimed."""
    unequal: int = 0
    false: int = 0
    """Campaigns in which any false order was claimed."""
    floor: float = 0.0
    """Sum of the smallest sustained differences, as shares of the points."""

    def count(self, analysis: Analysis, strengths: Mapping[str, float]) -> None:
        """Hold one analysis against the truth."""
        self.campaigns += 1
        means = {model: summary.mean or 0.0 for model, summary in analysis.models.items()}
        unequal = [(a, b) for a, b in combinations(strengths, 2) if strengths[a] != strengths[b]]
        self.unequal += len(unequal)
        self.right += all((means[a] - means[b]) * (strengths[a] - strengths[b]) > 0 for a, b in unequal)
        truths = [
            (pair.difference or 0.0) * (strengths[pair.first] - strengths[pair.second]) > 0
            for pair in analysis.pairs
            if pair.sustained
        ]
        self.sustained += sum(truths)
        self.false += not all(truths)
        self.floor += (analysis.smallest_difference or 0.0) / analysis.points_max

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def simulate(items: Sequence[ItemSpec], gap: float, runs: int, world: World, campaigns: int, seed: int) -> Tally:
    """Campaigns of one kind, each with new rows and new models."""
    tally = Tally()
    for number in range(campaigns):
        fleet = models(items, gap, world, default_rng([seed, number]))
        tally.count(analyse(fleet.records(runs)), fleet.strengths)
    return tally


def stopping(
    items: Sequence[ItemSpec], gap: float, runs: int, world: World, campaigns: int, seed: int
) -> tuple[Tally, float]:
    """Campaigns in which settled models are not run again; also the share of model runs that this saved."""
    tally, done = Tally(), 0
    for number in range(campaigns):
        fleet = models(items, gap, world, default_rng([seed, number]))
        everything = list(fleet.records(runs))
        records = [record for record in everything if record["run"] == 1]
        settled: tuple[str, ...] = ()
        for run in range(2, runs + 1):
            records += [record for record in everything if record["run"] == run and record["ref"] not in settled]
            settled = separated(records, runs, settled).settled
        done += len({(record["ref"], record["run"]) for record in records})
        tally.count(analyse(records, looks=max(runs - 1, 1)), fleet.strengths)
    return tally, 1 - done / (campaigns * runs * len(STEPS))


def share(part: float, whole: float) -> str:
    """A percentage for the table."""
    return f"{100 * part / whole:6.1f} %" if whole else "     - "


def main(campaigns: int) -> None:
    """Print the table: every world first, then all of them together."""
    items = level_a()
    head = f"{'gap':>5} {'runs':>4} {'means right':>12} {'pairs sustained':>16} {'false claim':>12} {'floor':>9}"
    whole: dict[tuple[float, int], Tally] = {(gap, runs): Tally() for gap in GAPS for runs in RUNS}
    worst = dict.fromkeys(whole, 0)
    for seed, (name, world) in enumerate(WORLDS.items()):
        print(f"\n{name}: {campaigns} campaigns a line\n{head}", flush=True)
        for gap, runs in whole:
            tally = simulate(items, gap, runs, world, campaigns, seed)
            whole[gap, runs] += tally
            worst[gap, runs] = max(worst[gap, runs], tally.false)
            print(line(gap, runs, tally), flush=True)
    print(f"\nall worlds: {campaigns * len(WORLDS)} campaigns a line\n{head} {'worst world':>12}")
    for (gap, runs), tally in whole.items():
        print(f"{line(gap, runs, tally)} {share(worst[gap, runs], campaigns):>12}")
    print("\nuntil separated, five runs planned: runs saved, false claims, pairs sustained")
    for gap in (*GAPS, 0.15):
        parts = [
            stopping(items, gap, RUNS[-1], world, max(campaigns // 4, 1), seed)
            for seed, world in enumerate(WORLDS.values())
            if world.weakest + 2 * gap < 1 - world.collapse
        ]
        tally = sum((part for part, _ in parts), Tally())
        saved = share(sum(part for _, part in parts), len(parts))
        print(f"{share(gap, 1)}: {saved} {share(tally.false, tally.campaigns)} {share(tally.sustained, tally.unequal)}")


def line(gap: float, runs: int, tally: Tally) -> str:
    """One line of the table."""
    floor = share(tally.floor, tally.campaigns) if runs > 1 else "-"
    return (
        f"{100 * gap:4.0f}% {runs:4} {share(tally.right, tally.campaigns):>12} "
        f"{share(tally.sustained, tally.unequal):>16} {share(tally.false, tally.campaigns):>12} {floor:>9}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else CAMPAIGNS)
