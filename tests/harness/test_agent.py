"""An agent works in turns until it calls finish or a limit ends it, and what it did can be told again exactly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest

from pytest_llmbench.faults import Fault, Schedule
from pytest_llmbench.harness.agent import Conversation, Stop
from pytest_llmbench.harness.assignment import ReplayError, agent_opening, deliver, live, saved
from pytest_llmbench.harness.frozen import Profile, Rules
from pytest_llmbench.harness.protocol import TOOLS, Call
from pytest_llmbench.harness.references import NULLS
from pytest_llmbench.harness.scripted import Policy, finisher, scripted
from pytest_llmbench.harness.tools import World, open_database
from pytest_llmbench.records import Record, Transcript, Turn
from pytest_llmbench.report.show import brief, show
from pytest_llmbench.runtimes.base import Message, ModelCard, Reply, Request, RuntimeFailure, StopReason, Usage
from pytest_llmbench.spec import Instance, ItemSpec, ToolName

SPEC = ItemSpec.model_validate(
    {
        "id": "T01",
        "title": "A toy",
        "version": "1.0.0",
        "level": "A",
        "mode": "agent",
        "points": 1,
        "rows": [{"id": "done", "title": "done", "points": 1}],
        "files": ["total.txt"],
        "answers": {"keys": ["1"]},
        "tools": list(TOOLS),
    }
)
INSTANCE = Instance(SPEC, 0, 1, "Write the sum of the stock, in the rate's currency, to total.txt.")
PAGE = "http://rates.test/today"
RULES = Rules.under(Profile(), SPEC)
READ = Call("read_file", {"path": "notes.txt"})


def world() -> World:
    return World(
        files={"notes.txt": "The rate stands on a page.\n"},
        pages={PAGE: "rate 2\n"},
        database=open_database("CREATE TABLE stock (amount); INSERT INTO stock VALUES (3), (4);"),
        deceive=lambda tool, arguments, result: result.replace("2", "9") if "2" in result else None,
    )


def report(files: Mapping[str, str], only: str) -> str:
    """The tests of the toy: they pass once the total is right."""
    return "OK\n" if files.get("total.txt") == "14\n" else "1 failed\n"


@dataclass
class Outcome:
    """A conversation that is over, and every state that was saved on the way."""

    conversation: Conversation
    saves: list[list[Turn]] = field(default_factory=list)

    @property
    def replies(self) -> list[Turn]:
        return [turn for turn in self.conversation.turns if turn.role == "assistant"]

    @property
    def heard(self) -> list[str]:
        """What the agent was told after each of its replies."""
        return [turn.content for turn in self.conversation.turns if turn.role == "user"][1:]

    @property
    def results(self) -> list[str]:
        return [call.result for call in self.conversation.calls]


Chat = Callable[[list[Message], int], Turn]


def spoken(policy: Callable[[], Policy]) -> Chat:
    say = scripted(policy)
    return lambda messages, cap: Turn(role="assistant", content=say(messages))


def replies(*texts: str, **turn: Any) -> Chat:
    """A model that says these replies; the last one again and again."""
    left = list(texts)
    return lambda messages, cap: Turn(role="assistant", content=left.pop(0) if len(left) > 1 else left[0], **turn)


def work(
    chat: Chat | Callable[[], Policy],
    faults: Sequence[Fault] = (),
    surroundings: World | None = None,
    tools: Sequence[str] = SPEC.tools,
    **rules: int,
) -> Outcome:
    saves: list[list[Turn]] = []
    conversation = Conversation(
        opening=agent_opening(INSTANCE, RULES),
        tools=tools,
        world=surroundings or world(),
        chat=chat if chat.__code__.co_argcount == 2 else spoken(chat),  # type: ignore[arg-type, attr-defined]
        run_tests=report,
        rules=replace(RULES, **rules),
        schedule=Schedule(tuple(faults)),
        save=lambda turns: saves.append(list(turns)),
    )
    conversation.work()
    return Outcome(conversation, saves)


def golden() -> Policy:
    """Does the task, and asks again where an answer is missing or makes no sense."""
    yield READ
    rate = yield Call("http_get", {"url": PAGE})
    while rate.text != "rate 2\n":
        rate = yield Call("http_get", {"url": PAGE})
    amounts = yield Call("sql", {"query": "SELECT sum(amount) FROM stock"})
    total = int(amounts.text.split("\n")[1]) * int(rate.text.split()[1])
    yield Call("write_file", {"path": "total.txt", "content": f"{total}\n"})
    tests = yield Call("run_tests")
    while tests.text != "OK\n":
        tests = yield Call("run_tests")
    yield Call("finish", {"statement": "I wrote total.txt.\nANSWER 1: 14"})


def calls(*made: Call) -> Callable[[], Policy]:
    def policy() -> Policy:
        for call in made:  # noqa: UP028  # a tuple takes no results
            yield call

    return policy


# --- the specification ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [{"tools": ["shell", "finish"]}, {"tools": ["read_file"]}, {"tools": ["finish", "finish"]}, {"mode": "single"}],
)
def test_an_agent_item_has_known_tools_and_finish_among_them(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match="tools"):
        ItemSpec.model_validate({**SPEC.model_dump(), **wrong})


def test_the_harness_describes_every_tool_that_an_item_can_have() -> None:
    assert set(TOOLS) == set(get_args(ToolName))


# --- a whole conversation --------------------------------------------------------------------------------------------


def test_an_agent_that_does_the_task_delivers_files_answers_and_a_statement() -> None:
    outcome = work(golden)
    delivery = deliver(INSTANCE, outcome.conversation)
    assert delivery.files == {"total.txt": "14\n"}
    assert delivery.answers["1"].value == 14
    assert (delivery.no_answer, delivery.flags) == (None, ())
    assert delivery.work is not None
    assert delivery.work.end == "finish"
    assert delivery.work.statement == "I wrote total.txt.\nANSWER 1: 14\n"
    assert [call.tool for call in delivery.work.calls] == [
        "read_file",
        "http_get",
        "sql",
        "write_file",
        "run_tests",
        "finish",
    ]
    assert [call.number for call in delivery.work.calls] == [1, 2, 3, 4, 5, 6]
    assert delivery.work.files["notes.txt"] == world().files["notes.txt"]
    assert delivery.work.database == world().state()["database"]


def test_the_opening_states_the_form_the_task_and_what_has_to_be_there() -> None:
    [system, user] = agent_opening(INSTANCE, RULES)
    assert system.role == "system"
    for words in ("END TOOL", f"{RULES.agent_max_turns} turns", INSTANCE.prompt, "total.txt", "ANSWER 1: <number>"):
        assert words in user.content


def test_the_history_alternates_and_holds_neither_thinking_nor_inventions() -> None:
    histories: list[list[Message]] = []

    def chat(messages: list[Message], cap: int) -> Turn:
        histories.append(list(messages))
        return Turn(
            role="assistant", content="<think>secret plan</think>TOOL list_files\nEND TOOL\n\nRESULT 1: nothing"
        )

    work(chat)
    last = histories[-1]
    assert [message.role for message in last] == ["system", *["user", "assistant"] * (len(last) // 2 - 1), "user"]
    assert last[2].content == "TOOL list_files\nEND TOOL"


def test_the_transcript_is_saved_before_a_reply_is_read_and_after_its_result() -> None:
    outcome = work(calls(READ, Call("list_files")))
    lengths = [len(turns) for turns in outcome.saves]
    assert lengths[:4] == [2, 3, 4, 5]
    assert outcome.saves[1][-1].step is None
    assert outcome.saves[2][-2].step is not None
    assert outcome.saves[-1] == outcome.conversation.turns


def test_a_conversation_that_is_killed_leaves_every_step_up_to_there() -> None:
    saves: list[list[Turn]] = []

    def chat(messages: list[Message], cap: int) -> Turn:
        if len(messages) > 2:
            raise KeyboardInterrupt
        return Turn(role="assistant", content="TOOL read_file\npath: notes.txt\nEND TOOL")

    conversation = Conversation(
        agent_opening(INSTANCE, RULES),
        SPEC.tools,
        world(),
        chat,
        report,
        RULES,
        save=lambda turns: saves.append(list(turns)),
    )
    with pytest.raises(KeyboardInterrupt):
        conversation.work()
    assert conversation.end is None
    assert [turn.role for turn in saves[-1]] == ["system", "user", "assistant", "user"]
    assert "The rate stands" in saves[-1][-1].content


# --- ends ------------------------------------------------------------------------------------------------------------


def wander() -> Policy:
    number = 0
    while True:
        number += 1
        yield Call("write_file", {"path": "total.txt", "content": f"{number}\n"})


def test_the_number_of_turns_is_limited() -> None:
    outcome = work(wander)
    assert outcome.conversation.end == "agent_max_turns"
    assert len(outcome.replies) == RULES.agent_max_turns
    assert outcome.heard[-1].endswith("Turns left: 1")
    assert deliver(INSTANCE, outcome.conversation).files == {"total.txt": f"{RULES.agent_max_turns}\n"}
    assert deliver(INSTANCE, outcome.conversation).flags == ("ended:agent_max_turns",)


def test_turns_without_a_call_in_a_row_end_the_conversation() -> None:
    outcome = work(replies("I will now open total.txt:"))
    assert outcome.conversation.end == "max_turns_without_tool"
    assert len(outcome.replies) == RULES.max_turns_without_tool
    assert len(outcome.heard) == RULES.max_turns_without_tool - 1
    assert deliver(INSTANCE, outcome.conversation).no_answer == "no_call"


def test_a_call_in_between_starts_the_count_of_silent_turns_again() -> None:
    def policy() -> Policy:
        for number in range(4):
            yield "Hm."
            yield "Well."
            yield Call("write_file", {"path": "total.txt", "content": f"{number}\n"})

    assert len(work(policy).conversation.calls) == 4


def test_malformed_calls_cost_turns_but_are_no_silence() -> None:
    outcome = work(replies(*(f"TOOL readfile\npath: note{number}.txt\nEND TOOL" for number in range(60))))
    assert outcome.conversation.end == "agent_max_turns"
    assert outcome.conversation.counters["unknown_tool"] == RULES.agent_max_turns
    assert outcome.conversation.calls == []


def test_the_same_reply_that_was_refused_ends_the_conversation() -> None:
    outcome = work(replies("TOOL readfile\npath: notes.txt\nEND TOOL"))
    assert outcome.conversation.end == "same_calls"
    assert outcome.conversation.counters["unknown_tool"] == RULES.same_calls


def test_the_same_call_with_the_same_result_ends_the_conversation() -> None:
    outcome = work(calls(*[READ] * 9))
    assert outcome.conversation.end == "same_calls"
    assert len(outcome.conversation.calls) == RULES.same_calls


def test_the_same_call_with_another_result_does_not() -> None:
    fault = Fault(call=2, kind="malformed")
    assert len(work(calls(*[READ] * 9), [fault]).conversation.calls) == 2 + RULES.same_calls


def test_all_replies_together_have_one_budget_of_tokens() -> None:
    caps: list[int] = []

    def chat(messages: list[Message], cap: int) -> Turn:
        caps.append(cap)
        text = f"TOOL read_file\npath: {len(caps)}.txt\nEND TOOL"
        return Turn(role="assistant", content=text, usage={"completion_tokens": 400})

    outcome = work(chat, max_tokens=1000, agent_turn_tokens=500)
    assert caps == [500, 500, 200]
    assert outcome.conversation.end == "max_tokens"


def test_a_reply_that_was_cut_before_its_call_was_complete_runs_nothing() -> None:
    cut = "TOOL write_file\npath: total.txt\ncontent:\n14"
    counted = {"completion_tokens": RULES.agent_turn_tokens}
    for chat in (replies(cut, stop_reason="max_tokens"), replies(cut, stop_reason="stop", usage=counted)):
        outcome = work(chat)
        assert "total.txt" not in outcome.conversation.world.files
        assert outcome.replies[0].step is not None
        assert outcome.replies[0].step.problem == "truncated_call"
        assert "cut after" in outcome.heard[0]


def test_a_call_that_was_complete_before_the_cut_is_run() -> None:
    reply = "TOOL write_file\npath: total.txt\ncontent:\n14\nEND TOOL\nRESULT 1 write_file\nWrote it.\nWrote it."
    outcome = work(replies(reply, stop_reason="repetition"), same_calls=1)
    assert outcome.conversation.world.files["total.txt"] == "14\n"


@pytest.mark.parametrize(
    ("stop_reason", "end"), [("call_timeout", "call_timeout_s"), ("stall", "stall_s"), ("context_full", "context")]
)
def test_a_limit_that_ended_a_reply_ends_the_conversation_by_its_name(stop_reason: StopReason, end: str) -> None:
    outcome = work(replies("TOOL read_file\npath: no", stop_reason=stop_reason))
    assert (outcome.conversation.end, len(outcome.replies)) == (end, 1)


def test_what_is_asked_after_finish_is_never_run() -> None:
    finish = "TOOL finish\nstatement: done\nEND TOOL\nTOOL write_file\npath: late.txt\ncontent:\nx\nEND TOOL\n"
    outcome = work(replies(finish))
    assert outcome.conversation.end == "finish"
    assert "late.txt" not in outcome.conversation.world.files
    assert outcome.conversation.counters["extra_calls"] == 1


# --- one call per reply ----------------------------------------------------------------------------------------------


def test_ignored_calls_and_invented_results_are_counted_and_told() -> None:
    reply = "TOOL list_files\nEND TOOL\nRESULT 1: a.txt\nTOOL read_file\npath: a.txt\nEND TOOL"
    outcome = work(replies(reply))
    step = outcome.replies[0].step
    assert step is not None
    assert (step.extra_calls, step.invented_results, step.cut_chars > 0) == (1, 1, True)
    assert "ignored: 1" in outcome.heard[0]
    assert "was removed" in outcome.heard[0]


def test_a_call_of_the_models_own_form_is_answered_with_the_form() -> None:
    outcome = work(replies("", flags=["tool_calls_in_response"]))
    assert outcome.conversation.counters["foreign_call_format"] == RULES.same_calls
    assert "TOOL " in outcome.heard[0]


def test_a_tool_that_the_item_does_not_declare_cannot_be_used() -> None:
    outcome = work(replies("TOOL sql\nquery: DELETE FROM stock\nEND TOOL"), tools=("read_file", "finish"))
    assert outcome.conversation.world.state() == world().state()
    assert "The tools are: read_file, finish." in outcome.heard[0]


# --- results, prices, events -----------------------------------------------------------------------------------------


def test_a_long_result_is_shortened_and_says_so() -> None:
    surroundings = world()
    surroundings.files["notes.txt"] = "x" * (RULES.result_chars + 5)
    outcome = work(calls(READ), surroundings=surroundings)
    assert outcome.results == ["x" * RULES.result_chars]
    assert f"first {RULES.result_chars} of {RULES.result_chars + 5} characters" in outcome.heard[0]


def test_every_call_has_its_price_a_failed_one_too() -> None:
    surroundings = world()
    surroundings.prices = {"read_file": 5, "list_files": 1}
    outcome = work(calls(READ, Call("read_file", {"path": "gone"}), Call("list_files")), surroundings=surroundings)
    assert outcome.conversation.world.spent == 11
    assert [text.split("\n")[-2] for text in outcome.heard[:3]] == [f"Cost so far: {n}" for n in (5, 10, 11)]
    assert [turn.step.cost for turn in outcome.replies[:3] if turn.step] == [5, 5, 1]


def test_an_event_changes_the_world_before_its_call_is_answered_and_is_told_once() -> None:
    def migrate(surroundings: World) -> str:
        surroundings.files["notes.txt"] = "new\n"
        return "The notes moved to a new form."

    surroundings = world()
    surroundings.events = {2: migrate}
    outcome = work(calls(READ, READ, READ), surroundings=surroundings)
    assert outcome.results == [world().files["notes.txt"], "new\n", "new\n"]
    assert ["NOTICE: The notes moved" in text for text in outcome.heard[:3]] == [False, True, False]


def test_a_notice_is_told_even_where_a_fault_takes_the_result() -> None:
    surroundings = world()
    surroundings.events = {1: lambda surroundings: "It moved."}
    outcome = work(calls(READ), [Fault(call=1, kind="timeout")], surroundings)
    assert "NOTICE: It moved." in outcome.heard[0]


# --- faults ----------------------------------------------------------------------------------------------------------


def test_a_timeout_answers_in_the_tools_place_and_nothing_is_run() -> None:
    write = Call("write_file", {"path": "total.txt", "content": "14\n"})
    outcome = work(calls(write, READ), [Fault(call=1, kind="timeout", tool="write_file")])
    assert "total.txt" not in outcome.conversation.world.files
    assert outcome.results[0].startswith("write_file timed out after 30 seconds")
    assert outcome.heard[0].startswith("RESULT 1 write_file FAILED")
    assert [call.fault for call in outcome.conversation.calls[:2]] == ["timeout", None]


def test_a_malformed_result_is_cut_and_the_call_has_happened() -> None:
    write = Call("write_file", {"path": "total.txt", "content": "14\n"})
    outcome = work(calls(write), [Fault(call=1, kind="malformed")])
    assert outcome.conversation.world.files["total.txt"] == "14\n"
    assert outcome.results[0] == "Wrote total.txt \ufffd\ufffd\ufffd"


def test_a_deceptive_result_bears_no_mark() -> None:
    outcome = work(calls(Call("http_get", {"url": PAGE})), [Fault(call=1, kind="deceptive", tool="http_get")])
    assert outcome.results == ["rate 9\n"]
    assert outcome.heard[0].startswith("RESULT 1 http_get\n````\nrate 9\n````\nTurns left")


def test_a_deceptive_fault_waits_for_a_result_that_it_can_falsify() -> None:
    fault = Fault(call=1, kind="deceptive")
    outcome = work(calls(READ, Call("read_file", {"path": "2.txt"}), Call("http_get", {"url": PAGE})), [fault])
    [told] = outcome.conversation.record().faults
    assert (told.kind, told.call, told.fired_at) == ("deceptive", 1, 3)


def test_the_record_tells_for_each_fault_where_it_fired_or_that_it_never_did() -> None:
    faults = [
        Fault(call=2, kind="timeout", tool="http_get"),
        Fault(call=3, kind="malformed", tool="run_tests"),
        Fault(call=20, kind="malformed"),
    ]
    outcome = work(golden, faults)
    record = outcome.conversation.record()
    assert [fault.fired_at for fault in record.faults] == [2, 6, None]
    assert (record.end, record.calls, record.turns) == ("finish", 8, 8)
    assert deliver(INSTANCE, outcome.conversation).files == {"total.txt": "14\n"}


# --- replay ----------------------------------------------------------------------------------------------------------


def messy() -> Policy:
    """Everything at once: silence, bad calls, inventions, tests, writes to every part of the world."""
    yield "I begin."
    yield "TOOL read_file\nEND TOOL"
    yield "```\nTOOL read_file\npath: notes.txt\nEND TOOL\n```\nRESULT 1: x"
    yield Call("sql", {"query": "INSERT INTO stock VALUES (5)"})
    yield Call("run_tests")
    yield Call("http_get", {"url": PAGE})
    yield Call("write_file", {"path": "total.txt", "content": "14"})
    yield Call("run_tests", {"only": "total"})
    yield Call("finish", {"statement": "x"})


def again(outcome: Outcome, schedule: Sequence[Fault] = (), surroundings: World | None = None) -> Conversation:
    """The conversation once more, from its saved turns alone."""
    turns = [Turn.model_validate(json.loads(turn.model_dump_json())) for turn in outcome.conversation.turns]
    chat, run_tests = saved(turns, outcome.conversation.end)
    conversation = Conversation(
        agent_opening(INSTANCE, RULES),
        SPEC.tools,
        surroundings or world(),
        chat,
        run_tests,
        RULES,
        Schedule(tuple(schedule)),
    )
    conversation.work()
    return conversation


@pytest.mark.parametrize("policy", [golden, messy, wander, finisher], ids=lambda policy: policy.__name__)
def test_a_saved_conversation_gives_the_same_world_turns_and_record_again(policy: Callable[[], Policy]) -> None:
    faults = [
        Fault(call=1, kind="malformed"),
        Fault(call=2, kind="deceptive"),
        Fault(call=3, kind="timeout", tool="run_tests"),
    ]
    first = work(policy, faults)
    second = again(first, faults)
    assert json.dumps(second.world.state()) == json.dumps(first.conversation.world.state())
    assert [turn.model_dump_json() for turn in second.turns] == [
        turn.model_dump_json() for turn in first.conversation.turns
    ]
    assert second.record() == first.conversation.record()
    assert deliver(INSTANCE, second) == deliver(INSTANCE, first.conversation)


def test_a_replay_ends_by_the_limit_that_the_model_met() -> None:
    def chat(messages: list[Message], cap: int) -> Turn:
        if len(messages) > 4:
            raise Stop("context")
        return Turn(role="assistant", content="TOOL list_files\nEND TOOL")

    first = work(chat)
    assert first.conversation.end == again(first).end == "context"


def test_a_transcript_of_another_world_is_refused() -> None:
    surroundings = world()
    surroundings.files["notes.txt"] = "other\n"
    with pytest.raises(ReplayError, match="message 4"):
        again(work(golden), surroundings=surroundings)


# --- the model's side ------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """A runtime that says scripted replies and counts tokens of the prompt as told."""

    counts: list[int]
    replies: Iterator[Reply]
    ref: str = "scripted"
    endpoint: str | None = None
    requests: list[Request] = field(default_factory=list)

    def open(self) -> ModelCard:
        return ModelCard("scripted", "scripted", context=32_768)

    def count_tokens(self, messages: Sequence[Message]) -> int | None:
        return self.counts[len(self.requests)]

    def chat(self, request: Request) -> Reply:
        self.requests.append(request)
        return next(self.replies)

    def close(self) -> float | None:
        return None


def reply(prompt_tokens: int | None = None, stop_reason: StopReason = "stop") -> Reply:
    return Reply(
        "TOOL list_files\nEND TOOL",
        stop_reason=stop_reason,
        usage=Usage(prompt_tokens=prompt_tokens, completion_tokens=9),
    )


def served(counts: list[int], *said: Reply) -> Outcome:
    server = Server(counts, iter(said))
    return work(live(server, server.open(), Profile(), 11, lambda piece: None))


def test_a_history_that_no_longer_fits_ends_the_conversation() -> None:
    outcome = served([600, 30_000], reply())
    assert (outcome.conversation.end, len(outcome.conversation.calls)) == ("context", 1)


def test_a_task_that_never_fitted_is_not_measured() -> None:
    with pytest.raises(RuntimeFailure, match="context_too_small"):
        served([30_000])


def test_a_window_that_is_full_later_on_ends_the_conversation_after_a_complete_call() -> None:
    outcome = served([600, 700, 30_000], reply(), reply(stop_reason="context_full"))
    assert (outcome.conversation.end, len(outcome.conversation.calls)) == ("context", 2)


def test_a_prompt_that_shrinks_from_one_turn_to_the_next_was_cut() -> None:
    with pytest.raises(RuntimeFailure) as caught:
        served([2000, 2100], reply(2000), reply(1500))
    assert caught.value.status == "prompt_truncated"


# --- nothing for nothing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NULLS)
def test_a_null_strategy_of_words_gets_nothing_done(name: str) -> None:
    say = NULLS[name](INSTANCE)
    outcome = work(lambda messages, cap: Turn(role="assistant", content=say(messages)))
    assert deliver(INSTANCE, outcome.conversation).files == {}


def test_an_agent_that_finishes_at_once_has_done_nothing() -> None:
    delivery = deliver(INSTANCE, work(finisher).conversation)
    assert (delivery.files, dict(delivery.answers), delivery.no_answer) == ({}, {}, None)


# --- to read ---------------------------------------------------------------------------------------------------------


def transcript(outcome: Outcome) -> Transcript:
    return Transcript(
        item="T01",
        variant=0,
        run=2,
        ref="toy\x1b[2J",
        turns=outcome.conversation.turns,
        end=outcome.conversation.end,
        max_tokens=1,
        context=None,
        seed=1,
        fingerprints={},
        started="",
        finished="",
    )


def shown(outcome: Outcome, full: bool = False) -> str:
    record = Record(
        item="T01",
        title="A toy",
        item_version="1.0.0",
        level="A",
        mode="agent",
        variant=0,
        run=2,
        ref="toy",
        status="measured",
        points=None,
        points_max=1,
        rows=[],
        agent=outcome.conversation.record(),
        profile="standard",
        sampling="greedy",
        think=None,
        fingerprints={"request": "", "parts": {}, "item": "", "grader": "", "harness": "", "bank": ""},
        harness_version="",
        bank_version="",
        started="",
        finished="",
    )
    return "\n".join(show(transcript(outcome), record, full=full))


def test_a_conversation_can_be_read_turn_by_turn_with_all_that_marks_it() -> None:
    surroundings = world()
    surroundings.prices = {"read_file": 5}
    faults = [Fault(call=1, kind="malformed"), Fault(call=9, kind="timeout", tool="sql")]
    text = shown(work(messy, faults, surroundings))
    for words in (
        "turn 1",
        "NO CALL: no_call",
        "NO CALL: missing_argument",
        "call 1 read_file, FAULT malformed, cost 5, together 5, taken as meant: fence_around_call",
        "1 results invented",
        "ended by finish",
        "9 turns, 7 calls, cost 5",
        "fault malformed any tool from call 1: fired at call 1",
        "fault timeout sql from call 9: never fired",
    ):
        assert words in text
    assert "\x1b" not in text


def test_the_short_form_has_a_line_per_turn_and_the_end() -> None:
    lines = list(brief(transcript(work(messy))))
    assert lines[0] == "turn 1: NO CALL: no_call"
    assert lines[-2:] == ["turn 9: call 7 finish", "ended by finish"]


def test_a_limit_is_marked_and_long_messages_are_shortened_unless_all_is_wanted() -> None:
    outcome = work(replies("x\n" * 400, stop_reason="max_tokens"))
    assert "CUT: max_tokens" in shown(outcome)
    assert "ended by the LIMIT max_turns_without_tool" in shown(outcome)
    assert "characters are not shown" in shown(outcome)
    assert "characters are not shown" not in shown(outcome, full=True)
