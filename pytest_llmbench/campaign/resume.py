"""Going on in a run folder: what it holds, whether it can be gone on with, and how long its runs took."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pytest_llmbench.harness.frozen import harness, signature
from pytest_llmbench.report.build import Manifest, Plan
from pytest_llmbench.store.events import events
from pytest_llmbench.store.folder import MANIFEST, PLAN, StoreError, read_json
from pytest_llmbench.store.gradings import check_in_place


@dataclass(frozen=True)
class Before:
    """What an earlier session set out to do in a run folder."""

    path: Path
    manifest: Manifest
    plan: Plan | None
    """None where it was cut before its plan was written."""
    seconds: dict[str, tuple[float, int]]
    """Length of each model's last whole run, with its number of nodes."""


def read_before(path: Path) -> Before:
    """Read the folder of a session that was cut.

    Raises:
        StoreError: where it is no run folder, cannot be read, was made with another harness, or has a new grading
            that is not wholly in its place.
    """
    check_in_place(path)
    try:
        manifest = Manifest.model_validate(read_json(path / MANIFEST))
        plan = Plan.model_validate(read_json(path / PLAN)) if (path / PLAN).exists() else None
    except (StoreError, ValidationError) as error:
        raise StoreError(f"{path}: no run folder that can be gone on with: {error}") from None
    if manifest.harness["signature"] != signature():
        made = f"harness {manifest.harness['version']} ({manifest.harness['signature'][:12]})"
        raise StoreError(
            f"{path} was made with {made}, this is {harness().version} ({signature()[:12]}): their results never stand "
            "in one table. Go on with that version, or start a new run."
        )
    found, _ = events(path)
    finished = [event for event in found if event["event"] == "run_finished"]
    seconds = {str(event["ref"]): (float(event["seconds"]), int(event["nodes"])) for event in finished}
    return Before(path, manifest, plan, seconds)
