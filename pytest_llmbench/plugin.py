"""Entry point: options, hook specifications and markers. The rest is loaded only with ``--llm-model``."""

from __future__ import annotations

import pytest

from pytest_llmbench.options import MARKER

LEVEL_MARKERS = {
    "levelA": "own tasks; the only level that ranks",
    "levelB": "external calibration",
    "levelC": "split-date probe",
    "levelM": "multimodal",
    "levelown": "items of one's own; they never rank",
}
OWN_MARKER = (
    "(points, rows, id, version): measure this test function with every model as an item of one's own (pytest-llmbench)"
)
NO_MODEL = "measures a model: name one, as in `pytest {} --llm-model=qwen3:4b`"


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
    config.addinivalue_line("markers", MARKER + OWN_MARKER)
    if config.getoption("llm_model") or config.getoption("llm_resume"):
        from pytest_llmbench.active import activate

        activate(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a model, functions that measure one are skipped and say how to run them."""
    if config.getoption("llm_model") or config.getoption("llm_resume"):
        return
    for item in items:
        if item.get_closest_marker(MARKER) is not None:
            item.add_marker(pytest.mark.skip(reason=NO_MODEL.format(item.nodeid.partition("::")[0])))
