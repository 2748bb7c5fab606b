"""Hooks that others can implement in a conftest.py or a plugin. None of them is called without ``--llm-model``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


@pytest.hookspec
def pytest_llmbench_runtimes(config: pytest.Config) -> Mapping[str, Any]:
    """More runtimes: prefix → factory ``(ref, name, options) -> Runtime``.

    ``ref`` is the model as ``--llm-model`` names it (``mine:x``), ``name`` what stands behind the prefix, ``options`` a
    ``RuntimeOptions``. ``runtimes/base.py`` has the protocol: a runtime only translates. It is called in every process,
    before anything is collected; the factory when the first node of the model runs.

    Example::

        from pytest_llmbench.runtimes.base import ModelCard, Reply

        class Mine:
            endpoint = None  # or the URL of what must never get two requests at a time

            def __init__(self, ref, name, options):
                self.ref, self.settings = ref, options.settings

            def open(self):
                return ModelCard(ref=self.ref, runtime="mine", context=32768)

            def count_tokens(self, messages):
                return None

            def chat(self, request):
                return Reply(content=answer_of(request.messages, request.max_tokens, request.seed))

            def close(self):
                return None

        def pytest_llmbench_runtimes(config):
            return {"mine": Mine}
    """
    raise NotImplementedError


@pytest.hookspec
def pytest_llmbench_record(config: pytest.Config, record: Mapping[str, Any]) -> None:
    """Called for every record when it is on disk, in the process that writes the report (under xdist the controller).

    ``record`` is what ``llmbench schema record`` describes. Nothing that is done to it changes the result.

    Example::

        def pytest_llmbench_record(config, record):
            config.get_terminal_writer().line(f"{record['item']} {record['ref']} {record['points']}")
    """


@pytest.hookspec
def pytest_llmbench_update_report(config: pytest.Config, report: dict[str, Any]) -> None:
    """Called once at the end of the session, in the process that writes the report, before it is shown.

    ``report`` is the whole of ``report.json`` (``llmbench schema report``). What is put under ``report["extra"]`` is
    written with it, as JSON, and kept when the report is made again from its records; every other change is dropped,
    for what was measured stays what was measured.

    Example::

        def pytest_llmbench_update_report(config, report):
            report["extra"]["room"] = {"temperature_c": 21.5}
    """
