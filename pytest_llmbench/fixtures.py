"""Fixtures of a node; a user's conftest.py can override each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_llmbench.campaign.agents import schedule_of
from pytest_llmbench.campaign.measure import Measurement
from pytest_llmbench.campaign.models import Model
from pytest_llmbench.collect import SESSION, BenchNode
from pytest_llmbench.faults import Schedule
from pytest_llmbench.records import Row


@pytest.fixture
def llm_runtime(request: pytest.FixtureRequest) -> Model:
    """The model that the node measures; started on first use, one for all its nodes."""
    node: BenchNode = request.node
    return request.config.stash[SESSION].model(node.spec)


@pytest.fixture
def llm_item(request: pytest.FixtureRequest, llm_runtime: Model) -> Measurement:
    """The measurement of the node: ``perform()`` gives its delivery, ``grade(delivery)`` its rows."""
    node: BenchNode = request.node
    node.measurement = node.prepare()
    return node.measurement


@pytest.fixture
def fault_schedule(llm_item: Measurement) -> Schedule:
    """The faults that the tools of an agent item have in this run; the same for every model."""
    return schedule_of(llm_item.item, llm_item.run)


@pytest.fixture
def record_points(llm_item: Measurement) -> Callable[[Row], None]:
    """Takes the rows of the node one by one."""
    return llm_item.rows.append
