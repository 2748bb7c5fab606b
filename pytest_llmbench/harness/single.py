"""One prompt, one reply: building the history, checking that it fits, noticing that it was cut."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict

from pytest_llmbench.harness.frozen import Profile, delivery_form, system_text
from pytest_llmbench.records import Turn
from pytest_llmbench.runtimes.base import Message, ModelCard, Reply, Request, Runtime, RuntimeFailure
from pytest_llmbench.spec import Instance
from pytest_llmbench.store.folder import escaped


def opening(instance: Instance) -> list[Message]:
    """The history a conversation about an instance starts with."""
    form = delivery_form(instance.spec)
    return [Message("system", system_text()), Message("user", f"{instance.prompt}\n\n{form}".strip(), instance.images)]


def estimate(messages: Sequence[Message], profile: Profile) -> int:
    """Length of a history's text in tokens, from its characters; what pictures add depends on the model."""
    return sum(len(message.content) for message in messages) // profile.count("characters_per_token")


def picture_room(messages: Sequence[Message], profile: Profile) -> int:
    """Tokens that a history's pictures take at most."""
    return sum(len(message.images) for message in messages) * profile.count("picture_tokens")


def check_fit(messages: Sequence[Message], cap: int, runtime: Runtime, card: ModelCard, profile: Profile) -> None:
    """Refuse a prompt that does not fit into the window together with its reply cap.

    Raises:
        RuntimeFailure: ``unsupported``, with what is needed and what there is.
    """
    if card.runtime == "reference":
        return
    exact = runtime.count_tokens(messages)
    text = estimate(messages, profile) if exact is None else exact
    pictures = picture_room(messages, profile)
    needed = text + pictures + cap
    window = card.context if card.context is not None else profile.count("unknown_context")
    if needed > window:
        about = "" if exact is not None and not pictures else "about "
        unknown = "" if card.context is not None else " (assumed: the server tells none; state it with --llm-context)"
        raise RuntimeFailure(
            "unsupported",
            f"context_too_small: prompt and reply cap need {about}{needed} tokens, the window has {window}{unknown}. "
            "Serve the model with a larger context.",
        )


def truncation(
    counted: int | None, guess: int, window: int | None, previous: int | None, profile: Profile
) -> str | None:
    """Why a prompt must have been cut on its way into the model; None where nothing speaks for it.

    Args:
        counted: tokens of the prompt as the server counted them.
        guess: tokens of the prompt as estimated from its characters.
        window: the model's window in tokens.
        previous: tokens counted for the previous, shorter prompt of the same conversation.
    """
    if counted is None:
        return None
    if window is not None and counted >= window:
        return f"the server counted {counted} prompt tokens in a window of {window}"
    slack = profile.count("half_window_slack")
    if window is not None and guess > window // 2 + slack and abs(counted - window // 2) <= slack:
        return f"the server counted {counted} prompt tokens, half of its window of {window}; about {guess} were sent"
    if counted < guess * profile.limit("truncation_share"):
        return f"the server counted {counted} prompt tokens; about {guess} were sent"
    if previous is not None and counted < previous:
        return f"the server counted {counted} prompt tokens, fewer than the {previous} of the turn before"
    return None


def turn_of(message: Message) -> Turn:
    """A message that the harness sent, as it stands in the transcript."""
    images = [hashlib.sha256(image).hexdigest() for image in message.images]
    return Turn(role=message.role, content=escaped(message.content), images=images)


def turn_of_reply(reply: Reply) -> Turn:
    """A reply, as it stands in the transcript."""
    return Turn(
        role="assistant",
        content=escaped(reply.content),
        thinking=escaped(reply.thinking),
        thinking_field=reply.thinking_field,
        stop_reason=reply.stop_reason,
        server_stop=reply.server_stop,
        served_model=reply.served_model,
        usage=asdict(reply.usage),
        flags=list(reply.flags) + (["lone_surrogate"] if escaped(reply.content) != reply.content else []),
    )


def ask(
    messages: Sequence[Message],
    cap: int,
    seed: int,
    runtime: Runtime,
    card: ModelCard,
    profile: Profile,
    on_wire: Callable[[bytes], None],
) -> Turn:
    """One call of a conversation, as a turn.

    Raises:
        RuntimeFailure: where nothing was measured, a cut prompt included; the failure then carries what was said
            in its ``turn``.
    """
    check_fit(messages, cap, runtime, card, profile)
    reply = runtime.chat(Request(messages, cap, seed, on_wire))
    turn = turn_of_reply(reply)
    if card.runtime != "reference":
        cut = truncation(reply.usage.prompt_tokens, estimate(messages, profile), card.context, None, profile)
        if cut is not None:
            raise Spoilt("prompt_truncated", f"prompt_truncated: {cut}. Serve the model with a larger context.", turn)
        if reply.stop_reason == "context_full":
            raise Spoilt(
                "unsupported",
                f"context_full: the window was full after {reply.usage.completion_tokens} of {cap} reply tokens. "
                "Serve the model with a larger context.",
                turn,
            )
    return turn


class Spoilt(RuntimeFailure):
    """A reply came, but under conditions that make it worthless as a measurement; it is kept, not graded."""

    def __init__(self, status: str, reason: str, turn: Turn) -> None:
        super().__init__("prompt_truncated" if status == "prompt_truncated" else "unsupported", reason)
        self.turn = turn
