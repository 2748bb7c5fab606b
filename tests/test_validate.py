"""The instrument is held to known scores in both directions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_llmbench.bank import Item, load_bank, packaged_bank
from pytest_llmbench.campaign.validate import score_references
from pytest_llmbench.cli import main

BANK = load_bank(packaged_bank())
VARIANTS = 2


@pytest.mark.parametrize("item", BANK, ids=lambda item: item.spec.id)
def test_every_reference_of_the_bank_earns_what_it_declares(item: Item) -> None:
    findings = list(score_references(item, VARIANTS))
    assert [finding.wrong for finding in findings if finding.wrong] == []
    by_name = {finding.reference: finding for finding in findings}
    assert by_name["golden"].points == item.spec.points
    assert {"golden", "defective", "null:silent", "null:echo", "null:constant", "null:random"} <= by_name.keys()
    assert len(findings) == 5 + len(item.spec.references)


@pytest.fixture
def small_bank(tmp_path: Path) -> Path:
    """A copy of one item of the bank, with nothing released."""
    folder = BANK[0].folder
    shutil.copytree(folder, tmp_path / "items" / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "items"


def test_a_reference_that_is_not_as_declared_is_found(small_bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [path] = small_bank.glob("*/item.toml")
    name, reference = next(iter(BANK[0].spec.references.items()))
    text = path.read_text()
    start = text.index(f"[references.{name}]")
    more = max(row.points for row in BANK[0].spec.rows)
    wrong = text[start:].replace(f"points = {reference.points}", f"points = {reference.points + more / 2}", 1)
    assert wrong != text[start:]
    path.write_text(text[:start] + wrong)
    assert main(["validate", "--items", str(small_bank), "--variants", "1"]) == 1
    output = capsys.readouterr().out
    assert f"wrong: variant 0 run 1: {'defective' if name == 'defective' else f'defective:{name}'} earned" in output
    assert "declared are" in output


def test_an_item_that_was_never_released_is_found(small_bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--items", str(small_bank), "--variants", "1"]) == 1
    assert f"wrong: {BANK[0].spec.id} {BANK[0].spec.version} is not in bank.toml" in capsys.readouterr().out


def test_the_register_of_limits_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits"]) == 0
    output = capsys.readouterr().out
    assert "max_tokens" in output
    assert "uncalibrated" in output
