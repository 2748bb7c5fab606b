"""Hidden cases: equality is strict about types, a row needs every case, and public evidence gives no case away."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox.confined import confined

from pytest_llmbench.grading.hidden_tests import Case, judge, same, verdict
from pytest_llmbench.sandbox.calls import Worker, open_worker

SOURCE = """
from decimal import InvalidOperation

def give(value): return value
def refuse(name): raise {"own": Own, "decimal": InvalidOperation, "key": KeyError}[name]("secret-4711")
def endless(value):
    while True: pass
def odd(value): return (item for item in value)

class Own(ValueError): pass
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with open_worker(confined(), {"delivered.py": SOURCE}, "delivered") as opened:
        yield opened


EQUAL: list[tuple[Any, Any]] = [
    (1, 1),
    (0.0, -0.0),
    (Decimal("1.50"), Decimal("1.5")),
    ({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
    ([(), [], {}], [(), [], {}]),
    ({1, "a"}, {"a", 1}),
    (frozenset({(1, frozenset({2}))}), frozenset({(1, frozenset({2}))})),
    (None, None),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (0, False),
    (0, None),
    (1, Decimal(1)),
    (1.5, Decimal("1.5")),
    ("1", 1),
    ([1], (1,)),
    ([1], [True]),
    ([1], [1, 1]),
    ({"a": 1}, {"a": 1.0}),
    ({"a": 1}, {"a": 1, "b": 1}),
    ({"a": 1}, {"b": 1}),
    ({1}, {True}),
    ({(1,)}, {(1.0,)}),
    ({1}, frozenset({1})),
    ({1: 1}, {True: 1}),
    (math.nan, math.nan),
    ([math.nan], [math.nan]),
    ({math.nan}, {math.nan}),
    (Decimal("NaN"), Decimal("NaN")),
    (type("Int", (int,), {})(1), 1),
]


@pytest.mark.parametrize(("left", "right"), EQUAL)
def test_these_are_the_same(left: Any, right: Any) -> None:
    assert same(left, right)
    assert same(right, left)


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_these_are_not_the_same(left: Any, right: Any) -> None:
    assert not same(left, right)
    assert not same(right, left)


def test_a_row_is_earned_by_all_of_its_cases_and_by_nothing_less(worker: Worker) -> None:
    good, bad = Case("give", (1,), "one", 1), Case("give", (1,), "one as a float", 1.0)
    assert verdict("row", judge(worker, [good, good])).earned is True
    assert verdict("row", judge(worker, [good, bad])).earned is False
    assert verdict("row", []).earned is False
    assert verdict("row", judge(worker, [good])).hidden == ""


def test_an_expected_exception_may_be_a_derived_one(worker: Worker) -> None:
    def passes(name: str, raises: str) -> bool:
        return judge(worker, [Case("refuse", (name,), "refused", raises=raises)])[0].passed

    assert passes("own", "Own")
    assert passes("own", "ValueError")
    assert passes("decimal", "ArithmeticError")
    assert passes("key", "LookupError")
    assert not passes("key", "ValueError")
    assert not judge(worker, [Case("give", (1,), "given", raises="ValueError")])[0].passed
    assert not judge(worker, [Case("refuse", ("own",), "refused", "Own")])[0].passed
    assert not judge(worker, [Case("missing", (), "no such function", raises="AttributeError")])[0].passed


def test_a_property_decides_outside_and_may_fail_on_a_value_of_another_shape(worker: Worker) -> None:
    def ascending(value: list[int]) -> str | None:
        return None if value == sorted(value) else f"{value} is not in order"

    arguments: list[object] = [[1, 2], [2, 1], 5, None, [1, "a"]]
    outcomes = judge(worker, [Case("give", (value,), "a list", holds=ascending) for value in arguments])
    assert [outcome.passed for outcome in outcomes] == [True, False, False, False, False]
    assert "[2, 1] is not in order" in outcomes[1].hidden
    assert "[2, 1]" not in outcomes[1].said
    assert "TypeError" in outcomes[2].hidden


def test_keyword_arguments_belong_to_a_case(worker: Worker) -> None:
    [outcome] = judge(worker, [Case("give", (), "by name", 3, named={"value": 3})])
    assert outcome.passed
    assert "value=3" in outcome.hidden


SECRETS = ("secret-4711", 834_771, ["secret-4711", 834_771], {"secret-4711": 834_771}, "\x1b[31msecret-4711\n" * 1000)


@pytest.mark.parametrize("secret", SECRETS, ids=[type(secret).__name__ for secret in SECRETS])
@pytest.mark.parametrize("function", ["give", "refuse", "odd", "missing"])
def test_public_evidence_says_what_happened_and_gives_no_case_away(
    worker: Worker, secret: object, function: str
) -> None:
    outcomes = judge(worker, [Case(function, (secret,), "a long text", expected=(secret, 834_771))])
    judged = verdict("row", outcomes)
    assert judged.earned is False
    assert function in judged.evidence
    assert "a long text" in judged.evidence
    assert "expected" in judged.evidence
    for hint in ("4711", "834"):
        assert hint not in judged.evidence
    assert "4711" in judged.hidden or "834" in judged.hidden
    assert judged.evidence.isprintable()
    assert len(judged.evidence) < 400
    assert len(judged.hidden) < 10_000


def test_evidence_tells_kinds_apart(worker: Worker) -> None:
    def said(*case: Any) -> str:
        return judge(worker, [Case(*case)], deadline_s=0.3)[0].said

    assert said("give", ([1],), "x", [2]) == (
        "give(…), x: it returned a list of length 1; expected a list of length 1 with other content"
    )
    assert said("give", (1,), "x", True) == "give(…), x: it returned an integer; expected a truth value"
    assert said("refuse", ("key",), "x", 1) == "refuse(…), x: it raised KeyError; expected an integer"
    assert said("refuse", ("own",), "x", 1) == "refuse(…), x: it raised an exception; expected an integer"
    assert said("endless", (1,), "x", "y") == "endless(…), x: no answer within 0.3 s; expected a str of length 1"
    assert said("missing", (), "x", None) == (
        "missing(…), x: its module could not be used: that raised AttributeError; expected None"
    )
    assert said("odd", ("a",), "x", Decimal(1)) == (
        "odd(…), x: unsupported type or size of the returned value; expected a decimal"
    )
    assert said("give", (1,), "x", 1) == "give(…), x: it returned an integer, as expected"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(PLAIN, PLAIN)
def test_the_same_is_symmetric_and_implies_equality(left: object, right: object) -> None:
    assert same(left, left)
    assert same(left, right) == same(right, left)
    assert not same(left, right) or left == right


def test_no_case_is_tried_after_one_that_ran_into_a_limit() -> None:
    source = "def wait(x):\n    while x == 2:\n        pass\n    return x\n"
    with open_worker(confined(), {"slow.py": source}, "slow") as worker:
        outcomes = judge(worker, [Case("wait", (x,), "a number", x) for x in (1, 2, 3)], deadline_s=0.3)
    assert [outcome.passed for outcome in outcomes] == [True, False]
    assert "1 of 2 hidden cases failed" in verdict("row", outcomes).evidence
