"""A campaign of several models and runs: its order, its deadline, what is checked first and what is spared."""

from __future__ import annotations

import json
from typing import Any

import pytest

LOADS = """
    def close(self):
        with (HERE / "loads.txt").open("a") as file:
            file.write(f"unload {self.ref}\\n")
"""
OPENS = """
    def open(self):
        with (HERE / "loads.txt").open("a") as file:
            file.write(f"load {self.ref}\\n")
"""
CALLS = "len((HERE / 'calls.txt').read_text().splitlines())"
SLEEPER = """
import time
real_time = time.time
slept = [0]
time.time = lambda: real_time() + slept[0]
"""


def rewritten(bank: Any, *changes: tuple[str, str]) -> None:
    """Change the user's runtime."""
    path = bank.path / "conftest.py"
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)


def events(bank: Any, *kinds: str) -> list[dict[str, Any]]:
    lines = (bank.folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] in kinds]


def test_a_model_is_loaded_once_a_run_and_makes_room_for_the_next(bank: Any) -> None:
    bank.item("T02")
    rewritten(bank, ("\n    def close(self):\n", LOADS), ("\n    def open(self):\n", OPENS))
    assert bank.run("script:golden,script:half", "--llm-runs=2", apart=True).ret == 0
    each = ["load script:golden", "unload script:golden", "load script:half", "unload script:half"]
    assert (bank.path / "loads.txt").read_text().splitlines() == each * 2
    runs = [(event["ref"], event["run"], event["nodes"]) for event in events(bank, "run_started")]
    assert runs == [("script:golden", 1, 2), ("script:half", 1, 2), ("script:golden", 2, 2), ("script:half", 2, 2)]


def test_one_model_stays_loaded_over_its_runs(bank: Any) -> None:
    rewritten(bank, ("\n    def close(self):\n", LOADS))
    assert bank.run("script:golden", "--llm-runs=3", apart=True).ret == 0
    assert (bank.path / "loads.txt").read_text() == "unload script:golden\n"


def test_another_model_under_the_same_name_is_no_further_run_of_it(bank: Any) -> None:
    moves = ("ModelCard(ref=self.ref,", 'ModelCard(ref=self.ref, digest=str(len(list(HERE.glob("run/records/*")))),')
    rewritten(bank, moves)
    result = bank.run("script:golden,script:half", "--llm-runs=2", apart=True)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*script:golden is another model than before*digest 0 -> 2*"])
    assert [(record["run"], record["status"]) for record in bank.records().values()] == [
        (1, "measured"),
        (1, "measured"),
        (2, "runtime_error"),
        (2, "runtime_error"),
    ]


def test_what_the_time_left_does_not_suffice_for_is_not_started(bank: Any) -> None:
    bank.item("T02")
    result = bank.run("script:golden,golden", "--llm-deadline=10m")
    assert result.ret == 0
    assert {(r["ref"], r["status"], r["points"]) for r in bank.records().values()} == {
        ("golden", "measured", 3),
        ("script:golden", "deadline", None),
    }
    assert not bank.calls()
    result.stdout.fnmatch_lines(
        ["*run 1 of script:golden was not started: it needs 29 min 00 s (no run of it is measured yet: 2 x 420 s*"]
    )
    [event] = events(bank, "deadline")
    assert (event["ref"], event["run"], event["needed_s"], event["basis"]) == ("script:golden", 1, 1740, "estimate")


def test_a_cut_by_the_deadline_is_gone_on_with_later(bank: Any) -> None:
    bank.run("script:golden", "--llm-deadline=10m")
    result = bank.run(None, f"--llm-resume={bank.folder}", "--llm-deadline=1h")
    result.stdout.fnmatch_lines(["llmbench: 0 of 1 nodes kept, 1 to measure"])
    assert [record["status"] for record in bank.records().values()] == ["measured"]


def test_a_model_that_ran_is_judged_by_its_own_time_and_a_cut_leaves_whole_rounds(bank: Any) -> None:
    rewritten(
        bank,
        ("import json, os", SLEEPER + "import json, os"),
        ("        text = ", "        slept[0] += 600\n        text = "),
    )
    assert bank.run("script:golden,script:half", "--llm-runs=4", "--llm-deadline=1h", apart=True).ret == 0
    begun = [(record["ref"], record["run"], record["status"]) for record in bank.records().values()]
    measured = {(ref, run) for ref, run, status in begun if status == "measured"}
    assert measured == {("script:golden", 1), ("script:half", 1), ("script:golden", 2), ("script:half", 2)} | {
        ("script:golden", 3)
    }
    assert {status for _, _, status in begun} == {"measured", "deadline"}
    bases = [(event["ref"], event["run"], event["basis"]) for event in events(bank, "deadline")]
    assert bases[0] == ("script:half", 3, "last_run")
    assert bases[1:] == [("script:golden", 4, "earlier_round"), ("script:half", 4, "earlier_round")]


@pytest.mark.parametrize("text", ["soon", "0s", "-1h", "26:00"])
def test_a_deadline_that_means_nothing(bank: Any, text: str) -> None:
    result = bank.run("script:golden", f"--llm-deadline={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--llm-deadline={text}: *such as 10h*"])


def test_a_machine_that_slept_keeps_its_points_and_loses_its_times(bank: Any) -> None:
    bank.item("T02")
    rewritten(
        bank,
        ("import json, os", SLEEPER + "import json, os"),
        ("        text = ", "        slept[0] += 3600 * (item == 'T01' and self.name == 'half')\n        text = "),
    )
    result = bank.run("script:golden,script:half", "--llm-runs=2", apart=True)
    assert result.ret == 0
    jumped = {(r["item"], r["ref"]) for r in bank.records().values() if r["clock_jump_s"]}
    assert jumped == {("T01", "script:half")}
    assert all(record["points"] is not None for record in bank.records().values())
    models = bank.report()["levels"]["A"]["models"]
    assert [run["timings_valid"] for run in models["script:golden"]["runs"]] == [True, True]
    assert [run["timings_valid"] for run in models["script:half"]["runs"]] == [False, False]
    assert {round(event["seconds"], -1) for event in events(bank, "clock_jump")} == {3600}


