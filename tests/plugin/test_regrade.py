"""Today's grader on yesterday's transcripts: nothing is lost or overwritten, and what moved is told with its cause."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from plugin import test_agent_items as agent_items

from pytest_llmbench.cli import main
from pytest_llmbench.store.folder import RunFolder

LENIENT = "from pytest_llmbench.spec import Verdict as V\n    return [V('q1', True, ''), V('q2', True, '')]"
MEASUREMENT = ("started", "finished", "usage", "speed", "caps", "edge", "conditions", "stop_reason", "concurrency")
KILLED = 9
OPERATIONS = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir"})
"""Audit events of what changes a folder, apart from writing files."""


@dataclass
class Regraded:
    """What the command said and left."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def gradings(self) -> list[Path]:
        return sorted((self.folder / "gradings").glob("*"))

    @property
    def moves(self) -> dict[str, Any]:
        """Of the newest grading that was replaced."""
        return json.loads((self.gradings[-1] / "moves.json").read_text())

    @property
    def row_moves(self) -> dict[str, tuple[float | None, float | None]]:
        """Points of every row before and after, by row; of one node."""
        return {move["row"]: (_earned(move["before"]), _earned(move["after"])) for move in self.moves["moves"]}


def _earned(row: Mapping[str, float] | None) -> float | None:
    return None if row is None else row["earned"]


@pytest.fixture
def regrade(bank: Any, capsys: pytest.CaptureFixture[str]) -> Callable[..., Regraded]:
    """``llmbench regrade`` on the run folder of the user's bank, in a process that knows nothing of the bank yet."""

    def run(folder: Path | None = None, items: Path | None = None) -> Regraded:
        capsys.readouterr()
        forget_items()
        where = folder or bank.folder
        code = main(["regrade", str(where), "--items", str(items or bank.path / "items")])
        forget_items()
        out, err = capsys.readouterr()
        return Regraded(code, out, err, where)

    return run


def forget_items() -> None:
    for name in [name for name in sys.modules if name.startswith("llmbench_task_")]:
        del sys.modules[name]


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a run folder but its lock."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def lenient(bank: Any) -> None:
    """From now on the item's grader gives every point for anything."""
    bank.edit("task.py", "return grade_answers(instance, delivery)", LENIENT)


def test_the_same_code_gives_the_same_bytes_and_writes_nothing(bank: Any, regrade: Any) -> None:
    bank.item("T02")
    bank.script(T02="half_a_character")
    bank.run("script:half,golden,defective:all,null", "--llm-runs=2", "--llm-variant=5")
    before = files(bank.folder)
    done = regrade()
    assert done.code == 0
    assert "Nothing changed: 32 nodes" in done.out
    assert files(bank.folder) == before
    assert not (bank.folder / ".regrading").exists()


def test_another_grader_moves_rows_and_says_which_and_why(bank: Any, regrade: Any) -> None:
    bank.item("T02")
    bank.run("script:half,script:golden")
    before = files(bank.folder)
    [old] = [record for record in bank.records().values() if (record["item"], record["ref"]) == ("T01", "script:half")]
    lenient(bank)
    done = regrade()
    assert done.code == 0
    assert "T01-run1-script:half" in done.out
    [move] = [move for move in done.moves["moves"] if move["before"]["earned"] != move["after"]["earned"]]
    assert (move["node"], move["row"], move["before"]["earned"], move["after"]["earned"]) == (
        *("T01-run1-script:half", "q2"),
        *(0, 2),
    )
    assert "the item changed under version 1.0.0" in move["why"][0]
    [new] = [record for record in bank.records().values() if (record["item"], record["ref"]) == ("T01", "script:half")]
    assert (old["points"], new["points"]) == (1, 3)
    assert [old[name] for name in MEASUREMENT] == [new[name] for name in MEASUREMENT]
    assert old["fingerprints"]["request"] == new["fingerprints"]["request"]
    [kept] = done.gradings
    for name in before:
        if name.startswith(("records/", "report.json", "manifest.json", "plan.json")):
            assert (kept / name).read_bytes() == before[name], name
        if name.startswith("transcripts/"):
            assert (bank.folder / name).read_bytes() == before[name]


