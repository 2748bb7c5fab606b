"""What a campaign's points say, what they do not, and that unmeasured nodes are never zeros."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from performance.simulation import WORLDS, Tally, level_a, models, record, simulate, stopping

from pytest_llmbench.records import Record
from pytest_llmbench.report.analysis import (
    ONE_MODEL,
    ONE_RUN,
    Analysis,
    ItemPart,
    Key,
    ModelSummary,
    analyse,
    compare,
    compare_text,
    power,
    power_text,
    separated,
)
from pytest_llmbench.report.notes import analysis_lines
from pytest_llmbench.spec import ItemSpec, RowSpec
from pytest_llmbench.store.folder import RunFolder, StoreError, dump

HALF, WHOLE = 10, 20
"""Points of a row and of an item; every item here has two rows."""
STEADY = (10, 10, 10)
WAVERING = (0, 14, 7)

Records = list[dict[str, Any]]


def item(name: str, level: str = "A") -> ItemSpec:
    rows = tuple(RowSpec(id=f"q{number}", title=f"Question {number}", points=Decimal(HALF)) for number in (1, 2))
    return ItemSpec.model_validate(
        {"id": name, "title": name, "version": "1.0.0", "level": level, "mode": "single", "points": WHOLE, "rows": rows}
    )


def node(name: str, run: int, model: str, points: float | None, level: str = "A", **fields: Any) -> dict[str, Any]:
    """A record; ``points`` fill the first row and then the second, None: the server broke."""
    made = record(item(name, level)) | {"run": run, "ref": model, "points": points}
    if points is None:
        made |= {"status": "runtime_error", "reason": "the server is gone", "rows": []}
    else:
        first = min(points, HALF)
        made["rows"] = [
            row | {"earned": earned} for row, earned in zip(made["rows"], (first, points - first), strict=True)
        ]
    return {**made, **fields}


def campaign(points: Mapping[str, Sequence[Sequence[float | None]]], level: str = "A") -> Records:
    """Records of each model's points, items × runs."""
    return [
        node(f"T{place:02}", run, model, one, level)
        for model, items in points.items()
        for place, runs in enumerate(items, 1)
        for run, one in enumerate(runs, 1)
    ]


def three() -> Records:
    """The best and the worst of these are separated, and the one between is level with both."""
    return campaign({"worst": [(4, 4, 4)] * 6, "between": [WAVERING] * 6, "best": [STEADY] * 6})


def pair(analysis: Analysis, first: str, second: str) -> tuple[float | None, bool]:
    """Difference of a pair in this order, and whether it is sustained."""
    for found in analysis.pairs:
        if {found.first, found.second} == {first, second}:
            sign = 1 if found.first == first else -1
            return None if found.difference is None else sign * found.difference, found.sustained
    raise AssertionError(f"{first} and {second} are no pair")


def test_a_model_is_summed_up_over_its_whole_runs() -> None:
    records = campaign({"m": [(10, 20, 12), (0, 4, 8)]})
    model = analyse(records).models["m"]
    assert (model.runs, model.mean, model.deviation, model.lowest, model.highest) == (3, 18, 7.2111, 10, 24)
    assert model.interval is not None
    assert sum(model.interval) / 2 == pytest.approx(18)


def test_what_was_not_measured_is_no_zero() -> None:
    analysis = analyse(campaign({"a": [(10, 20, None), (4, 6, 8)], "b": [(10, None, 20), (4, 6, 8)]}))
    assert [(analysis.models[name].runs, analysis.models[name].mean) for name in "ab"] == [(2, 20), (2, 21)]
    (only,) = analysis.pairs
    assert (only.difference, only.instances, only.left_out) == (0, 4, 2)


def test_a_planned_node_without_a_record_is_unmeasured() -> None:
    records = three()
    planned: list[Key] = [(one["item"], one["run"], one["ref"]) for one in records]
    analysis = analyse(records[1:], planned=planned)
    assert analysis.models["worst"].runs == 2
    assert [found.left_out for found in analysis.pairs] == [1, 1, 0]


def test_a_model_that_measured_nothing_has_no_figures_and_no_place() -> None:
    records = three()
    analysis = analyse(records, planned=[(f"T{number:02}", 1, "gone") for number in range(1, 7)])
    gone = analysis.models["gone"]
    assert (gone.runs, gone.mean, gone.deviation, gone.lowest, gone.interval) == (0, None, None, None, None)
    assert analysis.unranked == {"gone": "never measured: T01, T02, T03, T04, T05, T06"}
    assert analysis.ranking is not None
    assert {place.model for place in analysis.ranking} == {"worst", "between", "best"}


