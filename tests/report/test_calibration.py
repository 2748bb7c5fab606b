"""Level B's block: our figures with intervals beside published ones; no order, and no text of the sets."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from external.public import ITEMS, needs_data
from hypothesis import given, settings
from hypothesis import strategies as st
from levels.painter import Painter
from report.campaigns import nodes_shown
from runtimes.loopback import serving

from pytest_llmbench.cli import main
from pytest_llmbench.external.cache import cache_folder
from pytest_llmbench.records import Row
from pytest_llmbench.report.calibration import (
    DECLARED,
    PREFIXES,
    Asked,
    Calibration,
    _published,
    calibrate,
    lines,
    names,
    table,
    wilson,
)

CODER = "gguf:/models/qwen2.5-coder-0.5b.gguf"
GROUPS = {f"{group}_{number}": group for group in ("B_HUMANEVAL", "B_IFEVAL") for number in range(40)}


def row(name: str, right: bool, parts: int | None = None, followed: int | None = None) -> Row:
    return Row.model_validate(
        {
            "id": name,
            "title": name,
            "kind": "check",
            "points": "1",
            "earned": str(int(right)),
            "evidence": "",
            "parts": parts,
            "right": followed,
        }
    )


def tasks(ref: str, right: int, lost: int = 0) -> list[Asked]:
    """Forty tasks of HumanEval: so many right ones, and as many that were not measured at the end."""
    return [
        Asked(item, ref, "runtime_error" if place >= 40 - lost else "measured", [row("passed", place < right)])
        for place, item in enumerate(GROUPS)
        if GROUPS[item] == "B_HUMANEVAL"
    ]


def block(nodes: list[Asked]) -> Calibration:
    found = calibrate(nodes, GROUPS)
    assert found is not None
    return found


# --- figures ---------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 600).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_wilsons(counted: tuple[int, int]) -> None:
    right, n = counted
    z, share = 1.959963984540054, right / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    assert wilson(right, n) == pytest.approx((100 * (centre - half), 100 * (centre + half)), abs=1e-6)


@pytest.mark.parametrize(("right", "agrees"), [(15, False), (16, True), (22, True), (27, True), (28, False)])
def test_a_published_figure_agrees_where_it_lies_in_our_interval(right: int, agrees: bool) -> None:
    result = block(tasks(CODER, right)).models[CODER]["B_HUMANEVAL"]
    [cited] = result.published
    assert cited.value == 54.3
    assert cited.in_interval is agrees
    low, high = wilson(right, 40)
    assert (low <= 54.3 <= high) is agrees
    assert cited.setting
    assert cited.source.startswith("https://")


def test_what_was_not_measured_is_no_wrong_answer() -> None:
    result = block(tasks(CODER, right=20, lost=10)).models[CODER]["B_HUMANEVAL"]
    [figure] = result.figures
    assert (figure.right, figure.n, result.planned, result.measured) == (20, 30, 40, 30)
    assert "20/30 (10 not measured)" in "\n".join(lines(block(tasks(CODER, right=20, lost=10))))


def test_nothing_measured_is_no_figure_and_agrees_with_nothing() -> None:
    result = block(tasks(CODER, right=0, lost=40)).models[CODER]["B_HUMANEVAL"]
    assert [(figure.percent, figure.interval) for figure in result.figures] == [(None, None)]
    assert [cited.in_interval for cited in result.published] == [None]
    assert "not measured" in "\n".join(lines(block(tasks(CODER, right=0, lost=40))))


def test_ifeval_has_four_figures_and_those_by_instruction_count_instructions() -> None:
    followed = [(3, 3, 3), (2, 1, 2), (1, 0, 0)]
    nodes = [
        Asked(
            f"B_IFEVAL_{place}",
            CODER,
            "measured",
            [
                row("prompt_strict", strict == parts, parts, strict),
                row("prompt_loose", loose == parts, parts, loose),
            ],
        )
        for place, (parts, strict, loose) in enumerate(followed)
    ]
    figures = block(nodes).models[CODER]["B_IFEVAL"].figures
    assert {figure.metric: (figure.right, figure.n) for figure in figures} == {
        "prompt, strict": (1, 3),
        "prompt, loose": (2, 3),
        "instruction, strict": (4, 6),
        "instruction, loose": (5, 6),
    }


def test_a_figure_of_another_metric_is_shown_and_not_compared() -> None:
    nodes = [Asked("B_IFEVAL_0", "smollm2:135m", "measured", [row("prompt_strict", True, 1, 1)])]
    published = block(nodes).models["smollm2:135m"]["B_IFEVAL"].published
    assert [(one.metric, one.in_interval) for one in published] == [("mean of prompt and instruction", None)]
    assert any("29.9 %" in line and "not comparable" in line for line in map(" ".join, table(block(nodes), "B_IFEVAL")))


def test_models_stand_in_the_order_of_the_command_line_whatever_they_earned() -> None:
    nodes = tasks("weak:1b", 3) + tasks("strong:1b", 38)
    for order in (nodes, nodes[40:] + nodes[:40]):
        told = [cells[0] for cells in table(block(order), "B_HUMANEVAL")]
        assert told == list(dict.fromkeys(node.ref for node in order))


def test_the_block_says_that_these_sets_may_be_in_memory_and_orders_nothing() -> None:
    told = "\n".join(lines(block(tasks(CODER, 20))))
    assert DECLARED in told
    assert "no model is placed by it, and no two sets are added" in told


def test_without_an_item_of_a_known_set_there_is_no_block() -> None:
    assert calibrate([Asked("X", CODER, "measured", [])], {"X": "OWN"}) is None


# --- published figures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "named"),
    [
        ("qwen2.5-coder:0.5b", True),
        ("ollama:qwen2.5-coder:0.5b", True),
        ("gguf:/some/where/qwen2.5-coder-0.5b.gguf", True),
        ("gguf:Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf", True),
        ("qwen2.5-coder:0.5b-base", False),
        ("my-qwen2.5-coder-0.5b-merge", False),
        ("qwen2.5-coder:1.5b", False),
    ],
)
def test_a_published_figure_is_about_whole_names_only(ref: str, named: bool) -> None:
    entry = next(entry for entry in _published()["figures"] if entry["name"] == "Qwen2.5-Coder-0.5B-Instruct")
    assert names(entry["models"], ref) is named


def test_every_published_figure_names_its_setting_precision_and_source() -> None:
    sets = {one["id"]: one for one in _published()["sets"]}
    assert set(sets) == {items[0].spec.group for items in ITEMS.values()}
    for entry in _published()["figures"]:
        assert entry["source"].startswith("https://")
        assert entry["precision"]
        assert entry["by"] in ("maker", "third party")
        assert all(pattern == pattern.lower() for pattern in entry["models"])
        for value in entry["values"]:
            assert value["set"] in sets
            assert 0 < value["value"] < 100
            assert value["setting"]


def test_the_sizes_that_the_report_tells_are_those_of_the_bank() -> None:
    for one in _published()["sets"]:
        items = next(items for items in ITEMS.values() if items[0].spec.group == one["id"])
        assert int(re.match(r"\d+", one["of"])[0]) == len(items)  # type: ignore[index]
        rows = {row.id for row in items[0].spec.rows}
        assert {metric.replace("instruction_", "prompt_") for metric in one["metrics"]} == rows
    assert "ollama" in PREFIXES


# --- a session -------------------------------------------------------------------------------------------------------

FETCHED = cache_folder().parent
"""Where the data is; the user of the session has another home."""
WINDOW = 30
"""So many characters in a row of a fetched text are a part of it."""


def texts_of(name: str) -> list[str]:
    """What was fetched for the first item of a set: questions, solutions, tests."""
    task: Any = ITEMS[name][0].task
    case = task.cases()[ITEMS[name][0].spec.data["sample"]]
    return [value for value in case.values() if isinstance(value, str) and len(value) > WINDOW]


@needs_data
def test_no_report_holds_a_text_of_the_sets(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model repeats its prompt, so its texts would be in whatever tells what it said."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("LLMBENCH_CACHE", str(FETCHED))
    chosen = " or ".join(items[0].spec.id for items in ITEMS.values())
    painter = Painter(says=lambda text, images: f"I was asked: {text}")
    folder = pytester.path / "run"
    with serving(painter.ollama(["completion"])) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        result = pytester.runpytest_inprocess(
            *("-p", "no:hypothesispytest", "-p", "no:randomly", "-p", "no:cacheprovider", "-vv", "-ra"),
            *("--llm-model=toy:1b,golden,defective", "--llm-show-hidden", "-m", "levelB", "-k", chosen),
            f"--llm-report-dir={folder}",
        )
    assert result.ret == 0, result.stdout.str()
    capsys.readouterr()
    assert main(["report", str(folder), "--md"]) == 0
    told = {"terminal": result.stdout.str() + result.stderr.str(), "markdown": capsys.readouterr().out}
    assert main(["report", str(folder), "--html"]) == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    told["page"] = page + "".join(nodes_shown(page).values())
    told |= {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json*"))}
    told |= {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("records/*"))}
    spoken = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("transcripts/*")))
    for name in ITEMS:
        parts = [text[at : at + WINDOW] for text in texts_of(name) for at in range(0, len(text) - WINDOW, 7)]
        plain = [part for part in parts if part.isprintable() and '"' not in part and "\\" not in part]
        assert plain
        assert any(part in spoken for part in plain), "the search would find nothing anywhere"
        assert {where for where, text in told.items() if any(part in text for part in plain)} == set(), name
