"""Level B beside what others have published: figures with intervals, never an order and never a text of the sets."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, Protocol

from tabulate import tabulate

from pytest_llmbench.records import SCORED, Saved

CALIBRATION = "B"
CONFIDENCE = 0.95
PERCENT = 100
DECLARED = (
    "These sets have been public for years: their questions, and often their answers, stand in what models are trained "
    "on. A figure here may be memory. It says whether this harness measures what others measured, not how good a model "
    "is; no model is placed by it, and no two sets are added."
)
METHOD = (
    "Interval: Wilson's 95 % interval for a share (E. B. Wilson 1927, as in scipy.stats.binomtest). A published figure "
    "agrees where it lies in our interval; a difference of percent alone says nothing at these sizes. Instructions of "
    "one prompt are not independent, so the intervals by instruction are too narrow."
)


class Counted(Protocol):
    """What the block reads of a row."""

    id: str
    points: float
    earned: float
    parts: int | None
    right: int | None


class Cited(Saved):
    """A published figure beside ours."""

    value: float
    metric: str
    setting: str
    name: str
    precision: str
    by: str
    source: str
    in_interval: bool | None
    """None where nothing was measured, or where it is a figure of another metric."""


class Figure(Saved):
    """One metric of one set for one model."""

    metric: str
    right: int
    n: int
    """What was measured of the sample: items, or instructions."""
    percent: float | None
    """None where nothing was measured."""
    interval: tuple[float, float] | None
    """In percent."""


class SetResult(Saved):
    """One model on one set."""

    planned: int
    measured: int
    figures: Sequence[Figure]
    published: Sequence[Cited]
    """Empty where nobody has published one."""


class CalibrationSet(Saved):
    """What a set is and how it is measured here."""

    title: str
    of: str
    setting: str
    guess: float
    """Percent that guessing gives."""
    metrics: Mapping[str, str]
    samples: Sequence[str]
    """Items of the sample, by id."""


class Calibration(Saved):
    """Level B of a report."""

    declared: str = DECLARED
    method: str = METHOD
    sets: Mapping[str, CalibrationSet]
    models: Mapping[str, Mapping[str, SetResult]]
    """By model, in the order of the command line, then by set."""


@dataclass(frozen=True)
class Asked:
    """What the block needs to know of one node."""

    item: str
    ref: str
    status: str
    rows: Sequence[Counted]


@cache
def _published() -> Mapping[str, Any]:
    return tomllib.loads((files("pytest_llmbench.external") / "published.toml").read_text(encoding="utf-8"))


def calibrate(nodes: Sequence[Asked], groups: Mapping[str, str | None]) -> Calibration | None:
    """The block of level B.

    Args:
        nodes: every planned node of the level, in the plan's order; a lost one has no rows.
        groups: the set that an item is of; items of no known set are left out.

    Returns:
        None where no node is of a known set.
    """
    sets = {one["id"]: one for one in _published()["sets"]}
    known = [node for node in nodes if groups.get(node.item) in sets]
    here = [name for name in sets if any(groups[node.item] == name for node in known)]
    if not here:
        return None
    refs = list(dict.fromkeys(node.ref for node in known))
    items = {name: list(dict.fromkeys(n.item for n in known if groups[n.item] == name)) for name in here}
    return Calibration(
        sets={
            name: CalibrationSet(
                samples=items[name], **{key: value for key, value in sets[name].items() if key != "id"}
            )
            for name in here
        },
        models={
            ref: {
                name: _result(name, sets[name], ref, [n for n in known if n.ref == ref and groups[n.item] == name])
                for name in here
            }
            for ref in refs
        },
    )


def _result(name: str, one: Mapping[str, Any], ref: str, nodes: Sequence[Asked]) -> SetResult:
    measured = [node for node in nodes if node.status in SCORED]
    figures = [_figure(row, metric, measured) for row, metric in one["metrics"].items()]
    return SetResult(
        planned=len(nodes), measured=len(measured), figures=figures, published=list(_cited(name, ref, figures))
    )


def _figure(row: str, metric: str, measured: Sequence[Asked]) -> Figure:
    """A metric by item is that of the row of its name; one by instruction counts the parts of the row by prompt."""
    by_part = row.startswith("instruction_")
    wanted = row.replace("instruction_", "prompt_")
    rows = [found for node in measured for found in node.rows if found.id == wanted]
    if by_part:
        right, n = sum(found.right or 0 for found in rows), sum(found.parts or 0 for found in rows)
    else:
        right, n = sum(found.earned == found.points for found in rows), len(rows)
    if not n:
        return Figure(metric=metric, right=0, n=0, percent=None, interval=None)
    return Figure(metric=metric, right=right, n=n, percent=PERCENT * right / n, interval=wilson(right, n))


def wilson(right: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share, in percent."""
    from scipy.stats import binomtest

    interval = binomtest(right, n).proportion_ci(confidence_level=CONFIDENCE, method="wilson")
    return PERCENT * float(interval.low), PERCENT * float(interval.high)


