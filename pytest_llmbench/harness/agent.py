"""The loop of an agent: reply, one call, its result, until it calls ``finish`` or a limit ends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pytest_llmbench.faults import Armed, Schedule
from pytest_llmbench.harness.frozen import Rules
from pytest_llmbench.harness.protocol import (
    IGNORED,
    TEXTS,
    Call,
    Reading,
    Result,
    filled,
    read_reply,
    render_problem,
    render_result,
)
from pytest_llmbench.harness.single import turn_of
from pytest_llmbench.harness.tools import Answer, Tester, Toolbox, World
from pytest_llmbench.records import AgentRecord, FaultRecord, Step, Turn
from pytest_llmbench.runtimes.base import Message
from pytest_llmbench.spec import CallMade

WITHOUT_CALL: Final = frozenset(("no_call", "empty_reply", "stopped_in_thinking", "truncated_reply"))
"""Problems of a reply that does not even try to call a tool."""
FATAL_STOPS: Final[Mapping[str, str]] = {"call_timeout": "call_timeout_s", "stall": "stall_s"}
"""Stop reasons of a reply that end the conversation, with the limit they stand for."""
CUT_STOPS: Final = frozenset(("max_tokens", "context_full", "repetition", "reply_bytes", *FATAL_STOPS))

Chat = Callable[[list[Message], int], Turn]
"""One call to the model: history and reply cap in tokens → the reply as a turn. May raise ``Stop``."""
Save = Callable[[Sequence[Turn]], None]


class Stop(Exception):
    """The conversation is over: ``limit`` is ``finish`` or the name of the limit that ended it."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


