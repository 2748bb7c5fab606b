"""What a reader must know beside the points: what was not measured, and under which conditions the rest was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pytest_llmbench.records import SCORED
from pytest_llmbench.report.build import UNCONFINED, LevelReport, Report, ReportItem
from pytest_llmbench.report.figures import OWN, RANKING, Analysis, in_points
from pytest_llmbench.report.level_m import lines as sight_lines

NAMED = 6
"""Nodes that are named for one reason; of more, the items are named and the nodes counted."""
SHOWN_ITEMS = 24
"""Items that are named before the further ones are only counted."""
SHOWN_ROWS = 12
"""Rows without information that are named before they are only counted."""

RESUME = "With --llm-resume=DIR, DIR being this run folder, pytest measures what is missing."
Named = Callable[[str], str]
"""How the name of a model is written."""


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


def folded(nodes: Sequence[Node], named: Named = str) -> str:
    """The names of a few nodes; of many, their items with how many nodes and models they are. Where all are of one run
    of one model, that is named once."""
    blocks = {(node.run, node.ref) for node in nodes}
    if len(nodes) > 1 and len(blocks) == 1:
        [(run, ref)] = blocks
        return f"run {run} of {named(ref)}: {few([node.item for node in nodes])}"
    if len(nodes) <= NAMED:
        return ", ".join(named(node.name) for node in nodes)
    by_item: dict[str, list[Node]] = {}
    for node in nodes:
        by_item.setdefault(node.item, []).append(node)
    return few(
        [
            f"{item} ({counted(len(some), 'node')} of {counted(len({node.ref for node in some}), 'model')})"
            for item, some in by_item.items()
        ]
    )


def few(items: Sequence[str]) -> str:
    """The names of items; of very many, the first ones and how many more there are."""
    if len(items) <= SHOWN_ITEMS:
        return ", ".join(items)
    return f"{', '.join(items[:NAMED])} and {counted(len(items) - NAMED, 'more item')}"


def counted(number: int, what: str) -> str:
    """A number with its noun."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def conditions(report: Report) -> str:
    """The versions and options that the figures are good for, on one line."""
    return (
        f"harness {report.harness['version']} ({report.harness['signature'][:12]}), "
        f"bank {report.bank['version']} ({report.bank['checksum'][:12]}), profile {report.profile}, "
        f"sampling {report.sampling}, {f'thinking {report.think}, ' if report.think else ''}variant {report.variant}"
    )


def cautions(report: Report, named: Named = str) -> Iterator[str]:
    """Sentences on the whole of a report without which its figures would be misread."""
    if report.status != "complete":
        yield f"The report is {report.status}. {RESUME}"
    if report.concurrency > 1:
        yield (
            f"{report.concurrency} requests at a time: outputs can differ from those of one at a time; that runs are "
            "identical is not claimed."
        )
    jumped = {
        f"run {run.run} of {named(ref)}": None
        for level in report.levels.values()
        for ref, model in (level.models if level else {}).items()
        for run in model.runs
        if not run.timings_valid
    }
    if jumped:
        yield f"The clock jumped: times and speeds are invalid in {', '.join(jumped)}; the points stand."
    if mixed := {
        named(ref): card["endpoints_differ"] for ref, card in report.models.items() if card.get("endpoints_differ")
    }:
        for name, fields in mixed.items():
            yield f"The endpoints differ in {', '.join(fields)} for {name}: its points are those of two models."
    if unstable := [named(ref) for ref, card in report.models.items() if card.get("speeds") == "unstable"]:
        yield f"Speeds are unstable (the probe moved by more than 10 %) for: {', '.join(unstable)}."


def level_cautions(report: Report, level: str) -> Iterator[str]:
    """Sentences on one level without which its figures would be misread."""
    nodes = [node for node in nodes_of(report) if node.level == level]
    content = _content(report, level)
    if level == OWN:
        yield "Own tests order nothing; their points are never added to those of a level."
    elif level != RANKING:
        yield "This level orders nothing; its points are never added to those of another level."
    elif why := (content.analysis.ranking_why if content and content.analysis else report.ranks_why):
        yield f"No ranking. {why}"
    for what, found in (
        ("ran unconfined", [node for node in nodes if node.entry.confinement == UNCONFINED]),
        ("were repaired before grading: read the points beside the repairs", [n for n in nodes if n.entry.repairs]),
        ("were not measured, which is no zero", [n for n in nodes if n.entry.status not in SCORED]),
    ):
        if found:
            yield f"{len(found)} of {counted(len(nodes), 'node')} {what}."
    if near := [node for node in nodes if node.entry.edge]:
        caps: dict[str, set[str]] = {}
        for node in near:
            for cap in node.entry.edge:
                caps.setdefault(cap, set()).add(node.item)
        where = "; ".join(f"{cap} in {few(sorted(items))}" for cap, items in sorted(caps.items()))
        yield f"{len(near)} of {counted(len(nodes), 'node')} used 80 % or more of a cap: {where}."


