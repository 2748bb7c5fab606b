"""What happened when in a session: every type of event that ``events.jsonl`` can hold, its writing and its reading.

No event holds a text that a model wrote, a path or a host name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, RootModel, StringConstraints, ValidationError
from tabulate import tabulate

from pytest_llmbench.records import Saved, Status, now

EVENTS = "events.jsonl"
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,80}$")]
"""A name of the harness or the bank; nothing that a model wrote passes as one unless it is one."""


def told(meaning: str, unit: str | None = None) -> Any:
    """A field that every event of its type has, with its meaning and, for a quantity, its unit."""
    return Field(description=meaning, json_schema_extra={"unit": unit} if unit else None)


class Event(Saved):
    """Base of all types; the first line of a type's docstring is its meaning."""

    at: str = told("UTC with an offset, to the millisecond")

    model_config = ConfigDict(allow_inf_nan=False, json_schema_serialization_defaults_required=True)


class NodeEvent(Event):
    """Base of what happens in one node."""

    item: Word = told("id of the item")
    run: int = told("number of the run, from 1")
    ref: str = told("the model, as records have it")


# The session.


class SessionStarted(Event):
    """A session made the run folder."""

    event: Literal["session_started"] = "session_started"
    models: int = told("models asked for")


class SessionResumed(Event):
    """Another session goes on in the run folder of one that was cut."""

    event: Literal["session_resumed"] = "session_resumed"
    nodes: int = told("nodes of the plan")
    kept: int | None = told("nodes whose record is kept; null where workers find that out")


class SessionFinished(Event):
    """A session ended by itself and wrote its report."""

    event: Literal["session_finished"] = "session_finished"
    status: Word = told("status of the report")


class Interrupted(Event):
    """The user ended the session (Ctrl-C)."""

    event: Literal["interrupted"] = "interrupted"


class Validated(Event):
    """The instrument was held to its golden references before the first call."""

    event: Literal["validated"] = "validated"
    references: int = told("references that were scored")
    known: int = told("references known by fingerprint from an earlier validation")
    seconds: float = told("time that it took", "s")


class ClockJump(Event):
    """The clock jumped, as on a machine that slept: the points of that time stand, its times mean nothing."""

    event: Literal["clock_jump"] = "clock_jump"
    seconds: float = told("by which the clock jumped; below 0: back", "s")
    item: Word | None = told("id of the item that was measured; null where the jump came between two")
    run: int | None = told("number of the run; null as above")
    ref: str | None = told("the model; null as above")


class WorkerLost(Event):
    """An xdist worker died; the node it was at is lost."""

    event: Literal["worker_lost"] = "worker_lost"
    item: Word | None = told("id of the item; null where it was at no node of the bank")
    run: int | None = told("number of the run; null as above")
    ref: str | None = told("the model; null as above")


# A model's run.


class RunStarted(Event):
    """The first node of a model's run begins."""

    event: Literal["run_started"] = "run_started"
    ref: str = told("the model")
    run: int = told("number of the run, from 1")
    nodes: int = told("nodes of the run")


class RunFinished(Event):
    """The last node of a model's run is done."""

    event: Literal["run_finished"] = "run_finished"
    ref: str = told("the model")
    run: int = told("number of the run, from 1")
    seconds: float = told("time that it took", "s")
    nodes: int = told("nodes of the run")


class Deadline(Event):
    """A model's run is not started: the time left does not suffice."""

    event: Literal["deadline"] = "deadline"
    ref: str = told("the model")
    run: int = told("number of the run, from 1")
    needed_s: float = told("time that the run is expected to take, margin included", "s")
    left_s: float = told("time left until the deadline", "s")
    basis: Word = told("what the expectation rests on")


class Settled(Event):
    """A model's place in the order is sustained; it is not run again."""

    event: Literal["settled"] = "settled"
    ref: str = told("the model")
    after_run: int = told("number of the last run that was looked at")


class ModelLoaded(Event):
    """A model was found, checked and warmed up."""

    event: Literal["model_loaded"] = "model_loaded"
    ref: str = told("the model")
    load_s: float | None = told("time of the loading alone; null where the runtime does not say", "s")
    probe_tokens_per_s: float | None = told("speed of a short probe; null where the runtime does not say", "tokens/s")
    seconds: float = told("time from the request for the model until it was ready", "s")


class SightTested(Event):
    """A model was shown pictures of random codes before its first item with a picture."""

    event: Literal["sight_tested"] = "sight_tested"
    ref: str = told("the model")
    claimed: bool | None = told("whether its runtime says that it takes pictures; null where it says nothing")
    shown: int = told("pictures shown")
    read: int = told("codes that were read")
    seconds: float = told("time that it took", "s")


class ModelClosed(Event):
    """A model was unloaded after its last node."""

    event: Literal["model_closed"] = "model_closed"
    ref: str = told("the model")
    probe_tokens_per_s: float | None = told("speed of a last probe; null where the runtime does not say", "tokens/s")


# A node.


class NodeStarted(NodeEvent):
    """An item begins to be measured."""

    event: Literal["node_started"] = "node_started"


class NodeFinished(NodeEvent):
    """The record of a node is on disk."""

    event: Literal["node_finished"] = "node_finished"
    status: Status = told("status of the record")
    points: float | None = told("points earned; null where nothing was measured", "points")
    seconds: float = told("time from the start of the node", "s")


