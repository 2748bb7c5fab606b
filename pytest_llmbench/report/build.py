"""The report of a run folder, from its manifest, its plan and its records. Levels never meet in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict

from pytest_llmbench.campaign.models import speeds_stable
from pytest_llmbench.harness.frozen import harness
from pytest_llmbench.records import SCORED, Record, Saved
from pytest_llmbench.store.folder import MANIFEST, PLAN, REPORT, RunFolder, StoreError, node_stem, read_json

LEVELS: tuple[Literal["A", "B", "C", "M"], ...] = ("A", "B", "C", "M")
UNCONFINED = "unconfined"
UNRANKED = "Some code ran unconfined: its scores may be forged, and these points order nothing."
SMOKE = "Profile smoke: the caps are too small for a ranking; these points order nothing."

Figure = Annotated[float, BeforeValidator(float)]


class PlannedItem(Saved):
    """What the report must know of an item of which no record may exist."""

    title: str
    version: str
    level: str
    points: Figure
    rows: int


class Plan(Saved):
    """Every node that the session set out to measure."""

    nodes: Sequence[tuple[str, int, str]]
    """Item, run, model."""
    items: Mapping[str, PlannedItem]
    spared: Sequence[tuple[str, int, str]] = ()
    """Nodes that were planned and not run because their model's order was sustained already."""
    looks: int = 1
    """How often the growing data were looked at for that."""


class Manifest(Saved):
    """What a session ran: with the cards of its models, the full tuple that a result is good for."""

    schema_: Literal["llmbench.manifest/1"] = "llmbench.manifest/1"
    plugin_version: str
    harness: Mapping[str, str]
    bank: Mapping[str, str]
    grader: str
    profile: str
    sampling: str
    think: str | None
    variant: int
    runs: int
    models: Sequence[str]
    options: Mapping[str, Any]
    created: str

    model_config = Record.model_config


class ReportRow(Saved):
    id: str
    title: str
    kind: str
    points: float
    earned: float
    evidence: str


class ReportItem(Saved):
    """One node in the report; ``status`` is ``lost`` where a planned node left no record."""

    status: str
    reason: str | None
    points: float | None
    points_max: float
    rows: Sequence[ReportRow]
    repairs: Sequence[str]
    confinement: str | None
    """Layer that the delivered code ran under."""
    flags: Sequence[str]
    stop_reason: str | None
    usage: Mapping[str, Any]
    speed: Mapping[str, Any]
    edge: Sequence[str]


class ReportRun(Saved):
    run: int
    points: float | None
    """None where an item of the run was not measured."""
    points_max: float
    items: Mapping[str, ReportItem]


class LevelModel(Saved):
    """One model in one level."""

    points_mean: float | None
    """Mean over the runs; None where any run has an unmeasured item."""
    points_min: float | None
    points_max: float | None
    planned: int
    measured: int
    unmeasured: int
    unmeasured_nodes: Sequence[str]
    repairs: int
    unconfined: int
    """Scores for which a model's code ran without confinement; a model with any of them is in no ranking."""
    runs: Sequence[ReportRun]


class LevelReport(Saved):
    """One level. Nothing outside of it holds a figure of more than one level."""

    points_max: float
    rows: int
    items: Sequence[str]
    models: Mapping[str, LevelModel]


class Report(Saved):
    """``report.json``."""

    schema_: Literal["llmbench.report/1"] = "llmbench.report/1"
    status: Literal["complete", "incomplete", "interrupted"]
    harness: Mapping[str, str]
    bank: Mapping[str, str]
    profile: str
    sampling: str
    think: str | None
    variant: int
    ranks: bool
    ranks_why: str | None
    policies: Mapping[str, str]
    concurrency: Literal[1] = 1
    models: Mapping[str, Mapping[str, Any]]
    levels: Mapping[Literal["A", "B", "C", "M"], LevelReport | None]

    model_config = ConfigDict(**Record.model_config)


def build_report(folder: RunFolder, *, interrupted: bool = False, broken: bool = False) -> Report:
    """The report of a run folder.

    Args:
        folder: holds a manifest, a plan and the records that were written.
        interrupted: the session was stopped by its user.
        broken: the session ended before its plan was whole, such as on a broken item.

    Raises:
        StoreError: where manifest or plan are missing or cannot be read.
    """
    manifest = Manifest.model_validate(read_json(folder.path / MANIFEST))
    plan = (
        Plan.model_validate(read_json(folder.path / PLAN))
        if (folder.path / PLAN).exists()
        else Plan(nodes=[], items={})
    )
    records = {(record["item"], record["run"], record["ref"]): record for record in folder.records()}
    lost = [node for node in plan.nodes if node not in records]
    status: Literal["complete", "incomplete", "interrupted"] = (
        "interrupted"
        if interrupted
        else "incomplete"
        if broken or lost or not (folder.path / PLAN).exists()
        else "complete"
    )
    levels = {level: _level(level, plan, records) for level in LEVELS}
    ranks_why = _ranks_not(manifest.profile, levels["A"])
    return Report(
        status=status,
        harness=manifest.harness,
        bank=manifest.bank,
        profile=manifest.profile,
        sampling=manifest.sampling,
        think=manifest.think,
        variant=manifest.variant,
        ranks=ranks_why is None,
        ranks_why=ranks_why,
        policies=harness().policies,
        models={ref: _card(folder, ref) for ref in dict.fromkeys(ref for _, _, ref in plan.nodes)},
        levels=levels,
    )


