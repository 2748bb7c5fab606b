"""The wheel carries the bank: an empty folder is enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pytest_llmbench.bank import bank_checksum, item_files, load_bank, packaged_bank

PROJECT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, unpacked."""
    pytest.importorskip("hatchling", reason="the wheel is built with hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, PROJECT]
    subprocess.run(command, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_bank_in_the_wheel_is_the_bank(installed: Path) -> None:
    inside = installed / "pytest_llmbench/bank/items"
    names = [path.relative_to(inside) for path in item_files(inside)]
    assert names == [path.relative_to(packaged_bank()) for path in item_files(packaged_bank())]
    assert bank_checksum(load_bank(inside)) == bank_checksum(load_bank(packaged_bank()))


def test_an_empty_folder_is_enough_to_measure(installed: Path, tmp_path: Path) -> None:
    code = "import pytest_llmbench, sys, pytest; print(pytest_llmbench.__file__); sys.exit(pytest.main(sys.argv[1:]))"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", "--llm-model=golden", "-m", "levelA", "-k", "A05", "--llm-report-dir=run"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(str(installed)), "the installed package is not this checkout"
    report = json.loads((tmp_path / "run/report.json").read_text(encoding="utf-8"))
    model = report["levels"]["A"]["models"]["golden"]
    assert (report["status"], model["points_mean"], model["measured"]) == ("complete", 18, 1)
    assert report["bank"]["checksum"] == bank_checksum(load_bank(packaged_bank()))
