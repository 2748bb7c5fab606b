"""Today's grader on yesterday's transcripts: every node of a run folder is graded again, without a model.

What a record says of the measurement itself (times, tokens, speeds, caps, conditions) is taken over; everything that
grading decides is made anew. Where nothing differs, nothing is written. Where something does, the old grading is kept
in ``gradings/<time>/`` together with a list of what moved and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from pytest_llmbench.bank import BankError, Item, bank_checksum, load_bank
from pytest_llmbench.campaign.agents import schedule_of
from pytest_llmbench.campaign.measure import AGAIN, Measurement, Unmeasured, grader
from pytest_llmbench.campaign.models import Model, ModelSpec, builtin_runtimes, expand
from pytest_llmbench.campaign.moves import (
    SHORT,
    THE_SAME_CODE,
    Graders,
    Move,
    MovedNode,
    Moves,
    Node,
    beside,
    causes,
    node_name,
    row_moves,
)
from pytest_llmbench.harness.frozen import Profile, harness, signature
from pytest_llmbench.locks import bank_version
from pytest_llmbench.records import SCORED, Again, Conditions, Record, Transcript, now
from pytest_llmbench.report.build import Manifest, Plan, read_manifest, read_plan
from pytest_llmbench.runtimes.base import RuntimeOptions
from pytest_llmbench.sandbox.jail import Sandbox, Unconfinable
from pytest_llmbench.sandbox.layers import choose
from pytest_llmbench.store.folder import MANIFEST, PLAN, RunFolder, StoreError, node_stem
from pytest_llmbench.store.gradings import GRADINGS, Staging

Fate = Literal["kept", "same", "changed"]

TAKEN_OVER = (
    *("usage", "speed", "caps", "edge", "conditions", "clock_jump_s", "concurrency", "stop_reason"),
    *("started", "finished"),
)
"""What a record says of the measurement; grading does not touch it."""
TORN = "the transcript is torn"


@dataclass(frozen=True)
class Regraded:
    """What became of one node."""

    node: Node
    fate: Fate
    note: str | None = None
    """Why it was kept as it is."""
    foreign: bool = False
    """Its saved reply answers another request than the item asks now."""
    gradable: bool = False
    moved: MovedNode | None = None
    rows: tuple[Move, ...] = ()

    @property
    def unexplained(self) -> bool:
        return self.moved is not None and THE_SAME_CODE in self.moved.why


@dataclass(frozen=True)
class Regrading:
    """What ``regrade`` did."""

    run: RunFolder
    nodes: Sequence[Regraded]
    kept_in: Path | None
    """Where the old grading lies now; None where nothing changed."""
    moves: Moves | None
    resumed: str | None
    """A grading that had been cut off while it was put in place, and was finished first."""

    @property
    def unexplained(self) -> Sequence[Regraded]:
        """Nodes that the same code graded in another way: a defect."""
        return [node for node in self.nodes if node.unexplained]

    @property
    def torn(self) -> Sequence[str]:
        """Nodes whose transcript cannot be read."""
        return [node_name(node.node) for node in self.nodes if node.note == TORN]


def regrade(
    run: RunFolder,
    bank: Path,
    *,
    layers: Sequence[str] | None = None,
    put_in_place: Callable[[RunFolder], object],
    notice: Callable[[int, int], None] = lambda done, of: None,
) -> Regrading:
    """Grade every saved reply of a run again.

    Args:
        run: the folder, locked by the caller.
        bank: folder of the items.
        layers: names of the layers of confinement to consider; all of the platform without them.
        put_in_place: writes what is made from the records; called whenever they have changed.
        notice: is told how many of the nodes are done.

    Raises:
        StoreError: where the folder cannot be read or written, or no reply in it answers what the bank asks now.
        BankError: where the bank is broken.
        Unconfinable: where code that a model wrote would have to run and nothing on this machine confines it.
    """
    staging = Staging(run, AGAIN)
    resumed = _complete(staging, put_in_place)
    manifest, plan = read_manifest(run), read_plan(run)
    task = Task(run.path, staging.folder.path, bank, manifest, plan, layers)
    try:
        staging.begin()
        results = _grade_all(task, notice)
        _refuse_another_time(task, results)
        moves = _moves(task, results)
        if moves is None:
            return Regrading(run, results, None, None, resumed)
        stems = [task.stem(result.node) for result in results if result.fate == "changed"]
        staging.commit(stems, _documents(task, results), moves)
        name = _complete(staging, put_in_place)
        assert name is not None
        return Regrading(run, results, run.path / GRADINGS / name, moves, resumed)
    finally:
        if not staging.settled:
            staging.clear()


def _complete(staging: Staging, put_in_place: Callable[[RunFolder], object]) -> str | None:
    """Put a grading that was settled on in its place, and what is made from its records."""
    name = staging.put_in_place()
    if name is not None:
        put_in_place(staging.run)
        staging.clear()
    return name


@dataclass(frozen=True)
class Task:
    """What is to be graded with what."""

    path: Path
    """The run folder."""
    staging: Path
    bank: Path
    manifest: Manifest
    plan: Plan
    layers: Sequence[str] | None = None
    """Names of the layers of confinement to consider; None for all of the platform."""

    @cached_property
    def items(self) -> Mapping[str, Item]:
        return {item.spec.id: item for item in load_bank(self.bank)}

    @cached_property
    def stamp(self) -> Mapping[str, str]:
        """Version and checksum of the bank."""
        return {"version": bank_version(self.bank), "checksum": bank_checksum(self.items.values())}

    @cached_property
    def profile(self) -> Profile:
        manifest = self.manifest
        return Profile(manifest.profile, manifest.sampling, manifest.think)  # type: ignore[arg-type]

    @cached_property
    def sandbox(self) -> Sandbox:
        return choose(self.profile.sandbox(), only=self.layers)

    @property
    def graders(self) -> Graders:
        """What this grading is made by."""
        return Graders(
            harness={"version": harness().version, "signature": signature()}, bank=self.stamp, grader=grader()
        )

    def stem(self, node: Node) -> str:
        """File name of a node."""
        item, run, ref = node
        return node_stem(item, self.manifest.variant, run, ref)

    def runs_code(self, node: Node) -> bool:
        """Whether the saved reply of a node holds code that has to run."""
        item = self.items.get(node[0])
        saved = self.path / "transcripts" / f"{self.stem(node)}.json"
        return item is not None and item.spec.needs_sandbox and saved.exists()


def _grade_all(task: Task, notice: Callable[[int, int], None]) -> list[Regraded]:
    """Every node of the plan, in its order."""
    nodes = task.plan.nodes
    if any(task.runs_code(node) for node in nodes):
        task.sandbox  # noqa: B018  # where nothing confines, nothing is graded
    # an item's runs together: what is prepared for one instance serves every model
    done: dict[Node, Regraded] = {}
    for node in sorted(nodes):
        done[node] = grade_again(task, node)
        notice(len(done), len(nodes))
    return [done[node] for node in nodes]


def grade_again(task: Task, node: Node) -> Regraded:
    """Grade the saved reply of one node; its new record and its delivery are staged.

    Raises:
        StoreError: where the disk refuses it.
        BankError: where the item's code cannot be used.
    """
    run, stem = RunFolder(task.path), task.stem(node)
    try:
        transcript = run.transcript(stem)
    except StoreError:
        return Regraded(node, "kept", TORN)
    item = task.items.get(node[0])
    if transcript is None:
        return Regraded(node, "kept", "no reply is saved")
    if item is None and task.plan.items[node[0]].level == "own":
        return Regraded(node, "kept", "a test function of one's own is graded by pytest alone (--llm-model=replay:RUN)")
    if item is not None and not _is_over(item, transcript):
        return Regraded(node, "kept", "the conversation did not come to its end")
    old, lost = _old_record(run, stem)
    if old is not None and (transcript.failure is not None or (item is None and old.status not in SCORED)):
        return Regraded(node, "kept", "nothing was measured")
    if item is None:
        return _without_item(task, node, old)
    measurement, failure = _measure(task, item, node)
    foreign = measurement.transcript is None and failure is not None and failure.status == "unsupported"
    measurement.transcript = measurement.transcript or transcript
    record = measurement.record(measurement.rows, failure)
    record = _completed(record, old)
    RunFolder(task.staging).write_record(record)
    return _held_together(task, node, old, lost, record, foreign, gradable=transcript.failure is None)


def _is_over(item: Item, transcript: Transcript) -> bool:
    """Whether a conversation was had to its end: that of an agent is saved after every step."""
    if transcript.failure is not None:
        return True
    if item.spec.mode == "agent":
        return transcript.end is not None
    return any(turn.role == "assistant" for turn in transcript.turns)


def _old_record(run: RunFolder, stem: str) -> tuple[Record | None, str | None]:
    """The record of a node, or why there is none."""
    try:
        record = run.record(stem)
    except StoreError:
        return None, "the record was torn"
    return record, None if record is not None else "the record was missing"


def _without_item(task: Task, node: Node, old: Record | None) -> Regraded:
    """A node whose item the bank does not hold: what it earned is not comparable with anything graded now."""
    if old is None:
        return Regraded(node, "kept", "the bank holds no such item")
    reason = (
        f"the bank holds no item {node[0]} any more. It can only be graded by the version of the bank and harness "
        "that it was made with."
    )
    grading: dict[str, object] = {
        "rows": [],
        "points": None,
        "flags": [],
        "repairs": [],
        "confinement": None,
        "agent": None,
    }
    record = old.model_copy(
        update={"status": "unsupported", "reason": reason, "again": _again(old, None, None), **grading}
    )
    RunFolder(task.staging).write_record(record)
    return _held_together(task, node, old, None, record, True, gradable=True)


def _measure(task: Task, item: Item, node: Node) -> tuple[Measurement, Unmeasured | None]:
    """The road of a node from its saved transcript on."""
    _, run, ref = node
    references = expand(ref, builtin_runtimes(), item.spec.references, item.spec.mode)
    kind, name = (references[0].kind, references[0].name) if references else ("replay", "")
    measurement = Measurement(
        item=item,
        model=Model(ModelSpec(ref, kind, name, task.path), None, RuntimeOptions(settings=task.profile.settings())),
        run=run,
        variant=task.manifest.variant,
        profile=task.profile,
        folder=RunFolder(task.staging),
        bank=task.stamp,
        confine=lambda: task.sandbox,
    )
    try:
        if not references:
            raise Unmeasured("unsupported", f"the item has no reference {ref} any more")
        measurement.rows += measurement.grade(measurement.perform(schedule_of(item, run)))
        if _second_reply(task, node):
            measurement.ask_again()
    except Unmeasured as error:
        return measurement, error
    except (BankError, StoreError, Unconfinable):
        raise
    except Exception as error:
        return measurement, Unmeasured("harness_error", f"{type(error).__name__}: {error}")
    return measurement, None


def _second_reply(task: Task, node: Node) -> bool:
    """Whether the node was asked twice and its second reply can be read."""
    try:
        return RunFolder(task.path).transcript(AGAIN + task.stem(node)) is not None
    except StoreError:
        return False


def _completed(record: Record, old: Record | None) -> Record:
    """A new record with what the old one says of the measurement; nothing is known of its conditions without one."""
    if old is None:
        return record.model_copy(update={"conditions": Conditions()})
    taken = {name: getattr(old, name) for name in TAKEN_OVER}
    again = record.again or _again(old, record.points, record.fingerprints.grader)
    return record.model_copy(update={**taken, "again": again})


def _again(old: Record, points: Decimal | None, grader_: str | None) -> Again | None:
    """A second asking whose own reply is not there: where it was another one, what the old grader gave it says nothing
    beside points of a new one."""
    if old.again is None or old.fingerprints.grader == grader_:
        return old.again
    twice = points if old.again.equal_text else None
    return old.again.model_copy(update={"points": points, "points_again": twice})


def _held_together(
    task: Task, node: Node, old: Record | None, lost: str | None, new: Record, foreign: bool, *, gradable: bool
) -> Regraded:
    """What differs between the old and the new grading of a node, and why."""
    same_record = old is not None and old.model_dump(mode="json") == new.model_dump(mode="json")
    staging = Staging(RunFolder(task.path), AGAIN)
    if same_record and not staging.changes_delivery(task.stem(node)):
        return Regraded(node, "same", foreign=foreign, gradable=gradable)
    why = tuple(causes(old, lost, new, foreign))
    rows = tuple(row_moves(node, old, new, why or (THE_SAME_CODE,)))
    if not why and (rows or (old is not None and old.status != new.status)):
        why = (THE_SAME_CODE,)
    moved = MovedNode(
        node=node_name(node),
        status=(old.status if old else None, new.status),
        points=(old.points if old else None, new.points),
        why=why or tuple(beside(old, new)) or ("the delivery is taken apart in another way",),
    )
    return Regraded(node, "changed", foreign=foreign, gradable=gradable, moved=moved, rows=rows)


def _moves(task: Task, results: Sequence[Regraded]) -> Moves | None:
    """What moved; None where nothing did."""
    nodes = [result.moved for result in results if result.moved is not None]
    if not nodes:
        return None
    manifest = task.manifest
    return Moves(
        at=now(),
        before=Graders(harness=manifest.harness, bank=manifest.bank, grader=manifest.grader),
        after=task.graders,
        nodes=nodes,
        moves=[row for result in results for row in result.rows],
    )


def _documents(task: Task, results: Sequence[Regraded]) -> dict[str, BaseModel]:
    """Manifest and plan as the new records have it: they say what the records are now, ``gradings`` what they were."""
    now_made_by = task.graders
    manifest = task.manifest.model_copy(
        update={"harness": now_made_by.harness, "bank": now_made_by.bank, "grader": now_made_by.grader}
    )
    graded = {result.node[0] for result in results if result.fate != "kept"}
    items = dict(task.plan.items)
    for name in graded & task.items.keys():
        spec = task.items[name].spec
        figures = {"level": spec.level, "points": float(spec.points), "rows": len(spec.rows)}
        items[name] = items[name].model_copy(update={"title": spec.title, "version": spec.version, **figures})
    plan = task.plan.model_copy(update={"items": items})
    changed = {MANIFEST: (task.manifest, manifest), PLAN: (task.plan, plan)}
    return {name: after for name, (before, after) in changed.items() if before != after}


def _refuse_another_time(task: Task, results: Sequence[Regraded]) -> None:
    """Refuse a run none of whose replies answers what is asked now: it is archived, and stays what it is.

    Raises:
        StoreError: for such a run.
    """
    replies = [result for result in results if result.gradable]
    if not replies or not all(result.foreign for result in replies):
        return
    manifest, stamp = task.manifest, task.stamp
    raise StoreError(
        f"{task.path} is archived: it was made with harness {manifest.harness['version']} and bank "
        f"{manifest.bank['version']} ({manifest.bank['checksum'][:SHORT]}), and none of its replies answers what "
        f"harness {harness().version} and bank {stamp['version']} ({stamp['checksum'][:SHORT]}) ask. "
        "Nothing was changed. Name its own bank with --items, or use the version of pytest-llmbench it was made with; "
        "it can still be read with `llmbench report` and `llmbench show`."
    )
