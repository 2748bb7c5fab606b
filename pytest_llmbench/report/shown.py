"""Texts of unknown origin as pages show them: nothing invisible, nothing endless."""

from __future__ import annotations

import re
from collections.abc import Sequence

DOUBTFUL = re.compile(r"[^\n\t -~]")
"""Characters that may have no shape of their own; line breaks and tabs are shown as what they are."""
TAIL = 3
"""A text that is cut keeps its end: one part in so many of what is kept."""


def visible(text: str) -> str:
    """``text`` with its invisible characters named: controls, bidi marks, odd spaces and half surrogate pairs.

    A zero-width space comes out as ``⟨U+200B⟩``; line breaks and tabs stay, a carriage return before a line break goes.
    """
    text = text.replace("\r\n", "\n")
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return DOUBTFUL.sub(lambda found: found[0] if found[0].isprintable() else f"⟨U+{ord(found[0]):04X}⟩", text)


def cut(text: str, limit: int) -> str:
    """``text`` with at most ``limit`` characters of it: beginning and end, and between them what was left out."""
    if len(text) <= limit:
        return text
    tail = limit // TAIL
    head = limit - tail
    return (
        f"{text[:head]}\n[… {len(text) - limit:,} of {len(text):,} characters left out …]\n{text[len(text) - tail :]}"
    )


def level_of(lengths: Sequence[int], total: int) -> int:
    """The largest limit that keeps texts of these lengths within ``total`` characters when each is cut to it.

    Short texts leave their share to long ones. Where nothing has to be cut, it is the longest length.
    """
    left = total
    for number, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - number)
        if length > share:
            return share
        left -= length
    return max(lengths, default=0)


def middle(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters, cut in the middle: the ends of names are what tells them apart."""
    if len(text) <= width:
        return text
    head = (width - 1) // TAIL
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"