def _cited(name: str, ref: str, figures: Sequence[Figure]) -> Iterator[Cited]:
    ours = {figure.metric: figure for figure in figures}
    for entry in _published()["figures"]:
        if not names(entry["models"], ref):
            continue
        for value in entry["values"]:
            if value["set"] == name:
                figure = ours.get(value["metric"])
                interval = figure.interval if figure else None
                yield Cited(
                    **{key: value[key] for key in ("value", "metric", "setting")},
                    **{key: entry[key] for key in ("name", "precision", "by", "source")},
                    in_interval=None if interval is None else interval[0] <= value["value"] <= interval[1],
                )


PREFIXES = ("ollama", "openai", "gguf")


def names(patterns: Sequence[str], ref: str) -> bool:
    """Whether a model of the command line is one of those that a published figure is about: whole names only."""
    prefix, colon, rest = ref.partition(":")
    plain = rest if colon and prefix in PREFIXES else ref
    last = PurePosixPath(plain.replace("\\", "/")).name.lower().removesuffix(".gguf")
    return any(fnmatchcase(last, pattern) for pattern in patterns)


# --- for people ------------------------------------------------------------------------------------------------------


def lines(block: Calibration) -> Iterator[str]:
    """The block for a terminal."""
    for name, one in block.sets.items():
        yield f"{one.title}, {one.of}: {one.setting}"
        head = ["model", "metric", "right", "ours", "95 % interval", "published", "agrees", "setting, precision, by"]
        yield tabulate(
            list(table(block, name)), headers=head, disable_numparse=True, maxcolwidths=[34] + [None] * 6 + [44]
        )
        if one.guess:
            yield f"Guessing gives {one.guess:g} %."
        yield ""
    yield from block_notes(block)


def block_notes(block: Calibration) -> Iterator[str]:
    """Sentences without which the figures would be misread, and the sources."""
    yield block.declared
    yield block.method
    for source in sources(block):
        yield f"Source: {source}"


def sources(block: Calibration) -> Sequence[str]:
    """Where the published figures of a block stand, each once."""
    every = (cited for sets in block.models.values() for one in sets.values() for cited in one.published)
    return list(dict.fromkeys(f"{cited.name}: {cited.source}" for cited in every))


def table(block: Calibration, name: str) -> Iterator[list[str]]:
    """The rows of one set: models in the order of the command line, metrics, then figures of metrics that are not
    ours."""
    for ref, sets in block.models.items():
        one = sets[name]
        ours = [figure.metric for figure in one.figures]
        for figure in one.figures:
            cells = [ref, figure.metric, f"{figure.right}/{figure.n}" if figure.n else "not measured", *_ours(figure)]
            if figure.n and one.measured < one.planned:
                cells[2] += f" ({one.planned - one.measured} not measured)"
            cited = [found for found in one.published if found.metric == figure.metric]
            for number, found in enumerate(cited):
                yield [*(cells if not number else [""] * len(cells)), *_told(found)]
            if not cited:
                yield [*cells, "", "", ""]
        for found in one.published:
            if found.metric not in ours:
                yield ["", found.metric, "", "", "", *_told(found)]


def _ours(figure: Figure) -> tuple[str, str]:
    if figure.percent is None or figure.interval is None:
        return "", ""
    low, high = figure.interval
    return f"{figure.percent:.1f} %", f"{low:.1f}-{high:.1f} %"


def _told(found: Cited) -> tuple[str, str, str]:
    agrees = {True: "yes", False: "no", None: "not comparable"}[found.in_interval]
    return f"{found.value:g} %", agrees, f"{found.setting}; {found.precision}; {found.by}"
