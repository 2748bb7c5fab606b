"""What makes two instances twins, and that everything else is refused for its own reason."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pytest_llmbench.grading.twins import NotTwins, Pair, Side, carries, drawn, shape, twin, type_tree

TEMPLATE = "The package $name reached version $version. Which of its $count numbers is the largest? Name it in a word."


def side(**changes: Any) -> Side:
    made = Side(
        template=TEMPLATE,
        slots={"name": "routes", "version": "2.5.1", "count": "three"},
        dated=frozenset({"name", "version"}),
        constraints=("one word",),
        grader="answers",
        answer={"largest": 5},
        steps={"rank": 2},
        shaped=frozenset({"version"}),
    )
    return replace(made, **changes)


def other(**slots: str) -> Side:
    return side(slots={"name": "xblock", "version": "6.9.4", "count": "three", **slots})


def test_sides_that_differ_in_dated_material_only_are_twins() -> None:
    assert twin(side(), other()) == {}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (replace(other(), template=f"{TEMPLATE} "), "template"),
        (replace(other(), slots={"version": "6.9.4", "name": "xblock", "count": "three"}), "slots"),
        (replace(other(), dated=frozenset({"name", "version", "count"})), "slots"),
        (other(count="seven"), "fixed"),
        (replace(other(), constraints=("one word", "no digit")), "constraints"),
        (replace(other(), grader="json"), "grader"),
        (replace(other(), code=True), "grader"),
        (replace(other(), answer={"largest": "9"}), "answer_type"),
        (replace(other(), steps={"rank": 1}), "steps"),
        (replace(other(), steps={"rank": 2, "carries": 0}), "steps"),
        (other(version="6.94"), "shape"),
        (other(name="xblock-of-many-parts"), "characters"),
        (other(name="x-b-l-k"), "tokens"),
        (other(name="xblo\nk"), "lines"),
        (replace(other(), answer={"largest": 10**40}), "answer_length"),
    ],
)
def test_every_other_difference_is_refused_for_its_own_reason(wrong: Side, reason: str) -> None:
    assert reason in twin(side(), wrong)
    assert set(twin(side(), wrong)) <= {reason, "characters", "tokens"}


def make(facts: Mapping[str, Any], chance: random.Random) -> Side | None:
    number = chance.randrange(10)
    if number < facts.get("least", 0):
        return None
    return side(slots={**facts["slots"], "count": str(number)}, answer={"largest": number}, steps=facts["steps"])


def pair(pre: Mapping[str, Any], post: Mapping[str, Any]) -> Pair:
    one, two = ({"slots": s.slots, "steps": {}} for s in (side(), other()))
    return Pair("X1", False, ({**one, **pre}, {**two, **post}))


def test_both_sides_are_drawn_alike_and_the_same_again() -> None:
    one, two = drawn(pair({}, {}), 0, 1, make)
    assert one.slots["count"] == two.slots["count"]
    assert drawn(pair({}, {}), 0, 1, make) == (one, two)


def test_a_draw_that_makes_no_instance_on_one_side_is_drawn_again() -> None:
    assert int(drawn(pair({}, {"least": 9}), 0, 1, make)[0].slots["count"]) == 9


def test_a_pair_without_a_twin_is_not_used_and_says_why() -> None:
    with pytest.raises(NotTwins, match=r"pair X1 is not used: steps: .*'rank', 1"):
        drawn(pair({"steps": {"rank": 1}}, {"steps": {"rank": 2}}), 0, 1, make)
    with pytest.raises(NotTwins, match="no draw made an instance"):
        drawn(pair({"least": 10}, {}), 0, 1, make)


def test_an_answer_that_a_constant_reply_would_earn_is_never_drawn() -> None:
    def constant(facts: Mapping[str, Any], chance: random.Random) -> Side:
        return side(slots=facts["slots"], answer=42)

    with pytest.raises(NotTwins):
        drawn(pair({}, {}), 0, 1, constant)


def test_shapes_types_and_carries() -> None:
    assert shape("Coyhaique 2025-03") == "Aaaaaaaaa 9999-99"
    assert type_tree({"a": [1, "x", None]}) == {"a": ["int", "str", "NoneType"]}
    assert carries([12, 1, 2]) == 0
    assert carries([95, 7]) == 2