def test_totals_manifest_and_report_are_those_of_the_new_grading(bank: Any, regrade: Any) -> None:
    bank.run("script:half")
    manifest = json.loads((bank.folder / "manifest.json").read_text())
    lenient(bank)
    done = regrade()
    assert [line.split()[-2:] for line in done.out.splitlines() if line.startswith("script:half ")] == [
        ["1.00", "3.00"]
    ]
    assert bank.report()["levels"]["A"]["models"]["script:half"]["points_mean"] == 3
    new = json.loads((bank.folder / "manifest.json").read_text())
    assert new["bank"]["checksum"] != manifest["bank"]["checksum"]
    assert done.moves["before"]["bank"] == manifest["bank"]
    assert done.moves["after"]["bank"] == new["bank"] == bank.report()["bank"]
    assert {name: new[name] for name in ("created", "models", "runs")} == {
        name: manifest[name] for name in ("created", "models", "runs")
    }


def test_grading_twice_changes_nothing_the_second_time(bank: Any, regrade: Any) -> None:
    bank.run("script:half,defective:adds_only", "--llm-runs=2")
    lenient(bank)
    regrade()
    before = files(bank.folder)
    assert "Nothing changed" in regrade().out
    assert files(bank.folder) == before


def test_an_old_grading_is_never_overwritten(bank: Any, regrade: Any) -> None:
    bank.run("script:half")
    first = files(bank.folder / "records")
    lenient(bank)
    regrade()
    second = files(bank.folder / "records")
    bank.edit("task.py", "V('q2', True", "V('q2', False")
    regrade()
    bank.edit("task.py", "V('q2', False", "V('q2', True")
    done = regrade()
    assert len(done.gradings) == 3
    assert [files(path / "records") for path in done.gradings[:2]].count(first) == 1
    assert files(bank.folder / "records") == second


def test_another_version_of_the_item_is_the_reason(bank: Any, regrade: Any) -> None:
    bank.run("script:half")
    bank.edit("item.toml", 'version = "1.0.0"', 'version = "1.1.0"')
    bank.edit("item.toml", 'title = "The sum"\npoints = 1', 'title = "The sum"\npoints = 2')
    bank.edit("item.toml", "points = 3", "points = 4")
    bank.edit("item.toml", "points = 1\nloses", "points = 2\nloses")
    done = regrade()
    assert {why for move in done.moves["moves"] for why in move["why"]} == {"item version 1.0.0 → 1.1.0"}
    assert done.row_moves == {"q1": (1, 2)}
    [record] = bank.records().values()
    assert (record["item_version"], record["points"], record["points_max"]) == ("1.1.0", 2, 4)
    plan = json.loads((bank.folder / "plan.json").read_text())
    assert (plan["items"]["T01"]["version"], plan["items"]["T01"]["points"]) == ("1.1.0", 4)


def test_a_reply_to_another_prompt_is_not_graded_until_its_prompt_is_back(bank: Any, regrade: Any) -> None:
    bank.item("T02")
    bank.run("script:golden")
    before = files(bank.folder)
    bank.edit("prompt.md", "what are", "what, pray, are")
    done = regrade()
    records = {record["item"]: record for record in bank.records().values()}
    assert (records["T01"]["status"], records["T01"]["points"], records["T01"]["rows"]) == ("unsupported", None, [])
    assert "messages differ" in records["T01"]["reason"]
    assert records["T02"]["points"] == 3
    assert not list((bank.folder / "deliveries").glob("T01*"))
    assert "1 nodes answer another request" in done.out
    bank.edit("prompt.md", "what, pray, are", "what are")
    regrade()
    after = files(bank.folder)
    assert {name: after[name] for name in before} == before


def test_a_run_that_answers_nothing_that_is_asked_now_is_archived_and_left_alone(bank: Any, regrade: Any) -> None:
    bank.run("script:golden", "--llm-runs=2")
    before = files(bank.folder)
    bank.edit("prompt.md", "what are", "what, pray, are")
    done = regrade()
    assert done.code == 1
    assert "is archived: it was made with harness" in done.err
    assert files(bank.folder) == before


def test_an_item_that_is_gone_takes_its_points_with_it_and_nothing_else(bank: Any, regrade: Any) -> None:
    folder = bank.item("T02")
    bank.run("script:golden,script:silent")
    shutil.rmtree(folder)
    regrade()
    records = {(record["item"], record["ref"]): record for record in bank.records().values()}
    assert records["T02", "script:golden"]["status"] == "unsupported"
    assert "holds no item T02" in records["T02", "script:golden"]["reason"]
    assert records["T01", "script:golden"]["points"] == 3
    assert "Nothing changed" in regrade().out


