"""What surrounds the conversation of an agent: its opening, the model's side of it, a saved side, what it delivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytest_llmbench.harness.agent import Chat, Conversation, Stop
from pytest_llmbench.harness.frozen import Profile, Rules, system_text
from pytest_llmbench.harness.protocol import filled, protocol_text
from pytest_llmbench.harness.reply import parse_reply
from pytest_llmbench.harness.single import Spoilt, ask, estimate, truncation, turn_of
from pytest_llmbench.harness.tools import Tester, dump_database
from pytest_llmbench.records import Turn
from pytest_llmbench.runtimes.base import Message, ModelCard, Runtime, RuntimeFailure
from pytest_llmbench.spec import AgentWork, Delivery, Instance


def agent_opening(instance: Instance, rules: Rules) -> list[Message]:
    """The history that an agent's conversation about an instance starts with."""
    spec = instance.spec
    parts = [protocol_text(spec.tools, rules.agent_max_turns), f"The task:\n\n{instance.prompt}"]
    if spec.files:
        parts.append(filled("agent_files", names=", ".join(spec.files)))
    if spec.answers is not None:
        lines = "\n".join(filled("answer_line", key=key) for key in spec.answers.keys)
        parts.append(filled(f"agent_answers_{spec.answers.format}", lines=lines))
    return [Message("system", system_text()), Message("user", "\n\n".join(parts))]


def live(runtime: Runtime, card: ModelCard, profile: Profile, seed: int, on_wire: Callable[[bytes], None]) -> Chat:
    """The side of a model that answers now. From its second reply on, a history that no longer fits is an end."""
    counted: list[int | None] = []

    def chat(messages: list[Message], cap: int) -> Turn:
        try:
            turn = ask(messages, cap, seed, runtime, card, profile, on_wire)
        except RuntimeFailure as failure:
            if not counted or failure.status != "unsupported":
                raise
            if isinstance(failure, Spoilt):
                return failure.turn
            raise Stop("context") from None
        tokens = (turn.usage or {}).get("prompt_tokens")
        previous = counted[-1] if counted else None
        cut = truncation(tokens, estimate(messages, profile), card.context, previous, profile)
        if card.runtime != "reference" and cut is not None:
            raise Spoilt("prompt_truncated", f"prompt_truncated: {cut}. Serve the model with a larger context.", turn)
        counted.append(tokens)
        return turn

    return chat


class ReplayError(Exception):
    """A saved transcript does not fit this item and harness: the message says where."""


def saved(turns: Sequence[Turn], end: str | None) -> tuple[Chat, Tester]:
    """The side of a model, and the output of its tests, as a transcript has them; nothing is run.

    Args:
        turns: all turns of the transcript.
        end: how its conversation ended.

    Returns:
        What ``Conversation`` takes as ``chat`` and ``run_tests``. Both raise ``ReplayError`` where the conversation
        goes another way than the saved one.
    """
    replies = iter([number for number, turn in enumerate(turns) if turn.role == "assistant"])
    current: list[Turn] = []

    def chat(messages: list[Message], cap: int) -> Turn:
        number = next(replies, None)
        if number is None:
            raise Stop(end or "interrupted")
        if number == 0 or turn_of(messages[-1]).content != turns[number - 1].content:
            raise ReplayError(f"message {number} of the saved transcript is not what item and harness say now")
        current[:] = [turns[number]]
        return turns[number].model_copy(update={"step": None})

    def run_tests(files: Mapping[str, str], only: str) -> str:
        step = current[0].step
        if step is None or step.ran is None:
            raise ReplayError("the saved transcript holds no output of the tests that its agent ran")
        return step.ran

    return chat, run_tests


def deliver(instance: Instance, conversation: Conversation) -> Delivery:
    """What a conversation that is over leaves behind."""
    spec, world = instance.spec, conversation.world
    end = conversation.end or "interrupted"
    work = AgentWork(
        end=end,
        statement=conversation.statement,
        calls=tuple(conversation.calls),
        files=dict(world.files),
        database=None if world.database is None else dump_database(world.database),
        spent=world.spent,
        notes=dict(world.notes),
    )
    form = spec.answers.format if spec.answers else "integer"
    keys = spec.answers.keys if spec.answers else ()
    said = parse_reply(conversation.statement or "", "", files=(), answers=keys, form=form)
    return Delivery(
        text=conversation.statement or "",
        answers=said.answers,
        files={name: world.files[name] for name in spec.files if name in world.files},
        flags=(*said.flags, *([] if end == "finish" else [f"ended:{end}"])),
        no_answer=None if conversation.calls else "no_call",
        work=work,
    )