def test_the_instrument_is_held_to_its_golden_references_before_a_model_is_asked(bank: Any) -> None:
    bank.item("T02")
    bank.edit("task.py", 'answers={"1": a + b, "2": a * b}', 'answers={"1": a + b, "2": a * b + run // 2}')
    bank.edit(
        "task.py", "Reference(answers=instance.answers)", 'Reference(answers={**instance.answers, "2": 7})', item="t02"
    )
    result = bank.run("script:golden", "--llm-runs=2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*no model was asked: variant 0 run 1: golden earned 1 of 3 points of T02 and lost q2; variant 0 run 2: *"]
    )
    assert not bank.calls()


def test_what_was_found_in_order_is_not_looked_at_again_until_it_changes(bank: Any) -> None:
    def scored(*arguments: str) -> tuple[int, int]:
        bank.again()
        assert bank.run("script:golden", *arguments).ret == 0
        [event] = events(bank, "validated")
        return event["references"], event["known"]

    assert scored("--llm-runs=2") == (2, 0)
    assert scored("--llm-runs=2") == (0, 2)
    assert scored("--llm-runs=3") == (1, 2)
    assert scored("--llm-variant=4") == (1, 0)
    bank.edit("task.py", "def golden", "X = 1\n\n\ndef golden")
    assert scored() == (1, 0)
    assert scored("--cache-clear") == (1, 0)


def test_workers_are_not_started_on_an_instrument_that_falls_short(bank: Any) -> None:
    bank.edit("task.py", "Reference(answers=instance.answers)", 'Reference(answers={"1": 7, "2": 7})')
    result = bank.run("script:golden", "-n", "2", apart=True)
    assert result.ret != 0
    assert "no model was asked" in result.stdout.str() + result.stderr.str()
    assert not bank.calls()


def test_determinism_asks_run_1_twice_and_says_what_differs(bank: Any) -> None:
    bank.item("T02")
    rewritten(
        bank,
        (
            "        text = ",
            f"        if item == 'T02' and {CALLS} > 3:\n            second = 1\n        text = ",
        ),
    )
    result = bank.run("script:golden,golden", "--llm-runs=2", "--llm-determinism", apart=True)
    assert result.ret == 0
    again = {(r["item"], r["run"], r["ref"]): r["again"] for r in bank.records().values()}
    first, second = again["T01", 1, "script:golden"], again["T02", 1, "script:golden"]
    assert (first["equal_text"], first["points"], first["points_again"]) == (True, 3, 3)
    assert (second["equal_text"], second["points"], second["points_again"]) == (False, 3, 1)
    assert [again["T01", 2, "script:golden"], again["T01", 1, "golden"]] == [None, None]
    assert len(list((bank.folder / "transcripts/again").glob("*.json"))) == 2
    assert bank.report()["levels"]["A"]["models"]["script:golden"]["points_max"] == 6


def test_a_second_asking_that_fails_is_named_and_the_first_stands(bank: Any) -> None:
    rewritten(
        bank,
        (
            "        does = plan",
            f"        if {CALLS} > 1:\n            raise RuntimeFailure('runtime_error', 'gone')\n        does = plan",
        ),
    )
    assert bank.run("script:golden", "--llm-determinism", apart=True).ret == 0
    [record] = bank.records().values()
    assert (record["points"], record["again"]["points_again"], record["again"]["reason"]) == (
        3,
        None,
        "runtime_error: gone",
    )


def test_models_whose_order_is_sustained_are_not_run_again(bank: Any) -> None:
    for number in range(2, 9):
        bank.item(f"T0{number}", points=9)
    rewritten(bank, ('        if does == "half":', '        if does == "half" or (does == "nearly" and int(a) % 2):'))
    result = bank.run("script:golden,script:nearly,script:wrong", "--llm-runs=6", "--llm-until-separated", apart=True)
    assert result.ret == 0
    settled = {event["ref"]: event["after_run"] for event in events(bank, "settled")}
    assert settled["script:wrong"] < 6
    asked = {model: sum(call[0] == model for call in bank.calls()) for model in ("script:wrong",)}
    assert asked["script:wrong"] == 8 * settled["script:wrong"]
    plan = json.loads((bank.folder / "plan.json").read_text())
    assert plan["looks"] == 5
    assert {(run, ref) for _, run, ref in plan["spared"] if ref == "script:wrong"} == {
        (run, "script:wrong") for run in range(settled["script:wrong"] + 1, 7)
    }
    assert bank.report()["status"] == "complete"
    result.stdout.fnmatch_lines(["*aved*"])
    resumed = bank.run(None, f"--llm-resume={bank.folder}", apart=True)
    assert resumed.ret == 0
    assert not bank.calls()


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        ("script:golden", ["--llm-runs=4"], "two models"),
        ("script:golden,script:half", ["--llm-runs=2"], "--llm-runs=3"),
        ("script:golden,script:half", ["--llm-runs=3", "--llm-profile=smoke"], "profile standard"),
        ("script:golden,script:half", ["--llm-runs=3", "-n", "2"], "without -n"),
    ],
)
def test_where_no_order_can_be_sustained_it_cannot_be_waited_for(
    bank: Any, model: str, arguments: list[str], words: str
) -> None:
    result = bank.run(model, "--llm-until-separated", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--llm-until-separated*{words}*"])
