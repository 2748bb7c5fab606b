"""The summary tables of a report, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tabulate import tabulate

from pytest_llmbench.harness.tools import plain
from pytest_llmbench.report import calibration, level_c
from pytest_llmbench.report.build import UNCONFINED, LevelModel, LevelReport, Report
from pytest_llmbench.report.figures import level_title
from pytest_llmbench.report.notes import (
    analysis_lines,
    cautions,
    conditions,
    counted,
    facts,
    folded,
    level_cautions,
    unmeasured,
)
from pytest_llmbench.report.picture import Line, lines_of
from pytest_llmbench.report.shown import cut, middle

WIDTH = 120
"""Columns that the tables are kept within by cutting the names of models."""
SHORTEST_NAME = 12
"""Columns that the name of a model has at least."""
GAP = 2
"""Columns between two of a table; a head is wider than its words by as many."""
REASONS = 8
"""Reasons for not measuring that are told; further ones are counted."""
REASON_CHARS = 600
"""Characters of a reason that are shown."""
PLAIN_COLUMNS = 3
"""Columns of the table of models that say nothing which the table of items does not."""


def points(value: float) -> str:
    """Points as people read them: two decimals."""
    return f"{value:.2f}"


def summary(report: Report, archived: str | None = None) -> Iterator[str]:
    """The lines of the summary: tables and notes level by level, what was not measured, what to know when reading it.

    Args:
        report: the report.
        archived: why its figures never stand beside current ones (``archive.archived``); None where they may.

    Returns:
        Lines without control characters.
    """
    for block in _blocks(report, archived):
        yield from plain(block).split("\n")


def _blocks(report: Report, archived: str | None) -> Iterator[str]:
    if archived is not None:
        yield f"{archived}\n"
    for level, content in report.levels.items():
        if content is not None:
            yield from _figures(level, content)
            yield ""
            if content.analysis is not None:
                yield from analysis_lines(content.analysis)
            yield from facts(report, level)
            yield from level_cautions(report, level)
            yield ""
    yield from _unmeasured(report)
    yield conditions(report)
    yield from cautions(report)


def _figures(level: str, content: LevelReport) -> Iterator[str]:
    """The tables of a level, or what it has instead of points per item."""
    if content.calibration is not None:
        yield f"{level_title(level)}: public sets, each by itself; nothing is ordered or added"
        yield from calibration.lines(content.calibration)
        return
    if content.split_date is not None:
        yield f"{level_title(level)}: split-date probes, each by itself; nothing is ordered or added"
        yield from level_c.lines(content.split_date)
        return
    yield f"{level_title(level)}: points per item, mean over the runs; {content.points_max:g} in all"
    yield item_table(content)
    if figures := model_table(content):
        yield f"\n{figures}"


def item_table(level: LevelReport) -> str:
    """One line per model, one column per item.

    ``*``: something was repaired before grading. ``U``: code ran unconfined. ``-``: not measured.
    """
    maxima = {
        name: item.points_max
        for model in level.models.values()
        for run in model.runs
        for name, item in run.items.items()
    }
    head = ["model\n", *(f"{item}\n/{maxima[item]:g}" for item in level.items), f"total\n/{level.points_max:g}"]
    lines = lines_of(level)
    cells = [[*(_cell(line.model, item) for item in level.items), _total(line, level.points_max)] for line in lines]
    return _table(head, [line.ref for line in lines], cells)


def model_table(level: LevelReport) -> str | None:
    """One line per real model with its place and its statistics; None where they say nothing more than its points."""
    lines = [line for line in lines_of(level) if line.summary is not None]
    head = ["place", "mean", "±95 %", "sd", "min-max", "runs", "not measured", "repairs", "faults met"]
    columns = list(zip(*(_statistics(line) for line in lines), strict=True))
    kept = [(name, column) for name, column in zip(head, columns, strict=False) if set(column) - {"", "0"}]
    if len(kept) < PLAIN_COLUMNS:
        return None
    cells = [list(row) for row in zip(*(column for _, column in kept), strict=True)]
    return _table(["model", *(name for name, _ in kept)], [line.ref for line in lines], cells)


def _statistics(line: Line) -> tuple[str, ...]:
    low_high = f"{points(min(line.totals))}-{points(max(line.totals))}" if len(line.totals) > 1 else ""
    return (
        line.place or "",
        "-" if line.mean is None else points(line.mean),
        points((line.bounds[1] - line.bounds[0]) / 2) if line.bounds else "",
        "" if line.deviation is None else points(line.deviation),
        low_high,
        line.runs,
        str(line.model.unmeasured),
        str(line.model.repairs),
        str(line.model.faults_met),
    )


def _table(head: Sequence[str], names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table whose first column is cut so that the whole stays within ``WIDTH``."""
    widths = [
        max([GAP + max(map(len, name.split("\n"))), *(len(line[place]) for line in cells)])
        for place, name in enumerate(head[1:])
    ]
    room = max(WIDTH - sum(widths) - GAP * len(widths), SHORTEST_NAME)
    return tabulate(
        [[middle(name, room), *line] for name, line in zip(names, cells, strict=True)],
        headers=head,
        tablefmt="simple",
        disable_numparse=True,
        colalign=["left", *["right"] * (len(head) - 1)],
    )


def _total(line: Line, of: float) -> str:
    model = line.model
    if model.points_mean is None:
        return "-"
    part = f"/{line.points_max:g}" if line.points_max != of else ""
    return f"{points(model.points_mean)}{part}{'U' if model.unconfined else ''}"


def _cell(model: LevelModel, item: str) -> str:
    entries = [run.items[item] for run in model.runs if item in run.items]
    if not entries:
        return ""
    figures = [entry.points for entry in entries if entry.points is not None]
    if len(figures) < len(entries):
        return "-"
    star = "*" if any(entry.repairs for entry in entries) else ""
    unconfined = "U" if any(entry.confinement == UNCONFINED for entry in entries) else ""
    return points(sum(figures) / len(figures)) + star + unconfined


def _unmeasured(report: Report) -> Iterator[str]:
    groups = unmeasured(report)
    if groups:
        yield "Not measured (no points, not zero points):"
        for group in groups[:REASONS]:
            yield f"  {group.status}: {folded(group.nodes)}"
            yield f"    {cut(group.reason, REASON_CHARS)}"
        if len(groups) > REASONS:
            left = sum(len(group.nodes) for group in groups[REASONS:])
            yield f"  {counted(left, 'node')} for {len(groups) - REASONS} further reasons, see the report"
        yield ""
