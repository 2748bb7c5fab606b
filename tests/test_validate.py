"""The instrument is held to known scores in both directions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_llmbench.bank import load_bank, packaged_bank
from pytest_llmbench.cli import main

[ITEM] = [item for item in load_bank(packaged_bank()) if item.spec.id == "A04"]


@pytest.fixture
def small_bank(tmp_path: Path) -> Path:
    """A copy of one item of the bank, with nothing released."""
    folder = ITEM.folder
    shutil.copytree(folder, tmp_path / "items" / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "items"


def test_a_reference_that_is_not_as_declared_is_found(small_bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [path] = small_bank.glob("*/item.toml")
    name, reference = next(iter(ITEM.spec.references.items()))
    text = path.read_text()
    start = text.index(f"[references.{name}]")
    more = max(row.points for row in ITEM.spec.rows)
    wrong = text[start:].replace(f"points = {reference.points}", f"points = {reference.points + more / 2}", 1)
    assert wrong != text[start:]
    path.write_text(text[:start] + wrong)
    assert main(["validate", "--items", str(small_bank), "--variants", "1"]) == 1
    output = capsys.readouterr().out
    assert f"wrong: variant 0 run 1: {'defective' if name == 'defective' else f'defective:{name}'} earned" in output
    assert "declared are" in output


def test_an_item_that_was_never_released_is_found(small_bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--items", str(small_bank), "--variants", "1"]) == 1
    assert f"wrong: {ITEM.spec.id} {ITEM.spec.version} is not in bank.toml" in capsys.readouterr().out


def test_the_register_of_limits_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits"]) == 0
    output = capsys.readouterr().out
    assert "max_tokens" in output
    assert "uncalibrated" in output
