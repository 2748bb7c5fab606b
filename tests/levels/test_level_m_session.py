"""A session of level M from the command line: who sees is measured, who does not is unsupported, nobody is ranked."""

from __future__ import annotations

import json

import pytest
from levels.painter import Painter
from runtimes.loopback import serving

import pytest_llmbench.active
import pytest_llmbench.runtimes.ollama  # noqa: F401  # sessions in this process share the modules
from pytest_llmbench.bank import load_bank, packaged_bank
from pytest_llmbench.cli import main
from pytest_llmbench.drawing import pixels
from pytest_llmbench.store.events import events

ITEMS = {item.spec.id: item for item in load_bank(packaged_bank() / "level_m")}


@pytest.fixture
def painter():
    return Painter()


@pytest.fixture
def session(pytester, monkeypatch, painter):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    with serving() as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)

        def run(*arguments, capabilities=("completion", "vision"), model="toy:1b", folder="run"):
            server.on.update(painter.ollama(list(capabilities)))
            fixed = ("-p", "no:hypothesispytest", "-p", "no:randomly", "-p", "no:cacheprovider")
            where = f"--llm-report-dir={pytester.path / folder}"
            return pytester.runpytest_inprocess(*fixed, f"--llm-model={model}", where, *arguments)

        run.folder = pytester.path / "run"
        yield run


def loaded(folder, pattern):
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]


def test_one_who_sees_is_measured_and_the_report_says_how_it_is_known(session, painter):
    result = session("-m", "levelM", "-k", "M02 or M03 or M04")
    result.stdout.fnmatch_lines(
        [
            "*Sight of toy:1b: its runtime says that it takes pictures; it read 2 of 2 random codes of 6 characters.*",
            "*One model was measured: an n of 1 orders nothing.*",
            "*This level orders nothing; its points are never added to those of another level.*",
        ]
    )
    points = {record["item"]: record["points"] for record in loaded(session.folder, "records/*.json")}
    assert points == {"M02": 10, "M03": 10, "M04": 0}
    [card] = loaded(session.folder, "models/*.json")
    assert card["sight"] == {"claimed": True, "shown": 2, "read": 2, "refusal": None}
    assert "vision" in card["capabilities"]
    block = json.loads((session.folder / "report.json").read_text())["levels"]["M"]["pictures"]
    assert block["models"]["toy:1b"]["sees"] is True
    assert painter.seen[2:] == [pixels(ITEMS[name].build(0, 1).images[0]) for name in ("M02", "M03", "M04")]


def test_the_transcript_names_the_picture_and_is_graded_again_without_it(session, painter):
    session("-m", "levelM", "-k", "M02")
    [said] = loaded(session.folder, "transcripts/M02*.json")
    assert [len(turn["images"]) for turn in said["turns"]] == [0, 1, 0]
    shown = len(painter.seen)
    session("-m", "levelM", "-k", "M02", model=f"replay:{session.folder}", folder="again")
    [record] = loaded(session.folder.parent / "again", "records/M02*.json")
    assert record["points"] == 10
    assert main(["regrade", str(session.folder)]) == 0
    assert len(painter.seen) == shown


def test_one_who_does_not_see_is_unsupported_and_has_no_points(session, painter):
    result = session("-m", "levelM", "-k", "M02 or M06", capabilities=["completion"])
    records = loaded(session.folder, "records/*.json")
    assert [(record["status"], record["points"]) for record in records] == [("unsupported", None)] * 2
    assert painter.seen == []
    result.stdout.fnmatch_lines(["*no vision was found in toy:1b: its runtime says that it takes no pictures*"])
    result.stdout.fnmatch_lines(["*nothing is known of any, which is no zero*"])


def test_a_false_claim_is_found_out_once_and_before_any_item(session, painter):
    painter.says = lambda text, images: "one two"
    session("-m", "levelM", "-k", "M02 or M03")
    assert [record["status"] for record in loaded(session.folder, "records/*.json")] == ["unsupported"] * 2
    assert len(painter.seen) == 2
    told = [event for event in events(session.folder)[0] if event["event"] == "sight_tested"]
    assert [(event["ref"], event["claimed"], event["shown"], event["read"]) for event in told] == [
        ("toy:1b", True, 2, 0)
    ]


def test_a_session_without_pictures_shows_none(session, painter):
    session("-m", "levelA", "-k", "A05")
    assert painter.seen == []
    [card] = loaded(session.folder, "models/*.json")
    assert card["sight"]["shown"] is None
    levels = json.loads((session.folder / "report.json").read_text())["levels"]
    assert levels["M"] is None
    assert levels["A"]["pictures"] is None


def test_references_need_no_sight(session):
    session("-m", "levelM", model="golden,null")
    report = json.loads((session.folder / "report.json").read_text())["levels"]["M"]
    assert report["models"]["golden"]["points_mean"] == 60
    assert report["pictures"] is None


def test_the_page_and_the_short_report_tell_of_sight(session, capsys):
    session("-m", "levelM", "-k", "M02")
    assert main(["report", str(session.folder), "--md"]) == 0
    assert "- Sight of `toy:1b`: its runtime says that it takes pictures" in capsys.readouterr().out
    assert main(["report", str(session.folder), "--html"]) == 0
    page = (session.folder / "report.html").read_text(encoding="utf-8")
    assert "it read 2 of 2 random codes" in page
    assert "data:image" not in page
