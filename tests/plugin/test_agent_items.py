"""Agent items as nodes: faults by schedule, transcripts after every step, replay without a model, a readable show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmbench.cli import main

ITEM = """id = "G01"
title = "Copy a figure"
version = "1.0.0"
level = "A"
mode = "agent"
points = 3
files = ["copy.txt"]
tools = ["list_files", "read_file", "write_file", "finish"]
rows = [
  { id = "file", title = "copy.txt is there", points = 1, kind = "hygiene" },
  { id = "figure", title = "It holds the figure", points = 2 },
]

[references.defective]
why = "finishes at once"
points = 0
loses = ["file", "figure"]

[references.believes_it]
why = "takes the first figure it reads for the truth"
points = 1
loses = ["figure"]
"""

TASK = """from pytest_llmbench.harness.scripted import Call
from pytest_llmbench.harness.tools import World
from pytest_llmbench.spec import Instance, Reference, Verdict


def build(item, variant, run, seed):
    return Instance(item.spec, variant, run, item.render(), data={"figure": str(seed.randrange(1000, 9999))})


def world(instance):
    return World(files={"figure.txt": instance.data["figure"] + "\\n"}, deceive=lambda tool, arguments, text: "12\\n")


def grade(instance, delivery):
    copy = delivery.files.get("copy.txt")
    right = copy is not None and copy.strip() == instance.data["figure"]
    return [Verdict("file", copy is not None, "the file"), Verdict("figure", right, f"it holds {(copy or '')[:9]!r}")]


def copies(careful):
    def policy():
        yield Call("list_files", {})
        seen = []
        while len(seen) < (2 if careful else 1) or (careful and seen[-1] != seen[-2]):
            result = yield Call("read_file", {"path": "figure.txt"})
            if not result.failed:
                seen.append(result.text)
        yield Call("write_file", {"path": "copy.txt", "content": seen[-1]})
        yield Call("finish", {"statement": "copied"})

    return policy


def gives_up():
    yield Call("finish", {"statement": "done"})


def golden(instance):
    return Reference(agent=copies(careful=True))


def defects(instance):
    return {"defective": Reference(agent=gives_up), "believes_it": Reference(agent=copies(careful=False))}
"""

FAULTS = """[[run]]
faults = [{ call = 2, kind = "deceptive", tool = "read_file" }]
"""

PROMPT = "Copy the figure in figure.txt into copy.txt."


@pytest.fixture
def agents(bank: Any) -> Any:
    """A bank with one agent item, whose first read lies."""
    folder = bank.path / "items/level_a/g01"
    folder.mkdir(parents=True)
    (folder / "item.toml").write_text(ITEM)
    (folder / "task.py").write_text(TASK)
    (folder / "prompt.md").write_text(PROMPT)
    side = bank.path / "fixtures/g01"
    side.mkdir(parents=True)
    (side / "faults.toml").write_text(FAULTS)
    return bank


def record_of(bank: Any, ref: str) -> dict[str, Any]:
    return next(record for record in bank.records().values() if (record["item"], record["ref"]) == ("G01", ref))


def test_references_of_an_agent_item_earn_what_they_declare(agents: Any) -> None:
    assert agents.run("golden,defective:all,null", "-k", "G01", "--llm-runs=2").ret == 0
    points = {(record["ref"], record["run"]): record["points"] for record in agents.records().values()}
    assert [points["golden", run] for run in (1, 2)] == [3, 3]
    assert points["defective:believes_it", 2] == 1
    assert {value for (ref, _), value in points.items() if ref.startswith("null")} == {0}


def test_the_record_tells_which_faults_fired_and_whose_schedule_it_was(agents: Any) -> None:
    agents.run("golden,defective", "-k", "G01", "--llm-runs=2")
    golden, gave_up = record_of(agents, "golden")["agent"], record_of(agents, "defective")["agent"]
    assert golden["faults"] == [{"call": 2, "kind": "deceptive", "tool": "read_file", "fired_at": 2}]
    assert gave_up["faults"][0]["fired_at"] is None
    assert (golden["end"], golden["calls"], golden["faults_reused_from"]) == ("finish", 6, None)
    second = [record for record in agents.records().values() if record["run"] == 2]
    assert {record["agent"]["faults_reused_from"] for record in second} == {1}


def test_a_conftest_can_override_the_schedule(agents: Any) -> None:
    with (agents.path / "conftest.py").open("a") as file:
        file.write("\nimport pytest\nfrom pytest_llmbench.faults import Schedule\n\n")
        file.write("@pytest.fixture\ndef fault_schedule():\n    return Schedule()\n")
    agents.run("defective:believes_it", "-k", "G01")
    record = record_of(agents, "defective:believes_it")
    assert (record["status"], record["agent"]["faults"]) == ("harness_error", [])
    assert "earned 3" in record["reason"]


def test_a_broken_schedule_names_file_run_and_field(agents: Any) -> None:
    (agents.path / "fixtures/g01/faults.toml").write_text(FAULTS.replace("deceptive", "deceitful"))
    result = agents.run("golden", "-k", "G01")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*faults.toml: run 1, faults 1, kind*"])


def test_a_saved_conversation_is_graded_again_without_a_model(agents: Any) -> None:
    agents.run("golden,defective:believes_it", "-k", "G01")
    again = agents.path / "again"
    result = agents.run(f"replay:{agents.folder}", "-k", "G01", f"--llm-report-dir={again}")
    assert result.ret == 0
    before, after = agents.records(), agents.records(again)
    for name, record in before.items():
        assert after[name]["rows"] == record["rows"]
        assert after[name]["agent"] == record["agent"]


REPLIES = (
    "TOOL list_files\nEND TOOL",
    "TOOL read_file\npath: figure.txt\nEND TOOL\n\nRESULT 2 read_file\n99",
    "TOOL read_file\nEND TOOL",
)
SCRIPTED = """
STEPS = {replies!r}


