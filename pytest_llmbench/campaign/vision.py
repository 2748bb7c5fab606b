"""Whether a model sees: what its runtime says, and a blind check with two pictures of random codes."""

from __future__ import annotations

import random
import secrets
from dataclasses import replace

from pytest_llmbench.drawing import canvas, png, write
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.harness.single import check_fit
from pytest_llmbench.runtimes.base import Message, ModelCard, Reply, Request, Runtime, RuntimeFailure, Sight
from pytest_llmbench.spec import Unavailable

VISION = "vision"
SYMBOLS = "ACEFHJKLMNPRTUWXY3479"
"""Capital letters and digits, none of which looks like another."""
LENGTH = 6
SHOWN = 2
"""Pictures that a model is shown."""
LETTERS = 110
"""Size of the letters in pixels."""
WIDTH, HEIGHT = 896, 448
QUESTION = "Which characters stand in the picture? Reply with these characters alone."


def look(runtime: Runtime, card: ModelCard, profile: Profile) -> ModelCard:
    """The card of a model with what is known of its sight: the runtime's word, put to the test.

    A model whose runtime denies vision is shown nothing. Any other one is shown two pictures with different codes and
    sees where it reads at least one: nobody guesses one in twenty-one to the power of six.

    Args:
        runtime: open, and held by nobody else.
        card: the model's, as the runtime gave it.
        profile: of the session.

    Raises:
        RuntimeFailure: the server broke. Where the runtime says nothing of vision, any refusal of the picture is taken
            as its answer.
    """
    if card.sight.claimed is False:
        return _with(card, card.sight)
    read = 0
    for shown in range(1, SHOWN + 1):
        code = random_code()
        try:
            reply = _show(runtime, card, profile, code)
        except Unavailable as error:
            return _with(card, replace(card.sight, shown=shown - 1, read=read, refusal=str(error)))
        except RuntimeFailure as failure:
            broke = failure.status != "unsupported" and (card.sight.claimed and not read)
            if failure.fatal or broke:
                raise
            return _with(card, replace(card.sight, shown=shown, read=read, refusal=failure.reason))
        read += code in _squeezed(reply)
    return _with(card, replace(card.sight, shown=SHOWN, read=read))


def blindness(ref: str, sight: Sight) -> str | None:
    """Why a model gets no item with a picture, in a sentence; None where it sees."""
    if sight.proven:
        return None
    if sight.claimed is False:
        return f"no vision was found in {ref}: its runtime says that it takes no pictures"
    says = "its runtime says that it takes pictures, but" if sight.claimed else "its runtime does not say, and"
    if sight.refusal is not None:
        return (
            f"no vision was found in {ref}: {says} a picture with a code of {LENGTH} characters failed: {sight.refusal}"
        )
    shown = f"{sight.shown} pictures with a code of {LENGTH} characters"
    return f"no vision was found in {ref}: {says} it read none of {shown}"


def picture_of(code: str) -> bytes:
    """A PNG file with a code in large letters.

    Raises:
        Unavailable: it cannot be drawn here.
    """
    image, pen = canvas(WIDTH, HEIGHT)
    write(pen, (WIDTH / 2, HEIGHT / 2), code, LETTERS)
    return png(image)


def random_code(chance: random.Random | None = None) -> str:
    """A fresh code; not from a seed, so that no server and no model has met it before."""
    choice = chance.choice if chance else secrets.choice
    return "".join(choice(SYMBOLS) for _ in range(LENGTH))


def _show(runtime: Runtime, card: ModelCard, profile: Profile, code: str) -> Reply:
    messages = [Message("user", QUESTION, (picture_of(code),))]
    cap = profile.count("sight_tokens")
    check_fit(messages, cap, runtime, card, profile)
    return runtime.chat(Request(messages, cap, seed=0))


def _squeezed(reply: Reply) -> str:
    """Letters and digits of a reply and its thinking, in capitals: models put spaces or marks between them."""
    return "".join(character for character in f"{reply.thinking} {reply.content}".upper() if character.isalnum())


def _with(card: ModelCard, sight: Sight) -> ModelCard:
    others = tuple(name for name in card.capabilities if name != VISION)
    return replace(card, capabilities=(*others, VISION) if sight.proven else others, sight=sight)
