"""The run folder: what it says, what it never says, and that it survives whatever ends the session."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_llmbench.cli import main

Walk = Iterator[tuple[tuple[str, ...], Any]]


def walk(document: Any, path: tuple[str, ...] = ()) -> Walk:
    """Every leaf of a JSON document with the way to it."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from walk(value, (*path, key))
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield from walk(value, (*path, str(place)))
    else:
        yield path, document


def published(name: str, capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert main(["schema", name]) == 0
    return json.loads(capsys.readouterr().out)


def rewritten(bank: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """``llmbench report DIR``."""
    capsys.readouterr()
    assert main(["report", str(bank.folder)]) == 0
    return capsys.readouterr().out


def test_a_run_folder_keeps_to_its_published_schemas(bank: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bank.item("T02", level="M")
    bank.script(T02="breaks")
    bank.run("script:half,golden", "--llm-runs=2")
    files = {name: f"{name}.json" for name in ("report", "manifest", "plan")}
    for name, pattern in {**files, "record": "records/*.json", "transcript": "transcripts/*.json"}.items():
        schema = published(name, capsys)
        jsonschema.Draft202012Validator.check_schema(schema)
        paths = list(bank.folder.glob(pattern))
        assert paths
        for path in paths:
            jsonschema.validate(json.loads(path.read_text()), schema, jsonschema.Draft202012Validator)


def test_levels_are_never_added_up(bank: Any) -> None:
    bank.item("T02", level="B", points=1000)
    assert bank.run("script:golden").ret == 0
    report = bank.report()
    leaves = list(walk(report))
    assert report["levels"]["A"]["models"]["script:golden"]["points_mean"] == 3
    assert report["levels"]["B"]["models"]["script:golden"]["points_mean"] == 1000
    assert not [path for path, value in leaves if value == 1003]
    outside = [path for path, value in leaves if path[0] != "levels" and isinstance(value, (int, float))]
    assert not [path for path in outside if re.search("point|score|earned|total|sum|mean|rank$", ".".join(path))]
    assert set(report["levels"]) == {"A", "B", "C", "M", "own"}
    assert "1003" not in (bank.folder / "report.json").read_text()


def test_only_the_standard_profile_ranks(bank: Any) -> None:
    result = bank.run("script:golden", "--llm-profile=smoke")
    assert (bank.report()["ranks"], bank.report()["profile"]) == (False, "smoke")
    assert "order nothing" in result.stdout.str()


def test_a_run_with_an_unmeasured_item_has_no_points(bank: Any, fieldcase: Callable[[str, str], Any]) -> None:
    expected = fieldcase("90", "expected.json")
    words = {"ok": "golden", "wrong": "wrong", "no_answer": "silent", "infra_error": "breaks"}
    for number in range(2, 9):
        bank.item(f"T0{number}")
    bank.script(**{f"T0{one['item']}": words[one["outcome"]] for one in fieldcase("90", "items.jsonl")})
    result = bank.run("script:golden")
    assert result.ret == 1
    model = bank.report()["levels"]["A"]["models"]["script:golden"]
    for ours, theirs in (("planned", "planned"), ("measured", "valid"), ("unmeasured", "invalid")):
        assert model[ours] == expected[theirs]
    assert model["points_mean"] is expected["headline_mean"]
    assert model["runs"][0]["points"] is None
    points = [item["points"] for item in model["runs"][0]["items"].values()]
    assert points == [3, 3, 0, 0, 0, 0, None, None]
    assert model["unmeasured_nodes"] == ["T07-run1", "T08-run1"]
    assert re.search(r"script:golden .* -$", result.stdout.str(), re.MULTILINE)


def test_an_interrupted_session_leaves_a_valid_report(bank: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bank.item("T02")
    bank.item("T03")
    bank.script(T02="interrupts")
    assert bank.run("script:golden", apart=True).ret == 2
    report = bank.report()
    jsonschema.validate(report, published("report", capsys), jsonschema.Draft202012Validator)
    assert report["status"] == "interrupted"
    items = report["levels"]["A"]["models"]["script:golden"]["runs"][0]["items"]
    assert [items[name]["points"] for name in ("T01", "T02", "T03")] == [3, None, None]


def test_a_killed_session_leaves_its_records_and_the_report_can_be_written_later(
    bank: Any, fieldcase: Callable[[str, str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pytest_timeout")
    bank.item("T02")
    bank.item("T03")
    bank.script(T02="sleeps")
    with (bank.path / "conftest.py").open("a") as file:
        file.write(
            "\nimport pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_collection_modifyitems(items):\n"
            "    for item in items:\n        item.add_marker(pytest.mark.timeout(1, method='thread'))\n"
        )
    assert bank.run("script:golden", apart=True).ret != 0
    assert not (bank.folder / "report.json").exists()
    assert [record["points"] for record in bank.records().values()] == [3]
    text = rewritten(bank, capsys)
    assert "The report is incomplete. With --llm-resume=DIR, DIR being this run folder, pytest measures" in text
    assert bank.report()["status"] == fieldcase("89", "expected.json")["report_says"]


def test_a_session_that_never_came_to_its_plan_is_incomplete(bank: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bank.run("script:golden")
    (bank.folder / "plan.json").unlink()
    assert "The report is incomplete" in rewritten(bank, capsys)


def test_a_short_global_timeout_does_not_cut_a_measurement(bank: Any) -> None:
    pytest.importorskip("pytest_timeout")
    assert bank.run("script:naps", "--timeout=1").ret == 0
    assert bank.report()["status"] == "complete"


def test_a_report_written_again_is_the_same(bank: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bank.run("script:half,golden,null")
    before = (bank.folder / "report.json").read_bytes()
    rewritten(bank, capsys)
    assert (bank.folder / "report.json").read_bytes() == before


def test_neither_home_nor_user_nor_key_is_in_a_run_folder(bank: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, "wilhelmina")
    monkeypatch.setenv("LLMBENCH_API_KEY", "sk-very-secret")
    bank.run("script:homesick,script:golden")
    assert len(bank.records()) == 2
    homes = told_in(bank.folder)
    bank.again()
    for item, old, new in (
        ("t02", "    a, b =", "    item.read('missing.txt')\n    a, b ="),
        ("t03", "    return grade_answers", "    open(__file__ + '.missing')\n    return grade_answers"),
        ("t04", "from pytest_llmbench.spec", "import nothing_like_this\nfrom pytest_llmbench.spec"),
    ):
        bank.item(item.upper())
        bank.edit("task.py", old, new, item=item)
    bank.run("golden,null:echo")
    assert len(bank.records()) == 8
    assert not homes | told_in(bank.folder)


def told_in(folder: Path) -> set[tuple[str, str]]:
    """What of the machine the files of a run folder tell."""
    return {
        (secret, path.relative_to(folder).as_posix())
        for path in folder.rglob("*")
        if path.is_file()
        for secret in ("wilhelmina", "sk-very-secret", str(Path.home()))
        if secret in path.read_text(errors="replace")
    }


def test_half_a_character_in_a_reply_breaks_nothing(bank: Any, fieldcase: Callable[[str, str], Any]) -> None:
    result = bank.run("script:half_a_character", "-rA")
    assert result.ret == 0
    [record] = bank.records().values()
    assert record["points"] == 3
    assert "lone_surrogate" in record["flags"]
    assert (bank.folder / "report.json").exists() is fieldcase("26", "expected.json")["report_written"]
    for path in bank.folder.rglob("*.json"):
        path.read_bytes().decode("utf-8")


def test_every_hook_sees_the_record_and_the_report(bank: Any) -> None:
    with (bank.path / "conftest.py").open("a") as file:
        file.write(
            "\ndef pytest_llmbench_record(record):\n    print('RECORD', record['item'], record['points'])\n"
            "\ndef pytest_llmbench_update_report(report):\n    print('REPORT', report['status'])\n"
        )
    output = bank.run("script:golden", "-s").stdout.str()
    assert "RECORD T01 3.0" in output
    assert "REPORT complete" in output