class Stepwise(Script):
    def chat(self, request):
        done = sum(message.role == "assistant" for message in request.messages)
        if done >= len(STEPS):
            self.last()
        return Reply(content=STEPS[done])

    def last(self):
        if self.name == "killed":
            os._exit(9)
        raise RuntimeFailure("runtime_error", "the script server is gone.")


def pytest_llmbench_runtimes(config):
    return {{"step": Stepwise}}
"""


@pytest.fixture
def stepwise(agents: Any) -> Any:
    with (agents.path / "conftest.py").open("a") as file:
        file.write(SCRIPTED.format(replies=REPLIES))
    return agents


def transcript(folder: Path) -> dict[str, Any]:
    [path] = (folder / "transcripts").glob("G01-*.json")
    return json.loads(path.read_text())


def test_a_session_killed_in_the_middle_of_a_node_leaves_the_steps_up_to_there(stepwise: Any) -> None:
    stepwise.run("step:killed", "-k", "G01", apart=True)
    saved = transcript(stepwise.folder)
    assert [turn["content"] for turn in saved["turns"] if turn["role"] == "assistant"] == list(REPLIES)
    assert not list((stepwise.folder / "records").glob("*"))


def test_a_server_that_dies_in_mid_conversation_measures_nothing_and_keeps_what_was_said(stepwise: Any) -> None:
    assert stepwise.run("step:gone", "-k", "G01").ret == 1
    record, saved = record_of(stepwise, "step:gone"), transcript(stepwise.folder)
    assert (record["status"], record["points"]) == ("runtime_error", None)
    assert len(saved["turns"]) == 2 + 2 * len(REPLIES)


def test_the_conversation_is_shown_turn_by_turn(stepwise: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stepwise.run("step:gone", "-k", "G01")
    capsys.readouterr()
    assert main(["show", str(stepwise.folder), "G01-run1"]) == 0
    shown = capsys.readouterr().out
    for part in ("turn 1", "call 1 list_files", "deceptive", "99", "NO CALL: missing_argument"):
        assert part in shown
    assert main(["show", str(stepwise.folder), "G01-run7"]) == 1
    assert "G01-run1-step:gone" in capsys.readouterr().err


def test_the_short_form_stands_in_the_evidence(agents: Any) -> None:
    result = agents.run("defective:believes_it", "-k", "G01", "-rA")
    result.stdout.fnmatch_lines(["turn 1: call 1 list_files*", "turn 2: call 2 read_file*deceptive*"])
