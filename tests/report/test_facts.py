"""What a report says beside the points: what was saved, asked twice, timed wrongly, archived; and that it is short."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from report.campaigns import campaign

from pytest_llmbench.cli import main
from pytest_llmbench.harness.frozen import harness, signature
from pytest_llmbench.report.archive import Instrument, archived, run_folders, runs_table
from pytest_llmbench.report.build import LevelReport, Report, build_report
from pytest_llmbench.report.markdown import markdown
from pytest_llmbench.report.page import page
from pytest_llmbench.report.shown import middle
from pytest_llmbench.report.tables import summary
from pytest_llmbench.store.folder import MANIFEST, PLAN, REPORT, RunFolder

ONE, TWO = "a:1b", "b:1b"
OLD = {"version": "0.9.0", "signature": "f" * 64}


def change(path: Path, **fields: Any) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, **fields}), encoding="utf-8")


def records(folder: RunFolder, **wanted: Any) -> list[Path]:
    """Files of the records with these values."""
    paths = sorted((folder.path / "records").glob("*.json"))
    return [path for path in paths if json.loads(path.read_text()).items() >= wanted.items()]


def level_a(report: Report) -> LevelReport:
    content = report.levels["A"]
    assert content is not None
    return content


def everywhere(folder: RunFolder) -> list[str]:
    """The report as terminal text, Markdown and page."""
    report = build_report(folder)
    return ["\n".join(summary(report)), markdown(report).replace("`", ""), page(folder, report)]


def plan(folder: RunFolder) -> dict[str, Any]:
    return dict(json.loads((folder.path / PLAN).read_text()))


def test_references_are_neither_analysed_nor_ranked(tmp_path: Path) -> None:
    report = build_report(campaign(tmp_path, ["golden", "defective:slow", "null:echo", ONE, TWO], 2))
    analysis = level_a(report).analysis
    assert analysis is not None
    assert set(analysis.models) == {ONE, TWO}
    assert {place.model for place in analysis.ranking or ()} == {ONE, TWO}


def test_with_references_only_there_is_no_analysis(tmp_path: Path) -> None:
    folder = campaign(tmp_path, ["golden", "null:echo"], 2)
    assert level_a(build_report(folder)).analysis is None
    for text in everywhere(folder):
        assert "Noise floor" not in text
        assert "No ranking" not in text


def test_every_level_has_an_analysis_of_its_own_and_only_a_ranks(tmp_path: Path) -> None:
    levels = build_report(campaign(tmp_path, 2, 2, levels=("A", "M"))).levels
    found = {level: content.analysis for level, content in levels.items() if content is not None}
    assert found["A"] is not None
    assert found["M"] is not None
    assert (found["A"].ranking_why, found["M"].ranking_why) == (None, "Only level A ranks.")


def test_nodes_that_were_spared_are_not_lost_and_are_said(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE, TWO], 3)
    gone = records(folder, ref=ONE, run=3)
    for path in gone:
        path.unlink()
    spared = [node for node in plan(folder)["nodes"] if node[1:] == [3, ONE]]
    change(tmp_path / PLAN, spared=spared, looks=2)
    report = build_report(folder)
    model = level_a(report).models[ONE]
    assert (report.status, model.spared, model.planned, len(model.runs)) == ("complete", 11, 22, 2)
    analysis = level_a(report).analysis
    assert analysis is not None
    assert analysis.looks == 2
    for text in everywhere(folder):
        assert f"Saved: 11 of 66 nodes, because the order was sustained after run 2 for {ONE}." in text


def test_a_long_run_that_was_cut_is_told_in_a_few_names(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE, TWO], 1, levels=("A", "C", "M"))
    for path in records(folder, ref=ONE, run=1):
        path.unlink()
    text = "\n".join(summary(build_report(folder)))
    [told] = [line for line in text.split("\n") if line.startswith("  lost: ")]
    assert told.endswith(" and 27 more items")
    assert f"run 1 of {ONE}: " in told
    assert "--llm-resume" in text


def test_how_often_the_same_came_again_is_counted(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE, TWO], 1)
    same = {"equal_text": True, "tokens": 9, "tokens_again": 9, "points": 4.0, "points_again": 4.0, "reason": None}
    other = {**same, "equal_text": False, "points_again": 3.0}
    failed = {**same, "equal_text": None, "tokens_again": None, "points_again": None, "reason": "the server is gone"}
    for path, again in zip(records(folder, ref=ONE)[:3], (same, other, failed), strict=True):
        change(path, again=again)
    found = level_a(build_report(folder)).models[ONE].determinism
    assert found is not None
    assert (found.instances, found.equal_replies, found.equal_points, found.failed) == (3, 1, 1, 1)
    assert level_a(build_report(folder)).models[TWO].determinism is None
    for text in everywhere(folder):
        assert f"{ONE}: 1 of 3 replies equal, 1 of 3 points equal, 1 failed." in text


def test_with_several_requests_at_a_time_nothing_is_called_deterministic(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE], 1)
    same = {"equal_text": True, "tokens": 9, "tokens_again": 9, "points": 4.0, "points_again": 4.0, "reason": None}
    for path in records(folder):
        change(path, again=same, concurrency=4)
    report = build_report(folder)
    assert (report.concurrency, level_a(report).models[ONE].determinism) == (4, None)
    for text in everywhere(folder):
        assert "4 requests at a time: outputs can differ" in text
        assert "Asked twice" not in text


def test_the_manifest_alone_tells_concurrency_too(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE], 1)
    change(tmp_path / MANIFEST, options={"concurrency": 2})
    assert build_report(folder).concurrency == 2


def test_after_a_clock_jump_no_time_of_the_run_is_shown_and_the_points_stand(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE, TWO], 2)
    before = level_a(build_report(folder)).models[ONE].points_mean
    change(records(folder, ref=ONE, run=2)[0], clock_jump_s=3600.0)
    models = level_a(build_report(folder)).models
    assert [run.timings_valid for run in models[ONE].runs] == [True, False]
    assert [run.timings_valid for run in models[TWO].runs] == [True, True]
    for entry in models[ONE].runs[1].items.values():
        assert set(entry.speed.values()) == {None}
        assert entry.usage["elapsed_s"] is None
    assert models[ONE].points_mean == before
    for text in everywhere(folder):
        assert f"times and speeds are invalid in run 2 of {ONE}; the points stand." in text


def test_faults_that_were_met_are_counted_per_node_and_model(tmp_path: Path) -> None:
    model = level_a(build_report(campaign(tmp_path, [ONE], 2))).models[ONE]
    items = model.runs[0].items
    agents = sum(entry.faults_met == 1 for entry in items.values())
    assert agents
    assert {entry.faults_met for entry in items.values()} == {1, None}
    assert model.faults_met == 2 * agents


def test_a_record_of_another_version_of_its_item_is_archived_and_not_counted(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE, TWO], 2)
    change(records(folder, ref=ONE, run=1, item="A05")[0], item_version="0.1.0")
    content = level_a(build_report(folder))
    entry = content.models[ONE].runs[0].items["A05"]
    assert (entry.status, entry.points) == ("archived", None)
    assert content.models[ONE].unmeasured_nodes == ["A05-run1"]
    assert content.analysis is not None
    assert content.analysis.models[ONE].runs == 1
    for text in everywhere(folder):
        assert "A05 0.1.0, this run's is" in text.replace("&#39;", "'")


def here(folder: RunFolder, **changed: Mapping[str, str]) -> Instrument:
    """The instrument that a folder was made with, but for what is changed."""
    report = build_report(folder)
    stamps = {"harness": report.harness, "bank": report.bank, **changed}
    return Instrument(stamps["harness"], stamps["bank"], frozenset({"A01"}))


def test_another_harness_or_bank_makes_a_run_archived(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE], 1)
    report = build_report(folder)

    def verdict(instrument: Instrument, items: tuple[str, ...] = ("A01",)) -> str | None:
        return archived(report.harness, report.bank, items, instrument)

    assert verdict(here(folder)) is None
    resigned = {**report.harness, "signature": "f" * 64}
    assert "harness 1.0.0 (00000000); this is harness 1.0.0 (ffffffff)" in str(verdict(here(folder, harness=resigned)))
    other = here(folder, bank={"version": "2.0.0", "checksum": "f" * 64})
    assert "made with bank 1.0.0 (00000000); this is bank 2.0.0 (ffffffff)" in str(verdict(other))
    assert verdict(other, ("MINE",)) is None


def test_an_archived_run_is_shown_with_its_own_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = campaign(tmp_path, [ONE, TWO], 2)
    assert main(["report", str(tmp_path), "--html"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Archived: made with harness 1.0.0 (00000000), bank 1.0.0 (00000000); this is harness ")
    assert f"{level_a(build_report(folder)).models[ONE].points_mean:.2f}" in text
    assert "Archived: made with" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "rchived" not in (tmp_path / REPORT).read_text()
    assert build_report(folder).policies == {}
    assert main(["report", str(tmp_path), "--md"]) == 0
    assert capsys.readouterr().out.startswith("**Archived: made with")


def test_a_run_of_the_harness_at_hand_is_current(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE], 1)
    change(tmp_path / MANIFEST, harness={"version": harness().version, "signature": signature()})
    report = build_report(folder)
    assert archived(report.harness, report.bank, ["MINE"], Instrument.here()) is None
    assert report.policies == harness().policies


def test_a_folder_of_runs_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = campaign(tmp_path / "first", [ONE, TWO], 1, unmeasured=True)
    campaign(tmp_path / "second", [ONE], 1)
    change(tmp_path / "second" / MANIFEST, harness=OLD)
    (tmp_path / "second" / REPORT).unlink()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / MANIFEST).write_text("{")
    (tmp_path / "notes").mkdir()
    assert run_folders(folder.path) == []
    lines = runs_table(run_folders(tmp_path), here(folder)).splitlines()[2:]
    first, second, torn = (" ".join(line.split()) for line in lines)
    assert first.startswith("first 2030-01-01T00:00:00.000+00:00 a:1b, b:1b standard 1.0.0 (00000000) 1.0.0 (00000000)")
    assert first.endswith("complete 21 of 22 current")
    assert second.endswith("0.9.0 (ffffffff) 1.0.0 (00000000) no report 11 of 11 archived")
    assert torn == "torn cannot be read"
    assert main(["report", str(tmp_path)]) == 0
    assert "first" in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--html"]) == 1
    assert "name one of them" in capsys.readouterr().err


def test_a_manifest_of_another_make_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign(tmp_path, [ONE], 1)
    change(tmp_path / MANIFEST, variant="many")
    assert main(["report", str(tmp_path)]) == 1
    assert "not a manifest that this version can read: variant" in capsys.readouterr().err


# --- the terminal stays readable --------------------------------------------------------------------------------------


def test_tables_of_the_whole_bank_fit_the_terminal(tmp_path: Path) -> None:
    lines = list(summary(build_report(campaign(tmp_path, 8, 3, unmeasured=True))))
    tables = [line for line in lines if not line.endswith(".")]
    assert max(map(len, tables)) <= 120
    assert any("…" in line and line.split()[0].endswith("GGUF:4b") for line in lines)


def test_many_models_and_runs_stay_short(tmp_path: Path) -> None:
    folder = campaign(tmp_path, 12, 4)
    for path in records(folder, item="A09"):
        change(path, status="unsupported", reason="the window is too small", points=None, rows=[])
    lines = list(summary(build_report(folder)))
    assert len(lines) < 50
    assert "  unsupported: A09 (48 nodes of 12 models)" in lines


def test_nothing_is_said_twice(tmp_path: Path) -> None:
    for runs, profile in ((1, "standard"), (2, "standard"), (2, "smoke")):
        folder = campaign(tmp_path / f"{runs}{profile}", [ONE, TWO], runs, profile=profile)
        lines = [line for line in summary(build_report(folder)) if line.endswith(".")]
        assert len(lines) == len(set(lines))
        text = "\n".join(lines)
        assert text.count("One run") == (runs == 1)
        assert text.count("order nothing") == (profile == "smoke")


def test_the_terminal_shows_each_model_with_its_place_and_spread(tmp_path: Path) -> None:
    report = build_report(campaign(tmp_path, [ONE, TWO], 3))
    lines = [line.split() for line in summary(report)]
    head = next(place for place, line in enumerate(lines) if line[:2] == ["model", "place"])
    assert lines[head][:7] == ["model", "place", "mean", "±95", "%", "sd", "min-max"]
    analysis = level_a(report).analysis
    assert analysis is not None
    for line in lines[head + 2 : head + 4]:
        assert line[2] == f"{analysis.models[line[0]].mean:.2f}"
        assert line[4] == f"{analysis.models[line[0]].deviation:.2f}"


def test_a_name_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    text = "\n".join(summary(build_report(campaign(tmp_path, ["\x1b[2Ja:1b", TWO], 2))))
    assert "\x1b" not in text
    assert "?[2Ja:1b" in text


def test_own_tests_have_a_name_and_order_nothing(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE, TWO], 2)
    document = plan(folder)
    change(tmp_path / PLAN, items={name: {**item, "level": "own"} for name, item in document["items"].items()})
    for path in records(folder):
        change(path, level="own")
    report = build_report(folder)
    assert report.levels["A"] is None
    own = report.levels["own"]
    assert own is not None
    assert own.analysis is not None
    assert own.analysis.ranking is None
    assert Report.model_validate(json.loads(report.model_dump_json(by_alias=True))) == report
    for text, heading in zip(
        everywhere(folder), ("Own tests: points", "### Own tests:", "Own tests</h1>"), strict=True
    ):
        assert heading in text
        assert "Own tests order nothing" in text


@pytest.mark.parametrize("width", [12, 20, 45])
def test_a_long_name_keeps_its_ends(width: int) -> None:
    name = "hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M"
    short = middle(name, width)
    assert len(short) == width
    assert short.endswith("Q4_K_M")
    assert name.startswith(short.split("…")[0])
    assert middle("qwen3:4b", width) == "qwen3:4b"


def test_the_nodes_of_one_run_that_was_not_started_are_named_once(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE, TWO], 2)
    for path in records(folder, ref=TWO, run=2):
        change(path, status="deadline", reason="too late", points=None, rows=[])
    items = level_a(build_report(folder)).items
    for text in everywhere(folder)[:2]:
        assert f"run 2 of {TWO}: {', '.join(items)}" in text
        assert f"{items[0]}-run2-{TWO}" not in text


def test_an_item_that_tells_nothing_says_so_in_one_word(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE, TWO], 2)
    [item, *_] = level_a(build_report(folder)).items
    for path in records(folder, item=item):
        rows = [{**row, "earned": 0.0} for row in json.loads(path.read_text())["rows"]]
        change(path, rows=rows, points=0.0)
    assert f"all {len(rows)} rows" in page(folder, build_report(folder))


def test_runs_without_any_spread_do_not_pass_as_noiseless(tmp_path: Path) -> None:
    folder = campaign(tmp_path, [ONE, TWO], 3)
    for path in records(folder):
        rows = [{**row, "earned": 0.0} for row in json.loads(path.read_text())["rows"]]
        change(path, rows=rows, points=0.0)
    for text in everywhere(folder):
        assert "No spread was seen over these runs" in text
        assert "Noise floor" not in text
