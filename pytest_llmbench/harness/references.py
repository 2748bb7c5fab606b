"""The conversations of references: golden, defective and null."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from pytest_llmbench.harness.frozen import harness
from pytest_llmbench.harness.reply import render_reply
from pytest_llmbench.harness.scripted import finisher, scripted
from pytest_llmbench.runtimes.base import Conversation, Message
from pytest_llmbench.spec import Instance, Mode, Reference, Task

CONSTANT = "42"
RANDOM_TOP = int(harness().limits["null_random_top"].value)
WORDS = ("the", "of", "and", "to", "in", "for", "on", "by", "from", "river", "table", "seven", "green", "window")


def conversation(kind: str, name: str, task: Task, instance: Instance) -> Conversation:
    """What the reference ``kind`` (``golden``, ``defective`` or ``null``) called ``name`` says about an instance.

    Raises:
        KeyError: where the item's code lacks a defective reference that its specification declares.
    """
    if kind == "null":
        return NULLS[name](instance)
    reference = task.golden(instance) if kind == "golden" else task.defects(instance)[name or "defective"]
    if reference.agent is not None:
        return scripted(reference.agent)
    text = reply_text(reference)
    return lambda history: text


def reply_text(reference: Reference) -> str:
    """A reference as a reply in the frozen form."""
    return reference.text if reference.text is not None else render_reply(reference.answers, reference.files)


def _silent(instance: Instance) -> Conversation:
    return lambda history: ""


def _echo(instance: Instance) -> Conversation:
    return _last_user


def _last_user(history: Sequence[Message]) -> str:
    return next((message.content for message in reversed(history) if message.role == "user"), "")


def _constant(instance: Instance) -> Conversation:
    text = render_reply(dict.fromkeys(instance.answers, CONSTANT), dict.fromkeys(instance.spec.files, f"{CONSTANT}\n"))
    return lambda history: text


def _random(instance: Instance) -> Conversation:
    chance = random.Random(f"null/{instance.spec.id}/{instance.variant}/{instance.run}")
    answers = {key: chance.randrange(RANDOM_TOP) for key in instance.answers}
    files = {
        name: " ".join(chance.choice(WORDS) for _ in range(len(instance.prompt) // len(WORDS))) + ".\n"
        for name in instance.spec.files
    }
    text = render_reply(answers, files)
    return lambda history: text


def _finish(instance: Instance) -> Conversation:
    return scripted(finisher)


def nulls_for(mode: Mode) -> list[str]:
    """The null strategies that mean something in a mode."""
    return [name for name in NULLS if mode == "agent" or name != "finish"]


NULLS: Mapping[str, Callable[[Instance], Conversation]] = {
    "silent": _silent,
    "echo": _echo,
    "constant": _constant,
    "random": _random,
    "finish": _finish,
}