def test_a_torn_and_a_lost_record_are_made_anew_from_their_transcripts(bank: Any, regrade: Any) -> None:
    bank.run("script:half", "--llm-runs=3")
    before = bank.records()
    torn, lost, _ = sorted((bank.folder / "records").glob("*.json"))
    torn.write_text(torn.read_text()[:200])
    lost.unlink()
    done = regrade()
    assert done.code == 0
    empty = {"swap_used_mb": None, "memory_available_mb": None, "load_1min": None, "on_battery": None}
    for name in (torn.name, lost.name):
        assert bank.records()[name] == {**before[name], "conditions": empty}
    assert {why for node in done.moves["nodes"] for why in node["why"]} == {
        "the record was torn",
        "the record was missing",
    }
    assert (done.gradings[0] / "records" / f"{torn.name}.torn").stat().st_size == 200
    assert bank.report()["status"] == "complete"


def test_a_torn_transcript_is_named_and_its_record_stays(bank: Any, regrade: Any) -> None:
    bank.run("script:half", "--llm-runs=2")
    first, second = sorted((bank.folder / "transcripts").glob("*.json"))
    first.write_text(first.read_text()[:200])
    old = bank.records()
    lenient(bank)
    done = regrade()
    assert done.code == 1
    assert "Torn transcripts: T01-run1-script:half" in done.out
    assert bank.records()[first.name] == old[first.name]
    assert bank.records()[second.name]["points"] == 3


def test_what_was_not_measured_stays_as_it_is(bank: Any, regrade: Any) -> None:
    bank.item("T02")
    bank.run("script:breaks,script:missing,script:small,script:golden")
    before = bank.records()
    lenient(bank)
    regrade()
    for name, record in bank.records().items():
        if record["ref"] != "script:golden":
            assert record == before[name]


def test_no_file_of_an_older_parse_survives(bank: Any, regrade: Any) -> None:
    bank.run("script:half")
    [delivery] = (bank.folder / "deliveries").glob("*")
    stale = delivery / "files" / "older.py"
    stale.parent.mkdir(exist_ok=True)
    stale.write_text("x = 1\n")
    done = regrade()
    assert not stale.exists()
    assert (done.gradings[0] / stale.relative_to(bank.folder)).exists()
    assert done.row_moves == {}


def test_the_same_code_with_other_rows_is_called_a_defect(bank: Any, regrade: Any) -> None:
    bank.run("script:half")
    [path] = (bank.folder / "records").glob("*.json")
    record = json.loads(path.read_text())
    record["rows"][1]["earned"], record["points"] = 2.0, 3.0
    path.write_text(json.dumps(record))
    done = regrade()
    assert done.code == 1
    assert "DEFECT: the same code graded 1 nodes in another way" in done.out
    assert done.moves["moves"][0]["why"] == ["the same code"]


def test_rows_that_an_older_grader_gave_name_both_graders(bank: Any, regrade: Any) -> None:
    bank.run("script:half")
    [path] = (bank.folder / "records").glob("*.json")
    record = json.loads(path.read_text())
    today = record["fingerprints"]["grader"]
    record["rows"][1]["earned"], record["points"] = 2.0, 3.0
    record["fingerprints"]["grader"] = "0123456789ab" * 5
    path.write_text(json.dumps(record))
    done = regrade()
    assert done.code == 0
    assert done.moves["moves"][0]["why"] == [f"grader code 0123456789ab → {today[:12]}"]


def test_a_run_that_a_session_writes_is_refused(bank: Any, regrade: Any) -> None:
    bank.run("script:half")
    before = files(bank.folder)
    lenient(bank)
    session = RunFolder.reopen(bank.folder)
    try:
        done = regrade()
    finally:
        session.release()
    assert done.code == 1
    assert "is being written" in done.err
    assert files(bank.folder) == before


def test_delivered_code_runs_again_confined(bank: Any, regrade: Any) -> None:
    bank.code_item()
    bank.delivers("sums.py", "def add(a, b):\n    return a - b\n")
    bank.run("script:x", "-k", "X01")
    assert "Nothing changed" in regrade().out
    bank.edit("task.py", '"two numbers", 12385', '"two numbers", -12305', item="x01")
    done = regrade()
    assert done.row_moves == {"adds": (0, 2)}


