"""References of agent items: policies that react to what the tools answer, and the ones that do nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from pytest_llmbench.harness.protocol import Call, Result, read_result, render_call
from pytest_llmbench.runtimes.base import Conversation, Message

Policy = Generator[Call | str, Result, None]
"""Yields calls and gets their results: ``result = yield Call("read_file", {"path": "a.py"})``. A ``str`` is yielded as
the whole reply, verbatim. What comes behind the end of a policy is an empty reply."""

__all__ = ["Call", "Policy", "Result", "finisher", "scripted"]


def scripted(policy: Callable[[], Policy]) -> Conversation:
    """The conversation of a policy, started afresh; it answers the newest message of each history it is given."""
    script = policy()
    started: list[bool] = []

    def say(history: Sequence[Message]) -> str:
        try:
            step = script.send(read_result(history[-1].content)) if started else next(script)
        except StopIteration:
            return ""
        started.append(True)
        return step if isinstance(step, str) else render_call(step)

    return say


def finisher() -> Policy:
    """The null strategy that calls ``finish`` at once and has done nothing."""
    yield Call("finish", {"statement": ""})
