"""Any reply text at all is graded: no exception, the same rows every time, nothing for nothing."""

from __future__ import annotations

from decimal import Decimal
from functools import cache

import pytest
from external.public import is_fetched
from hypothesis import given, settings
from hypothesis import strategies as st
from sandbox.confined import confined

from pytest_llmbench.bank import Item, load_bank, packaged_bank
from pytest_llmbench.campaign.validate import score_references
from pytest_llmbench.grading.grade import GraderError, delivery_of, grade
from pytest_llmbench.harness.references import nulls_for
from pytest_llmbench.records import Row
from pytest_llmbench.spec import Delivery, Instance, Verdict

BANK = load_bank(packaged_bank())
ITEMS = [item for item in BANK if item.spec.level == "A"]
ONE_OF_EACH = {item.path: item for item in BANK if item.spec.level != "A" and (item.spec.level != "B" or is_fetched())}
"""An item of every task of the other levels, whose items share their code."""
PIECES = [
    "ANSWER 1: 7\n",
    "ANSWER 2 = -3",
    "notice.txt\n",
    "````\n",
    "```",
    "<think>",
    "</think>",
    "\ud835",
    "\x1b[2J",
    "  ",
    "Hall\n\n",
    "#### 1,234.5 ",
    "ANSWER: B",
    "2026-12-01T07:30Z\n",
    "3.14, UNKNOWN",
    "answer.py\n````\ndef f(",
    "codes.txt\n````\n7KHX4M\n",
    "```python\n",
    "    return None\n",
]
REPLIES = st.one_of(
    st.text(), st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=30).map("".join)
)


@cache
def asked(item: Item) -> Instance:
    return item.build(0, 1)


def rows_of(item: Item, text: str) -> tuple[Row, ...]:
    return grade(item.task, asked(item), delivery_of(item.spec, text), confined()).rows


@pytest.mark.parametrize("item", [*ITEMS, *ONE_OF_EACH.values()], ids=lambda item: item.spec.id)
@settings(max_examples=60, deadline=None)
@given(reply=REPLIES)
def test_any_reply_is_graded_the_same_way_twice(item: Item, reply: str) -> None:
    first = rows_of(item, reply)
    assert [row.id for row in first] == [row.id for row in item.spec.rows]
    assert first == rows_of(item, reply)
    assert sum(row.earned for row in first) <= item.spec.points


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.spec.id)
def test_every_reference_earns_what_it_declares(item: Item) -> None:
    findings = list(score_references(item, variants=1 if item.spec.runs_code else 3, sandbox=confined()))
    assert [finding.wrong for finding in findings if finding.wrong] == []
    nulls = nulls_for(item.spec.mode)
    names = {finding.reference for finding in findings}
    assert names > {"golden", "defective", *(f"null:{name}" for name in nulls)}
    assert len(names) == len(findings) == 1 + len(nulls) + len(item.spec.references)
    assert sum(finding.reference.startswith("defective:") for finding in findings) >= 4


def test_the_defective_references_of_level_a_stay_low() -> None:
    scores = [score_references(item, variants=1, sandbox=confined()) for item in ITEMS]
    defective = [next(finding for finding in found if finding.reference == "defective") for found in scores]
    assert sum((finding.points for finding in defective), Decimal(0)) <= Decimal("38.55")


class Broken:
    """A grader that breaks its contract."""

    def __init__(self, verdicts: list[Verdict] | Exception) -> None:
        self.verdicts = verdicts

    def grade(self, instance: object, delivery: Delivery) -> list[Verdict]:
        if isinstance(self.verdicts, Exception):
            raise self.verdicts
        return self.verdicts


@pytest.mark.parametrize(
    ("verdicts", "message"),
    [
        (ZeroDivisionError("x"), "ZeroDivisionError"),
        ([], "q1"),
        ([Verdict(f"q{n}", True, "") for n in range(1, 8)], "q7"),
        ([Verdict(f"q{n}", Decimal(4), "") for n in range(1, 7)], "earned 4 of 3"),
        ([Verdict("q1", True, "")] * 6, "once"),
    ],
)
def test_a_grader_that_breaks_its_contract_is_a_harness_error(verdicts: object, message: str) -> None:
    item = next(item for item in ITEMS if item.spec.id == "A04")
    with pytest.raises(GraderError, match=message):
        grade(Broken(verdicts), item.build(0, 1), Delivery(text="x"))


def test_a_part_of_a_row_can_be_earned() -> None:
    item = next(item for item in ITEMS if item.spec.id == "A04")
    verdicts = [Verdict(f"q{n}", Decimal("1.5"), "") for n in range(1, 7)]
    graded = grade(Broken(verdicts), item.build(0, 1), Delivery(text="x"))
    assert sum(row.earned for row in graded.rows) == 9