def test_without_confinement_nothing_is_graded(bank: Any, regrade: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bank.code_item()
    bank.delivers("sums.py", "def add(a, b):\n    return a - b\n")
    bank.run("script:x", "-k", "X01")
    before = files(bank.folder)
    monkeypatch.setenv("LLMBENCH_SANDBOX", "seatbelt")
    done = regrade()
    assert done.code == 1
    assert "no confinement" in done.err
    assert files(bank.folder) == before


def test_a_node_that_was_asked_twice_is_graded_again_twice(bank: Any, regrade: Any) -> None:
    bank.run("script:half", "--llm-determinism")
    before = files(bank.folder)
    assert "Nothing changed" in regrade().out
    assert files(bank.folder) == before
    lenient(bank)
    regrade()
    [record] = bank.records().values()
    assert (record["again"]["points"], record["again"]["points_again"]) == (3, 3)
    [second] = (bank.folder / "transcripts" / "again").glob("*.json")
    second.unlink()
    bank.edit("task.py", "V('q2', True", "V('q2', False")
    regrade()
    [record] = bank.records().values()
    assert (record["points"], record["again"]["equal_text"], record["again"]["points_again"]) == (1, True, 1)


@pytest.fixture
def agents(bank: Any) -> Any:
    """A bank with one agent item beside its own."""
    folder, side = bank.path / "items/level_a/g01", bank.path / "fixtures/g01"
    for path in (folder, side):
        path.mkdir(parents=True)
    for name, text in (
        ("item.toml", agent_items.ITEM),
        ("task.py", agent_items.TASK),
        ("prompt.md", agent_items.PROMPT),
    ):
        (folder / name).write_text(text)
    (side / "faults.toml").write_text(agent_items.FAULTS)
    return bank


def test_the_conversation_of_an_agent_is_had_again(agents: Any, regrade: Any) -> None:
    agents.run("golden,defective:all,null", "-k", "G01", "--llm-runs=2")
    before = agents.records()
    assert "Nothing changed" in regrade().out
    agents.edit("task.py", "copy.strip() == instance", "copy.strip() != instance", item="g01")
    regrade()
    golden = next(record for record in agents.records().values() if record["ref"] == "golden")
    assert (golden["status"], golden["points"]) == ("harness_error", None)
    assert "golden earned 1 of 3" in golden["reason"]
    for name, record in agents.records().items():
        assert record["agent"] == before[name]["agent"]


def test_a_conversation_that_was_cut_off_is_not_graded(agents: Any, regrade: Any) -> None:
    agents.run("golden", "-k", "G01")
    [path] = (agents.folder / "transcripts").glob("*.json")
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, "end": None, "turns": saved["turns"][:4]}))
    [record] = (agents.folder / "records").glob("*.json")
    record.unlink()
    done = regrade()
    assert "did not come to its end" in done.out
    assert not agents.records()


def test_other_faults_are_another_request(agents: Any, regrade: Any) -> None:
    agents.run("golden")
    (agents.path / "fixtures/g01/faults.toml").write_text(agent_items.FAULTS.replace("call = 2", "call = 3"))
    regrade()
    records = {record["item"]: record for record in agents.records().values()}
    assert records["G01"]["status"] == "unsupported"
    assert "faults differ" in records["G01"]["reason"]


MORE_THAN_ENOUGH = 200
"""More operations than there are; the loop ends before."""


def killed_at(operation: int, folder: Path, items: Path, since: str) -> bool:
    """Re-grade in a process that is killed before an operation on the run folder; whether it came that far.

    Args:
        operation: counted from 0, from the first one on a path that holds ``since``.
        folder: the run.
        items: the bank.
        since: part of a path.
    """
    child = os.fork()
    if child == 0:
        seen, begun = iter(range(operation)), False

        def kill(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal begun
            writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
            if (event in OPERATIONS or writes) and str(folder) in str(arguments[0]):
                begun = begun or since in str(arguments[0])
                if begun and next(seen, None) is None:
                    os._exit(KILLED)

        sys.addaudithook(kill)
        code = 1
        try:
            code = main(["regrade", str(folder), "--items", str(items)])
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, KILLED)
    return os.waitstatus_to_exitcode(status) == KILLED


