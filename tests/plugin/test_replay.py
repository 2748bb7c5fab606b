"""Saved transcripts are graded again without a model, and only where they answer what is asked now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_llmbench.store.fingerprints import compare


@pytest.fixture
def again(bank: Any) -> Callable[..., tuple[pytest.RunResult, Path]]:
    """Replay the run folder into a new one."""

    def replay(*arguments: str) -> tuple[pytest.RunResult, Path]:
        bank.calls()
        folder = bank.path / "again"
        result = bank.run(f"replay:{bank.folder}", "-v", f"--llm-report-dir={folder}", *arguments)
        assert not bank.calls(), "no model is asked"
        return result, folder

    return replay


def lasting(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "conditions"}


def test_the_same_code_gives_the_same_rows(bank: Any, again: Any) -> None:
    bank.item("T02")
    bank.script(T02="half_a_character")
    assert bank.run("script:half,golden,defective:all,null", "--llm-runs=2", "--llm-variant=5").ret == 0
    result, folder = again()
    assert result.ret == 0
    old, new = bank.records(), bank.records(folder)
    assert len(old) == 32
    assert old.keys() == new.keys()
    for name, record in old.items():
        assert lasting(new[name]) == lasting(record)
    assert bank.report(folder)["levels"] == bank.report()["levels"]
    for path in (bank.folder / "transcripts").glob("*.json"):
        assert (folder / "transcripts" / path.name).read_bytes() == path.read_bytes()


def test_what_was_not_measured_stays_so_for_the_same_reason(bank: Any, again: Any) -> None:
    bank.item("T02")
    bank.run("script:breaks,script:missing,script:small")
    result, folder = again()
    assert result.ret == 1
    assert {name: lasting(record) for name, record in bank.records(folder).items()} == {
        name: lasting(record) for name, record in bank.records().items()
    }


def test_a_node_that_was_never_reached_is_not_measured(bank: Any, again: Any) -> None:
    bank.item("T02")
    bank.script(T01="interrupts")
    assert bank.run("script:golden", apart=True).ret == 2
    result, folder = again()
    assert result.parseoutcomes() == {"skipped": 2}
    assert {record["status"] for record in bank.records(folder).values()} == {"unsupported"}
    assert {record["points"] for record in bank.records(folder).values()} == {None}


def test_a_reply_to_another_prompt_is_refused_by_the_name_of_what_differs(bank: Any, again: Any) -> None:
    bank.run("script:golden")
    bank.edit("prompt.md", "what are", "what, pray, are")
    result, folder = again()
    assert result.parseoutcomes() == {"skipped": 1}
    [record] = bank.records(folder).values()
    assert record["points"] is None
    assert "messages differ" in record["reason"]


def test_another_grader_grades_the_same_reply_again(bank: Any, again: Any) -> None:
    bank.run("script:half")
    lenient = "from pytest_llmbench.spec import Verdict as V\n    return [V('q1', True, ''), V('q2', True, '')]"
    bank.edit("task.py", "return grade_answers(instance, delivery)", lenient)
    result, folder = again()
    assert result.ret == 0
    [old], [new] = bank.records().values(), bank.records(folder).values()
    assert (old["points"], new["points"]) == (1, 3)
    assert old["fingerprints"]["grader"] != new["fingerprints"]["grader"]
    assert old["fingerprints"]["request"] == new["fingerprints"]["request"]
    assert [old[key] for key in ("started", "finished", "usage", "speed")] == [
        new[key] for key in ("started", "finished", "usage", "speed")
    ]


def test_some_nodes_of_a_run_can_be_replayed(bank: Any, again: Any) -> None:
    bank.item("T02")
    bank.run("script:golden,script:wrong")
    result, folder = again("-k", "T02")
    assert result.parseoutcomes() == {"measured": 2, "deselected": 2}
    assert bank.report(folder)["status"] == "complete"


def test_a_saved_reply_is_good_for_the_same_request_only(fieldcase: Callable[[str, str], Any]) -> None:
    saved, current, expected = (fieldcase("92", f"{name}.json") for name in ("saved", "current", "expected"))
    reuse = compare(saved["request"], current["request"], saved["grader_sha"], current["grader_sha"])
    assert reuse.reply is expected["reply_reusable"]
    assert list(reuse.differs) == expected["differs"]
    assert not reuse.regrade
    reuse = compare(saved["request"], saved["request"], saved["grader_sha"], current["grader_sha"])
    assert reuse.reply
    assert reuse.regrade is (expected["if_only_grader_differs"] == "regrade")
