"""The published schemas of everything a run folder holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from pytest_llmbench.campaign.moves import Moves
from pytest_llmbench.records import Record, Transcript
from pytest_llmbench.report.build import Manifest, Plan, Report
from pytest_llmbench.store.events import EventLine

SCHEMAS: Mapping[str, type[BaseModel]] = {
    "events": EventLine,
    "manifest": Manifest,
    "moves": Moves,
    "plan": Plan,
    "record": Record,
    "report": Report,
    "transcript": Transcript,
}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one kind of file, by name."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **SCHEMAS[name].model_json_schema(by_alias=True, mode="serialization"),
    }
