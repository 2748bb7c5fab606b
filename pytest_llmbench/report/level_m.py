"""What the report says of level M beside its points: which models were shown to see, and that none is ordered by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pytest_llmbench.campaign.vision import LENGTH
from pytest_llmbench.records import Saved

PICTURES = "M"
"""The level of items with pictures."""


class ModelSight(Saved):
    """Whether one model takes pictures, from its card."""

    claimed: bool | None
    """What its runtime says; None where it says nothing."""
    shown: int | None
    """Pictures of random codes that it was shown; None where it was shown none."""
    read: int | None
    """How many of them it read."""
    sees: bool | None
    """Whether its items were asked: it read at least one code. None where that was not found out."""
    refusal: str | None
    """Why a picture could not be sent or answered."""


class Pictures(Saved):
    """Level M's own block. It holds no points and no order."""

    measured: int
    """Real models of which a picture's item was measured."""
    models: Mapping[str, ModelSight]


def pictures(cards: Mapping[str, Mapping[str, Any]], measured: Sequence[str]) -> Pictures:
    """The block of a session.

    Args:
        cards: of the real models that have nodes in level M, as the run folder holds them.
        measured: those of them of which a node of level M has a score.
    """
    return Pictures(measured=len(measured), models={ref: _sight(card) for ref, card in cards.items()})


def _sight(card: Mapping[str, Any]) -> ModelSight:
    sight = card.get("sight") or {}
    claimed, shown, read = sight.get("claimed"), sight.get("shown"), sight.get("read")
    sees = False if claimed is False else None if shown is None else bool(read)
    return ModelSight(claimed=claimed, shown=shown, read=read, sees=sees, refusal=sight.get("refusal"))


def lines(found: Pictures, named: Callable[[str], str] = str) -> Iterator[str]:
    """The block in sentences, for every kind of report.

    Args:
        found: the block.
        named: how the name of a model is written.
    """
    for ref, sight in found.models.items():
        yield f"Sight of {named(ref)}: {claim(sight)}; {outcome(sight)}."
    if found.measured == 1:
        yield "One model was measured: an n of 1 orders nothing."
    elif found.measured == 0:
        yield "No model was shown a picture of an item: nothing is known of any, which is no zero."


def claim(sight: ModelSight) -> str:
    """What the runtime says."""
    if sight.claimed is None:
        return "its runtime does not say whether it takes pictures"
    return "its runtime says that it takes pictures" if sight.claimed else "its runtime says that it takes no pictures"


def outcome(sight: ModelSight) -> str:
    """What came of showing it random codes."""
    if sight.shown is None:
        return "it was shown none"
    if sight.refusal is not None and not sight.sees:
        return "it was not able to take one"
    return f"it read {sight.read} of {sight.shown} random codes of {LENGTH} characters"
