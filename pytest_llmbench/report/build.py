"""The report of a run folder, from its manifest, its plan and its records. Levels never meet in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, ConfigDict, ValidationError

from pytest_llmbench.campaign.models import REFERENCES, speeds_stable
from pytest_llmbench.harness.frozen import harness, signature
from pytest_llmbench.records import SCORED, Record, Saved
from pytest_llmbench.report.calibration import CALIBRATION, Asked, Calibration, calibrate
from pytest_llmbench.report.cutoffs import cutoffs, registry
from pytest_llmbench.report.figures import RANKING, Analysis
from pytest_llmbench.report.level_c import SPLIT_DATE, Probed, SplitDate, split_date
from pytest_llmbench.report.level_m import PICTURES, Pictures, pictures
from pytest_llmbench.store.folder import MANIFEST, PLAN, REPORT, RunFolder, StoreError, node_stem, read_json

ReportLevel = Literal["A", "B", "C", "M", "own"]
LEVELS: tuple[ReportLevel, ...] = ("A", "B", "C", "M", "own")
UNCONFINED = "unconfined"
UNRANKED = "Some code ran unconfined: its scores may be forged, and these points order nothing."
SMOKE = "Profile smoke: the caps are too small for a ranking; these points order nothing."

SAME_MODEL = ("runtime", "digest", "quantisation", "context")
"""What all endpoints of a session must have in common for a model."""

UNREPORTED = frozenset({"schema", "title", "mode", "caps", "conditions", "started", "finished"})
"""Parts of a record that no report has."""
STATED = ("harness", "grader", "bank")
"""Fingerprints that a report states or holds against others."""

Figure = Annotated[float, BeforeValidator(float)]
Node = tuple[str, int, str]
"""Item, run, model."""
Records = Mapping[Node, Mapping[str, Any]]


class PlannedItem(Saved):
    """What the report must know of an item of which no record may exist."""

    title: str
    version: str
    level: str
    points: Figure
    rows: int
    group: str | None = None
    """The set of alike items that it is one of."""
    probe: Mapping[str, str] = {}
    """For an item of level C: its pair, its side and its dates."""


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
    parts: int | None = None
    right: int | None = None


class ReportItem(Saved):
    """One node in the report.

    ``status`` is ``lost`` where a planned node left no record, and ``archived`` where its record is of another version
    of the item than this run's.
    """

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
    """Without figures where the timings of the run are invalid."""
    edge: Sequence[str]
    faults_met: int | None
    """Faults of the schedule that fired; None where there is no schedule."""
    again: Mapping[str, Any] | None
    """What came of asking a second time; None where that was not done."""


class ReportRun(Saved):
    run: int
    points: float | None
    """None where an item of the run was not measured."""
    points_max: float
    timings_valid: bool
    """False where the clock jumped during one of its nodes: the points stand, no time or speed of the run does."""
    items: Mapping[str, ReportItem]


class Determinism(Saved):
    """How many instances gave the same when they were asked a second time with the same seed."""

    instances: int
    equal_replies: int
    equal_points: int
    failed: int
    """Instances of which nothing came the second time."""


class LevelModel(Saved):
    """One model in one level. Statistics of real models are in the level's ``analysis``."""

    points_mean: float | None
    """Mean over the runs; None where any run has an unmeasured item."""
    points_min: float | None
    points_max: float | None
    planned: int
    measured: int
    unmeasured: int
    unmeasured_nodes: Sequence[str]
    spared: int
    """Nodes that were not run because the model's order was sustained already; they are not among the planned ones."""
    repairs: int
    faults_met: int
    determinism: Determinism | None
    """None where nothing was asked a second time, or where several requests at a time rule it out."""
    unconfined: int
    """Scores for which a model's code ran without confinement; a model with any of them is in no ranking."""
    runs: Sequence[ReportRun]


