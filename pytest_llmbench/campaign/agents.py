"""Conversations of agent items: with a model, with a saved transcript, and of references without a runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_llmbench.bank import BankError, Item
from pytest_llmbench.faults import FAULTS_FILE, FaultsError, Schedule, load_plan
from pytest_llmbench.harness.agent import Chat, Conversation, Save
from pytest_llmbench.harness.assignment import agent_opening, saved
from pytest_llmbench.harness.frozen import Profile, Rules
from pytest_llmbench.harness.tools import Tester, World, confined_tests
from pytest_llmbench.records import Transcript, Turn
from pytest_llmbench.runtimes.base import Conversation as Script
from pytest_llmbench.runtimes.base import Message
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.spec import Instance


def schedule_of(item: Item, run: int) -> Schedule:
    """The faults of a run of an item, from ``fixtures/<id>/faults.toml``; none where the item has no such file.

    Raises:
        BankError: naming file, run and field of a schedule that cannot be used.
    """
    try:
        return load_plan(item.side("fixtures") / FAULTS_FILE, item.spec.tools).schedule(run)
    except FaultsError as error:
        raise BankError(str(error)) from None


def messages_of(instance: Instance, profile: Profile) -> list[Message]:
    """The history that the conversation of an agent starts with."""
    return agent_opening(instance, Rules.under(profile, instance.spec))


def conversation_of(
    item: Item,
    instance: Instance,
    schedule: Schedule,
    profile: Profile,
    chat: Chat,
    run_tests: Tester,
    save: Save = lambda turns: None,
) -> Conversation:
    """A conversation in a fresh world, not begun yet."""
    return Conversation(
        opening=messages_of(instance, profile),
        tools=item.spec.tools,
        world=_world(item, instance),
        chat=chat,
        run_tests=run_tests,
        rules=Rules.under(profile, item.spec),
        schedule=schedule,
        save=save,
    )


def converse_again(
    item: Item, instance: Instance, schedule: Schedule, profile: Profile, transcript: Transcript
) -> Conversation:
    """A saved conversation, had again with the saved replies: the same world, no model, nothing run.

    Raises:
        ReplayError: where the transcript does not fit the item and the harness as they are now.
    """
    chat, run_tests = saved(transcript.turns, transcript.end)
    conversation = conversation_of(item, instance, schedule, profile, chat, run_tests)
    conversation.work()
    return conversation


def converse_scripted(
    item: Item,
    instance: Instance,
    profile: Profile,
    script: Script,
    sandbox: Sandbox | None,
    schedule: Schedule | None = None,
) -> Conversation:
    """The conversation of a reference, without a runtime; under the run's own faults where no others are given."""

    def chat(messages: Sequence[Message], cap: int) -> Turn:
        return Turn(role="assistant", content=script(messages))

    faults = schedule_of(item, instance.run) if schedule is None else schedule
    conversation = conversation_of(item, instance, faults, profile, chat, tester(sandbox))
    conversation.work()
    return conversation


def tester(sandbox: Sandbox | None) -> Tester:
    """What ``run_tests`` does; without a sandbox no item has that tool."""
    if sandbox is not None:
        return confined_tests(sandbox)
    return lambda files, only: ""


def _world(item: Item, instance: Instance) -> World:
    make: Callable[[Instance], World] | None = getattr(item.task, "world", None)
    if make is None:
        raise BankError(f"{item.folder / 'task.py'}: agent item {item.spec.id} needs a function world()")
    return make(instance)
