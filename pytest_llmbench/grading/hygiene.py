"""Hygiene: are the files asked for there, are they valid; then a repaired copy, so that each error is charged once."""

from __future__ import annotations

import json
import re
import tomllib
from ast import Module
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pytest_llmbench.grading.repair import add_missing_imports, missing_inits, parse
from pytest_llmbench.spec import HYGIENE_ROWS, Delivery, Instance, Verdict

MAX_SOURCE_CHARS = 200_000
"""A longer file is not taken apart."""


@dataclass(frozen=True)
class Hygiene:
    """The hygiene verdicts of a delivery, and the copy that the other rows are judged on."""

    verdicts: tuple[Verdict, ...]
    delivery: Delivery
    """The repaired copy; its ``repairs`` list what was done."""


def check(instance: Instance, delivery: Delivery) -> Hygiene:
    """Judge the rows ``files`` and ``syntax``, or the one row ``files`` for both, and repair a copy.

    A file counts as there where it holds the text that the instance says it must hold. An ``__init__.py`` that is
    missing beside other files of its package costs ``files``, a missing import costs ``syntax``; both are repaired. A
    file that does not parse costs ``syntax`` and is left as it is.
    """
    files_row, syntax_row = HYGIENE_ROWS
    wanted = instance.spec.files
    found = {name: delivery.files[name] for name in wanted if name in delivery.files}
    absent = [_absence(name, found.get(name), instance.holds.get(name, "")) for name in wanted]
    faults = [fault for fault in absent if fault]
    invalid: list[str] = []
    repairs = list(delivery.repairs)
    copy = dict(delivery.files)
    for name, text in found.items():
        source, problems, added = _checked(name, text)
        copy[name] = source
        invalid += problems
        repairs += [f"{name}: added `{line}`" for line in added]
        invalid += [f"{name}: `{line}` was missing" for line in added]
    for name in missing_inits(wanted, found):
        copy[name] = ""
        repairs.append(f"{name}: created empty")
    if len(faults) == len(wanted):
        invalid.append("no file that was asked for")
    verdicts: tuple[Verdict, ...] = (
        Verdict(files_row, not faults, "; ".join(faults) or "every file is there"),
        Verdict(syntax_row, not invalid, "; ".join(invalid) or "every file is valid as delivered"),
    )
    if syntax_row not in {row.id for row in instance.spec.rows}:
        verdicts = (Verdict(files_row, not faults and not invalid, "; ".join(v.evidence for v in verdicts)),)
    return Hygiene(verdicts, replace(delivery, files=copy, repairs=tuple(repairs)))


def _absence(name: str, text: str | None, holds: str) -> str | None:
    if text is None:
        return f"{name} was not delivered"
    if not text.strip() and not name.endswith("__init__.py"):
        return f"{name} is empty"
    if holds and " ".join(holds.split()) not in re.sub(r"\s+", " ", text[:MAX_SOURCE_CHARS]):
        return f"{name} does not hold `{holds}`"
    return None


def _checked(name: str, text: str) -> tuple[str, list[str], tuple[str, ...]]:
    """The repaired text of a file, what is invalid in it, and the imports that were added."""
    if len(text) > MAX_SOURCE_CHARS:
        return text, [f"{name}: {len(text)} characters are more than {MAX_SOURCE_CHARS}"], ()
    suffix = name.rpartition(".")[2]
    if suffix == "py":
        tree = parse(text)
        if not isinstance(tree, Module):
            return text, [f"{name}: {tree}"], ()
        source, added = add_missing_imports(text, tree)
        return source, [], added
    if suffix in LOADERS:
        try:
            LOADERS[suffix](text)
        except (ValueError, RecursionError) as error:
            return text, [f"{name}: {error}"], ()
    return text, [], ()


LOADERS: Mapping[str, Callable[[str], object]] = {"json": json.loads, "toml": tomllib.loads}
"""How files other than Python are checked, by suffix."""
