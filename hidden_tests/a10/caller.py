"""Stands before the delivered module: everything in it, and what its function leaves of the argument it was given."""

from __future__ import annotations

import importlib
from typing import Any

delivered: Any = importlib.import_module("spans")


def __getattr__(name: str) -> Any:
    return getattr(delivered, name)


def levels_after(name: str, levels: Any, **named: int) -> Any:
    """The levels after a call of the delivered function."""
    getattr(delivered, name)(levels, **named)
    return levels