class LevelReport(Saved):
    """One level. Nothing outside of it holds a figure of more than one level."""

    points_max: float
    rows: int
    items: Sequence[str]
    models: Mapping[str, LevelModel]
    analysis: Analysis | None
    """Of the real models; None where only references were measured, and for level B, which never orders anything."""
    calibration: Calibration | None = None
    """For level B: the public sets beside what others have published."""
    split_date: SplitDate | None = None
    """For level C: both probes, each by itself. The level has no points of its own."""
    pictures: Pictures | None = None
    """For level M: which of the real models see."""


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
    """Empty where the run is of another harness than the one that wrote this report."""
    concurrency: int
    """Requests that an endpoint was allowed to get at a time."""
    models: Mapping[str, Mapping[str, Any]]
    levels: Mapping[ReportLevel, LevelReport | None]
    extra: Mapping[str, Any] = {}
    """What the hook ``pytest_llmbench_update_report`` added."""

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
    manifest = read_manifest(folder)
    plan = read_plan(folder)
    records = {(record["item"], record["run"], record["ref"]): _needed(record) for record in folder.records()}
    nodes = _nodes(plan, records)
    lost = [node for node in nodes if node not in records]
    status: Literal["complete", "incomplete", "interrupted"] = (
        "interrupted"
        if interrupted
        else "incomplete"
        if broken or lost or not (folder.path / PLAN).exists()
        else "complete"
    )
    ranks_why = _ranks_not(manifest.profile, plan, records)
    cards = {ref: _card(folder, ref) for ref in dict.fromkeys(ref for _, _, ref in plan.nodes)}
    concurrency = max([_concurrency(manifest), *(record.get("concurrency", 1) for record in records.values())])
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
        policies=harness().policies if manifest.harness.get("signature") == signature() else {},
        concurrency=concurrency,
        models=cards,
        levels={
            level: _with_pictures(level, _level(level, nodes, plan, records, ranks_why, concurrency), cards)
            for level in LEVELS
        },
        extra=_extra(folder),
    )