@dataclass
class Conversation:
    """One agent at work. ``work()`` once; what came of it stands in the fields, whatever ended it."""

    opening: Sequence[Message]
    tools: Sequence[str]
    world: World
    chat: Chat
    run_tests: Tester
    rules: Rules
    schedule: Schedule = field(default_factory=Schedule)
    save: Save = lambda turns: None
    """Gets all turns so far: after every reply, before it is read, and after every result."""
    turns: list[Turn] = field(default_factory=list)
    calls: list[CallMade] = field(default_factory=list)
    end: str | None = None
    """``finish`` or the name of a limit; None while at work, and where nothing was measured."""
    statement: str | None = None
    counters: Counter[str] = field(default_factory=Counter)

    def work(self) -> None:
        """Have the conversation. What ``chat`` raises but ``Stop`` passes through, after all turns were saved."""
        self.history = list(self.opening)
        self.turns[:] = [turn_of(message) for message in self.opening]
        self.armed = Armed(self.schedule)
        self.toolbox = Toolbox(self.world, self.armed, self.run_tests, self.rules.fault_timeout_s)
        self.silent = self.same = self.tokens = 0
        self.refused: list[str] = []
        try:
            for left in reversed(range(self.rules.agent_max_turns)):
                self.turn(left)
        except Stop as stop:
            self.end = stop.limit
        self.save(self.turns)

    def turn(self, left: int) -> None:
        """One reply and the answer to it; ``left`` turns follow.

        Raises:
            Stop: where the conversation is over.
        """
        cap = min(self.rules.agent_turn_tokens, self.rules.max_tokens - self.tokens)
        if cap <= 0:
            raise Stop("max_tokens")
        self.save(self.turns)
        turn = self.chat(self.history, cap)
        self.turns.append(turn)
        self.save(self.turns)
        counted = (turn.usage or {}).get("completion_tokens")
        guess = len(turn.content + turn.thinking) // self.rules.characters_per_token
        used = guess if counted is None else int(counted)
        self.tokens += used
        cut = turn.stop_reason in CUT_STOPS or (counted is not None and used >= cap)
        reading = read_reply(
            turn.content,
            turn.thinking,
            self.tools,
            cut_at=used if cut else None,
            native="tool_calls_in_response" in turn.flags,
        )
        self.history.append(Message("assistant", reading.kept or TEXTS["agent_empty"]))
        answer = self._refuse(reading, left) if reading.call is None else self._run(reading, reading.call, left)
        if (limit := FATAL_STOPS.get(turn.stop_reason or "")) is not None:
            raise Stop(limit)
        if turn.stop_reason == "context_full" and reading.call is None:
            raise Stop("context")
        if not left:
            raise Stop("agent_max_turns")
        self.history.append(Message("user", answer))
        self.turns.append(turn_of(self.history[-1]))

    def _note(self, reading: Reading, step: Step) -> None:
        """Write down on the last reply what was made of it."""
        counts = {name: getattr(reading, name) for name in ("cut_chars", "extra_calls", "invented_results")}
        self.counters.update(counts)
        self.counters.update([*reading.repairs, *filter(None, [step.problem])])
        noted = step.model_copy(update={**counts, "repairs": reading.repairs})
        self.turns[-1] = self.turns[-1].model_copy(update={"step": noted})

    def _refuse(self, reading: Reading, left: int) -> str:
        problem = reading.problem
        assert problem is not None
        self._note(reading, Step(problem=problem.kind))
        silent = problem.kind in WITHOUT_CALL
        self.silent = self.silent + 1 if silent else 0
        self.refused = [] if silent else [*(text for text in self.refused if text == reading.kept), reading.kept]
        if self.silent >= self.rules.max_turns_without_tool:
            raise Stop("max_turns_without_tool")
        if len(self.refused) >= self.rules.same_calls:
            raise Stop("same_calls")
        return render_problem(problem, left)

    def _run(self, reading: Reading, call: Call, left: int) -> str:
        number = len(self.calls) + 1
        answer = self.toolbox.answer(number, call)
        result = answer.result
        shown = result.text[: self.rules.result_chars]
        step = Step(number=number, tool=call.tool, failed=result.failed, fault=answer.fault, cost=answer.cost)
        self._note(reading, step.model_copy(update={"ran": answer.ran}))
        made = CallMade(number, call.tool, call.arguments, shown, result.failed, answer.fault)
        last = self.calls[-1] if self.calls else made
        same = (last.tool, last.arguments, last.result) == (made.tool, made.arguments, made.result)
        self.same = self.same + 1 if same else 1
        self.calls.append(made)
        self.silent, self.refused = 0, []
        if call.tool == "finish":
            self.statement = call.arguments["statement"]
            raise Stop("finish")
        if self.same >= self.rules.same_calls:
            raise Stop("same_calls")
        notes = "\n".join(self._notes(reading, answer, left))
        return render_result(number, call.tool, Result(shown, result.failed, notes))

    def _notes(self, reading: Reading, answer: Answer, left: int) -> Iterator[str]:
        length, shown = len(answer.result.text), self.rules.result_chars
        if length > shown:
            yield filled("agent_shortened", shown=shown, length=length)
        if answer.notice:
            yield filled("agent_notice", notice=answer.notice)
        if IGNORED in reading.repairs and reading.call is not None:
            yield filled("agent_ignored", tool=reading.call.tool)
        if reading.extra_calls:
            yield filled("agent_extra_calls", count=reading.extra_calls)
        if reading.cut_chars:
            yield filled("agent_cut_off")
        if self.world.prices:
            yield filled("agent_spent", spent=self.world.spent)
        yield filled("agent_left", left=left)

    def record(self) -> AgentRecord:
        """What the record of the node says about the conversation."""
        return AgentRecord(
            end=self.end or "unmeasured",
            turns=sum(1 for turn in self.turns if turn.role == "assistant"),
            calls=len(self.calls),
            spent=self.world.spent,
            counters={name: count for name, count in sorted(self.counters.items()) if count},
            faults=[FaultRecord(**armed.fault.model_dump(), fired_at=armed.fired_at) for armed in self.armed.faults],
            faults_reused_from=self.schedule.reused_from,
        )
