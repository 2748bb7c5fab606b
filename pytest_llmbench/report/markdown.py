"""The report as Markdown, short enough for a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_llmbench.report.build import LevelReport, Report
from pytest_llmbench.report.figures import level_title
from pytest_llmbench.report.notes import (
    analysis_lines,
    cautions,
    conditions,
    facts,
    folded,
    level_cautions,
    unmeasured,
)
from pytest_llmbench.report.picture import Line, lines_of
from pytest_llmbench.report.shown import cut, visible
from pytest_llmbench.report.tables import points

REASON_CHARS = 300
"""Characters of a reason that are shown."""


def markdown(report: Report, archived: str | None = None) -> str:
    """A table for each level, what was not measured and what to know when reading it.

    Args:
        report: the report.
        archived: why its figures never stand beside current ones (``archive.archived``); None where they may.

    Returns:
        GitHub-flavoured Markdown. Names and reasons stand in code spans, so that none of them can be more than text.
    """
    lines: list[str] = [] if archived is None else [f"**{archived}**", ""]
    for level, content in report.levels.items():
        if content is not None:
            lines += _level(report, level, content)
    lines += _unmeasured(report)
    lines += [f"- {sentence}" for sentence in cautions(report, code)]
    lines += [f"- {conditions(report)}", ""]
    return "\n".join(lines)


def _level(report: Report, level: str, content: LevelReport) -> Iterator[str]:
    shown = lines_of(content)
    placed = any(line.ranked for line in shown)
    yield f"### {level_title(level)}: {content.points_max:g} points, {content.rows} rows"
    yield ""
    head = ["model", "mean", "95 % interval", "sd", "min–max", "runs", "repairs", "faults met", "not measured"]
    if placed:
        head = ["place", *head]
    yield _row(head)
    yield _row("---" if name == "model" else "---:" for name in head)
    for line in shown:
        yield _row(_cells(line, content.points_max, placed))
    yield ""
    sentences = [*facts(report, level, code), *level_cautions(report, level)]
    if content.analysis is not None:
        sentences = [*analysis_lines(content.analysis, code), *sentences]
    yield from (f"- {sentence}" for sentence in sentences)
    yield ""


def _cells(line: Line, of: float, placed: bool) -> Iterator[str]:
    model, totals, bounds = line.model, line.totals, line.bounds
    if placed:
        yield line.place or "–"
    yield code(line.ref) + (" unconfined" if model.unconfined else "")
    yield "–" if line.mean is None else points(line.mean) + (f"/{line.points_max:g}" if line.points_max != of else "")
    yield f"{points(bounds[0])}–{points(bounds[1])}" if bounds else "–"
    yield "–" if line.deviation is None else points(line.deviation)
    yield f"{points(min(totals))}–{points(max(totals))}" if totals else "–"
    yield line.runs
    yield str(model.repairs)
    yield str(model.faults_met)
    yield f"{model.unmeasured} of {model.planned}" if model.unmeasured else "0"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _unmeasured(report: Report) -> Iterator[str]:
    groups = unmeasured(report)
    if groups:
        yield "Not measured (no points, not zero points):"
        yield ""
    for group in groups:
        yield f"- {group.status}: {folded(group.nodes, code)}: {code(cut(group.reason, REASON_CHARS))}"
    if groups:
        yield ""


def code(text: str) -> str:
    """``text`` as a code span: on one line, and nothing in it is markup, mention or link."""
    flat = re.sub(r"\s+", " ", visible(text)).strip() or " "
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"