def without_times(folder: Path) -> dict[str, bytes]:
    """Every file of a run folder but half-written ones, the name of the one old grading and its time left out."""
    return {
        "/".join(part for part in name.split("/") if not part.startswith("20")): data
        for name, data in files(folder).items()
        if not name.endswith("moves.json") and not Path(name).name.startswith(".")
    }


def test_killed_at_any_moment_the_second_attempt_ends_where_the_first_would_have(bank: Any, regrade: Any) -> None:
    bank.item("T02")
    bank.run("script:half")
    bank.edit("prompt.md", "what are", "what, pray, are", item="t02")
    lenient(bank)
    whole = bank.path / "whole"
    shutil.copytree(bank.folder, whole)
    regrade(whole)
    expected = without_times(whole)
    for operation, since in [(3, "records"), *((number, "archive") for number in range(MORE_THAN_ENOUGH))]:
        cut = bank.path / f"cut{operation}"
        shutil.copytree(bank.folder, cut)
        killed = killed_at(operation, cut, bank.path / "items", since)
        regrade(cut)
        assert without_times(cut) == expected, (operation, since)
        assert len(list((cut / "gradings").iterdir())) == 1
        shutil.rmtree(cut)
        if not killed:
            break
    else:
        pytest.fail("it never came to its end")
    assert operation > len(expected)


CASE = """
from pytest_llmbench.runtimes.base import Usage


class Saved(Script):
    def chat(self, request):
        raw = json.loads((HERE / "raw.json").read_text())
        usage = Usage(completion_tokens=raw["eval_count"], elapsed_s=4.1)
        return Reply(content=raw["message"]["content"], thinking=raw["message"]["thinking"], usage=usage)


def pytest_llmbench_runtimes(config):
    return {"saved": Saved}
"""
CASE_ITEM = """id = "S01"
title = "Slugs"
version = "0.1.0"
level = "A"
mode = "single"
points = 1
files = ["slugify.py"]
rows = [{ id = "there", title = "slugify.py is there", points = 1 }]
"""
CASE_TASK = """from pytest_llmbench.spec import Instance, Reference, Verdict


def build(item, variant, run, seed):
    return Instance(item.spec, variant, run, item.render())


def grade(instance, delivery):
    return [Verdict("there", found(delivery), ", ".join(delivery.files))]


def found(delivery):
    return "slugify.py" in delivery.text and bool(delivery.files)


def golden(instance):
    return Reference(files={"slugify.py": "def slugify(t): ..."})


def defects(instance):
    return {}
"""


def test_field_case_93_an_old_reply_is_scored_again_with_its_own_times(
    bank: Any, regrade: Any, fieldcase: Callable[[str, str], Any]
) -> None:
    old_grading, expected = fieldcase("93", "old_grading.json"), fieldcase("93", "expected.json")["regrade"]
    (bank.path / "raw.json").write_text(json.dumps(fieldcase("93", "raw.json")))
    with (bank.path / "conftest.py").open("a") as file:
        file.write(CASE)
    folder = bank.path / "items/level_a/s01"
    folder.mkdir()
    for name, text in (("item.toml", CASE_ITEM), ("task.py", CASE_TASK), ("prompt.md", "Write slugify.\n")):
        (folder / name).write_text(text)
    bank.run("saved:x", "-k", "S01")
    [old] = bank.records().values()
    assert old["points"] == old_grading["points"] == expected["previous_points"]
    bank.edit("task.py", '"slugify.py" in delivery.text and ', "", item="s01")
    bank.edit("item.toml", 'version = "0.1.0"', f'version = "{expected["grader"]}.0"', item="s01")
    done = regrade()
    [new] = bank.records().values()
    assert (new["points"], new["rows"][0]["evidence"]) == (1, ", ".join(expected["files"]))
    assert new["usage"]["elapsed_s"] == old["usage"]["elapsed_s"] == expected["duration_s"]
    assert new["usage"]["completion_tokens"] == fieldcase("93", "raw.json")["eval_count"]
    assert old["fingerprints"]["grader"] != new["fingerprints"]["grader"]
    [moved] = done.moves["nodes"]
    assert (moved["points"], moved["why"]) == ([0, 1], ["item version 0.1.0 → 0.2.0"])
