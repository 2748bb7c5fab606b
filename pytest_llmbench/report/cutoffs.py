"""What is known of a model's knowledge cutoff: the packaged registry, and the user's own in the working folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from pytest_llmbench.records import Saved
from pytest_llmbench.report.calibration import names as is_named
from pytest_llmbench.store.folder import StoreError

PACKAGED = "models.toml"
OWN_FILE = "llmbench-models.toml"
"""In the working folder; its entries come before the packaged ones."""
MONTHS_A_YEAR = 12
MARGIN_MONTHS = 3
"""Months that must lie between a cutoff and the dates on either side of it: cutoffs are stated coarsely."""

Month = Annotated[str, StringConstraints(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]


class Cutoff(Saved):
    """The last month that a model can know of, as somebody states it."""

    names: Annotated[Sequence[str], Field(min_length=1)]
    """Patterns of the model's name, as in ``fnmatch``, in lower case."""
    cutoff: Month
    source: Annotated[str, StringConstraints(min_length=1)]
    """Where it is stated."""
    read: str
    """Day on which the source was read."""


class _Registry(Saved):
    models: Sequence[Cutoff] = ()


def registry(folder: Path | None = None) -> list[Cutoff]:
    """Every entry: those of ``llmbench-models.toml`` in ``folder`` (the working folder) first, then the packaged ones.

    Raises:
        StoreError: where a file cannot be read or has another form, naming the file and the field.
    """
    own = (folder or Path.cwd()) / OWN_FILE
    texts: dict[str, str] = {}
    try:
        if own.is_file():
            texts[OWN_FILE] = own.read_text(encoding="utf-8")
        texts[PACKAGED] = (files("pytest_llmbench.report") / PACKAGED).read_text(encoding="utf-8")
        return [entry for name, text in texts.items() for entry in _entries(name, text)]
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{own}: cannot be read: {error}") from error


def _entries(name: str, text: str) -> Sequence[Cutoff]:
    try:
        return _Registry.model_validate(tomllib.loads(text)).models
    except tomllib.TOMLDecodeError as error:
        raise StoreError(f"{name}: {error}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        raise StoreError(f"{name}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


def cutoffs(refs: Sequence[str], known: Sequence[Cutoff]) -> Mapping[str, Cutoff]:
    """The first entry that fits each model; models without one are left out."""
    found = {ref: next((entry for entry in known if is_named(entry.names, ref)), None) for ref in refs}
    return {ref: entry for ref, entry in found.items() if entry is not None}


def months(month: str) -> int:
    """A month as a number of months."""
    year, number = month.split("-")
    return MONTHS_A_YEAR * int(year) + int(number)


def between(pre: str, cutoff: str, post: str) -> bool:
    """Whether a cutoff lies between two months, with the margin on both sides."""
    return months(pre) + MARGIN_MONTHS <= months(cutoff) <= months(post) - MARGIN_MONTHS
