"""Runs of another harness or bank than the one at hand: kept and shown, and never beside current ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from pytest_llmbench.bank import BankError, bank_checksum, find_bank, load_bank
from pytest_llmbench.harness.frozen import harness, signature
from pytest_llmbench.harness.tools import plain
from pytest_llmbench.locks import bank_version
from pytest_llmbench.records import SCORED
from pytest_llmbench.report.build import Manifest, read_manifest, read_plan
from pytest_llmbench.report.shown import middle
from pytest_llmbench.store.folder import MANIFEST, REPORT, RunFolder, StoreError, read_json

SIGNS = 8
"""Characters of a signature or checksum that tell two of them apart."""
MODEL_CHARS = 40
"""Columns of a run's models in the list of runs."""


@dataclass(frozen=True)
class Instrument:
    """What measures here and now."""

    harness: Mapping[str, str]
    """Version and signature."""
    bank: Mapping[str, str] | None
    """Version and checksum; None where the bank at hand cannot be read."""
    items: frozenset[str]
    """Items of that bank."""

    @classmethod
    def here(cls, bank: Path | None = None) -> Instrument:
        """The installed harness with ``bank``, or with the bank of the current folder, or else the packaged one."""
        folder = bank or find_bank(Path.cwd())
        known = {"version": harness().version, "signature": signature()}
        try:
            items = load_bank(folder)
            stamp = {"version": bank_version(folder), "checksum": bank_checksum(items)}
        except BankError:
            return cls(known, None, frozenset())
        return cls(known, stamp, frozenset(item.spec.id for item in items))


def archived(
    harness_: Mapping[str, str], bank: Mapping[str, str], items: Iterable[str], here: Instrument
) -> str | None:
    """Why a run's figures never stand beside current ones, as a sentence; None where they may.

    Args:
        harness_: version and signature of the run.
        bank: version and checksum of the run.
        items: what it measured. Where none of them is of the bank at hand, its own bank lies elsewhere, and nothing
            is said about that.
        here: what measures now.
    """
    others = []
    if dict(harness_) != dict(here.harness):
        others.append(("harness", _stamp(harness_, "signature"), _stamp(here.harness, "signature")))
    if here.bank is not None and here.items & set(items) and bank.get("checksum") != here.bank["checksum"]:
        others.append(("bank", _stamp(bank, "checksum"), _stamp(here.bank, "checksum")))
    if not others:
        return None
    then = ", ".join(f"{what} {old}" for what, old, _ in others)
    now = ", ".join(f"{what} {new}" for what, _, new in others)
    return f"Archived: made with {then}; this is {now}. Its figures never stand in one table with current ones."


def _stamp(named: Mapping[str, str], proof: str) -> str:
    return f"{named.get('version')} ({str(named.get(proof))[:SIGNS]})"


def run_folders(path: Path) -> list[Path]:
    """The run folders right below ``path``, by name; nothing where ``path`` is one itself."""
    if (path / MANIFEST).exists() or not path.is_dir():
        return []
    return sorted(one for one in path.iterdir() if (one / MANIFEST).exists())


def runs_table(folders: Iterable[Path], here: Instrument) -> str:
    """One line per run folder: what it measured, under what, how far it came, and whether it is current."""
    head = ["run", "created", "models", "profile", "harness", "bank", "status", "measured", ""]
    return plain(tabulate([_line(RunFolder(path), here) for path in folders], headers=head, disable_numparse=True))


def _line(folder: RunFolder, here: Instrument) -> list[str]:
    try:
        manifest = read_manifest(folder)
        plan = read_plan(folder)
    except StoreError:
        return [folder.path.name, *[""] * 5, "cannot be read", "", ""]
    nodes = {*plan.nodes} - {*plan.spared}
    try:
        measured = sum(record.get("status") in SCORED for record in folder.records())
        status = str(read_json(folder.path / REPORT).get("status")) if (folder.path / REPORT).exists() else "no report"
    except StoreError:
        measured, status = 0, "cannot be read"
    old = archived(manifest.harness, manifest.bank, plan.items, here)
    return [
        folder.path.name,
        manifest.created,
        _models(manifest),
        manifest.profile,
        _stamp(manifest.harness, "signature"),
        _stamp(manifest.bank, "checksum"),
        status,
        f"{measured} of {len(nodes)}",
        "current" if old is None else "archived",
    ]


def _models(manifest: Manifest) -> str:
    names = list(manifest.models)
    text = ", ".join(names)
    if len(text) <= MODEL_CHARS:
        return text
    return f"{middle(names[0], MODEL_CHARS)} and {len(names) - 1} more" if len(names) > 1 else middle(text, MODEL_CHARS)
