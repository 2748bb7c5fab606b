"""The arithmetic of noise, against examples computed by hand and against what must hold of any points."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytest_llmbench.stats import (
    ALPHA,
    MOST_RUNS,
    POWER,
    Array,
    Estimate,
    across_items,
    holm,
    item_parts,
    look_alpha,
    power_of_runs,
    quadratic_mean,
    run_variances,
    runs_needed,
    stratified,
    usual_variances,
)

NAN = math.nan
quarters = st.integers(-80, 80).map(lambda number: number / 4)
blocks = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 12), st.integers(2, 5)), elements=quarters, fill=st.nothing()
)


def estimate(values: list[list[float]] | Array) -> Estimate:
    found = stratified(np.array(values, dtype=np.float64))
    assert found is not None
    return found


def test_noise_is_the_spread_over_runs_within_each_item() -> None:
    found = estimate([[1, 3], [2, 2]])
    assert (found.value, found.error, found.cells, found.left_out, found.differing) == (4, 1, 4, 0, 4)
    assert found.freedom == pytest.approx(1)
    assert found.half_width() == pytest.approx(12.7062, abs=1e-4)
    assert found.p == pytest.approx(1 - 2 * math.atan(4) / math.pi)


def test_items_may_differ_as_they_like_without_adding_noise() -> None:
    assert estimate([[9, 11], [-20, -20]]).error == estimate([[9, 11], [3, 3]]).error == 1


def test_degrees_of_freedom_are_at_most_those_of_the_runs() -> None:
    assert estimate([[0, 2], [0, 2]]).freedom == 2
    assert estimate([[0, 2, 4], [0, 2, 4], [0, 2, 4]]).freedom == 6
    assert estimate([[5, 5], [5, 5], [5, 5]]).freedom == 3


def test_what_was_not_measured_is_left_out_and_counted() -> None:
    found = estimate([[1, 3, NAN], [2, 2, 2]])
    assert (found.value, found.error, found.cells, found.left_out) == (4, 1, 5, 1)


def test_an_item_measured_once_borrows_the_largest_variance() -> None:
    assert estimate([[1, 3], [5, NAN], [7, 7]]).error == pytest.approx(math.sqrt(1 + 2))


def test_what_is_usual_for_an_item_counts_as_one_more_degree_of_freedom() -> None:
    values, usual = np.array([[1.0, 3, 2], [4, 4, 4], [5, 7, 6]]), np.array([5.0, 2, NAN])
    found = stratified(values, usual)
    assert found is not None
    assert found.error == pytest.approx(math.sqrt(((2 * 1 + 5) / 3 + (0 + 2) / 3 + 1) / 3))
    assert found.value == 12


def test_what_is_usual_is_pooled_over_the_models() -> None:
    found = usual_variances(np.array([[[1.0, 3], [1, NAN]], [[4, 4], [NAN, 2]]]))
    assert found[0] == 1
    assert np.isnan(found[1])


@pytest.mark.parametrize(
    "values", [[[1.0], [2.0]], [[NAN, NAN], [1, 2]], [[1, NAN], [NAN, 2]]], ids=["one run", "no item", "no two runs"]
)
def test_nothing_is_known_of_noise_that_was_not_seen(values: list[list[float]]) -> None:
    assert stratified(np.array(values)) is None


def test_no_items_are_no_estimate() -> None:
    assert stratified(np.empty((0, 3))) is None
    assert across_items(np.empty((0, 3))) is None


def test_no_spread_is_no_certainty() -> None:
    assert estimate([[18, 18, 18], [0, 0, 0]]).p == 0.25
    assert estimate([[18, 18, 18], [1, 1, 1]]).p == 1 / 32
    assert estimate([[0, 0, 0], [0, 0, 0]]).p == 1


def test_binary_rounding_is_no_difference() -> None:
    third = 0.1 + 0.2 - 0.3
    assert third != 0
    assert estimate([[third, third], [0, 0]]).differing == 0


def test_with_other_items_noise_is_the_spread_between_items() -> None:
    found = across_items(np.array([[1.0, 3], [4, 4], [6, 6]]))
    assert found is not None
    assert (found.value, found.freedom) == (12, 2)
    assert found.error == pytest.approx(math.sqrt(3 * 4))
    assert across_items(np.array([[1.0, 2]])) is None
    assert across_items(np.array([[1.0, 2], [NAN, NAN]])) is None


@given(blocks, st.integers(0, 99))
def test_the_order_of_items_and_runs_means_nothing(values: Array, seed: int) -> None:
    mixed = np.random.default_rng(seed).permuted(values, axis=1)[::-1]
    first, second = estimate(values), estimate(mixed)
    assert first.value == pytest.approx(second.value)
    assert first.error == pytest.approx(second.error)
    assert first.p == pytest.approx(second.p)


@given(blocks)
def test_the_first_model_and_the_second_are_treated_alike(values: Array) -> None:
    first, second = estimate(values), estimate(-values)
    assert first.value == -second.value
    assert (first.error, first.p) == (second.error, second.p)


@given(blocks, quarters)
def test_a_constant_on_one_model_moves_the_difference_and_not_its_noise(values: Array, constant: float) -> None:
    before, after = estimate(values), estimate(values + constant)
    assert after.value == pytest.approx(before.value + constant * len(values))
    assert after.error == pytest.approx(before.error)
    assert after.freedom == pytest.approx(before.freedom)


@given(blocks)
def test_an_interval_without_zero_and_a_small_p_are_one_thing(values: Array) -> None:
    found = estimate(values)
    if found.error and found.differing > 20:
        assert (abs(found.value) > found.half_width()) == (found.p < ALPHA)
    assert 0 <= found.p <= 1


@given(blocks, st.data())
def test_nothing_raises_where_nodes_are_missing(values: Array, data: st.DataObject) -> None:
    gaps = data.draw(arrays.arrays(np.bool_, values.shape))
    values = np.where(gaps, NAN, values)
    for found in (stratified(values), across_items(values)):
        if found is not None:
            assert found.cells + found.left_out == values.size
            assert math.isfinite(found.half_width())
            assert 0 <= found.p <= 1


def test_a_variance_needs_two_runs() -> None:
    found = run_variances(np.array([[1.0, 3, NAN], [2, NAN, NAN], [4, 4, 4]]))
    assert found[0] == 2
    assert np.isnan(found[1])
    assert found[2] == 0


def false_claims(noise: np.random.Generator, runs: int, campaigns: int) -> float:
    """Share of pairs of equal models that are told apart; each is better at other items."""
    talents = noise.normal(0, 5, (campaigns, 11, 1))
    values = talents - talents.mean(axis=1, keepdims=True) + noise.normal(0, 3, (campaigns, 11, runs))
    return float(np.mean([estimate(one).p <= ALPHA for one in values]))


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_equal_models_are_told_apart_as_often_as_stated_and_not_more(runs: int) -> None:
    assert 0.035 < false_claims(np.random.default_rng(runs), runs, 3_000) <= 0.055


def test_chance_on_one_item_is_never_taken_for_a_difference() -> None:
    noise = np.random.default_rng(7)
    for _ in range(500):
        values = np.zeros((11, 5))
        values[3] = noise.choice([-8.0, 0.0, 8.0], 5)
        assert estimate(values).p > ALPHA


def test_p_values_are_adjusted_step_by_step() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.9]) == [1, 1]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_adjusting_never_lowers_a_p_value_nor_changes_their_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(after >= before and after <= 1 for before, after in zip(p_values, adjusted, strict=True))
    ranked = [adjusted[place] for place in sorted(range(len(p_values)), key=p_values.__getitem__)]
    assert ranked == sorted(ranked)


def test_looks_share_alpha() -> None:
    assert look_alpha(1) == ALPHA
    assert look_alpha(4) == ALPHA / 4
    with pytest.raises(ValueError, match="0 looks"):
        look_alpha(0)


def test_the_quadratic_mean_of_nothing_is_nothing() -> None:
    assert quadratic_mean([3, 4, 5]) == pytest.approx(math.sqrt(50 / 3))
    assert quadratic_mean([]) is None


def test_each_item_has_its_part_in_the_spread() -> None:
    better, worse = [[9.0, 11], [5, 5]], [[5.0, 7], [3, 3]]
    parts = item_parts(np.array([better, worse]))
    assert parts.between == pytest.approx([11 / 17, 6 / 17])
    assert parts.noise == pytest.approx([1, 0])
    assert parts.deviation == pytest.approx([math.sqrt(2), 0])


def test_one_run_has_no_parts() -> None:
    parts = item_parts(np.array([[[1.0], [2]], [[3.0], [4]]]))
    assert np.isnan([parts.between, parts.noise, parts.deviation]).all()


def test_one_model_has_noise_and_no_differences() -> None:
    parts = item_parts(np.array([[[1.0, 3], [2, 2]]]))
    assert np.isnan(parts.between).all()
    assert parts.noise == pytest.approx([1, 0])


@given(arrays.arrays(np.float64, st.tuples(st.integers(2, 4), st.integers(1, 6), st.integers(2, 4)), elements=quarters))
def test_parts_add_up_to_the_whole(points: Array) -> None:
    parts = item_parts(points)
    for shares in (parts.between, parts.noise):
        assert np.isnan(shares).all() or shares.sum() == pytest.approx(1, abs=1e-6)


def test_the_runs_of_a_plain_paired_t_test_are_those_of_the_textbook() -> None:
    assert runs_needed(variance=4, freedom=1, difference=1, comparisons=1) == 34
    assert runs_needed(variance=1, freedom=1, difference=1, comparisons=1) == 10


def test_smaller_differences_noisier_models_and_more_pairs_need_more_runs() -> None:
    plain = runs_needed(80, 6, 10, 1)
    assert plain is not None
    for harder in (runs_needed(80, 6, 5, 1), runs_needed(320, 6, 10, 1), runs_needed(80, 6, 10, 45)):
        assert harder is not None
        assert harder > plain


def test_some_differences_are_out_of_reach_and_some_need_no_more_than_two_runs() -> None:
    assert runs_needed(1e6, 6, 0.01, 1) is None
    assert runs_needed(0, 6, 1, 1) == runs_needed(1e-12, 6, 100, 190) == 2


@pytest.mark.parametrize(("difference", "pairs"), [(0, 1), (-1, 1), (NAN, 1), (1, 0)])
def test_no_difference_cannot_be_planned_for(difference: float, pairs: int) -> None:
    with pytest.raises(ValueError, match="above zero"):
        power_of_runs(10, 5, difference, pairs)


@given(st.floats(0, 1e6), st.floats(0.5, 50), st.floats(1e-3, 1e3), st.integers(1, 4950))
def test_power_is_a_probability_that_grows_with_the_runs(
    variance: float, freedom: float, difference: float, pairs: int
) -> None:
    power = power_of_runs(variance, freedom, difference, pairs)
    assert len(power) == MOST_RUNS - 1
    assert ((power >= 0) & (power <= 1)).all()
    assert (np.diff(power) > -1e-6).all()


def test_planned_runs_sustain_the_difference_as_often_as_promised() -> None:
    noise, items = np.random.default_rng(3), 11
    runs = runs_needed(items * 9, items, 15, 1)
    assert runs is not None
    values = noise.normal(15 / items, 3, (1_000, items, runs))
    sustained = float(np.mean([estimate(one).p <= ALPHA for one in values]))
    assert POWER - 0.03 < sustained < 0.95
    fewer = noise.normal(15 / items, 3, (1_000, items, runs - 1))
    assert float(np.mean([estimate(one).p <= ALPHA for one in fewer])) < POWER + 0.03
