"""The course of a campaign in one process: what is kept, what is still started, what is spared, how long runs take."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from pytest_llmbench.campaign.agents import schedule_of
from pytest_llmbench.campaign.guard import Clock, Decision, Guard, spoken
from pytest_llmbench.campaign.measure import AGAIN, Unmeasured
from pytest_llmbench.records import Left, Record
from pytest_llmbench.report.figures import RANKING
from pytest_llmbench.runtimes.base import RuntimeFailure
from pytest_llmbench.session import Session
from pytest_llmbench.store.fingerprints import fingerprint

if TYPE_CHECKING:
    from pytest_llmbench.collect import BenchNode

Block = tuple[str, int]
"""A model's run: its reference and the run's number."""


FEWEST_ROUNDS = 3
"""One run has no spread, and behind the last run nothing is left to spare."""


class Spared(Exception):
    """A node that is not run, because the order of its model is sustained already."""


class Course:
    """Decides before every node of this process whether it is measured, and keeps the time of every model's run."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.clock = Clock(session.profile.limit("clock_jump_s"))
        self.guard = Guard(session.deadline, session.profile, lambda: datetime.fromtimestamp(time.time(), UTC))
        before = session.before
        for ref, (seconds, nodes) in (before.seconds if before else {}).items():
            self.guard.measured(ref, seconds, nodes)
        self.nodes: Sequence[BenchNode] = ()
        self._stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self._left: dict[tuple[str, int, str], Left] = {}
        self._looked_at: set[str] = set()
        self._decisions: dict[Block, Decision] = {}
        self._block: tuple[Block, float, int] | None = None
        """The run under way: when it began on the steady clock, and how many of its nodes were measured."""
        self._settled: dict[str, int] = {}
        """Last run of the models whose order is sustained."""
        for _, run, ref in before.plan.spared if before and before.plan else ():
            self._settled[ref] = min(run - 1, self._settled.get(ref, run))
        self._round = 1

    def before(self, node: BenchNode) -> Record | None:
        """What has to be done before a node: its kept record, or None where it is to be measured now.

        Raises:
            Unmeasured: ``deadline`` where the time left does not suffice for its model's run.
            Spared: where the order of its model is sustained already.
        """
        self.jump()
        left = self.left(node)
        item, run, ref = node.key
        if left.record is not None:
            self.session.note("node_kept", item=item, run=run, ref=ref, status=left.record.status)
            return left.record
        block = (ref, run)
        if not node.spec.is_reference and left.transcript is None:
            self._spare(node)
            decision = self._decide(block)
            if not decision.starts:
                raise Unmeasured("deadline", _refusal(block, decision))
        if self._block is None or self._block[0] != block:
            self._block = (block, time.monotonic(), 0)
        measurement = node.measurement
        if measurement is not None:
            measurement.behind = left
            if left.why is not None and measurement.model.spec.source is None:
                for stem in (measurement.stem, AGAIN + measurement.stem):
                    measurement.folder.archive(stem, self._stamp)
        return None

    def after(self, node: BenchNode, following: BenchNode | None) -> None:
        """Take in that a node is done; a model not needed next is unloaded, unless another worker may use it."""
        if self._block is not None and self._block[0] == (node.spec.ref, node.run):
            block, begun, count = self._block
            self._block = (block, begun, count + 1)
            if following is None or (following.spec.ref, following.run) != block:
                self._finished()
        alone = self.session.seats.concurrency == 1
        if following is None or (alone and following.spec.ref != node.spec.ref):
            self.session.close_model(node.spec.ref)

    def _finished(self) -> None:
        assert self._block is not None
        (ref, run), begun, count = self._block
        seconds = time.monotonic() - begun
        self._block = None
        self.guard.measured(ref, seconds, count)
        self.session.note("run_finished", ref=ref, run=run, seconds=round(seconds, 3), nodes=count)

    def jump(self, node: BenchNode | None = None) -> float | None:
        """Seconds by which the clock jumped since the last call; None where it did not."""
        seconds = self.clock.jump()
        if seconds is not None:
            item, run, ref = node.key if node is not None else (None, None, None)
            self.session.note("clock_jump", seconds=seconds, item=item, run=run, ref=ref)
        return seconds

    def left(self, node: BenchNode) -> Left:
        """What an earlier session left of a node."""
        if self.session.before is None:
            return Left()
        if node.spec.ref not in self._looked_at:
            self._looked_at.add(node.spec.ref)
            self._look_back(node.spec.ref)
        return self._left.get(node.key, Left())

    @property
    def kept(self) -> int:
        """Number of nodes whose record is kept."""
        return sum(self.left(node).record is not None for node in self.nodes)

    def outlook(self) -> Iterator[str]:
        """What is kept of an earlier session and what is measured, for people."""
        left = [self.left(node) for node in self.nodes]
        graded = sum(one.transcript is not None and one.record is None for one in left)
        missing = Counter(one.why for one in left if one.transcript is None)
        yield f"llmbench: {self.kept} of {len(left)} nodes kept, {sum(missing.values())} to measure"
        if graded:
            yield f"llmbench: {graded} graded again from their transcripts (record missing, or grader or bank changed)"
        for why, count in missing.items():
            yield f"llmbench: to measure because {why}: {count}"

    def _look_back(self, ref: str) -> None:
        """Look at what is left of all nodes of a model. Where some have to be measured, the model that answers now is
        held against the one that answered before."""
        mine = [node for node in self.nodes if node.spec.ref == ref]
        self._left.update((node.key, _look(node)) for node in mine)
        kept = [node for node in mine if self._left[node.key].transcript is not None]
        missing = [node for node in mine if self._left[node.key].transcript is None]
        if not kept or not missing or mine[0].spec.is_reference or mine[0].spec.source is not None:
            return
        if not self._decide((ref, missing[0].run)).starts:
            return
        try:
            _, card = self.session.model(mine[0].spec).open()
        except RuntimeFailure:
            return
        for node in kept:
            measurement = node.prepare()
            schedule = schedule_of(node.item, node.run)
            self._left[node.key] = measurement.look_back(schedule, card, twice=node.twice)

    def _decide(self, block: Block) -> Decision:
        """Whether a model's run is started; the same in every worker that shares the run folder."""
        if block not in self._decisions:
            folder, worker = self.session.folder, self.session.worker
            if worker is None or folder is None:
                self._decisions[block] = self._decide_here(block)
            else:
                name = f"{fingerprint(block)[:16]}.json"
                self._decisions[block] = Decision(**folder.agree(name, lambda: asdict(self._decide_here(block))))
                self.guard.follow(block[1], self._decisions[block])
        return self._decisions[block]

    def _decide_here(self, block: Block) -> Decision:
        ref, run = block
        left = [self._left.get(node.key, Left()) for node in self.nodes if (node.spec.ref, node.run) == block]
        nodes = sum(one.transcript is None for one in left)
        decision = self.guard.decide(ref, run, math.ceil(nodes / self.session.seats.count))
        if decision.starts:
            self.session.note("run_started", ref=ref, run=run, nodes=nodes)
        else:
            needed, remaining = round(decision.needed_s, 1), round(decision.left_s, 1)
            self.session.note("deadline", ref=ref, run=run, needed_s=needed, left_s=remaining, basis=decision.kind)
        return decision

    def _spare(self, node: BenchNode) -> None:
        if not self.session.until_separated or node.item.spec.level != RANKING:
            return
        while self._round < node.run:
            self._separate(self._round)
            self._round += 1
        last = self._settled.get(node.spec.ref)
        if last is not None and last < node.run:
            raise Spared(f"the order of {node.spec.ref} is sustained after run {last}; it is not run again")

    def _separate(self, after_run: int) -> None:
        """Look at the records after a complete round."""
        from pytest_llmbench.report.analysis import separated

        session, folder = self.session, self.session.folder
        if folder is None or after_run == 1:
            return
        real = {node.spec.ref for node in self.nodes if not node.spec.is_reference}
        records = [record for record in folder.records() if record["ref"] in real and record["run"] <= after_run]
        found = separated(records, session.runs, self._settled)
        for ref in found.settled:
            if ref not in self._settled:
                self._settled[ref] = after_run
                session.note("settled", ref=ref, after_run=after_run)
        spared = [
            node.key
            for node in self.nodes
            if node.item.spec.level == RANKING and self._settled.get(node.spec.ref, node.run) < node.run
        ]
        session.spare(spared, found.looks)


