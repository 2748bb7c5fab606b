"""The report as Markdown, short enough for a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pytest_llmbench.report.build import LevelReport, Report
from pytest_llmbench.report.notes import RANKING, cautions, conditions, level_cautions, unmeasured
from pytest_llmbench.report.picture import Interval, Line, lines_of
from pytest_llmbench.report.shown import cut, visible
from pytest_llmbench.report.tables import points

REASON_CHARS = 300
"""Characters of a reason that are shown."""
NAMED = 10
"""Nodes that are named for one reason; the others are counted."""


def markdown(report: Report, intervals: Sequence[Interval] | None = None) -> str:
    """A table for each level, what was not measured and what to know when reading it.

    Args:
        report: the report.
        intervals: what the analysis of level A says, one for each model that it places; None where there is none.

    Returns:
        GitHub-flavoured Markdown. Names and reasons stand in code spans, so that none of them can be more than text.
    """
    lines: list[str] = []
    for level, content in report.levels.items():
        if content is not None:
            lines += _level(report, level, content, intervals)
    lines += _unmeasured(report)
    lines += [f"- {sentence}" for sentence in cautions(report)]
    lines += [f"- {conditions(report)}", ""]
    return "\n".join(lines)


def _level(report: Report, level: str, content: LevelReport, intervals: Sequence[Interval] | None) -> Iterator[str]:
    ranks = level == RANKING and report.ranks
    shown = lines_of(content.models.items(), intervals, ranks)
    placed = any(line.interval for line in shown)
    yield f"### Level {level}: {content.points_max:g} points, {content.rows} rows"
    yield ""
    head = ["model", "mean", "min–max", "runs", "repairs", "not measured"]
    if placed:
        head = ["place", *head[:2], "95 % interval", *head[2:]]
    yield _row(head)
    yield _row("---" if name == "model" else "---:" for name in head)
    for line in shown:
        yield _row(_cells(line, content.points_max, placed))
    yield ""
    yield from (f"- {sentence}" for sentence in level_cautions(report, level))
    yield ""


def _cells(line: Line, of: float, placed: bool) -> Iterator[str]:
    model = line.model
    if placed:
        yield "–" if line.place is None else str(line.place)
    yield code(line.ref) + (" unconfined" if model.unconfined else "")
    yield "–" if line.mean is None else points(line.mean) + (f"/{line.points_max:g}" if line.points_max != of else "")
    if placed:
        yield "–" if line.bounds is None else f"{points(line.bounds[0])}–{points(line.bounds[1])}"
    low, high = model.points_min, model.points_max
    yield "–" if low is None or high is None else f"{points(low)}–{points(high)}"
    yield str(len(model.runs))
    yield str(model.repairs)
    yield f"{model.unmeasured} of {model.planned}" if model.unmeasured else "0"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _unmeasured(report: Report) -> Iterator[str]:
    groups = unmeasured(report)
    if groups:
        yield "Not measured (no points, not zero points):"
        yield ""
    for group in groups:
        named = ", ".join(code(node.name) for node in group.nodes[:NAMED])
        more = f" and {len(group.nodes) - NAMED} more" if len(group.nodes) > NAMED else ""
        yield f"- {group.status}: {named}{more}: {code(cut(group.reason, REASON_CHARS))}"
    if groups:
        yield ""


def code(text: str) -> str:
    """``text`` as a code span: on one line, and nothing in it is markup, mention or link."""
    flat = re.sub(r"\s+", " ", visible(text)).strip() or " "
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"
