"""Under xdist nothing is measured differently, and nothing that was measured gets lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_llmbench.store.events import events

pytest.importorskip("xdist")


@pytest.fixture
def wide(bank: Any) -> Any:
    """A bank of six items."""
    for number in range(2, 7):
        bank.item(f"T0{number}")
    return bank


def test_two_workers_give_the_levels_of_one_process(wide: Any, fieldcase: Callable[[str, str], Any]) -> None:
    wide.script(T02="wrong", T04="half")
    assert wide.run("script:golden,golden", "-n2", apart=True, fixed=False).ret == 0
    workers = {worker for _, _, worker in wide.calls()}
    spread = wide.report()
    records = wide.records()
    wide.again()
    assert wide.run("script:golden,golden").ret == 0
    assert spread["status"] == "complete"
    assert spread["levels"] == wide.report()["levels"]
    assert records.keys() == wide.records().keys()
    assert len([name for name in records if "script" in name]) == fieldcase("87", "expected.json")["rows_with_n2"]
    assert len(workers) == 1, "the nodes of one endpoint stay on one worker"
    assert workers < {"gw0", "gw1"}


@pytest.mark.parametrize("deadly", ["T03", "T06"])
def test_a_worker_that_dies_leaves_a_counted_gap_and_is_not_killed_again(wide: Any, deadly: str) -> None:
    wide.script(**{deadly: "dies"})
    result = wide.run("script:golden", "-n2", apart=True)
    assert result.ret not in (0, 5)
    assert [item for _, item, _ in wide.calls()].count(deadly) == 1
    report = wide.report()
    model = report["levels"]["A"]["models"]["script:golden"]
    assert report["status"] == "incomplete"
    assert (model["planned"], model["measured"], model["unmeasured"]) == (6, 5, 1)
    assert model["unmeasured_nodes"] == [f"{deadly}-run1"]
    assert model["points_mean"] is None
    assert model["runs"][0]["items"][deadly]["status"] == "lost"
    assert f"lost: {deadly}-run1-script:golden" in result.stdout.str()
    lost = [event for event in events(wide.folder)[0] if event["event"] == "worker_lost"]
    assert [(event["item"], event["run"], event["ref"]) for event in lost] == [(deadly, 1, "script:golden")]
