"""The report as Markdown: short, one table for each level, and nothing in it is more than text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from report.campaigns import campaign

from pytest_llmbench.report.markdown import code, markdown
from pytest_llmbench.report.page import saved_report

PARSER = MarkdownIt("gfm-like", {"linkify": False})


def tables(text: str) -> list[list[list[str]]]:
    """Cells of every table, as a reader of the rendered text has them."""
    found: list[list[list[str]]] = []
    inside = False
    for token in PARSER.parse(text):
        if token.type == "table_open":
            found.append([])
            inside = True
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "table_close":
            inside = False
        elif token.type == "inline" and inside:
            found[-1][-1].append("".join(child.content for child in token.children or []))
    return found


def test_the_ranking_is_a_table_with_places_and_intervals(tmp_path: Path) -> None:
    report = saved_report(campaign(tmp_path, 4, 3))
    content = report.levels["A"]
    assert content is not None
    assert content.analysis is not None
    text = markdown(report)
    (table,) = tables(text)
    assert table[0] == [
        *("place", "model", "mean", "95 % interval", "sd", "min–max", "runs", "repairs", "faults met", "not measured")
    ]
    assert [row[0].split("-")[0] for row in table[1:]] == [str(one.place) for one in content.analysis.ranking or ()]
    for row in table[1:]:
        summary = content.analysis.models[row[1]]
        assert summary.interval is not None
        assert row[2:4] == [f"{summary.mean:.2f}", f"{summary.interval[0]:.2f}–{summary.interval[1]:.2f}"]
        assert row[4] == f"{summary.deviation:.2f}"
    assert f"- Noise floor {content.analysis.noise_floor:.2f} points" in text
    assert "- Runs disagree most in: " in text


def test_levels_have_tables_of_their_own_and_only_a_has_places(tmp_path: Path) -> None:
    report = saved_report(campaign(tmp_path, 2, 2, levels=("A", "B")))
    text = markdown(report)
    first, second = tables(text)
    assert first[0][0] == "place"
    assert second[0][0] == "model"
    assert "orders nothing" in text.split("### Level B")[1]


def test_what_was_not_measured_has_no_figure_and_its_reason(tmp_path: Path) -> None:
    report = saved_report(campaign(tmp_path, 2, 1, unmeasured=True))
    text = markdown(report)
    (table,) = tables(text)
    (lost,) = [row for row in table[1:] if row[-1] != "0"]
    assert lost[1:3] == ["–", "–"]
    assert lost[-1] == "1 of 11"
    assert "`the server closed the connection`" in text


@pytest.mark.parametrize("profile", ["smoke", "standard"])
def test_only_the_standard_profile_gives_places(tmp_path: Path, profile: str) -> None:
    report = saved_report(campaign(tmp_path, 2, 2, profile=profile))
    text = markdown(report)
    assert ("place" in tables(text)[0][0]) == (profile == "standard")
    assert ("order nothing" in text) == (profile == "smoke")


def test_it_is_short(tmp_path: Path) -> None:
    report = saved_report(campaign(tmp_path, 20, 1))
    assert len(markdown(report).splitlines()) < 45


def test_a_hostile_name_stays_a_cell(tmp_path: Path) -> None:
    name = "x` | @someone <img src=http://127.0.0.1/x> [a](javascript:b)\n| \u202e"
    report = saved_report(campaign(tmp_path, [name], 1))
    text = markdown(report)
    (table,) = tables(text)
    assert [len(row) for row in table] == [9, 9]
    assert table[1][0] == "x` | @someone <img src=http://127.0.0.1/x> [a](javascript:b) | ⟨U+202E⟩"
    assert "<img" not in PARSER.render(text)


@given(st.text(st.characters()))
def test_code_is_one_code_span(text: str) -> None:
    (token,) = [token for token in PARSER.parse(f"before {code(text)} after") if token.type == "inline"]
    assert [child.type for child in token.children or []] == ["text", "code_inline", "text"]