def check_terms(session: Session, workers: int) -> None:
    """Hold ``--llm-until-separated`` against the session's other options.

    Raises:
        pytest.UsageError: where nothing could be spared, or rounds are measured side by side.
    """
    ways_out = (
        (workers > 0, "workers have no rounds in common; run it without -n"),
        (session.profile.name != "standard", "only profile standard orders models; leave --llm-profile out"),
        (session.runs < FEWEST_ROUNDS, f"it saves something from --llm-runs={FEWEST_ROUNDS} on"),
    )
    for wrong, way_out in ways_out:
        if wrong and session.until_separated:
            raise pytest.UsageError(f"--llm-until-separated: {way_out}.")


def check_models(session: Session, nodes: Iterable[tuple[str, int, str]]) -> None:
    """Hold ``--llm-until-separated`` against the nodes of models.

    Raises:
        pytest.UsageError: where there is nothing to order.
    """
    if session.until_separated and len({ref for _, _, ref in nodes}) < 2:
        raise pytest.UsageError("--llm-until-separated: an order needs two models or more; name them in --llm-model.")


def _look(node: BenchNode) -> Left:
    try:
        return node.prepare().look_back(schedule_of(node.item, node.run), twice=node.twice)
    except Unmeasured as error:
        return Left(why=error.reason)


def _refusal(block: Block, decision: Decision) -> str:
    ref, run = block
    if decision.kind == "earlier_round":
        return f"run {run} of {ref} was not started: {decision.basis}."
    return (
        f"run {run} of {ref} was not started: it needs {spoken(decision.needed_s)} ({decision.basis}), and "
        f"{spoken(decision.left_s)} are left to the deadline. Go on later with --llm-resume."
    )
