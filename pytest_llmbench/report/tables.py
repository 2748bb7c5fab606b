"""The summary tables of a report, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tabulate import tabulate

from pytest_llmbench.records import SCORED
from pytest_llmbench.report.build import LevelModel, LevelReport, Report


def points(value: float) -> str:
    """Points as people read them: two decimals."""
    return f"{value:.2f}"


def summary(report: Report) -> Iterator[str]:
    """The lines of the summary: one table per level, then what was not measured, then what to know when reading it."""
    for level, content in report.levels.items():
        if content is not None:
            yield f"Level {level}: points per item (mean over runs), {content.rows} rows"
            yield level_table(content)
            yield ""
    yield from _unmeasured(report)
    yield from _notes(report)


def level_table(level: LevelReport) -> str:
    """One line per model, one column per item."""
    many = any(len(model.runs) > 1 for model in level.models.values())
    maxima = {
        name: item.points_max
        for model in level.models.values()
        for run in model.runs
        for name, item in run.items.items()
    }
    head = ["model", *(f"{item} /{maxima[item]:g}" for item in level.items), "total"]
    if many:
        head.append("min-max")
    repaired = any(model.repairs for model in level.models.values())
    if repaired:
        head.append("repairs")
    body = [_line(ref, model, level.items, many, repaired) for ref, model in level.models.items()]
    return tabulate(
        body, headers=head, tablefmt="simple", disable_numparse=True, colalign=["left", *["right"] * (len(head) - 1)]
    )


def _line(ref: str, model: LevelModel, items: Sequence[str], many: bool, repaired: bool) -> list[str]:
    of = max((run.points_max for run in model.runs), default=0.0)
    total = f"{points(model.points_mean)}/{of:g}" if model.points_mean is not None else "-"
    if model.unconfined:
        total += " unconfined"
    line = [ref, *(_cell(model, item) for item in items), total]
    if many:
        low, high = model.points_min, model.points_max
        line.append(f"{points(low)}-{points(high)}" if low is not None and high is not None else "-")
    if repaired:
        line.append(str(model.repairs))
    return line


def _cell(model: LevelModel, item: str) -> str:
    entries = [run.items[item] for run in model.runs if item in run.items]
    if not entries:
        return ""
    figures = [entry.points for entry in entries if entry.points is not None]
    if len(figures) < len(entries):
        return "-"
    star = "*" if any(entry.repairs for entry in entries) else ""
    return points(sum(figures) / len(figures)) + star


def _unmeasured(report: Report) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for level in report.levels.values():
        for ref, model in (level.models if level else {}).items():
            for run in model.runs:
                for item, entry in run.items.items():
                    if entry.status not in SCORED:
                        groups.setdefault((entry.status, entry.reason or ""), []).append(f"{item}-run{run.run}-{ref}")
    if groups:
        yield "Not measured (no points, not zero points):"
        for (status, reason), nodes in groups.items():
            yield f"  {status}: {', '.join(nodes)}"
            yield f"    {reason}"
        yield ""


def _notes(report: Report) -> Iterator[str]:
    yield (
        f"harness {report.harness['version']} ({report.harness['signature'][:12]})  "
        f"bank {report.bank['version']} ({report.bank['checksum'][:12]})  profile {report.profile}  "
        f"sampling {report.sampling}  variant {report.variant}"
    )
    if report.ranks_why:
        yield report.ranks_why
    models = [model for level in report.levels.values() if level for model in level.models.values()]
    if report.ranks and models and max(len(model.runs) for model in models) == 1:
        yield "One run is no result: repeat with --llm-runs=3 before comparing models."
    if any(model.repairs for model in models):
        yield "* repaired before grading; the record lists every repair."
    layers = {entry.confinement for model in models for run in model.runs for entry in run.items.values()} - {None}
    if layers:
        yield f"Delivered code ran under: {', '.join(sorted(map(str, layers)))}"
    edges = sorted(
        {
            f"{item} ({', '.join(entry.edge)})"
            for model in models
            for run in model.runs
            for item, entry in run.items.items()
            if entry.edge
        }
    )
    if edges:
        yield f"80 % or more of a cap was used in: {', '.join(edges)}"
    unstable = [ref for ref, card in report.models.items() if card.get("speeds") == "unstable"]
    if unstable:
        yield f"Speeds are unstable (the probe moved by more than 10 %): {', '.join(unstable)}"
    if report.status != "complete":
        yield f"The report is {report.status}."
