"""Entry point: options, hook specifications and markers. The rest is loaded only with ``--llm-model``."""

from __future__ import annotations

import pytest

LEVEL_MARKERS = {
    "levelA": "own tasks; the only level that ranks",
    "levelB": "external calibration",
    "levelC": "split-date probe",
    "levelM": "multimodal",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's command line."""
    from pytest_llmbench.options import add_options

    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Hooks that others can implement."""
    from pytest_llmbench import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Stay inert unless a model is asked for."""
    for name, meaning in LEVEL_MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning} (pytest-llmbench)")
    if config.getoption("llm_model") or config.getoption("llm_resume"):
        from pytest_llmbench.active import activate

        activate(config)
