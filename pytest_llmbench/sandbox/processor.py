"""Keeping two programs that answer each other by turns on one processor.

Only one of them runs at a time. On two processors each question has to wake up the other one, which costs several
times what the question itself does.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def current() -> int | None:
    """Number of the processor that this thread runs on; None where that cannot be told."""
    if sys.platform != "linux":
        return None
    try:
        number = int(ctypes.CDLL(None).sched_getcpu())
    except (OSError, AttributeError):
        return None
    return number if number >= 0 else None


@contextmanager
def kept_on(number: int | None) -> Iterator[None]:
    """While this lasts, this thread and every process that it starts stay on a processor; None: wherever they are."""
    if sys.platform != "linux" or number is None:
        yield
        return
    before = os.sched_getaffinity(0)
    with suppress(OSError):
        os.sched_setaffinity(0, {number})
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)
