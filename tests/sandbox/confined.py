"""The sandbox that tests of calls use, and how its forgeries and field cases are read."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from pytest_llmbench.sandbox.jail import Limits, Sandbox
from pytest_llmbench.sandbox.layers import choose

LIMITS = Limits(
    cpu_s=4,
    wall_s=20,
    memory_bytes=512 * 2**20,
    processes=32,
    open_files=64,
    file_bytes=2**24,
    disk_bytes=2**26,
    files=1_000,
    output_bytes=2**24,
)
LAYER = os.environ.get("LLMBENCH_TEST_LAYER", "")
"""A layer to run these tests under instead of the best one."""
TESTS = Path(__file__).resolve().parents[1]


@cache
def confined() -> Sandbox:
    """The best sandbox that this machine offers; tests that need more than an unconfined one ask it."""
    return choose(LIMITS, allow_unconfined=True, only=LAYER.split() or None)


def stored(folder: Path) -> dict[str, str]:
    """The files of a folder by name. They are kept with ``.txt`` behind their names, so that no tool takes them for
    the project's own."""
    paths = (path for path in sorted(folder.rglob("*.txt")) if path.is_file())
    return {path.relative_to(folder).as_posix().removesuffix(".txt"): path.read_text("utf-8") for path in paths}


def fieldcase(number: str) -> Path:
    """The folder of a field case."""
    return next((TESTS / "fieldcases").glob(f"{number}-*"))
