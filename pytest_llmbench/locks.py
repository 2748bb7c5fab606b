"""The bank's versions: the lock file holds what was released, the checksums say whether it is still that."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_llmbench.bank import BANK_FILE, BankError, Item

LOCK_FILE = BANK_FILE


def read_lock(bank: Path) -> Mapping[str, Any]:
    """``bank.toml`` of a bank: its version and, per item, the checksum of every released version.

    Raises:
        BankError: where it cannot be read.
    """
    path = bank / LOCK_FILE
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise BankError(f"{path}: cannot be read: {error}") from None


def bank_version(bank: Path) -> str:
    """The bank's version; ``0.0.0`` for a bank without a lock file."""
    return str(read_lock(bank).get("version", "0.0.0"))


def unreleased(bank: Path, items: Iterable[Item]) -> list[str]:
    """What is wrong between a bank and its lock file, one sentence per item: changed without a new version, or new."""
    released = read_lock(bank).get("items", {})
    wrong = []
    for item in items:
        versions = released.get(item.spec.id, {})
        checksum = versions.get(item.spec.version)
        if checksum is None:
            wrong.append(
                f"{item.spec.id} {item.spec.version} is not in {LOCK_FILE}; add it with `llmbench validate --release`"
            )
        elif checksum != item.checksum:
            wrong.append(
                f"{item.spec.id} was changed but is still version {item.spec.version}; "
                f"give it a new version in {item.path.name}"
            )
    return wrong


def released_text(bank: Path, items: Iterable[Item]) -> str:
    """``bank.toml`` with every new version added. A version that is there already is never replaced."""
    lock = read_lock(bank)
    released: dict[str, dict[str, str]] = {name: dict(versions) for name, versions in lock.get("items", {}).items()}
    for item in items:
        released.setdefault(item.spec.id, {}).setdefault(item.spec.version, item.checksum)
    lines = ["# Checksum of every released version of every item. Written by `llmbench validate --release`.", ""]
    lines.append(f'version = "{lock.get("version", "1.0.0")}"')
    for name in sorted(released):
        lines += [
            "",
            f"[items.{name}]",
            *(f'"{version}" = "{checksum}"' for version, checksum in sorted(released[name].items())),
        ]
    return "\n".join(lines) + "\n"
