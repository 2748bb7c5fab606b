"""Before a model is asked, the instrument is held to its golden references."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from pytest_llmbench.bank import Item
from pytest_llmbench.campaign.measure import grader
from pytest_llmbench.campaign.validate import golden_falls_short
from pytest_llmbench.harness.frozen import signature
from pytest_llmbench.sandbox.jail import Sandbox, Unconfinable
from pytest_llmbench.session import Session
from pytest_llmbench.store.fingerprints import fingerprint

KNOWN = "llmbench/validated"
"""Where pytest's cache keeps the fingerprints of instances whose golden reference earned every point."""
MOST_KNOWN = 5000
"""Fingerprints that are kept, the newest."""


def golden_fingerprint(item: Item, variant: int, run: int, layer: str | None) -> str:
    """What the score of a golden reference depends on: item, grader, harness, instance and what confines."""
    return fingerprint([item.checksum, grader(), signature(), variant, run, layer])


def validate_first(session: Session, keys: Iterable[tuple[str, int, str]]) -> None:
    """Score the golden reference of every instance that models are about to be asked. It costs nothing the second time.

    Args:
        session: the process that has the plan.
        keys: nodes (item, run, model) of models.

    Raises:
        pytest.UsageError: where one does not reach the maximum; nothing was asked then.
    """
    wanted = {(item, run): None for item, run, _ in keys if _held(session, item)}
    if session.source is not None or not wanted:
        return
    cache = getattr(session.config, "cache", None)
    known = dict.fromkeys(cache.get(KNOWN, []) if cache else [])
    sandbox = _sandbox(session, {item for item, _ in wanted})
    begun, scored, wrong = time.monotonic(), 0, []
    todo = []
    for item, run in wanted:
        one = session.items[item]
        if not one.spec.needs_sandbox or sandbox is not None:
            layer = sandbox.layer if sandbox is not None and one.spec.needs_sandbox else None
            todo.append((one, run, golden_fingerprint(one, session.variant, run, layer)))
    fresh = [entry for entry in todo if entry[2] not in known]
    if fresh:
        session.say(f"llmbench: holding the instrument to its golden references ({len(fresh)} instances)")
    for one, run, mark in fresh:
        short = golden_falls_short(one, session.variant, run, sandbox)
        scored += 1
        if short is None:
            known[mark] = None
        else:
            wrong.append(short)
    if cache and fresh:
        cache.set(KNOWN, list(known)[-MOST_KNOWN:])
    seconds = round(time.monotonic() - begun, 3)
    session.note("validated", references=scored, known=len(todo) - scored, seconds=seconds)
    if wrong:
        raise pytest.UsageError(
            "the instrument does not reach its maximum, so no model was asked: "
            + "; ".join(wrong)
            + ". Mend the item, or leave it out; `llmbench validate` tells more."
        )


def _held(session: Session, item: str) -> bool:
    return item in session.items and session.items[item].has_references


def _sandbox(session: Session, items: Iterable[str]) -> Sandbox | None:
    if not any(session.items[item].spec.needs_sandbox for item in items):
        return None
    try:
        return session.sandbox
    except Unconfinable:
        return None