def facts(report: Report, level: str, named: Named = str) -> Iterator[str]:
    """Sentences on one level that are good to know: what was saved, what was asked twice, where code ran."""
    content = _content(report, level)
    if content is None:
        return
    yield from _saved(content, named)
    if content.pictures is not None:
        yield from sight_lines(content.pictures, named)
    for ref, model in content.models.items():
        if found := model.determinism:
            yield (
                f"Asked twice with one seed, {named(ref)}: {found.equal_replies} of {found.instances} replies equal, "
                f"{found.equal_points} of {found.instances} points equal, {found.failed} failed."
            )
    entries = (node.entry for node in nodes_of(report) if node.level == level)
    if layers := {entry.confinement for entry in entries if entry.confinement} - {UNCONFINED}:
        yield f"Delivered code ran under: {', '.join(sorted(layers))}."


def _saved(content: LevelReport, named: Named) -> Iterator[str]:
    """What was not run because the order was known."""
    after: dict[int, list[str]] = {}
    for ref, model in content.models.items():
        if model.spared:
            after.setdefault(len(model.runs), []).append(named(ref))
    if after:
        spared = sum(model.spared for model in content.models.values())
        planned = spared + sum(model.planned for model in content.models.values())
        when = "; ".join(f"run {run} for {', '.join(refs)}" for run, refs in sorted(after.items()))
        yield f"Saved: {spared} of {counted(planned, 'node')}, because the order was sustained after {when}."


def _content(report: Report, level: str) -> LevelReport | None:
    return next((content for name, content in report.levels.items() if name == level), None)


def analysis_lines(analysis: Analysis, named: Named = str) -> Iterator[str]:
    """Sentences of one level's analysis, for every kind of report.

    Args:
        analysis: of the level.
        named: how the name of a model is written.
    """
    if analysis.ranking is not None:
        yield "Place 1-3: no sustained difference tells whether first, second or third."
    for model, why in analysis.unranked.items():
        yield f"No place for {named(model)}: {why}."
    if analysis.noise_floor == 0:
        yield "No spread was seen over these runs: their noise is below what they can show, which is not none."
    elif analysis.noise_floor is not None and analysis.smallest_difference is not None:
        pairs = len(analysis.pairs)
        together = f" ({pairs} pairs looked at together)" if pairs > 1 else ""
        yield (
            f"Noise floor {analysis.noise_floor:.2f} points; smallest difference sustained at 95 %: "
            f"{in_points(analysis.smallest_difference, analysis.points_max)}{together}."
        )
        sustained = [pair for pair in analysis.pairs if pair.sustained]
        if sustained and analysis.ranking is not None:
            yield (
                f"{len(sustained)} of {pairs} orders are sustained on these items; "
                f"{sum(pair.beyond for pair in sustained)} would hold with other items, of which these are a sample."
            )
    left_out = sum(pair.left_out for pair in analysis.pairs)
    if left_out:
        yield f"Left out of the pairs, because one of the two was not measured: {left_out} instances."
    yield from _item_lines(analysis)


def _item_lines(analysis: Analysis) -> Iterator[str]:
    if len(analysis.models) > 1:
        for rows, what in ((analysis.rows_all, "earned by every model"), (analysis.rows_none, "earned by none")):
            if rows:
                names = ", ".join(rows) if len(rows) <= SHOWN_ROWS else f"{len(rows)} of {analysis.rows}"
                yield f"Rows without information, {what} in every run: {names}."
    if analysis.disagreeing:
        deviations = [f"{item} (sd {analysis.items[item].deviation:.2f})" for item in analysis.disagreeing]
        yield f"Runs disagree most in: {', '.join(deviations)}."
