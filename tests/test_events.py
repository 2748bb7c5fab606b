"""``events.jsonl``: registered types only, whole lines whoever writes them, a reader that no torn line stops."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_llmbench.campaign.observe import Live, Observed, Observer
from pytest_llmbench.cli import main
from pytest_llmbench.records import Step, Turn
from pytest_llmbench.runtimes.base import Message, ModelCard, Reply, Request, RuntimeFailure, Usage
from pytest_llmbench.schemas import schema
from pytest_llmbench.store.events import EVENTS, TYPES, EventError, events
from pytest_llmbench.store.folder import RunFolder, StoreError

NODE = {"item": "A05", "run": 2, "ref": "qwen3:4b"}
GOOD: Mapping[str, Mapping[str, Any]] = {
    "session_started": {"models": 2},
    "session_resumed": {"nodes": 15, "kept": 12},
    "session_finished": {"status": "complete"},
    "interrupted": {},
    "validated": {"references": 33, "known": 11, "seconds": 4.2},
    "clock_jump": {"seconds": 5400.0, **NODE},
    "worker_lost": {"item": None, "run": None, "ref": None},
    "run_started": {"ref": "qwen3:4b", "run": 2, "nodes": 11},
    "run_finished": {"ref": "qwen3:4b", "run": 2, "seconds": 812.5, "nodes": 11},
    "deadline": {"ref": "qwen3:4b", "run": 3, "needed_s": 940.0, "left_s": 320.0, "basis": "measured"},
    "settled": {"ref": "qwen3:4b", "after_run": 2},
    "sight_tested": {"ref": "qwen3:4b", "claimed": None, "shown": 2, "read": 1, "seconds": 1.5},
    "model_loaded": {"ref": "qwen3:4b", "load_s": None, "probe_tokens_per_s": 21.5, "seconds": 9.25},
    "model_closed": {"ref": "qwen3:4b", "probe_tokens_per_s": 20.75},
    "node_started": NODE,
    "node_finished": {**NODE, "status": "measured", "points": 13.5, "seconds": 71.0},
    "node_kept": {**NODE, "status": "not_converged"},
    "request_sent": {**NODE, "call": 1, "messages": 2, "max_tokens": 4096},
    "first_token": {**NODE, "call": 1, "seconds": 0.75},
    "reply": {**NODE, "call": 1, "tokens": 512, "seconds": 24.0, "stop_reason": "stop", "failure": None},
    "fault": {**NODE, "number": 3, "tool": "read_file", "kind": "timeout"},
    "tool_result": {**NODE, "number": 3, "tool": "read_file", "failed": True, "cost": 0},
    "malformed_call": {**NODE, "call": 4, "problem": "truncated_call"},
    "limit": {**NODE, "name": "max_tokens", "scope": "reply"},
}
"""One event of every type."""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def kinds(folder: RunFolder) -> list[str]:
    return [event["event"] for event in events(folder.path)[0]]


def test_every_type_can_be_written_read_and_fits_the_published_schema(folder: RunFolder) -> None:
    for kind, fields in GOOD.items():
        folder.event(kind, **fields)
    found, torn = events(folder.path)
    assert set(GOOD) == set(TYPES)
    assert torn == 0
    assert [{k: v for k, v in one.items() if k != "at"} for one in found] == [
        {"event": kind, **fields} for kind, fields in GOOD.items()
    ]
    validator = jsonschema.Draft202012Validator(schema("events"))
    for one in found:
        validator.validate(one)
        assert one["at"].endswith("+00:00")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("model_lost", {}),
        ("settled", {"ref": "qwen3:4b"}),
        ("settled", {"ref": "qwen3:4b", "after_run": "2"}),
        ("interrupted", {"why": "no"}),
        ("limit", {**NODE, "name": "I would rather\x1b[2J not", "scope": "reply"}),
        ("node_finished", {**NODE, "status": "great", "points": 1.0, "seconds": 1.0}),
        ("clock_jump", {"seconds": float("nan"), "item": None, "run": None, "ref": None}),
    ],
)
def test_an_event_that_is_not_registered_is_an_error_of_the_program(
    folder: RunFolder, kind: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(EventError, match=kind):
        folder.event(kind, **fields)
    assert events(folder.path) == ([], 0)


@pytest.mark.parametrize("torn", ['{"event": "reply", "tok', "\0\0\0", '{"event"\n\n'])
def test_a_line_torn_by_a_power_cut_costs_itself_and_nothing_else(folder: RunFolder, torn: str) -> None:
    folder.event("session_started", models=1)
    with (folder.path / EVENTS).open("a") as file:
        file.write(torn)
    assert (kinds(folder), events(folder.path)[1]) == (["session_started"], 1)
    folder.event("session_resumed", nodes=1, kept=0)
    folder.event("interrupted")
    assert (kinds(folder), events(folder.path)[1]) == (["session_started", "session_resumed", "interrupted"], 1)


def test_an_event_of_a_later_version_is_handed_on(folder: RunFolder) -> None:
    (folder.path / EVENTS).write_text('{"at": "2027-01-01T00:00:00+00:00", "event": "moon_rose"}\n')
    assert kinds(folder) == ["moon_rose"]


def test_many_processes_write_whole_lines(folder: RunFolder) -> None:
    code = (
        "import sys; from pathlib import Path; from pytest_llmbench.store.folder import RunFolder\n"
        "folder = RunFolder(Path(sys.argv[1]))\n"
        "for number in range(300):\n"
        "    folder.event('settled', ref='x' * 500 + sys.argv[2], after_run=number)\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(folder.path), str(n)]) for n in range(3)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    found, torn = events(folder.path)
    assert (len(found), torn) == (900, 0)
    for n in range(3):
        own = [event["after_run"] for event in found if event["ref"] == "x" * 500 + str(n)]
        assert own == list(range(300))


def test_a_disk_that_refuses_an_event_is_named(folder: RunFolder) -> None:
    (folder.path / EVENTS).mkdir()
    with pytest.raises(StoreError, match=r"events\.jsonl cannot be written"):
        folder.event("interrupted")


def test_every_type_and_field_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events"]) == 0
    table = capsys.readouterr().out
    assert main(["schema", "events"]) == 0
    published = json.loads(capsys.readouterr().out)
    for name, kind in TYPES.items():
        about = published["$defs"][kind.__name__]
        assert name in table
        assert about["description"]
        for field, shape in about["properties"].items():
            assert field == "event" or shape["description"], (name, field)
            assert not field.endswith(("seconds", "_s")) or shape["unit"], (name, field)


# Where they come from.


class Model:
    """A runtime that says its pieces one by one, then the whole."""

    ref, endpoint = "script", None

    def __init__(self, *pieces: str, reply: Reply | None = None) -> None:
        self.pieces, self.reply = pieces, reply
        self.asked: list[Request] = []

    def open(self) -> ModelCard:
        return ModelCard(ref=self.ref, runtime="script")

    def count_tokens(self, messages: Any) -> int | None:
        return 7

    def chat(self, request: Request) -> Reply:
        self.asked.append(request)
        assert request.on_piece is not None
        for piece in self.pieces:
            request.on_piece(piece)
        if self.reply is None:
            raise RuntimeFailure("runtime_error", "gone")
        return self.reply

    def close(self) -> float | None:
        return 3.0


REQUEST = Request([Message("user", "Sing.")], 64, 1)


def test_a_call_is_told_before_while_and_after(folder: RunFolder) -> None:
    live = Live()
    model = Model("la", " la", reply=Reply("la la", stop_reason="max_tokens", usage=Usage(completion_tokens=2)))
    observed = Observed(model, Observer(folder, "A05", 2, "script", live))
    observed.observer.begin()
    assert observed.chat(REQUEST) is model.reply
    assert (observed.count_tokens(()), observed.close()) == (7, 3.0)
    assert kinds(folder) == ["node_started", "request_sent", "first_token", "reply", "limit"]
    found, _ = events(folder.path)
    assert [event.get("call") for event in found] == [None, 1, 1, 1, None]
    assert (found[3]["tokens"], found[3]["stop_reason"], found[3]["failure"]) == (2, "max_tokens", None)
    assert "la" not in (folder.path / EVENTS).read_text().replace("max_tokens", "")
    assert (live.item, live.call, live.tokens) == ("A05", 1, 2)


def test_what_is_asked_is_not_touched(folder: RunFolder) -> None:
    model = Model(reply=Reply("la"))
    wire: list[bytes] = []
    request = Request([Message("user", "Sing.")], 64, 1, wire.append)
    Observed(model, Observer(folder, "A05", 2, "script")).chat(request)
    [asked] = model.asked
    assert (asked.messages, asked.max_tokens, asked.seed, asked.on_wire) == (request.messages, 64, 1, wire.append)


def test_a_call_that_fails_has_its_status_and_no_tokens(folder: RunFolder) -> None:
    observed = Observed(Model("la"), Observer(folder, "A05", 2, "script"))
    with pytest.raises(RuntimeFailure, match="gone"):
        observed.chat(REQUEST)
    reply = events(folder.path)[0][-1]
    assert (reply["event"], reply["tokens"], reply["failure"]) == ("reply", None, "runtime_error")
    assert "gone" not in (folder.path / EVENTS).read_text()


def test_each_step_of_an_agent_is_told_once(folder: RunFolder) -> None:
    observer = Observer(folder, "A01", 1, "script")
    turns = [Turn(role="user", content="Go."), Turn(role="assistant", content="TOOL secret words")]
    observer.steps(turns)
    assert kinds(folder) == []
    turns[1] = turns[1].model_copy(update={"step": Step(problem="truncated_call")})
    turns += [Turn(role="user", content="No."), Turn(role="assistant", content="TOOL read_file")]
    observer.steps(turns)
    turns[3] = turns[3].model_copy(update={"step": Step(number=1, tool="read_file", failed=True, fault="timeout")})
    observer.steps(turns)
    observer.steps(turns)
    observer.ended("agent_max_turns")
    found, _ = events(folder.path)
    assert kinds(folder) == ["malformed_call", "fault", "tool_result", "limit"]
    assert (found[0]["call"], found[1]["kind"], found[2]["failed"]) == (1, "timeout", True)
    assert (found[3]["name"], found[3]["scope"]) == ("agent_max_turns", "conversation")
    assert "secret" not in (folder.path / EVENTS).read_text()
