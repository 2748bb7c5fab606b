"""The items of level B, and whether the public data is here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_llmbench.bank import read_items
from pytest_llmbench.spec import Unavailable

ROOT = Path(__file__).parents[2] / "items/level_b"
SETS = {"humaneval": 40, "gsm8k": 50, "ifeval": 60, "mmlu": 114}
ITEMS = {name: read_items(ROOT / name / "items.toml") for name in SETS}
TASKS: dict[str, Any] = {name: items[0].task for name, items in ITEMS.items()}


def is_fetched() -> bool:
    """Whether every file of the allow-list is in the cache."""
    try:
        for task in TASKS.values():
            task.cases()
        TASKS["ifeval"].checkers()
    except Unavailable:
        return False
    return True


needs_data = pytest.mark.skipif(not is_fetched(), reason="the public data is not here: run `llmbench fetch-b`")