class NodeKept(NodeEvent):
    """A node was measured by an earlier session and is not measured again."""

    event: Literal["node_kept"] = "node_kept"
    status: Status = told("status of its record")


class CallEvent(NodeEvent):
    """Base of what happens in one call to the model."""

    call: int = told("number of the call within the conversation, from 1")


class RequestSent(CallEvent):
    """A request goes to the runtime."""

    event: Literal["request_sent"] = "request_sent"
    messages: int = told("messages of the history")
    max_tokens: int = told("cap of the reply", "tokens")


class FirstToken(CallEvent):
    """The first piece of a reply, of thinking too, came; only of runtimes that hand on pieces as they come."""

    event: Literal["first_token"] = "first_token"
    seconds: float = told("time since the request", "s")


class ReplyCame(CallEvent):
    """A call is over; each request has one of these, unless the session was cut in it."""

    event: Literal["reply"] = "reply"
    tokens: int | None = told("tokens of the reply; null where the runtime does not say", "tokens")
    seconds: float = told("time since the request", "s")
    stop_reason: Word | None = told("why the reply ended; null where the call failed")
    failure: Word | None = told("status of a call that measured nothing; null where it did")


class FaultFired(NodeEvent):
    """A fault of the schedule fired."""

    event: Literal["fault"] = "fault"
    number: int | None = told("number of the tool call")
    tool: Word | None = told("tool it struck")
    kind: Word = told("kind of the fault")


class ToolResult(NodeEvent):
    """A tool call was run and its result goes to the model."""

    event: Literal["tool_result"] = "tool_result"
    number: int | None = told("number of the tool call within the conversation, from 1")
    tool: Word = told("tool that was called")
    failed: bool = told("whether the result says that the call failed")
    cost: int = told("price of the call, 0 in a world without prices")


class MalformedCall(NodeEvent):
    """A reply of an agent held no call that could be run."""

    event: Literal["malformed_call"] = "malformed_call"
    call: int = told("number of the call to the model within the conversation, from 1")
    problem: Word = told("kind of the problem, such as truncated_call")


class LimitFired(NodeEvent):
    """A limit cut a reply or ended a conversation."""

    event: Literal["limit"] = "limit"
    name: Word = told("name of the limit")
    scope: Literal["reply", "conversation"] = told("what it ended")


AnyEvent = (
    SessionStarted
    | SessionResumed
    | SessionFinished
    | Interrupted
    | Validated
    | ClockJump
    | WorkerLost
    | RunStarted
    | RunFinished
    | Deadline
    | Settled
    | ModelLoaded
    | SightTested
    | ModelClosed
    | NodeStarted
    | NodeFinished
    | NodeKept
    | RequestSent
    | FirstToken
    | ReplyCame
    | FaultFired
    | ToolResult
    | MalformedCall
    | LimitFired
)


def _by_name(types: UnionType) -> dict[str, type[Event]]:
    return {kind.model_fields["event"].default: kind for kind in get_args(types)}


TYPES: Mapping[str, type[Event]] = _by_name(AnyEvent)
"""The registry: every type by the name that stands in ``event``."""


class EventLine(RootModel[Annotated[AnyEvent, Field(discriminator="event")]]):
    """One line of ``events.jsonl``."""


class EventError(TypeError):
    """The program reports an event of a type, or with fields, that is not registered."""


def event_line(kind: str, fields: Mapping[str, object]) -> bytes:
    """An event that happens now, as a line.

    Raises:
        EventError: where type or fields are not registered.
    """
    if kind not in TYPES:
        raise EventError(f"no type of event is called {kind!r}; register it in {__name__}")
    try:
        event = TYPES[kind].model_validate({"at": now(), "event": kind, **fields}, strict=True)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise EventError(f"event {kind}: {wrong}") from None
    text = json.dumps(event.model_dump(mode="json"), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return f"{text}\n".encode("ascii")


def append_line(path: Path, line: bytes) -> None:
    """Append a line in one piece, whatever other processes append; behind a torn one it starts on a line of its own.

    Raises:
        OSError: where the disk refuses it or takes only a part.
    """
    with path.open("a+b", buffering=0) as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        if file.write(line) != len(line):
            raise OSError("the disk took only a part of a line")


def events(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """The events of a run folder in the order of the file, and how many lines are torn, as after a power cut.

    A folder without the file has none; a type of a later version is handed on as it stands.
    """
    path = folder / EVENTS
    text = path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
    found, torn = [], 0
    for line in filter(None, text.split("\n")):
        event = _parsed(line)
        if event is None:
            torn += 1
        else:
            found.append(event)
    return found, torn


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def event_table() -> str:
    """Every type of event with its fields, for people."""
    rows = [row for name in TYPES for row in _table_rows(name)]
    return tabulate(rows, headers=["event", "field", "unit", "meaning"], maxcolwidths=[None, None, None, 70])


def _table_rows(name: str) -> Iterator[list[str]]:
    yield [name, "", "", (TYPES[name].__doc__ or "").strip().splitlines()[0]]
    for field, about in TYPES[name].model_fields.items():
        if field not in ("at", "event"):
            extra = about.json_schema_extra
            unit = extra.get("unit", "") if isinstance(extra, dict) else ""
            yield ["", field, str(unit), about.description or ""]
