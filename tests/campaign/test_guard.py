"""The time guard: what a deadline means, what is started before it, and a clock that jumps."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmbench.campaign.guard import Clock, DeadlineError, Guard, parse_deadline, spoken
from pytest_llmbench.harness.frozen import Profile

EVENING = datetime(2026, 3, 14, 22, 0, tzinfo=timezone(timedelta(hours=1)))
MARGIN, SHARE, NODE = (Profile().limit(name) for name in ("guard_margin_s", "guard_share", "guard_node_s"))


@pytest.mark.parametrize(
    ("text", "hours"), [("10h", 10), ("1h30m", 1.5), ("90s", 0.025), ("07:30", 9.5), ("22:30", 0.5), ("22:00", 24)]
)
def test_a_deadline_is_a_duration_or_the_next_such_time_of_day(text: str, hours: float) -> None:
    assert parse_deadline(text, EVENING) == EVENING + timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "soon", "10", "-3h", "0s", "25:00", "07:30+02:00", "1h 30m x", "9" * 400 + "h"])
def test_any_other_deadline_is_an_error_that_says_what_to_give(text: str) -> None:
    with pytest.raises(DeadlineError, match="1h30m"):
        parse_deadline(text, EVENING)


@given(st.text(max_size=20))
def test_no_text_breaks_the_reading_of_a_deadline(text: str) -> None:
    with contextlib.suppress(DeadlineError):
        assert parse_deadline(text, EVENING) > EVENING


class Night:
    """A night with a deadline, in which time passes as told."""

    def __init__(self, seconds: float) -> None:
        self.now = datetime(2026, 3, 14, tzinfo=UTC)
        self.guard = Guard(self.now + timedelta(seconds=seconds), Profile(), lambda: self.now)

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def test_the_first_run_of_a_model_is_held_against_a_stated_estimate() -> None:
    enough = 11 * NODE + MARGIN
    assert Night(enough).guard.decide("m", 1, 11).starts
    refused = Night(enough - 1).guard.decide("m", 1, 11)
    assert (refused.starts, refused.needed_s, refused.kind) == (False, enough, "estimate")
    assert f"11 x {NODE:g} s" in refused.basis


def test_a_later_run_is_held_against_the_models_own_last_run_and_the_share_and_margin() -> None:
    needed = 1000 * (1 + SHARE) + MARGIN
    for left, starts in ((needed, True), (needed - 1, False)):
        night = Night(left)
        night.guard.measured("m", 5000, 11)
        night.guard.measured("m", 1000, 11)
        decision = night.guard.decide("m", 2, 11)
        assert (decision.starts, decision.kind) == (starts, "last_run")
        assert decision.needed_s == pytest.approx(needed)


def test_another_models_speed_says_nothing() -> None:
    night = Night(3000)
    night.guard.measured("fast", 11, 11)
    assert not night.guard.decide("slow", 1, 11).starts


def test_a_run_of_fewer_nodes_needs_less() -> None:
    night = Night(10_000)
    night.guard.measured("m", 1100, 11)
    assert night.guard.decide("m", 2, 2).needed_s == pytest.approx(200 * (1 + SHARE) + MARGIN)


def test_after_a_run_was_refused_no_later_round_is_started_but_its_own_round_goes_on() -> None:
    night = Night(2 * MARGIN)
    night.guard.measured("fast", 1, 1)
    night.guard.measured("slow", 10 * MARGIN, 1)
    assert not night.guard.decide("slow", 2, 1).starts
    assert night.guard.decide("fast", 2, 1).starts
    refused = night.guard.decide("fast", 3, 1)
    assert (refused.starts, refused.kind) == (False, "earlier_round")
    assert "run 2" in refused.basis


def test_without_a_deadline_everything_is_started() -> None:
    assert Guard(None, Profile(), lambda: EVENING).decide("m", 1, 10_000).starts


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.floats(0, 1e4)), max_size=20),
    st.floats(1, 1e5),
)
def test_no_run_is_ever_started_that_would_outlast_the_deadline_if_it_took_as_long_as_the_last(
    steps: list[tuple[str, int, float]], seconds: float
) -> None:
    night, last = Night(seconds), dict[str, float]()
    for ref, run, took in steps:
        left = night.guard.left_s()
        assert left is not None
        if night.guard.decide(ref, run, 1).starts:
            assert last.get(ref, 0) <= left
            night.passes(took)
            night.guard.measured(ref, took, 1)
            last[ref] = took


def test_a_machine_that_slept_is_noticed_and_a_clock_that_drifts_is_not() -> None:
    wall, steady = [1000.0], [50.0]
    clock = Clock(5, wall=lambda: wall[0], steady=lambda: steady[0])
    wall[0], steady[0] = wall[0] + 60, steady[0] + 58
    assert clock.jump() is None
    wall[0], steady[0] = wall[0] + 3600, steady[0] + 2
    assert clock.jump() == 3598
    assert clock.jump() is None
    wall[0] -= 7200
    assert clock.jump() == -7200


@pytest.mark.parametrize(
    ("seconds", "text"), [(42.4, "42 s"), (62, "1 min 02 s"), (3900, "1 h 05 min"), (-61, "-1 min 01 s"), (0, "0 s")]
)
def test_lengths_of_time_are_told_as_people_read_them(seconds: float, text: str) -> None:
    assert spoken(seconds) == text
