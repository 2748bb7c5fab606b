"""A saved conversation as people read it: turn by turn, with its calls, faults, costs and limits."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmbench.harness.tools import plain
from pytest_llmbench.records import Record, Step, Transcript, Turn

SHOWN_LINES = 12
"""Lines of a message that are shown where not everything is."""
SHOWN_CHARS = 1_200
"""Characters of a message that are shown where not everything is."""
INDENT = "    "


def show(transcript: Transcript, record: Record | None = None, *, full: bool = False) -> Iterator[str]:
    """The lines of a conversation, without control characters.

    Args:
        transcript: what was said.
        record: what came of it; None where the node has none.
        full: show every message in whole.
    """
    yield plain(f"{transcript.item} variant {transcript.variant} run {transcript.run}  {transcript.ref}")
    spent = number = 0
    for turn in transcript.turns:
        if turn.role == "assistant":
            number += 1
            spent += turn.step.cost if turn.step is not None else 0
            yield ""
            yield plain(f"turn {number}{_ending(turn)}")
            yield from _text(turn.thinking, "thinking", full)
            yield from _text(turn.content, "model", full)
            if turn.step is not None:
                yield plain(f"  -> {', '.join(_step(turn.step, spent))}")
        else:
            yield from _text(turn.content, "harness" if turn.role == "user" else turn.role, full)
    yield ""
    yield from _outcome(transcript, record)


def brief(transcript: Transcript) -> Iterator[str]:
    """One line per reply of an agent: what was made of it."""
    spent = 0
    replies = [turn for turn in transcript.turns if turn.role == "assistant"]
    for number, turn in enumerate(replies, 1):
        if turn.step is not None:
            spent += turn.step.cost
            yield plain(f"turn {number}: {', '.join(_step(turn.step, spent))}{_ending(turn)}")
    yield from _outcome(transcript, None)


def _ending(turn: Turn) -> str:
    """Tokens and time of a reply, and the limit that cut it."""
    usage = turn.usage or {}
    tokens, seconds = usage.get("completion_tokens"), usage.get("elapsed_s")
    said = [f"{tokens} tokens"] if tokens is not None else []
    said += [f"{seconds:.1f} s"] if seconds else []
    said += [f"CUT: {turn.stop_reason}"] if turn.stop_reason not in (None, "stop") else []
    return f"  ({', '.join(said)})" if said else ""


def _text(text: str, who: str, full: bool) -> Iterator[str]:
    if not text:
        return
    yield f"  {who}:"
    shown = text if full else "\n".join(text[:SHOWN_CHARS].split("\n")[:SHOWN_LINES])
    for line in plain(shown.rstrip("\n")).split("\n"):
        yield f"{INDENT}{line}"
    if len(shown) < len(text.rstrip("\n")):
        yield f"{INDENT}[{len(text) - len(shown)} of {len(text)} characters are not shown]"


def _step(step: Step, spent: int) -> Iterator[str]:
    """What the harness made of a reply, in words."""
    if step.number is None:
        yield f"NO CALL: {step.problem}"
    else:
        yield f"call {step.number} {step.tool}{' FAILED' if step.failed else ''}"
    if step.fault is not None:
        yield f"FAULT {step.fault}"
    if step.cost:
        yield f"cost {step.cost}, together {spent}"
    if step.repairs:
        yield f"taken as meant: {' '.join(step.repairs)}"
    for count, what in (
        (step.extra_calls, "calls ignored"),
        (step.invented_results, "results invented"),
        (step.cut_chars, "characters cut"),
    ):
        if count:
            yield f"{count} {what}"


def _outcome(transcript: Transcript, record: Record | None) -> Iterator[str]:
    if transcript.failure is not None:
        yield plain(f"broke off: {transcript.failure['status']}: {transcript.failure['reason']}")
    elif transcript.end is not None:
        yield "ended by finish" if transcript.end == "finish" else f"ended by the LIMIT {transcript.end}"
    if record is None:
        return
    if record.agent is not None:
        yield f"{record.agent.turns} turns, {record.agent.calls} calls, cost {record.agent.spent}"
        for fault in record.agent.faults:
            fired = f"fired at call {fault.fired_at}" if fault.fired_at is not None else "never fired"
            yield f"fault {fault.kind} {fault.tool or 'any tool'} from call {fault.call}: {fired}"
        if record.agent.faults_reused_from is not None:
            yield f"the schedule of faults is that of run {record.agent.faults_reused_from}"
    yield f"{record.status}{'' if record.points is None else f': {record.points:.2f}/{record.points_max:g}'}"
    for row in record.rows:
        yield plain(f"  {row.id} {row.earned:g}/{row.points:g} {row.title}: {row.evidence}")
