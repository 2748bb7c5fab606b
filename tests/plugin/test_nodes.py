"""A task is a node; it yields points with evidence, and its outcome is its health."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

T01 = "items/level_a/t01/item.toml::T01-run1"
SPOILER = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"


def names(result: pytest.RunResult) -> list[str]:
    return [line.rpartition("::")[2] for line in result.outlines if ".toml::" in line]


def collected(bank: Any, model: str | None, *arguments: str) -> list[str]:
    return names(bank.run(model, "--co", "-q", *arguments))


# --- names and selection ---


def test_a_node_is_named_by_item_run_and_model_without_brackets(bank: Any) -> None:
    found = collected(bank, "script:golden,golden,defective:all", "--llm-runs=2")
    models = ["script:golden", "golden", "defective", "defective:adds_only"]
    assert found[:4] == [f"T01-run1-{model}" for model in models]
    assert len(found) == 8
    assert "T01-run2-script:golden" in found


def test_collecting_imports_no_item_and_writes_no_run_folder(bank: Any) -> None:
    task = bank.path / "items/level_a/t01/task.py"
    task.write_text(SPOILER + "raise SystemExit(9)\n")
    assert collected(bank, "golden,null,script:x") == [
        *("T01-run1-golden", "T01-run1-null:silent", "T01-run1-null:echo"),
        *("T01-run1-null:constant", "T01-run1-null:random", "T01-run1-script:x"),
    ]
    assert not task.with_name("imported").exists()
    assert not bank.folder.exists()
    assert not (bank.path / "reports").exists()
    assert not bank.calls()


@pytest.mark.parametrize(
    "chosen",
    [["-k", "T02"], ["-m", "levelB"], ["items/level_b/t02/item.toml::T02-run1-golden"], ["items/level_b"]],
    ids=["keyword", "marker", "node id", "folder"],
)
def test_nodes_are_chosen_as_any_test_is(bank: Any, chosen: list[str]) -> None:
    bank.item("T02", level="B")
    assert collected(bank, "golden", *chosen) == ["T02-run1-golden"]


def test_a_node_id_with_a_colon_and_slashes_in_the_model_can_be_run_again(bank: Any) -> None:
    result = bank.run("script:golden/a-b_c.1:Q4_K_M", "-v", f"{T01}-script:golden/a-b_c.1:Q4_K_M")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"{T01}-script:golden/a-b_c.1:Q4_K_M 3.00/3*"])


def test_with_a_model_and_no_path_only_the_bank_is_collected(bank: Any) -> None:
    bank.pytester.makepyfile("def test_of_the_user(): pass")
    assert collected(bank, "golden") == ["T01-run1-golden"]
    assert "test_of_the_user" not in bank.run("golden", "--co", "-q").stdout.str()


def test_without_a_model_the_plugin_does_nothing(bank: Any) -> None:
    bank.pytester.makepyfile("def test_of_the_user(): pass")
    (bank.path / "items/level_a/t01/task.py").write_text(SPOILER)
    result = bank.run(None, "-v")
    result.assert_outcomes(passed=1)
    assert "llmbench:" not in result.stdout.str()
    assert not (bank.path / "items/level_a/t01/imported").exists()
    assert not bank.folder.exists()


def test_an_unknown_model_family_name_goes_to_ollama(bank: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    result = bank.run("hf.co/unsloth/Qwen3-4B-GGUF:Q4_K_M", "-v")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"{T01}-hf.co/unsloth/Qwen3-4B-GGUF:Q4_K_M RUNTIME_ERROR*"])
    [record] = bank.records().values()
    assert record["points"] is None
    assert record["rows"] == []
    assert "ollama serve" in record["reason"]
    assert "ollama serve" in result.stdout.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


# --- points and health ---


def test_a_node_with_no_points_is_measured_and_the_session_is_fine(bank: Any) -> None:
    result = bank.run("script:wrong", "-v")
    assert result.ret == 0
    assert result.parseoutcomes() == {"measured": 1}
    result.stdout.fnmatch_lines([f"{T01}-script:wrong 0.00/3*"])


@pytest.mark.parametrize(
    ("model", "code", "word", "outcome"),
    [
        ("script:golden", 0, "3.00/3", "measured"),
        ("script:half", 0, "1.00/3", "measured"),
        ("script:silent", 0, "0.00/3", "measured"),
        ("script:breaks", 1, "RUNTIME_ERROR", "failed"),
        ("script:missing", 1, "NOT_INSTALLED", "failed"),
        ("script:small", 0, "UNSUPPORTED", "skipped"),
    ],
)
def test_the_word_of_a_node_is_its_points_or_why_there_are_none(
    bank: Any, model: str, code: int, word: str, outcome: str
) -> None:
    result = bank.run(model, "-v")
    assert result.ret == code
    assert result.parseoutcomes() == {outcome: 1}
    result.stdout.fnmatch_lines([f"{T01}-{model} {word} *"])
    assert "Traceback" not in result.stdout.str()


def test_a_broken_grader_is_an_error_of_the_harness_with_the_place_it_was_raised_at(bank: Any) -> None:
    breaks = "return grade_answers(instance, delivery) if delivery.answers['2'].raw != '1' else {}['gone']"
    bank.edit("task.py", "return grade_answers(instance, delivery)", breaks)
    result = bank.run("script:half")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["harness_error: *KeyError: 'gone'*", "*raised at *task.py:*"])
    [record] = bank.records().values()
    assert (record["status"], record["points"]) == ("harness_error", None)


def test_all_evidence_is_shown_on_request(bank: Any) -> None:
    result = bank.run("script:half", "-rA")
    result.stdout.fnmatch_lines(["*+ q1 1/1 The sum: answered*", "*- q2 0/2 The product: answered '1'; expected *"])
    assert "q1 1/1" not in bank.run("script:half", f"--llm-report-dir={bank.path / 'other'}").stdout.str()


def test_a_share_makes_points_a_gate(bank: Any) -> None:
    result = bank.run("script:half,script:golden", "--llm-fail-under=0.6")
    assert result.ret == 1
    assert result.parseoutcomes() == {"measured": 1, "failed": 1}
    result.stdout.fnmatch_lines(["*1.00 of 3 points, below*0.6*", "*- q2 0/2*"])


def test_a_share_that_is_met_exactly_is_met(bank: Any) -> None:
    bank.item("T02", points=10)
    bank.script(T02="half")
    assert bank.run("script:golden", "--llm-fail-under=0.1").ret == 0


def test_nothing_a_model_writes_can_steer_the_terminal(bank: Any) -> None:
    result = bank.run("script:hostile", "-rA", "-vv", "--llm-fail-under=1", "--color=no")
    assert "ANSWER" in next((bank.folder / "transcripts").glob("*.json")).read_text()
    shown = result.stdout.str()
    assert "q1" in shown
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)


# --- together with the rest of pytest ---


def test_last_failed_measures_again_what_broke_and_nothing_else(bank: Any) -> None:
    bank.item("T02")
    bank.item("T03")
    bank.script(T02="breaks", T03="wrong")
    assert bank.run("script:golden").ret == 1
    bank.calls()
    bank.script()
    bank.again()
    assert bank.run("script:golden", "--lf").ret == 0
    assert [item for _, item, _ in bank.calls()] == ["T02"]


def test_run_1_of_every_model_comes_before_run_2_of_any(bank: Any) -> None:
    bank.item("T02")
    found = collected(bank, "script:a,script:b", "--llm-runs=2")
    assert found == [f"T0{item}-run{run}-script:{model}" for run in (1, 2) for model in "ab" for item in (1, 2)]


@pytest.mark.skipif(not importlib.util.find_spec("pytest_randomly"), reason="pytest-randomly is not installed")
def test_a_shuffled_session_measures_the_same(bank: Any) -> None:
    bank.item("T02")
    seen = []
    for seed in (1, 2):
        chosen = ["--llm-runs=2", f"--randomly-seed={seed}", f"--llm-report-dir={bank.path / str(seed)}"]
        assert bank.run("script:half,script:golden", *chosen, fixed=False).ret == 0
        seen.append((bank.report(bank.path / str(seed))["levels"], [call[:2] for call in bank.calls()]))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("plugin", ["terminal", "xdist", "timeout", "cacheprovider"])
def test_other_plugins_can_be_absent(bank: Any, plugin: str) -> None:
    result = bank.run("script:golden", "-p", f"no:{plugin}")
    assert result.ret == 0
    assert bank.report()["status"] == "complete"


def test_the_users_own_fixture_replaces_the_plugins(bank: Any) -> None:
    with (bank.path / "conftest.py").open("a") as file:
        file.write("\nimport pytest\n@pytest.fixture\ndef record_points(record_points):\n")
        file.write("    print('mine')\n    return record_points\n")
    result = bank.run("script:golden", "-s")
    assert result.ret == 0
    assert "mine" in result.stdout.str()
