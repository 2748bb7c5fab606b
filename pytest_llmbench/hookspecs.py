"""Hooks that others can implement in a conftest.py or a plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


@pytest.hookspec
def pytest_llmbench_runtimes(config: pytest.Config) -> Mapping[str, Any]:
    """More runtimes: prefix → factory ``(ref, name, options) -> Runtime`` (see ``runtimes/base.py``).

    Example::

        def pytest_llmbench_runtimes(config):
            return {"mine": lambda ref, name, options: MyRuntime(ref, name, options)}
    """
    raise NotImplementedError


@pytest.hookspec
def pytest_llmbench_record(config: pytest.Config, record: Mapping[str, Any]) -> None:
    """Called for every record, in the process that writes the report, after the record is on disk."""


@pytest.hookspec
def pytest_llmbench_update_report(config: pytest.Config, report: Mapping[str, Any]) -> None:
    """Called once with the finished report, as it stands in ``report.json``."""
