"""What a reader must know beside the points: what was not measured, and under which conditions the rest was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_llmbench.records import SCORED
from pytest_llmbench.report.build import Report, ReportItem

RANKING = "A"
"""The only level that orders models."""


@dataclass(frozen=True)
class Node:
    """One node of a report."""

    level: str
    item: str
    run: int
    ref: str
    entry: ReportItem

    @property
    def name(self) -> str:
        return f"{self.item}-run{self.run}-{self.ref}"


@dataclass(frozen=True)
class Unmeasured:
    """Nodes without a score, for one reason."""

    status: str
    reason: str
    nodes: Sequence[Node]


def nodes_of(report: Report) -> Iterator[Node]:
    """Every node of a report, by level, model, run and item."""
    for level, content in report.levels.items():
        for ref, model in (content.models if content else {}).items():
            for run in model.runs:
                for item, entry in run.items.items():
                    yield Node(level, item, run.run, ref, entry)


def unmeasured(report: Report) -> list[Unmeasured]:
    """The nodes without a score, one group for each status and reason."""
    groups: dict[tuple[str, str], list[Node]] = {}
    for node in nodes_of(report):
        if node.entry.status not in SCORED:
            groups.setdefault((node.entry.status, node.entry.reason or ""), []).append(node)
    return [Unmeasured(status, reason, nodes) for (status, reason), nodes in groups.items()]


def conditions(report: Report) -> str:
    """The versions and options that the figures are good for, on one line."""
    return (
        f"harness {report.harness['version']} ({report.harness['signature'][:12]}), "
        f"bank {report.bank['version']} ({report.bank['checksum'][:12]}), profile {report.profile}, "
        f"sampling {report.sampling}, variant {report.variant}"
    )


def cautions(report: Report) -> Iterator[str]:
    """Sentences on the whole of a report without which its figures would be misread."""
    if report.status != "complete":
        yield f"The report is {report.status}."
    if unstable := [ref for ref, card in report.models.items() if card.get("speeds") == "unstable"]:
        yield f"Speeds are unstable (the probe moved by more than 10 %) for: {', '.join(unstable)}."


def level_cautions(report: Report, level: str) -> Iterator[str]:
    """Sentences on one level without which its figures would be misread."""
    nodes = [node for node in nodes_of(report) if node.level == level]
    if level != RANKING:
        yield "This level orders nothing; its points are never added to those of another level."
    elif report.ranks_why:
        yield report.ranks_why
    elif {node.run for node in nodes} == {1}:
        yield "One run is no result: repeat with --llm-runs=3 before comparing models."
    for what, count in (
        ("were repaired before grading: read the points beside the repairs", sum(bool(n.entry.repairs) for n in nodes)),
        ("used 80 % or more of a cap", sum(bool(n.entry.edge) for n in nodes)),
        ("were not measured, which is no zero", sum(n.entry.status not in SCORED for n in nodes)),
    ):
        if count:
            yield f"{count} of {len(nodes)} nodes {what}."
