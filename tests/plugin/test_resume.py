"""Going on in a run folder: what is whole is kept, what is not is measured, and nothing is mixed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_llmbench.store.folder import RunFolder


def resume(bank: Any, *arguments: str, **how: bool) -> pytest.RunResult:
    return bank.run(None, f"--llm-resume={bank.folder}", *arguments, **how)


def events(bank: Any, kind: str) -> list[dict[str, Any]]:
    lines = (bank.folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def only(bank: Any, kind: str, start: str) -> Path:
    [path] = (bank.folder / kind).glob(f"{start}*.json")
    return path


def measured(bank: Any, model: str = "script:golden,script:half", *arguments: str) -> dict[str, Any]:
    """A whole run of two items, two runs; its report."""
    bank.item("T02")
    assert bank.run(model, "--llm-runs=2", *arguments).ret == 0
    bank.calls()
    return bank.report()


def test_a_whole_run_is_kept_and_no_model_is_asked(bank: Any) -> None:
    report = measured(bank)
    before = bank.records()
    result = resume(bank, "-v")
    assert (result.ret, bank.calls(), bank.records()) == (0, [], before)
    assert result.parseoutcomes() == {"kept": 8}
    result.stdout.fnmatch_lines(["llmbench: 8 of 8 nodes kept, 0 to measure", "*script:half 1.00/3 kept *"])
    assert bank.report() == report


def test_what_was_interrupted_is_measured_and_the_rest_is_kept(bank: Any) -> None:
    bank.item("T02")
    bank.item("T03")
    bank.script(T03="interrupts")
    assert bank.run("script:golden,script:half", "--llm-runs=2", apart=True).ret == 2
    assert bank.report()["status"] == "interrupted"
    bank.script()
    bank.calls()
    assert resume(bank).ret == 0
    assert len(bank.calls()) == 10
    resumed = bank.report()
    bank.again()
    assert bank.run("script:golden,script:half", "--llm-runs=2").ret == 0
    assert without_times(bank.report()) == without_times(resumed)


def without_times(report: Any) -> Any:
    """A report without what is another time every time."""
    if isinstance(report, dict):
        return {key: without_times(value) for key, value in report.items() if key not in ("usage", "speed", "events")}
    return [without_times(entry) for entry in report] if isinstance(report, list) else report


@pytest.mark.parametrize("status", ["breaks", "interrupts"])
def test_what_was_not_measured_is_measured_again(bank: Any, status: str) -> None:
    bank.script(T01=status)
    bank.run("script:golden", apart=True)
    bank.script()
    result = resume(bank)
    assert result.ret == 0
    [record] = bank.records().values()
    assert (record["status"], record["points"]) == ("measured", 3)


def test_a_torn_record_comes_back_from_its_transcript(bank: Any) -> None:
    report = measured(bank)
    only(bank, "records", "T01-v0-run2-script_half").write_text('{"item": "T0')
    only(bank, "records", "T02-v0-run2-script_half").unlink()
    result = resume(bank)
    assert (result.ret, bank.calls()) == (0, [])
    result.stdout.fnmatch_lines(["llmbench: 6 of 8 nodes kept, 0 to measure", "llmbench: 2 graded again from their *"])
    assert bank.report() == report


@pytest.mark.parametrize("content", ["", '{"schema": "llmbench.transcr', "[]", '{"schema": "other"}'])
def test_a_torn_transcript_is_measured_again_and_not_lost(bank: Any, content: str) -> None:
    measured(bank)
    torn = only(bank, "transcripts", "T02-v0-run1-script_golden")
    torn.write_text(content)
    result = resume(bank)
    result.stdout.fnmatch_lines(["llmbench: 7 of 8 nodes kept, 1 to measure", "*its transcript is torn: 1"])
    assert [call[:2] for call in bank.calls()] == [["script:golden", "T02"]]
    [archived] = bank.folder.glob(f"archive/*/transcripts/{torn.name}")
    assert archived.read_text() == content
    assert bank.report()["status"] == "complete"


def test_a_torn_last_line_and_half_written_files_do_no_harm(bank: Any) -> None:
    measured(bank)
    with (bank.folder / "events.jsonl").open("a") as file:
        file.write('{"at": "2026-')
    (bank.folder / "records" / ".T01.json.7.part").write_text("{")
    assert resume(bank).ret == 0
    assert not list(bank.folder.rglob("*.part"))
    lines = (bank.folder / "events.jsonl").read_text().splitlines()
    assert '{"at": "2026-' in lines
    assert json.loads(lines[-1])["event"] == "session_finished"


def test_a_session_that_was_cut_before_its_plan_starts_over_under_its_own_options(bank: Any) -> None:
    measured(bank, "script:half", "--llm-variant=3")
    for name in ("plan.json", "report.json"):
        (bank.folder / name).unlink()
    for kind in ("records", "transcripts"):
        for path in (bank.folder / kind).iterdir():
            path.unlink()
    assert resume(bank).ret == 0
    assert {(record["variant"], record["ref"]) for record in bank.records().values()} == {(3, "script:half")}
    assert len(bank.records()) == 4


def test_a_changed_prompt_is_asked_again_and_the_old_reply_is_archived(bank: Any) -> None:
    measured(bank)
    bank.edit("prompt.md", "Task $name: what are the sum", "Task $name: what may be the sum", item="t02")
    result = resume(bank)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["llmbench: 0 of 8 nodes kept, 4 to measure", "llmbench: 4 graded again*", "*messages changed: 4"]
    )
    assert {call[1] for call in bank.calls()} == {"T02"}
    assert len(list(bank.folder.glob("archive/*/records/T02*.json"))) == 4


def test_a_changed_grader_is_applied_to_the_saved_replies(bank: Any) -> None:
    measured(bank)
    bank.edit("task.py", "return grade_answers(instance, delivery)", "return list(grade_answers(instance, delivery))")
    result = resume(bank)
    assert (result.ret, bank.calls()) == (0, [])
    result.stdout.fnmatch_lines(["llmbench: 0 of 8 nodes kept, 0 to measure", "llmbench: 8 graded again*"])


def test_a_moved_tag_is_measured_again_where_anything_is_left_to_measure(bank: Any) -> None:
    measured(bank)
    conftest = bank.path / "conftest.py"
    moved = 'ModelCard(ref=self.ref, runtime="script", digest="b" * 64 if self.name == "half" else None,'
    conftest.write_text(conftest.read_text().replace('ModelCard(ref=self.ref, runtime="script",', moved))
    assert resume(bank, apart=True).ret == 0
    assert bank.calls() == []
    for model in ("golden", "half"):
        only(bank, "transcripts", f"T02-v0-run2-script_{model}").unlink()
    result = resume(bank, apart=True)
    result.stdout.fnmatch_lines(["*to measure because model changed: 3"])
    asked = [call[0] for call in bank.calls()]
    assert (asked.count("script:golden"), asked.count("script:half")) == (1, 4)
    cards = {path.name: json.loads(path.read_text()) for path in (bank.folder / "models").iterdir()}
    assert [card["digest"] for card in cards.values() if card["digest"]] == ["b" * 64]


def test_two_sessions_on_one_folder(bank: Any) -> None:
    measured(bank)
    other = RunFolder.reopen(bank.folder)
    try:
        result = resume(bank, apart=True)
    finally:
        other.release()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*being written by another session*"])


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--llm-runs=3", "--llm-runs=3: * has 2, and keeps it"),
        ("--llm-variant=1", "--llm-variant=1: * has 0"),
        ("--llm-profile=smoke", "--llm-profile=smoke: * has standard"),
        ("--llm-context=100", "--llm-context=100: * has None"),
        ("--llm-determinism", "--llm-determinism=True: * has False"),
        ("--llm-model=script:wrong", "--llm-model=script:wrong: * has script:golden,script:half"),
        ("--llm-report-dir=x", "*leave --llm-report-dir out"),
    ],
)
def test_other_options_than_the_run_has_are_refused_by_name(bank: Any, argument: str, words: str) -> None:
    measured(bank)
    result = resume(bank, argument)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{words}*"])
    assert not bank.calls()


def test_the_same_options_again_are_no_others(bank: Any) -> None:
    measured(bank)
    assert resume(bank, "--llm-runs=2", "--llm-model=script:half,script:golden").ret == 0


def test_what_is_no_run_folder_is_named(bank: Any) -> None:
    result = resume(bank)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--llm-resume: {bank.folder}: no run folder*manifest.json is missing*"])


def test_a_run_of_another_harness_is_not_gone_on_with(bank: Any) -> None:
    measured(bank)
    manifest = json.loads((bank.folder / "manifest.json").read_text())
    manifest["harness"] = {"version": "0.9.0", "signature": "0" * 64}
    (bank.folder / "manifest.json").write_text(json.dumps(manifest))
    result = resume(bank)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*made with harness 0.9.0*never stand in one table*"])


def test_models_in_files_are_found_by_naming_them_again(bank: Any) -> None:
    measured(bank)
    manifest = json.loads((bank.folder / "manifest.json").read_text())
    manifest["models"] = ["gguf:x.gguf"]
    (bank.folder / "manifest.json").write_text(json.dumps(manifest))
    result = resume(bank)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--llm-model=gguf:/path/to/x.gguf*"])


def test_a_plan_whose_items_are_not_collected_says_what_is_missing(bank: Any) -> None:
    measured(bank)
    (bank.path / "items/level_a/t02").rename(bank.path / "elsewhere")
    result = resume(bank)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*plans T02*not among what was collected*as in the first call*"])
    assert not bank.calls()


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("http://127.0.0.1:9/v1", 1, "*127.0.0.1:9*"),
        ("http://gpu.example:9/v1", 4, "*--llm-base-url=http://<host>:9/v1*"),
    ],
)
def test_a_server_on_this_machine_is_known_and_another_has_to_be_named_again(
    bank: Any, url: str, code: int, words: str
) -> None:
    bank.run("openai:m", f"--llm-base-url={url}")
    result = resume(bank)
    assert result.ret == code
    (result.stdout if code == 1 else result.stderr).fnmatch_lines([words])
    assert "gpu.example" not in "".join(path.read_text() for path in bank.folder.rglob("*.json*"))


def test_a_selection_measures_only_what_it_names_and_the_report_says_the_rest_is_missing(bank: Any) -> None:
    measured(bank)
    for name in ("T01", "T02"):
        only(bank, "transcripts", f"{name}-v0-run1-script_half").unlink()
        only(bank, "records", f"{name}-v0-run1-script_half").unlink()
    resume(bank, "-k", "T01")
    assert [call[1] for call in bank.calls()] == ["T01"]
    assert bank.report()["status"] == "incomplete"


def test_kept_nodes_are_told_and_pass_through_workers(bank: Any) -> None:
    report = measured(bank)
    only(bank, "transcripts", "T01-v0-run2-script_half").unlink()
    result = resume(bank, "-n", "2", apart=True)
    assert result.ret == 0
    assert result.parseoutcomes() == {"kept": 7, "measured": 1}
    assert len(bank.calls()) == 1
    assert without_times(bank.report()) == without_times(report)
    assert os.listdir(bank.folder / "records")