def _needed(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a report is made from, its words shared; of many records at a time, the rest would only fill the memory."""
    needed = {
        name: sys.intern(value) if isinstance(value, str) else value
        for name, value in record.items()
        if name not in UNREPORTED
    }
    return {**needed, "fingerprints": {name: sys.intern(record["fingerprints"][name]) for name in STATED}}


def _extra(folder: RunFolder) -> Mapping[str, Any]:
    """What was added to the report of the folder when it was written before."""
    try:
        extra = read_json(folder.path / REPORT).get("extra")
    except StoreError:
        return {}
    return extra if isinstance(extra, dict) else {}


def read_manifest(folder: RunFolder) -> Manifest:
    """What the session of a run folder ran.

    Raises:
        StoreError: where it is missing or not one that this version can read.
    """
    return _read(folder, MANIFEST, Manifest)


def read_plan(folder: RunFolder) -> Plan:
    """What the session of a run folder set out to measure; nothing, where it did not come that far.

    Raises:
        StoreError: where it is not one that this version can read.
    """
    return _read(folder, PLAN, Plan) if (folder.path / PLAN).exists() else Plan(nodes=[], items={})


Document = TypeVar("Document", Manifest, Plan)


def _read(folder: RunFolder, name: str, kind: type[Document]) -> Document:
    try:
        return kind.model_validate(read_json(folder.path / name))
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise StoreError(
            f"{folder.path / name}: not a {name.removesuffix('.json')} that this version can read: "
            f"{where}: {fault['msg']}"
        ) from None


def _concurrency(manifest: Manifest) -> int:
    stated = manifest.options.get("concurrency")
    return stated if isinstance(stated, int) else 1


def _nodes(plan: Plan, records: Records) -> list[Node]:
    """The nodes that the report is about: all that were planned, less those that were spared."""
    spared = {node for node in plan.spared if node not in records}
    return [node for node in plan.nodes if node not in spared]


def is_reference(ref: str) -> bool:
    """Whether a model of a report is a reference with a known score."""
    return ref.partition(":")[0] in REFERENCES


def _ranks_not(profile: str, plan: Plan, records: Records) -> str | None:
    """Why level A of this report orders nothing; None where it may."""
    if profile != "standard":
        return SMOKE
    levels = {item: planned.level for item, planned in plan.items.items()}
    unconfined = any(
        record["confinement"] == UNCONFINED and levels.get(item) == RANKING for (item, _, _), record in records.items()
    )
    return UNRANKED if unconfined else None


def write_report(folder: RunFolder, *, interrupted: bool = False, broken: bool = False) -> Report:
    """Build the report and write it into its folder."""
    report = build_report(folder, interrupted=interrupted, broken=broken)
    folder.write(REPORT, report)
    return report


def card_name(ref: str, number: int = 0) -> str:
    """File of a model's card in the run folder: one for each worker whose endpoint serves it."""
    return f"models/{node_stem('card', 0, 0, ref)}{f'.{number}' if number else ''}.json"


def read_cards(folder: Path, ref: str) -> list[dict[str, Any]]:
    """The cards of a model in a run folder, those of the session's further endpoints behind the first; none where it
    was not opened."""
    first = folder / card_name(ref)
    further = sorted(first.parent.glob(f"{first.stem}.*.json"), key=lambda path: int(path.suffixes[-2][1:]))
    cards = []
    for path in (first, *further):
        with suppress(StoreError):
            cards.append(read_json(path))
    return cards


def differing(cards: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the endpoints of a model do not have in common, of all that makes it the same model."""
    return [name for name in SAME_MODEL if len({json.dumps(card.get(name)) for card in cards}) > 1]


def _card(folder: RunFolder, ref: str) -> Mapping[str, Any]:
    cards = read_cards(folder.path, ref)
    if not cards:
        return {"ref": ref, "opened": False}
    drift = harness().limits["speed_drift"].value
    stable = [
        speeds_stable([card.get("probe_tokens_per_s"), card.get("closing_probe_tokens_per_s")], drift) for card in cards
    ]
    speeds = "unstable" if False in stable else "unknown" if None in stable else "ok"
    return {**cards[0], "opened": True, "speeds": speeds, "endpoints_differ": differing(cards)}


def _level(
    level: ReportLevel, nodes: Sequence[Node], plan: Plan, records: Records, ranks_why: str | None, concurrency: int
) -> LevelReport | None:
    here = [node for node in nodes if plan.items[node[0]].level == level]
    if not here:
        return None
    items = list(dict.fromkeys(item for item, _, _ in here))
    refs = list(dict.fromkeys(ref for _, _, ref in here))
    left = {node for node in plan.spared if node not in records and plan.items[node[0]].level == level}
    models = {
        ref: _model(
            [node for node in here if node[2] == ref],
            plan,
            records,
            spared=sum(node[2] == ref for node in left),
            one_at_a_time=concurrency == 1,
        )
        for ref in refs
    }
    probes = _split_date(models, plan) if level == SPLIT_DATE else None
    if probes is not None:
        models = {ref: _without_points(model) for ref, model in models.items()}
    return LevelReport(
        points_max=0.0 if probes else _sum(plan.items[item].points for item in items),
        rows=sum(plan.items[item].rows for item in items),
        items=items,
        models=models,
        analysis=_analysis(level, here, plan, records, ranks_why),
        calibration=_calibration(models, plan) if level == CALIBRATION else None,
        split_date=probes,
    )


def _split_date(models: Mapping[str, LevelModel], plan: Plan) -> SplitDate | None:
    """Level C: the probes of its models, with the cutoffs that are known now."""
    nodes = [
        Probed(item, run.run, ref, is_reference(ref), entry.status, entry.rows)
        for ref, model in models.items()
        for run in model.runs
        for item, entry in run.items.items()
    ]
    stamps = {item: planned.probe for item, planned in plan.items.items() if planned.probe}
    return split_date(nodes, stamps, cutoffs(list(models), registry())) if stamps else None


def _without_points(model: LevelModel) -> LevelModel:
    """A model whose points would be those of two probes together: it keeps its nodes and loses the sums."""
    runs = [run.model_copy(update={"points": None, "points_max": 0.0}) for run in model.runs]
    return model.model_copy(update={"points_mean": None, "points_min": None, "points_max": None, "runs": runs})


def _with_pictures(
    level: ReportLevel, content: LevelReport | None, cards: Mapping[str, Mapping[str, Any]]
) -> LevelReport | None:
    """Level M with what is known of its models' sight; every other level as it is."""
    if content is None or level != PICTURES:
        return content
    real = [ref for ref in content.models if not is_reference(ref)]
    measured = [ref for ref in real if content.models[ref].measured]
    block = pictures({ref: cards[ref] for ref in real}, measured) if real else None
    return content.model_copy(update={"pictures": block})


def _calibration(models: Mapping[str, LevelModel], plan: Plan) -> Calibration | None:
    """Level B beside published figures."""
    asked = [
        Asked(item, ref, entry.status, entry.rows)
        for ref, model in models.items()
        for run in model.runs
        for item, entry in run.items.items()
    ]
    return calibrate(asked, {item: planned.group for item, planned in plan.items.items()})


def _analysis(
    level: ReportLevel, nodes: Sequence[Node], plan: Plan, records: Records, ranks_why: str | None
) -> Analysis | None:
    """The statistics of a level's real models; None where there are none."""
    from pytest_llmbench.report.analysis import analyse

    real = [node for node in nodes if not is_reference(node[2])]
    if not real or level in (CALIBRATION, SPLIT_DATE):
        return None
    known = (records[node] for node in real if node in records)
    current = [record for record in known if not _archived(plan.items[record["item"]], record)]
    return analyse(current, level, planned=real, ranks_why=ranks_why, looks=plan.looks)


def _archived(planned: PlannedItem, record: Mapping[str, Any]) -> bool:
    """Whether a record is of another version of its item than the run."""
    return bool(record["item_version"] != planned.version)


def _model(nodes: Sequence[Node], plan: Plan, records: Records, *, spared: int, one_at_a_time: bool) -> LevelModel:
    runs = [
        _run(number, [node for node in nodes if node[1] == number], plan, records)
        for number in sorted({number for _, number, _ in nodes})
    ]
    totals = [entry.points for entry in runs]
    whole = [total for total in totals if total is not None]
    complete = len(whole) == len(totals)
    missing = [
        f"{item}-run{entry.run}" for entry in runs for item, node in entry.items.items() if node.status not in SCORED
    ]
    entries = [entry for run in runs for entry in run.items.values()]
    return LevelModel(
        points_mean=round(_sum(whole) / len(whole), 4) if complete else None,
        points_min=min(whole) if complete else None,
        points_max=max(whole) if complete else None,
        planned=len(nodes),
        measured=len(nodes) - len(missing),
        unmeasured=len(missing),
        unmeasured_nodes=missing,
        spared=spared,
        repairs=sum(len(entry.repairs) for entry in entries),
        faults_met=sum(entry.faults_met or 0 for entry in entries),
        determinism=_determinism([entry.again for entry in entries if entry.again]) if one_at_a_time else None,
        unconfined=sum(entry.confinement == UNCONFINED for entry in entries),
        runs=runs,
    )


def _determinism(again: Sequence[Mapping[str, Any]]) -> Determinism | None:
    if not again:
        return None
    came = [one for one in again if one["equal_text"] is not None]
    return Determinism(
        instances=len(again),
        equal_replies=sum(one["equal_text"] for one in came),
        equal_points=sum(one["points"] is not None and one["points"] == one["points_again"] for one in came),
        failed=len(again) - len(came),
    )


def _run(number: int, nodes: Sequence[Node], plan: Plan, records: Records) -> ReportRun:
    """One run of one model."""
    jumped = any(records[node].get("clock_jump_s") is not None for node in nodes if node in records)
    entries = {node[0]: _item(plan.items[node[0]], records.get(node), timed=not jumped) for node in nodes}
    figures = [entry.points for entry in entries.values()]
    known = [figure for figure in figures if figure is not None]
    return ReportRun(
        run=number,
        points=_sum(known) if len(known) == len(figures) else None,
        points_max=_sum(entry.points_max for entry in entries.values()),
        timings_valid=not jumped,
        items=entries,
    )


def _item(planned: PlannedItem, record: Mapping[str, Any] | None, *, timed: bool) -> ReportItem:
    if record is None:
        return _unmeasured(
            planned, "lost", "the node was planned but left no record: its worker died, or the session ended before it"
        )
    if _archived(planned, record):
        reason = f"{record['item']} {record['item_version']}, this run's is {planned.version}"
        return _unmeasured(planned, "archived", reason)
    agent = record.get("agent")
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
        usage=record["usage"] if timed else {**record["usage"], "elapsed_s": None},
        speed=record["speed"] if timed else dict.fromkeys(record["speed"]),
        edge=record["edge"],
        faults_met=sum(fault["fired_at"] is not None for fault in agent["faults"]) if agent else None,
        again=record.get("again"),
    )


def _unmeasured(planned: PlannedItem, status: str, reason: str) -> ReportItem:
    return ReportItem(
        status=status,
        reason=reason,
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
        faults_met=None,
        again=None,
    )


def _sum(figures: Iterable[float]) -> float:
    return round(sum(figures), 6)
