"""A layer is chosen by what it does, not by what is installed."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox.jails import LAYERS, LIMITS, sandbox_of

from pytest_llmbench.doctor import examine, tell
from pytest_llmbench.sandbox import landlock, layers
from pytest_llmbench.sandbox.jail import Sandbox, Unconfinable
from pytest_llmbench.sandbox.layers import choose, survey


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been tried yet in this process."""
    monkeypatch.setattr(layers, "_found", {})


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_can_be_asked_for_by_name(name: str) -> None:
    sandbox = sandbox_of(name)
    assert (sandbox.layer, sandbox.confined, sandbox.limits) == (name, True, LIMITS)


def test_the_best_layer_that_works_is_chosen() -> None:
    works = [layer.name for layer in survey(LIMITS) if layer.failure is None]
    assert choose(LIMITS).layer == works[0]
    assert works == [name for name in LAYERS if name in works]


@pytest.mark.usefixtures("fresh")
def test_a_layer_is_tried_once_a_process_whatever_the_limits() -> None:
    first = survey(LIMITS)
    assert survey(replace(LIMITS, processes=7)) == first
    assert all(again is layer for again, layer in zip(survey(LIMITS), first, strict=True))
    assert choose(replace(LIMITS, processes=7)).limits.processes == 7


@pytest.mark.usefixtures("fresh")
def test_without_bwrap_the_reason_is_told_and_the_next_layer_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sandbox_of("landlock")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert choose(LIMITS).layer == "landlock"
    assert "bwrap is not installed" in str(survey(LIMITS)[0].failure)


def test_the_probe_sees_that_nothing_is_confined() -> None:
    failure = layers._failure(Sandbox("unconfined", LIMITS))
    assert failure == (
        "a file outside could be written, a listener on loopback could be reached, a planted secret could be read"
    )


def test_where_nothing_confines_programs_are_refused_with_reasons_and_advice() -> None:
    with pytest.raises(Unconfinable, match=r"no confinement.*apt-get install bubblewrap libseccomp2"):
        choose(LIMITS, only=())


def test_where_nothing_confines_it_can_be_done_without_and_is_marked() -> None:
    sandbox = choose(LIMITS, allow_unconfined=True, only=())
    assert (sandbox.layer, sandbox.confined) == ("unconfined", False)
    assert choose(LIMITS, allow_unconfined=True).confined


def test_the_doctor_tells_what_would_be_used_and_what_is_open() -> None:
    report = examine(LIMITS)
    assert report == json.loads(json.dumps(report))
    text = tell(report)
    assert f"programs of a model run in: {choose(LIMITS).layer}" in text
    for layer in survey(LIMITS):
        assert f"{layer.name}: {layer.failure or 'confines'}" in text
        assert all(words in text for words in layer.open)
    assert f"landlock abi: {landlock.abi()}" in text
    assert socket.gethostname() not in text.split()
