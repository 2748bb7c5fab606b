"""Faults are a schedule, not chance: each fires at most once, at the first call where it can."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmbench.faults import GARBAGE, Armed, Fault, FaultsError, Plan, Schedule, load_plan, malformed

TOOLS = ("read_file", "run_tests", "http_get", "sql", "finish")
WRITTEN = """
[[run]]
faults = [
  { call = 3, kind = "timeout", tool = "run_tests" },
  { call = 6, kind = "malformed", tool = "http_get" },
  { call = 9, kind = "deceptive", tool = "read_file" },
]

[[run]]
faults = [{ call = 8, kind = "timeout" }]

[[run]]
faults = []
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "faults.toml"


def load(file: Path, text: str) -> Plan:
    file.write_text(text, encoding="utf-8")
    return load_plan(file, TOOLS)


def test_each_run_has_its_own_written_schedule(file: Path) -> None:
    plan = load(file, WRITTEN)
    assert plan.schedule(1).faults[0] == Fault(call=3, kind="timeout", tool="run_tests")
    assert plan.schedule(2).faults == (Fault(call=8, kind="timeout"),)
    assert plan.schedule(3) == Schedule()
    assert [plan.schedule(run).reused_from for run in (1, 2, 3)] == [None, None, None]


def test_runs_beyond_the_written_ones_reuse_them_in_order_and_say_so(file: Path) -> None:
    plan = load(file, WRITTEN)
    assert [plan.schedule(run).reused_from for run in (4, 5, 6, 7)] == [1, 2, 3, 1]
    assert plan.schedule(5).faults == plan.schedule(2).faults


def test_an_item_without_a_schedule_has_no_faults(file: Path) -> None:
    assert load_plan(file, TOOLS).schedule(4) == Schedule()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[run]", "cannot be read"),
        ("", "run: Field required"),
        ("[[run]]\nfault = []", "run 1, fault: Extra inputs"),
        ('[[run]]\nfaults = []\n[[run]]\nfaults = [{ call = 0, kind = "timeout" }]', "run 2, faults 1, call: "),
        ('[[run]]\nfaults = [{ call = 1, kind = "slow" }]', "run 1, faults 1, kind: "),
        ('[[run]]\nfaults = [{ call = 1, kind = "timeout", tool = "shell" }]', "run 1, faults 1, tool: 'shell'"),
        ('[[run]]\nfaults = [{ call = 1, kind = "timeout", tool = "finish" }]', "run 1, faults 1, tool: 'finish'"),
    ],
)
def test_a_schedule_that_cannot_be_used_is_named_with_file_run_and_field(file: Path, text: str, words: str) -> None:
    with pytest.raises(FaultsError) as caught:
        load(file, text)
    assert str(caught.value).startswith(f"{file}: ")
    assert words in str(caught.value)


faults = st.builds(
    Fault,
    call=st.integers(1, 8),
    kind=st.sampled_from(["timeout", "malformed", "deceptive"]),
    tool=st.sampled_from([None, *TOOLS[:-1]]),
)


@given(st.lists(faults, max_size=6), st.lists(st.sampled_from(TOOLS), max_size=16))
def test_a_fault_fires_once_and_at_the_first_call_that_no_earlier_fault_took(
    schedule: list[Fault], calls: list[str]
) -> None:
    armed = Armed(Schedule(tuple(schedule)))
    for number, tool in enumerate(calls, 1):
        for due in armed.due(number, tool)[:1]:
            due.fired_at = number
    fired = [one.fired_at for one in armed.faults if one.fired_at is not None]
    assert len(fired) == len(set(fired))
    for one in armed.faults:
        able = [
            number
            for number, tool in enumerate(calls, 1)
            if number >= one.fault.call and tool != "finish" and one.fault.tool in (None, tool)
        ]
        taken = {other.fired_at for other in armed.faults if other is not one}
        assert one.fired_at == next((number for number in able if number not in taken or number == one.fired_at), None)


def test_no_second_fault_fires_at_a_call() -> None:
    armed = Armed(Schedule((Fault(call=1, kind="malformed"), Fault(call=1, kind="timeout"))))
    first = armed.due(1, "sql")[0]
    first.fired_at = 1
    assert armed.due(1, "sql") == []
    assert [one.fault.kind for one in armed.due(2, "sql")] == ["timeout"]


@given(st.text())
def test_a_malformed_result_is_never_the_true_one_and_always_the_same(result: str) -> None:
    assert malformed(result) != result
    assert malformed(result) == malformed(result)
    assert malformed(result).endswith(GARBAGE)
