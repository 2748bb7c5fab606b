"""Fixtures of a node; a user's conftest.py can override each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_llmbench.campaign.agents import schedule_of
from pytest_llmbench.campaign.measure import Measurement
from pytest_llmbench.campaign.models import Model
from pytest_llmbench.collect import SESSION, BenchNode
from pytest_llmbench.faults import Schedule
from pytest_llmbench.plain import Asking, PlainMeasurement, PlainNode


@pytest.fixture
def llm_runtime(request: pytest.FixtureRequest) -> Model | Asking:
    """The model that the node measures; started on first use, one for all its nodes.

    For a function with ``@pytest.mark.llmbench``: ``ask(prompt)`` and ``chat(messages)`` give the text of a reply.
    """
    node = request.node
    if isinstance(node, PlainNode):
        return Asking(node.plain())
    if not isinstance(node, BenchNode):
        pytest.fail("llm_runtime asks in functions that are marked with @pytest.mark.llmbench(points=…)", pytrace=False)
    return request.config.stash[SESSION].model(node.spec)


@pytest.fixture
def llm_item(request: pytest.FixtureRequest, llm_runtime: Model | Asking) -> Measurement:
    """The measurement of the node: ``perform()`` gives its delivery, ``grade(delivery)`` its rows."""
    node: BenchNode = request.node
    if isinstance(node, PlainNode):
        return node.plain()
    node.measurement = node.prepare()
    return node.measurement


@pytest.fixture
def fault_schedule(llm_item: Measurement) -> Schedule:
    """The faults that the tools of an agent item have in this run; the same for every model."""
    return schedule_of(llm_item.item, llm_item.run)


@pytest.fixture
def record_points(llm_item: Measurement) -> Callable[..., None]:
    """Takes the rows of the node one by one: ``record_points(row)``.

    For a function with ``@pytest.mark.llmbench``: ``record_points(row_id, earned, evidence)``.
    """
    return llm_item.take if isinstance(llm_item, PlainMeasurement) else llm_item.rows.append
