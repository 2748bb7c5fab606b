"""Collecting: ``item.toml`` and ``items.toml`` become nodes, one per run and model. Reads TOML and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_llmbench.bank import BankError, Item, read_items
from pytest_llmbench.campaign.agents import schedule_of
from pytest_llmbench.campaign.measure import Measurement, Unmeasured
from pytest_llmbench.campaign.models import ModelSpec
from pytest_llmbench.course import Course
from pytest_llmbench.faults import Schedule
from pytest_llmbench.outcome import RECORD, BelowShare, failure_text, finish
from pytest_llmbench.session import Session, node_name

SESSION: pytest.StashKey[Session] = pytest.StashKey()
COURSE: pytest.StashKey[Course] = pytest.StashKey()


def run_item(llm_item: Measurement, fault_schedule: Schedule, record_points: Any) -> None:
    """What a node does: the conversation, then its rows."""
    delivery = llm_item.perform(fault_schedule)
    for row in llm_item.grade(delivery):
        record_points(row)


class ItemFile(pytest.File):
    """An ``item.toml`` or ``items.toml``."""

    def collect(self) -> Iterator[pytest.Item]:
        session = self.config.stash[SESSION]
        try:
            items = read_items(self.path)
            for item in items:
                session.take_up(item)
                schedule_of(item, 1)
        except BankError as error:
            raise self.CollectError(str(error)) from None
        fixtures = self.session._fixturemanager.getfixtureinfo(self, run_item, None)  # type: ignore[arg-type]
        for item in items:
            for run, spec in session.nodes(item):
                node = BenchNode.from_parent(
                    self, name=node_name(item.spec.id, run, spec.ref), callobj=run_item, fixtureinfo=fixtures
                )
                node.take(item, run, spec)
                yield node


class BenchNode(pytest.Function):
    """One item, one model, one run."""

    item: Item
    run: int
    spec: ModelSpec
    measurement: Measurement | None = None
    measures: type[Measurement] = Measurement

    def take(self, item: Item, run: int, spec: ModelSpec) -> None:
        """Say what the node measures."""
        self.item, self.run, self.spec = item, run, spec
        self.add_marker(f"level{item.spec.level}")

    @property
    def key(self) -> tuple[str, int, str]:
        return self.item.spec.id, self.run, self.spec.ref

    @property
    def twice(self) -> bool:
        """Whether the instance is asked a second time."""
        return self.config.stash[SESSION].twice and self.run == 1 and not self.spec.is_reference

    def prepare(self) -> Measurement:
        """A measurement of this node, not begun yet."""
        session = self.config.stash[SESSION]
        return self.measures(
            item=self.item,
            model=session.model(self.spec),
            run=self.run,
            variant=session.variant,
            profile=session.profile,
            folder=session.open_folder(),
            bank=session.bank,
            confine=lambda: session.sandbox,
            live=session.live,
        )

    def forget(self) -> None:
        """Let go of what was measured: pytest holds every node to the end of the session."""
        self.measurement = None
        if RECORD in self.stash:
            del self.stash[RECORD]

    def runtest(self) -> None:
        finish(self, super().runtest)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        # pytest splits a last part that ends the node id at its dots, and model names have dots
        return self.path, None, f"{self.item.spec.title} ({self.name})"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, (Unmeasured, BelowShare)):
            return failure_text(self, excinfo.value)
        return super().repr_failure(excinfo)