def _ranks_not(profile: str, level: LevelReport | None) -> str | None:
    """Why level A of this report orders nothing; None where it may."""
    if profile != "standard":
        return SMOKE
    if level is not None and any(model.unconfined for model in level.models.values()):
        return UNRANKED
    return None


def write_report(folder: RunFolder, *, interrupted: bool = False, broken: bool = False) -> Report:
    """Build the report and write it into its folder."""
    report = build_report(folder, interrupted=interrupted, broken=broken)
    folder.write(REPORT, report)
    return report


def card_name(ref: str) -> str:
    """File of a model's card in the run folder."""
    return f"models/{node_stem('card', 0, 0, ref)}.json"


def _card(folder: RunFolder, ref: str) -> Mapping[str, Any]:
    try:
        card = read_json(folder.path / card_name(ref))
    except StoreError:
        return {"ref": ref, "opened": False}
    stable = speeds_stable(
        [card.get("probe_tokens_per_s"), card.get("closing_probe_tokens_per_s")], harness().limits["speed_drift"].value
    )
    return {**card, "opened": True, "speeds": {True: "ok", False: "unstable", None: "unknown"}[stable]}


def _level(level: str, plan: Plan, records: Mapping[tuple[str, int, str], Mapping[str, Any]]) -> LevelReport | None:
    nodes = [node for node in plan.nodes if plan.items[node[0]].level == level]
    if not nodes:
        return None
    items = list(dict.fromkeys(item for item, _, _ in nodes))
    refs = list(dict.fromkeys(ref for _, _, ref in nodes))
    return LevelReport(
        points_max=_sum(plan.items[item].points for item in items),
        rows=sum(plan.items[item].rows for item in items),
        items=items,
        models={ref: _model([node for node in nodes if node[2] == ref], plan, records) for ref in refs},
    )


def _model(
    nodes: Sequence[tuple[str, int, str]], plan: Plan, records: Mapping[tuple[str, int, str], Mapping[str, Any]]
) -> LevelModel:
    runs = []
    for run in sorted({number for _, number, _ in nodes}):
        entries = {node[0]: _item(plan.items[node[0]], records.get(node)) for node in nodes if node[1] == run}
        figures = [entry.points for entry in entries.values()]
        known = [figure for figure in figures if figure is not None]
        runs.append(
            ReportRun(
                run=run,
                points=_sum(known) if len(known) == len(figures) else None,
                points_max=_sum(entry.points_max for entry in entries.values()),
                items=entries,
            )
        )
    totals = [entry.points for entry in runs]
    whole = [total for total in totals if total is not None]
    complete = len(whole) == len(totals)
    missing = [
        f"{item}-run{entry.run}" for entry in runs for item, node in entry.items.items() if node.status not in SCORED
    ]
    return LevelModel(
        points_mean=round(_sum(whole) / len(whole), 4) if complete else None,
        points_min=min(whole) if complete else None,
        points_max=max(whole) if complete else None,
        planned=len(nodes),
        measured=len(nodes) - len(missing),
        unmeasured=len(missing),
        unmeasured_nodes=missing,
        repairs=sum(len(node.repairs) for entry in runs for node in entry.items.values()),
        unconfined=sum(node.confinement == UNCONFINED for entry in runs for node in entry.items.values()),
        runs=runs,
    )


def _item(planned: PlannedItem, record: Mapping[str, Any] | None) -> ReportItem:
    if record is None:
        return ReportItem(
            status="lost",
            reason="the node was planned but left no record: its worker died, or the session ended before it",
            points=None,
            points_max=planned.points,
            rows=[],
            repairs=[],
            confinement=None,
            flags=[],
            stop_reason=None,
            usage={},
            speed={},
            edge=[],
        )
    return ReportItem(
        status=record["status"],
        reason=record["reason"],
        points=record["points"],
        points_max=record["points_max"],
        rows=[ReportRow.model_validate(row) for row in record["rows"]],
        repairs=record["repairs"],
        confinement=record["confinement"],
        flags=record["flags"],
        stop_reason=record["stop_reason"],
        usage=record["usage"],
        speed=record["speed"],
        edge=record["edge"],
    )


def _sum(figures: Iterable[float]) -> float:
    return round(sum(figures), 6)