def test_models_that_nothing_separates_share_a_place() -> None:
    ranking = analyse(three()).ranking
    assert ranking is not None
    assert [(one.model, one.place, one.last, sorted(one.level_with)) for one in ranking] == [
        ("best", 1, 2, ["between"]),
        ("between", 1, 3, ["best", "worst"]),
        ("worst", 2, 3, ["between"]),
    ]


def test_one_run_has_no_spread_and_no_order() -> None:
    analysis = analyse(campaign({"good": [(20,)] * 11, "bad": [(0,)] * 11}))
    assert (analysis.ranking, analysis.ranking_why) == (None, ONE_RUN)
    assert (analysis.noise_floor, analysis.smallest_difference) == (None, None)
    assert analysis.models["good"].deviation is None
    assert not analysis.pairs[0].sustained


def test_one_model_is_no_ranking() -> None:
    assert analyse(campaign({"m": [(1, 2)]})).ranking_why == ONE_MODEL
    assert analyse(campaign({"m": [(1,)]})).ranking_why == ONE_RUN


def test_points_that_may_not_order_do_not() -> None:
    assert analyse(three(), ranks_why="Profile smoke").ranking_why == "Profile smoke"
    only_b = campaign({"a": [STEADY], "b": [WAVERING]}, level="B")
    assert analyse(only_b, "B").ranking_why == "Only level A ranks."


def test_levels_never_meet() -> None:
    others = [node(f"B{number}", run, "best", 20, level="B") for number in range(4) for run in (1, 2, 3)]
    assert analyse(three() + others) == analyse(three())
    assert analyse(three(), "C").models == {}
    assert list(analysis_lines(analyse(three(), "C"))) == []


def test_looking_often_asks_for_more() -> None:
    records = campaign({"a": [(10, 4, 10)] * 6, "b": [(4, 4, 4)] * 6})
    assert pair(analyse(records), "a", "b") == (24, True)
    assert pair(analyse(records, looks=10_000), "a", "b") == (24, False)


def test_the_noise_floor_lies_below_the_smallest_difference_that_several_pairs_sustain() -> None:
    analysis = analyse(three())
    assert analysis.noise_floor is not None
    assert analysis.smallest_difference is not None
    assert 0 < analysis.noise_floor < analysis.smallest_difference
    two = analyse(campaign({"a": [STEADY] * 3, "b": [WAVERING] * 3}))
    assert two.noise_floor == two.smallest_difference


def test_a_difference_in_every_item_holds_with_other_items_too_and_one_in_a_single_item_does_not() -> None:
    everywhere = campaign({"a": [(10, 12, 10)] * 6, "b": [(2, 0, 2)] * 6})
    assert [(one.sustained, one.beyond) for one in analyse(everywhere).pairs] == [(True, True)]
    two_items = [(20, 20, 20, 19)] * 2 + [(5, 6, 5, 6)] * 6
    elsewhere = campaign({"a": two_items, "b": [(0, 0, 1, 0)] * 2 + [(5, 5, 5, 5)] * 6})
    assert [(one.sustained, one.beyond) for one in analyse(elsewhere).pairs] == [(True, False)]


def test_rows_that_tell_no_models_apart_are_named() -> None:
    analysis = analyse(campaign({"a": [(10, 10), (15, 20)], "b": [(10, 10), (4, 20)]}))
    assert (analysis.rows_all, analysis.rows_none, analysis.rows) == (["T01 q1"], ["T01 q2"], 4)


def test_items_are_held_to_their_part_in_the_spread_and_in_the_noise() -> None:
    analysis = analyse(campaign({"a": [(9, 11), (5, 5), (1, 7)], "b": [(5, 7), (3, 3), (1, 7)]}))
    assert analysis.disagreeing == ["T03", "T01"]
    assert [analysis.items[name].noise for name in ("T01", "T02", "T03")] == [0.1, 0, 0.9]
    assert analysis.items["T01"].deviation == 1.4142


small = st.lists(
    st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=3, max_size=3), min_size=2, max_size=4
)


def figures(part: ModelSummary | ItemPart) -> list[float]:
    """All figures of a part of the analysis, -1 for those that are not known."""
    values = [
        value for field in part.model_dump().values() for value in (field if isinstance(field, tuple) else [field])
    ]
    return [-1 if value is None else value for value in values]


def named(points: Sequence[Sequence[Sequence[int]]], names: str) -> Records:
    return campaign({names[place]: block for place, block in enumerate(points)})


