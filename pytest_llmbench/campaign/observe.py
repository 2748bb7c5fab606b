"""Watching a node while it runs: its events go to the run folder, its state to whoever shows it live."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pytest_llmbench.records import Record, Turn
from pytest_llmbench.runtimes.base import Message, ModelCard, Reply, Request, Runtime, RuntimeFailure
from pytest_llmbench.store.folder import RunFolder

Doing = Literal["nothing", "loading", "waiting", "replying", "working"]
OWN_ENDS: Final = frozenset(("stop", "finish"))
"""Ends that a model chose itself; every other one names a limit."""


@dataclass
class Live:
    """What a process measures right now. Written by the thread that measures, read by the one that shows it."""

    doing: Doing = "nothing"
    """``waiting``: for the first token; ``working``: between two calls, with tools or grading."""
    item: str = ""
    run: int = 0
    ref: str = ""
    since: float = 0.0
    """Monotonic time at which the node began."""
    call: int = 0
    """Number of the call to the model within the node, from 1."""
    asked: float = 0.0
    """Monotonic time of the last request."""
    first: float | None = None
    """Monotonic time of the last request's first piece."""
    earlier: int = 0
    """Tokens of the node's earlier replies."""
    pieces: int = 0
    """Pieces of the reply under way; servers send a token at a time, or nearly so."""
    rate: float | None = None
    """Tokens per second of the last reply that is over."""

    @property
    def tokens(self) -> int:
        """Tokens that the node's replies have so far, as far as they are told."""
        return self.earlier + self.pieces

    def tokens_per_s(self) -> float | None:
        """Speed of the reply under way, or of the last one; None where it is not known."""
        first = self.first
        if self.doing != "replying" or first is None:
            return self.rate
        passed = time.monotonic() - first
        return (self.pieces - 1) / passed if passed > 0 and self.pieces > 1 else None


class Observer:
    """Watches one node. Every method writes its events at once.

    All of them raise StoreError where the disk refuses an event.
    """

    def __init__(self, folder: RunFolder, item: str, run: int, ref: str, live: Live | None = None) -> None:
        self.folder = folder
        self.item, self.run, self.ref = item, run, ref
        self.live = live or Live()
        self._begun: float | None = None
        self._told = 0
        """Replies of an agent whose step was reported."""

    def _event(self, kind: str, /, **fields: object) -> None:
        self.folder.event(kind, item=self.item, run=self.run, ref=self.ref, **fields)

    def begin(self) -> None:
        """The node begins."""
        self._begun = time.monotonic()
        fresh = Live("working", self.item, self.run, self.ref, since=self._begun)
        vars(self.live).update(vars(fresh))
        self._event("node_started")

    def opens(self) -> None:
        """The model is made ready for a conversation."""
        self.live.asked = time.monotonic()
        self.live.doing, self.live.call, self._told = "loading", 0, 0

    def opened(self, card: ModelCard, *, fresh: bool) -> None:
        """The model is ready; ``fresh``: it was not before."""
        seconds = round(time.monotonic() - self.live.asked, 3)
        self.live.doing = "working"
        if fresh:
            self.folder.event(
                "model_loaded",
                ref=self.ref,
                load_s=card.load_s,
                probe_tokens_per_s=card.probe_tokens_per_s,
                seconds=seconds,
            )

    def looked(self, card: ModelCard, since: float) -> None:
        """The model was shown pictures, from ``since`` on the monotonic clock."""
        sight, seconds = card.sight, round(time.monotonic() - since, 3)
        self.folder.event(
            "sight_tested",
            ref=self.ref,
            claimed=sight.claimed,
            shown=sight.shown or 0,
            read=sight.read or 0,
            seconds=seconds,
        )

    def asks(self, request: Request) -> None:
        """A request goes out."""
        live = self.live
        live.call += 1
        live.pieces, live.first, live.asked = 0, None, time.monotonic()
        live.doing = "waiting"
        self._event("request_sent", call=live.call, messages=len(request.messages), max_tokens=request.max_tokens)

    def hears(self, piece: str) -> None:
        """A piece of the reply came."""
        live = self.live
        live.pieces += 1
        if live.first is None:
            live.first = time.monotonic()
            live.doing = "replying"
            self._event("first_token", call=live.call, seconds=round(live.first - live.asked, 3))

    def replied(self, reply: Reply | None, failure: str | None = None) -> None:
        """The call is over: with a reply, or with the status of its failure."""
        live, now = self.live, time.monotonic()
        tokens = None if reply is None else reply.usage.completion_tokens
        stop = None if reply is None else reply.stop_reason
        generation_s = None if reply is None else reply.usage.generation_s
        live.rate = tokens / generation_s if tokens and generation_s else None
        live.earlier += live.pieces if tokens is None else tokens
        live.pieces, live.doing = 0, "working"
        seconds = round(now - live.asked, 3)
        self._event("reply", call=live.call, tokens=tokens, seconds=seconds, stop_reason=stop, failure=failure)
        if stop is not None and stop not in OWN_ENDS:
            self._event("limit", name=stop, scope="reply")

    def steps(self, turns: Sequence[Turn]) -> None:
        """What the harness made of an agent's replies so far; each is told once."""
        replies = [turn for turn in turns if turn.role == "assistant"]
        for number, turn in enumerate(replies[self._told :], self._told + 1):
            step = turn.step
            if step is None:
                return
            self._told = number
            if step.problem is not None:
                self._event("malformed_call", call=number, problem=step.problem)
            if step.fault is not None:
                self._event("fault", number=step.number, tool=step.tool, kind=step.fault)
            if step.tool is not None:
                self._event("tool_result", number=step.number, tool=step.tool, failed=step.failed, cost=step.cost)

    def ended(self, end: str | None) -> None:
        """The conversation of an agent is over."""
        if end is not None and end not in OWN_ENDS:
            self._event("limit", name=end, scope="conversation")

    def finish(self, record: Record) -> None:
        """The record of the node is on disk."""
        begun = time.monotonic() if self._begun is None else self._begun
        self._event(
            "node_finished",
            status=record.status,
            points=None if record.points is None else float(record.points),
            seconds=round(time.monotonic() - begun, 3),
        )
        self.live.doing = "nothing"


class Observed:
    """A runtime whose calls are watched; what it is asked and what it answers is not touched."""

    def __init__(self, runtime: Runtime, observer: Observer) -> None:
        self.runtime = runtime
        self.observer = observer
        self.ref, self.endpoint = runtime.ref, runtime.endpoint

    def open(self) -> ModelCard:
        return self.runtime.open()

    def count_tokens(self, messages: Sequence[Message]) -> int | None:
        return self.runtime.count_tokens(messages)

    def chat(self, request: Request) -> Reply:
        """One call, told before, while it is under way and after.

        Raises:
            RuntimeFailure: where nothing was measured.
            StoreError: where the disk refuses an event.
        """
        self.observer.asks(request)
        try:
            reply = self.runtime.chat(replace(request, on_piece=self.observer.hears))
        except RuntimeFailure as failure:
            self.observer.replied(None, failure.status)
            raise
        self.observer.replied(reply)
        return reply

    def close(self) -> float | None:
        return self.runtime.close()
