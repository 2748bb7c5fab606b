"""Stands before the modules of the project: a function of any of them by its name, imported when it is called."""

from __future__ import annotations

import importlib
from typing import Any

HOMES = {
    "share": "charges",
    "storage": "charges",
    "handling": "charges",
    "papers": "charges",
    "days": "periods",
    "charged": "periods",
    "quarter": "periods",
    "bill": "invoice",
    "money": "invoice",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(name)
    return getattr(importlib.import_module(HOMES[name]), name)


def loaded() -> list[str]:
    """Imports all modules that the visible tests import; gives their names."""
    return [importlib.import_module(name).__name__ for name in sorted(set(HOMES.values()))]


def term(name: str) -> Any:
    """The value of a term."""
    return getattr(importlib.import_module("terms"), name)
