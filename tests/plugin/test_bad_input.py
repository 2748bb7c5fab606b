"""What a user gets wrong is told in one paragraph that names the thing and the way out."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_llmbench.cli import main
from pytest_llmbench.store.folder import RunFolder


def told(result: pytest.RunResult, *words: str) -> None:
    """Refused, in words and not in a traceback."""
    text = result.stdout.str() + result.stderr.str()
    assert result.ret not in (0, 5)
    assert [word for word in words if word not in text] == []
    for sign in ("Traceback", "INTERNALERROR", "pytest_llmbench/", "site-packages"):
        assert sign not in text


# --- names of models ---


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("olama:qwen3", ["olama", "did you mean ollama:qwen3?"]),
        ("scrpt:golden", ["did you mean script:golden?"]),
        ("lmstudio:x", ["openai:NAME", "--llm-base-url"]),
        ("", ["empty model name"]),
        ("golden,,null", ["empty model name"]),
        ("openai:", ["needs a name behind it"]),
        ("null:noisy", ["silent, echo, constant, random"]),
        ("a[b]", ["must not contain brackets"]),
        ("a::b", ["must not contain"]),
        ("replay:nowhere", ["nowhere", "no run folder"]),
        ("replay:nowhere,golden", ["stands alone"]),
    ],
)
def test_a_model_name_that_means_nothing(bank: Any, model: str, words: list[str]) -> None:
    told(bank.run(model), *words)
    assert not bank.folder.exists()


@pytest.mark.parametrize(
    "option", ["--llm-runs=0", "--llm-fail-under=2", "--llm-profile=huge", "--llm-context=-1", "--llm-variant=x"]
)
def test_an_option_that_means_nothing(bank: Any, option: str) -> None:
    told(bank.run("golden", option), option.partition("=")[0], option.partition("=")[2])


# --- items ---


SPOILT = {
    "misspelt key": ('mode = "single"', 'mode = "single"\npiont = 3', ["item.toml", "T01", "piont"]),
    "misspelt key of a row": ('title = "The sum"', 'titel = "The sum"', ["item.toml", "T01", "rows.0.titel"]),
    "rows that do not sum": ("points = 3", "points = 4", ["item.toml", "T01", "sum to 3 points", "declares 4"]),
    "no TOML": ('level = "A"', 'level = "A', ["item.toml", "line 4"]),
    "wrong type": ("points = 3", 'points = "many"', ["item.toml", "T01", "points"]),
    "unknown level": ('level = "A"', 'level = "Z"', ["item.toml", "T01", "level"]),
    "unknown row": ('loses = ["q2"]', 'loses = ["q9"]', ["item.toml", "T01", "adds_only", "q9"]),
}


@pytest.mark.parametrize("arguments", [(), ("--co",), ("items/level_a/t01",)], ids=["run", "collect", "path"])
@pytest.mark.parametrize("fault", SPOILT)
def test_a_broken_specification(bank: Any, fault: str, arguments: tuple[str, ...]) -> None:
    old, new, words = SPOILT[fault]
    bank.edit("item.toml", old, new)
    told(bank.run("golden", *arguments), *words)


def test_a_broken_specification_outside_of_the_bank(bank: Any) -> None:
    elsewhere = bank.item("T02").rename(bank.path / "elsewhere")
    (elsewhere / "item.toml").write_text((elsewhere / "item.toml").read_text().replace("points = 3", "points = 4"))
    told(bank.run("golden", "elsewhere"), "elsewhere/item.toml", "T02", "sum to 3 points", "declares 4")


def test_a_bank_whose_lock_file_is_torn(bank: Any) -> None:
    (bank.path / "items/bank.toml").write_text("version = ")
    told(bank.run("golden"), "bank.toml", "cannot be read")


def test_two_items_with_one_id(bank: Any) -> None:
    bank.item("T02")
    bank.edit("item.toml", 'id = "T02"', 'id = "T01"', item="t02")
    told(bank.run("golden"), "T01", "t02/item.toml", "t01/item.toml")
    told(bank.run("golden", "--co"), "T01", "t02/item.toml", "t01/item.toml")


def test_a_path_that_is_missing(bank: Any) -> None:
    told(bank.run("golden", "items/level_z"), "items/level_z")


def test_a_broken_bank_is_told_by_the_command_line_too(bank: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bank.edit("item.toml", "points = 3", "points = 4")
    assert main(["validate", "--items", str(bank.path / "items")]) == 1
    assert "sum to 3 points" in capsys.readouterr().err
    assert main(["validate", "--items", str(bank.path / "nothing")]) == 1
    assert main(["report", str(bank.path / "nothing")]) == 1


# --- run folders ---


def test_a_run_folder_that_cannot_be_written(bank: Any) -> None:
    (bank.path / "file").write_text("")
    told(bank.run("script:golden", "--llm-report-dir=file/run"), "file/run", "--llm-report-dir")
    assert not bank.calls()


def test_a_run_folder_that_already_holds_a_run(bank: Any) -> None:
    assert bank.run("script:golden").ret == 0
    before = {path: path.read_bytes() for path in bank.folder.rglob("*") if path.is_file()}
    bank.calls()
    told(bank.run("script:wrong"), str(bank.folder), "already holds a run", "--llm-resume=")
    assert not bank.calls()
    assert before == {path: path.read_bytes() for path in bank.folder.rglob("*") if path.is_file()}


def test_two_sessions_on_one_run_folder(bank: Any) -> None:
    other = RunFolder.create(bank.folder)
    told(bank.run("script:golden"), "another session", "--llm-report-dir")
    other.release()
    assert not bank.calls()
    assert bank.run("script:golden").ret == 0


@pytest.mark.parametrize("name", ["records", "transcripts"])
def test_a_torn_file_of_a_run_folder(bank: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    bank.run("script:golden")
    [path] = (bank.folder / name).glob("*.json")
    path.write_text(path.read_text()[:40])
    if name == "records":
        assert main(["report", str(bank.folder)]) == 1
        assert path.name in capsys.readouterr().err
    else:
        told(bank.run(f"replay:{bank.folder}", f"--llm-report-dir={bank.path / 'again'}"), path.name)


# --- a full disk ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """One megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a small file system can only be mounted by root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, *, but_kb: int) -> None:
    room = os.statvfs(disk)
    (disk / "ballast").write_bytes(b"x" * (room.f_bavail * room.f_frsize - but_kb * 1024))


def test_a_disk_that_fills_up_keeps_what_was_measured(bank: Any, small_disk: Path) -> None:
    for number in range(2, 6):
        bank.item(f"T0{number}")
    bank.folder = small_disk / "run"
    told(bank.run("script:chatty"), "cannot be written", "No space left on device", "--llm-report-dir")
    assert len(bank.calls()) < 5
    assert bank.records()
    assert {record["points"] for record in bank.records().values()} == {3}


@pytest.mark.parametrize("free_kb", range(0, 64, 4))
def test_a_disk_may_be_full_at_any_moment(bank: Any, small_disk: Path, free_kb: int) -> None:
    bank.item("T02")
    bank.folder = small_disk / "run"
    fill(small_disk, but_kb=free_kb)
    result = bank.run("script:golden")
    if result.ret:
        told(result, "cannot be written", "No space left on device", "--llm-report-dir")
    else:
        assert bank.report()["status"] == "complete"