@settings(max_examples=40, deadline=None)
@given(small, st.randoms(use_true_random=False))
def test_names_and_the_order_of_records_mean_nothing(
    points: Sequence[Sequence[Sequence[int]]], chance: random.Random
) -> None:
    mixed = named(points, "wxyz")
    chance.shuffle(mixed)
    plain, other = analyse(named(points, "abcd")), analyse(mixed)
    rename = dict(zip("abcd", "wxyz", strict=True))
    for name, summary in plain.models.items():
        assert figures(other.models[rename[name]]) == pytest.approx(figures(summary), abs=1e-3)
    for found in plain.pairs:
        difference, sustained = pair(other, rename[found.first], rename[found.second])
        assert difference == pytest.approx(found.difference)
        assert sustained == found.sustained
    assert plain.ranking is not None
    assert other.ranking is not None
    assert {rename[one.model]: one.place for one in plain.ranking} == {one.model: one.place for one in other.ranking}
    assert other.noise_floor == pytest.approx(plain.noise_floor, abs=1e-3)
    for name, part in plain.items.items():
        assert figures(other.items[name]) == pytest.approx(figures(part), abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(small, st.integers(1, 20))
def test_a_constant_on_one_model_moves_its_differences_and_nothing_else(
    points: Sequence[Sequence[Sequence[int]]], constant: int
) -> None:
    raised = [[[one + constant * (not place) for one in runs] for runs in block] for place, block in enumerate(points)]
    before, after = analyse(named(points, "abcd")), analyse(named(raised, "abcd"))
    for old, new in zip(before.pairs, after.pairs, strict=True):
        assert old.difference is not None
        assert new.difference == pytest.approx(old.difference + 3 * constant * (old.first == "a"))
        assert old.interval is not None
        assert new.interval is not None
        assert new.interval[1] - new.interval[0] == pytest.approx(old.interval[1] - old.interval[0], abs=1e-3)
    assert after.noise_floor == before.noise_floor


@settings(max_examples=40, deadline=None)
@given(small)
def test_a_place_counts_the_better_models_and_the_rest_are_level(points: Sequence[Sequence[Sequence[int]]]) -> None:
    analysis = analyse(named(points, "abcd"))
    assert analysis.ranking is not None
    for one in analysis.ranking:
        others = [other.model for other in analysis.ranking if other.model != one.model]
        verdicts = {other: pair(analysis, one.model, other) for other in others}
        assert one.place == 1 + sum(sustained and (points or 0) < 0 for points, sustained in verdicts.values())
        assert set(one.level_with) == {other for other, (_, sustained) in verdicts.items() if not sustained}
    assert analysis.ranking[0].place == 1


def test_an_analysis_is_plain_json() -> None:
    for records in (three(), campaign({"m": [(1,)]}), [], campaign({"a": [(None, None)], "b": [(1, 2)]})):
        analysis = analyse(records)
        assert Analysis.model_validate(json.loads(dump(analysis.model_dump(mode="json")))) == analysis


# --- how many runs ---------------------------------------------------------------------------------------------------


def test_smaller_differences_need_more_runs() -> None:
    records = campaign({"a": [WAVERING] * 6, "b": [STEADY] * 6})
    runs = [power(records, difference).runs or 0 for difference in (60, 30, 10)]
    assert runs == sorted(runs)
    assert runs[0] < runs[2]
    assert power(records, 12).share == 0.1
    assert power(records, 0.001).runs is None


@pytest.mark.parametrize("records", [campaign({"m": [(1, 2)]}), campaign({"a": [(1,)], "b": [(2,)]}), []])
def test_noise_that_was_not_seen_cannot_be_planned_with(records: Records) -> None:
    with pytest.raises(ValueError, match="two models"):
        power(records, 5)


# --- until separated -------------------------------------------------------------------------------------------------


def test_models_that_are_told_apart_are_not_run_again() -> None:
    records = campaign({"a": [(20, 19)] * 8, "b": [(9, 11)] * 8, "c": [(11, 10)] * 8})
    found = separated(records, planned_runs=5)
    assert (found.settled, found.open_pairs, found.looks) == (("a",), (("b", "c"),), 4)


def test_one_round_settles_nothing() -> None:
    assert separated(campaign({"a": [(20,)] * 8, "b": [(0,)] * 8}), 5).settled == ()


def test_a_settled_model_stays_settled_and_the_others_are_held_against_its_runs() -> None:
    records = campaign({"a": [(20, 19)] * 8, "b": [(9, 11, 10)] * 8, "c": [(11, 10, 10)] * 8})
    assert separated(records, 5, already=["a"]).settled == ("a",)
    close = campaign({"a": [(10, 11)] * 8, "b": [(9, 11, 10)] * 8})
    assert separated(close, 5, already=["a"]).settled == ("a",)


def test_a_model_that_cannot_be_measured_holds_up_nobody() -> None:
    records = campaign({"a": [(20, 19)] * 8, "b": [(9, 11)] * 8, "broken": [(None, None)] * 8})
    assert separated(records, 5).settled == ("a", "b")
    assert separated(campaign({"a": [(20, 19)] * 8}), 5).settled == ()


# --- two campaigns ---------------------------------------------------------------------------------------------------


def test_a_campaign_against_itself_shows_no_change() -> None:
    found = compare(three(), three())
    assert (found.conditions, found.comparable, found.items_left_out) == ({}, True, ())
    assert [(one.rows, one.more_than_noise, one.left_out) for one in found.models] == [((), False, 0)] * 3


def test_every_row_that_changed_is_named() -> None:
    before, after = campaign({"m": [(10, 10), (4, 4)]}), campaign({"m": [(10, 13), (4, 4)]})
    (change,) = compare(before, after).models
    assert [(one.node, one.row, one.before, one.after) for one in change.rows] == [("T01-run2", "q2", 0, 3)]
    assert change.points == (14, 15.5)
    assert not change.more_than_noise


def test_a_difference_that_noise_does_not_explain_is_called_one() -> None:
    (change,) = compare(campaign({"m": [WAVERING] * 8}), campaign({"m": [(19, 20, 18)] * 8})).models
    assert change.more_than_noise


def test_nodes_that_only_one_campaign_measured_are_left_out() -> None:
    before, after = campaign({"m": [(10, None, 5), (4, 4, 6)]}), campaign({"m": [(10, 10, 6), (4, 4, None)]})
    (change,) = compare(before, after).models
    assert (change.instances, change.left_out, change.points) == (4, 2, (11.5, 12))


def test_other_instances_are_not_compared() -> None:
    after = [one | {"variant": 7} if one["item"] == "T02" else one for one in three()]
    found = compare(three(), after)
    assert found.items_left_out == ("T02",)
    assert found.conditions["variant"] == ("0", "0, 7")
    assert all(one.instances == 15 for one in found.models)


def test_another_harness_makes_no_difference_of_the_models() -> None:
    after = [one | {"harness_version": "9.9.9"} for one in three()]
    found = compare(three(), after)
    assert (found.comparable, found.conditions["harness"]) == (False, ("0.0.0 ()", "9.9.9 ()"))


def test_a_harness_that_was_changed_without_a_new_version_is_another_one() -> None:
    after = [one | {"fingerprints": {**one["fingerprints"], "harness": "f" * 64}} for one in three()]
    found = compare(three(), after)
    assert (found.comparable, found.conditions["harness"]) == (False, ("0.0.0 ()", f"0.0.0 ({'f' * 12})"))


def test_the_only_models_of_two_campaigns_are_compared_whatever_they_are_called() -> None:
    found = compare(campaign({"old": [STEADY]}), campaign({"new": [STEADY]}))
    assert [(one.before, one.after) for one in found.models] == [("old", "new")]
    several = compare(three(), campaign({"new": [STEADY]}))
    assert (several.models, set(several.models_left_out)) == ((), {"worst", "between", "best", "new"})


# --- what is printed -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(tmp_path / "run", three())


def saved(path: Path, records: Records) -> Path:
    """A run folder with these records."""
    run = RunFolder.create(path)
    for one in records:
        run.write_record(Record.model_validate(one))
    run.release()
    return path


def test_records_on_disk_and_in_any_order_give_one_analysis(folder: Path) -> None:
    shuffled = sorted(three(), key=lambda one: (one["item"], one["run"], one["ref"]))
    assert analyse(RunFolder(folder).records()) == analyse(shuffled)


def test_sentences_name_floor_orders_and_rows() -> None:
    same = [node("T07", run, model, HALF) for model in ("worst", "between", "best") for run in (1, 2, 3)]
    text = "\n".join(analysis_lines(analyse(three() + same)))
    assert re.search(r"Noise floor \d+\.\d\d points; smallest difference sustained at 95 %: \d+\.\d\d points", text)
    assert "1 of 3 orders are sustained on these items; 1 would hold with other items" in text
    assert "Rows without information, earned by every model in every run: T07 q1" in text
    assert "Rows without information, earned by none in every run: T07 q2" in text
    assert "Runs disagree most in: T01 (sd 4.04)" in text
    assert max(map(len, text.split("\n"))) < 200


def test_orders_that_may_not_rank_are_not_counted_as_sustained() -> None:
    text = "\n".join(analysis_lines(analyse(three(), ranks_why="Profile smoke")))
    assert "Noise floor" in text
    assert "orders are sustained" not in text


def test_the_runs_that_a_difference_needs_are_printed(folder: Path) -> None:
    assert power_text(folder, 12).split("\n")[1].startswith("  12.00 points (10.0 %): ")
    assert [line.split(":")[0] for line in power_text(folder).split("\n")[1:]] == [
        "  1.20 points (1.0 %)",
        "  2.40 points (2.0 %)",
        "  6.00 points (5.0 %)",
    ]
    with pytest.raises(StoreError, match="above zero"):
        power_text(folder, -1)


def test_two_campaigns_are_printed_side_by_side(folder: Path, tmp_path: Path) -> None:
    other = saved(tmp_path / "other", [one | {"think": "on"} for one in campaign({"best": [STEADY, (10, 9, 10)] * 3})])
    text = compare_text(folder, other)
    assert "  thinking: as the model has it -> on\n" in text
    assert "A difference may come from what differs above" in text
    assert "Left out, in one run only: between, worst" in text
    assert "best: 60.00 -> 59.00 points (-1.00); not more than noise (95 % interval" in text
    assert "T02-run2 q1: 10 -> 9 of 10  Question 1" in text
    assert "every row is the same" in compare_text(folder, folder)


def test_across_harnesses_and_profiles_no_difference_is_called_real(folder: Path, tmp_path: Path) -> None:
    better = [one | {"harness_version": "9.9.9"} for one in campaign({"worst": [(20, 20, 20)] * 6})]
    text = compare_text(folder, saved(tmp_path / "other", better))
    assert "  harness: 0.0.0 () -> 9.9.9 ()\n" in text
    assert "no difference between them is called one of the models" in text
    assert "worst: 24.00 -> 120.00 points (+96.00)\n" in text
    assert "noise" not in text


def test_without_a_common_level_there_is_nothing_to_compare(folder: Path, tmp_path: Path) -> None:
    other = saved(tmp_path / "other", campaign({"best": [STEADY]}, level="B"))
    assert compare_text(folder, other) == "The two runs have no level in common."


def broken(folder: Path) -> Iterator[None]:
    """Spoil a record in one way after another."""
    path = next((folder / "records").glob("*.json"))
    document = json.loads(path.read_text())
    for text in ("{", "[]", dump({"level": "A"}), dump(document | {"points": "many"}), dump(document | {"rows": None})):
        path.write_text(text)
        yield


def test_folders_that_cannot_be_read_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no records"):
        power_text(tmp_path)
    for _ in broken(folder):
        with pytest.raises(StoreError, match=str(folder)):
            power_text(folder)


# --- models of known strength ----------------------------------------------------------------------------------------


def test_simulated_models_have_the_strength_they_are_said_to_have() -> None:
    fleet = models(level_a(), 0.05, WORLDS["cascades"], default_rng(1))
    assert fleet.strengths == pytest.approx({"equal-1": 90, "equal-2": 90, "better": 100, "best": 110})
    analysis = analyse(fleet.records(300))
    assert Record.model_validate(next(fleet.records(1))).status == "measured"
    for model, strength in fleet.strengths.items():
        low, high = analysis.models[model].interval or (0, 0)
        assert low - 2 < strength < high + 2
        assert high - low < 10


@pytest.mark.parametrize("world", WORLDS)
def test_false_orders_are_rare_and_true_ones_are_found(world: str) -> None:
    close = simulate(level_a(), 0.01, 3, WORLDS[world], campaigns=20, seed=11)
    assert close.false <= 3
    wide = simulate(level_a(), 0.05, 16, WORLDS[world], campaigns=4, seed=12)
    assert wide.right >= 3
    assert wide.sustained >= wide.unequal / 4


def test_stopping_early_saves_runs_and_invents_no_order() -> None:
    tally, saving = stopping(level_a(), 0.2, 5, WORLDS["independent rows"], campaigns=8, seed=13)
    assert tally.false <= 1
    assert tally.sustained >= tally.unequal / 2
    assert 0 < saving < 1


def test_a_false_order_is_counted_as_one() -> None:
    tally = Tally()
    tally.count(analyse(three()), {"worst": 24, "between": 20, "best": 20})
    assert (tally.campaigns, tally.false, tally.sustained, tally.unequal) == (1, 1, 0, 2)
