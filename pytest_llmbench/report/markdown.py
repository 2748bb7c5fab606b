"""The report as Markdown, short enough for a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_llmbench.report import level_c
from pytest_llmbench.report.build import LevelReport, Report
from pytest_llmbench.report.calibration import Calibration, table
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
    if content.calibration is not None:
        yield f"### {level_title(level)}: public sets, each by itself"
        yield ""
        yield from _calibration(content.calibration)
        yield from (f"- {sentence}" for sentence in [*facts(report, level, code), *level_cautions(report, level)])
        yield ""
        return
    if content.split_date is not None:
        yield f"### {level_title(level)}: split-date probes, each by itself"
        yield ""
        yield from _split_date(content.split_date)
        yield from (f"- {sentence}" for sentence in level_c.sentences(content.split_date, code))
        said = [*facts(report, level, code), *level_cautions(report, level)]
        yield from (f"- {sentence}" for sentence in said)
        yield ""
        return
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


def _calibration(block: Calibration) -> Iterator[str]:
    """One table for all sets of level B; settings and sources are on the page."""
    yield _row(["set", "model", "metric", "right", "ours", "95 % interval", "published", "agrees", "setting"])
    yield _row(["---"] * 3 + ["---:"] * 4 + ["---"] * 2)
    for name, one in block.sets.items():
        for ref, *cells in table(block, name):
            yield _row([one.title, code(ref) if ref else "", *cells])
    yield ""
    yield f"- {block.declared}"


def _split_date(block: level_c.SplitDate) -> Iterator[str]:
    """The tables of level C: gaps, placebo pairs, recall."""
    for title, head, rows in level_c.tables(block):
        yield f"{title}:"
        yield ""
        yield _row(head)
        yield _row(["---"] * len(head))
        for ref, *cells in rows:
            yield _row([code(ref), *cells])
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
