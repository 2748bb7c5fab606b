"""A11, a suite against mutants: the module does what it says, mutants differ, references earn what they should."""

from __future__ import annotations

import ast
import json
import random
import re
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from sandbox.confined import confined

from pytest_llmbench.bank import read_items
from pytest_llmbench.grading.grade import Graded, delivery_of, grade
from pytest_llmbench.grading.mutation import SUITE_CPU_S
from pytest_llmbench.grading.rewriting import rewritten
from pytest_llmbench.harness.references import NULLS, nulls_for, reply_text
from pytest_llmbench.harness.single import opening
from pytest_llmbench.sandbox.suite import MAX_METHODS
from pytest_llmbench.spec import Delivery, Instance, Reference

FILE = "test_invoice.py"
ROOT = Path(__file__).parents[2]
ITEM = read_items(ROOT / "items/level_a/a11_test_suite/item.toml")[0]
TASK: Any = ITEM.task
INSTANCES = [ITEM.build(variant, run) for variant in range(12) for run in (1, 2, 3)]
FIRST = INSTANCES[0]
GRADED = [FIRST, ITEM.build(0, 2), ITEM.build(7, 1)]
NAMES = sorted(ITEM.spec.references)
MUTANTS = ["step", "no_cap", "later_sum", "half_even", "year_end", "member_threshold", "same_start", "float_tax"]
variants = st.integers(0, 10**6)


def world(instance: Instance) -> Any:
    return instance.data["world"]


def scored(instance: Instance, delivery: Delivery | Reference) -> Graded:
    if isinstance(delivery, Reference):
        delivery = delivery_of(ITEM.spec, reply_text(delivery))
    return grade(ITEM.task, instance, delivery, confined())


def score(graded: Graded) -> tuple[Decimal, set[str]]:
    """The points, and the rows that are not earned in full."""
    return sum((row.earned for row in graded.rows), Decimal(0)), {
        row.id for row in graded.rows if row.earned < row.points
    }


def evidence(graded: Graded) -> dict[str, str]:
    assert all(row.evidence and row.evidence.isprintable() and len(row.evidence) < 1000 for row in graded.rows)
    return {row.id: row.evidence for row in graded.rows}


def dates() -> st.SearchStrategy[tuple[tuple[int, int, int], tuple[int, int, int]]]:
    """Start and end of a hire that the docstrings allow."""
    start = st.dates(date(2020, 1, 1), date(2026, 12, 31)).filter(lambda day: day.day <= 28)
    pairs = start.flatmap(lambda day: st.tuples(st.just(day), st.dates(day, date(2028, 12, 31))))
    same_day = st.tuples(start, st.integers(0, 2)).map(lambda p: (p[0], p[0].replace(year=p[0].year + p[1])))
    brief = st.tuples(start, st.integers(0, 62)).map(lambda p: (p[0], p[0] + timedelta(p[1])))
    return st.one_of(pairs, same_day, brief).map(lambda p: (_triple(p[0]), _triple(p[1])))


def _triple(day: date) -> tuple[int, int, int]:
    return day.year, day.month, day.day


def orders(instance: Instance) -> st.SearchStrategy[Any]:
    """Arguments of an invoice: any that the docstrings allow, with the constants of the instance among the prices."""
    values = world(instance).values

    def around(*names: str) -> st.SearchStrategy[int]:
        return st.tuples(st.sampled_from([values[name] for name in names]), st.integers(-1, 1)).map(sum)

    limits = around("low_sum", "high_sum", "free_from", "most_discount")
    price = st.one_of(limits, st.integers(1, 10**6), st.integers(10**15, 10**20))
    line = st.tuples(price, dates()).map(lambda pair: (pair[0], *pair[1]))
    alike = st.tuples(line, dates(), dates()).map(_alike)
    lines = st.one_of(line.map(lambda only: [only]), st.lists(line, min_size=2, max_size=3), alike)
    distance = st.one_of(around("near"), st.integers(0, 500))
    return st.tuples(lines, distance, st.booleans())


def _alike(drawn: Any) -> Any:
    """A line, and others that share its price, its price and start, or its dates."""
    (price, start, end), other, later = drawn
    return [(price, start, end), (price, *other), (price, start, max(start, later[1])), (price + 1, start, end)]


def probe(instance: Instance, name: str) -> Any:
    """An order whose invoice is another with the mutant.

    Raises:
        NoSuchExample: where none is found: the mutant is equivalent.
    """
    right, wrong = world(instance).correct["invoice"], world(instance).faulty_invoices[name]
    return find(
        orders(instance),
        lambda order: right(*order) != wrong(*order),
        settings=settings(database=None, max_examples=20_000, derandomize=True, phases=[Phase.generate]),
    )


# --- the module ------------------------------------------------------------------------------------------------------


def expected(instance: Instance, lines: Any, distance: int, member: bool) -> list[int]:
    """An invoice worked out in another way, from the prose and the numbers of the instance."""
    n = {name: value for name, value in world(instance).values.items() if isinstance(value, int)}

    def cents(amount: int, rate: int) -> int:
        return int((Decimal(amount) * rate / 100).quantize(Decimal(1), ROUND_HALF_UP))

    rentals = 0
    for price, start, end in lines:
        begun, (year, month, day) = 0, start
        while begun == 0 or (year, month, day) < end:
            begun += 1
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            rentals += price if begun <= n["full_months"] else cents(price, n["later_rate"])
    rate = n["high_rate"] if rentals >= n["high_sum"] else n["low_rate"] if rentals >= n["low_sum"] else 0
    discount = min(cents(rentals, rate + member * n["member_rate"]), n["most_discount"])
    goods, delivery, reach = rentals - discount, n["base_fee"], n["near"]
    while reach < distance:
        reach, delivery = reach + n["step"], delivery + n["step_fee"]
    delivery = 0 if goods >= n["free_from"] else delivery
    tax, deposit = cents(goods + delivery, n["tax_rate"]), cents(rentals, n["deposit_rate"])
    return [rentals, discount, goods, delivery, tax, deposit, goods + delivery + tax + deposit]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(INSTANCES))
def test_the_module_does_what_its_docstrings_say(data: st.DataObject, instance: Instance) -> None:
    order = data.draw(orders(instance))
    bill = world(instance).correct["invoice"](*order)
    assert list(bill) == [world(instance).values[key] for key in TASK.KEYS]
    assert list(bill.values()) == expected(instance, *order)


def test_the_examples_in_the_docstrings_are_true_and_find_no_mutant() -> None:
    for instance, name in product(INSTANCES, ("", *MUTANTS)):
        functions = world(instance).load(world(instance).faulty[name]) if name else world(instance).correct
        assert functions["percent"](3, 50) == 2
        assert functions["months"]((2022, 1, 15), (2022, 3, 15)) == 2
        assert functions["months"]((2022, 1, 15), (2022, 3, 16)) == 3


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(INSTANCES), st.sampled_from(MUTANTS), st.integers(0, 10**6))
def test_a_rewritten_mutant_behaves_the_same(data: st.DataObject, instance: Instance, name: str, seed: int) -> None:
    order = data.draw(orders(instance))
    again = world(instance).load(rewritten(world(instance).faulty[name], random.Random(seed)))["invoice"]
    assert again(*order) == world(instance).faulty_invoices[name](*order)


# --- the mutants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_differs_by_one_change_loads_and_behaves_differently(name: str) -> None:
    for instance in INSTANCES:
        assert [mutant.name for mutant in world(instance).mutants] == MUTANTS
        source, faulty = world(instance).source, world(instance).faulty[name]
        lines = zip(source.splitlines(), faulty.splitlines(), strict=True)
        assert len([1 for right, wrong in lines if right != wrong]) == 1
        assert name in world(instance).found_by(world(instance).order_for(name))


@pytest.mark.parametrize("name", MUTANTS)
def test_an_input_is_found_on_which_a_mutant_differs(name: str) -> None:
    for instance in (FIRST, INSTANCES[-1]):
        assert name in world(instance).found_by(probe(instance, name))


@pytest.mark.parametrize("run", [1, 2, 3])
def test_the_stored_inputs_still_tell_the_published_mutants_apart(run: int) -> None:
    instance = ITEM.build(0, run)
    stored = json.loads((ITEM.side("mutants") / "probes.json").read_text(encoding="utf-8"))[str(run)]
    assert sorted(stored) == sorted(MUTANTS)
    for name, entry in stored.items():
        lines, distance, member = entry["order"]
        order = [(price, tuple(start), tuple(end)) for price, start, end in lines], distance, member
        assert world(instance).correct["invoice"](*order) == entry["correct"], name
        assert world(instance).faulty_invoices[name](*order) == entry["faulty"], name
        assert entry["correct"] != entry["faulty"], name


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(INSTANCES))
def test_the_subtlest_mutants_need_lines_that_agree_or_huge_amounts(data: st.DataObject, instance: Instance) -> None:
    lines, distance, member = data.draw(orders(instance))
    found = world(instance).found_by((lines, distance, member))
    if len({(price, start) for price, start, _ in lines}) == len(lines):
        assert "same_start" not in found
    if all(price <= 10**6 for price, _, _ in lines):
        assert "float_tax" not in found


def test_mutants_differ_from_one_another() -> None:
    for instance in INSTANCES:
        invoices = world(instance).faulty_invoices
        results = {name: str([invoices[name](*order) for order in world(instance).orders()]) for name in MUTANTS}
        assert len(set(results.values())) == len(MUTANTS)


# --- references ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance", GRADED, ids=lambda i: f"variant {i.variant} run {i.run}")
def test_the_golden_suite_earns_every_point(instance: Instance) -> None:
    assert score(scored(instance, ITEM.task.golden(instance))) == (Decimal(18), set())


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_defect_loses_exactly_its_rows(name: str) -> None:
    declared = ITEM.spec.references[name]
    for instance in (FIRST, GRADED[-1]):
        defects = ITEM.task.defects(instance)
        assert sorted(defects) == NAMES
        graded = scored(instance, defects[name])
        assert score(graded) == (declared.points, set(declared.loses)), evidence(graded)


def test_a_missing_import_is_repaired_and_listed() -> None:
    graded = scored(FIRST, ITEM.task.defects(FIRST)["missing_import"])
    assert graded.repairs == (f"{FILE}: added `import unittest`",)


def test_every_variant_has_its_references_and_a_prompt_of_the_same_length() -> None:
    for instance in INSTANCES:
        suites = {"golden": ITEM.task.golden(instance), **ITEM.task.defects(instance)}
        for name, reference in suites.items():
            suite = reference.files[FILE]
            assert "$" not in suite
            assert name == "syntax_error" or ast.parse(suite)
        assert "$" not in instance.prompt
        assert abs(len(instance.prompt) - len(FIRST.prompt)) <= 0.05 * len(FIRST.prompt)


@settings(max_examples=40, deadline=None)
@given(variants, st.integers(1, 50))
def test_any_variant_can_be_built_with_its_golden_suite(variant: int, run: int) -> None:
    instance = ITEM.build(variant, run)
    assert all(name in world(instance).found_by(world(instance).order_for(name)) for name in MUTANTS)
    space: dict[str, Any] = {}
    exec(world(instance).source, space)
    golden = ITEM.task.golden(instance).files[FILE]
    calls = re.findall(r"assertEqual\((\w+\(.+\)), (.+)\)$", golden, re.MULTILINE)
    assert len(calls) >= 20
    for call, value in calls:
        if "day" not in call:
            assert eval(call, dict(space)) == eval(value), call
    assert ITEM.task.defects(instance).keys() == ITEM.spec.references.keys()


# --- what can be had for nothing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", nulls_for("single"))
def test_null_strategies_earn_nothing(kind: str) -> None:
    for instance in GRADED:
        reply = NULLS[kind](instance)(opening(instance))
        assert score(scored(instance, delivery_of(ITEM.spec, reply)))[0] <= Decimal("0.9")


def test_a_suite_of_types_and_signs_finds_none_of_eight() -> None:
    graded = scored(FIRST, ITEM.task.defects(FIRST)["trivial_types"])
    assert next(row.earned for row in graded.rows if row.id == "mutants") == 0
    assert evidence(graded)["mutants"].count("survived") == 8


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "\ud800",
        "# TestCase \ud800",
        "TestCase" + "(" * 100_000,
        "class TestCase: pass\n" * 20_000,
        "TestCase = " + "-" * 90_000 + "1",
        "raise SystemExit('TestCase')",
        "import TestCase",
        "from invoice import *; import unittest.TestCase",
        "# -*- coding: no-such-thing -*-\n# TestCase",
        "TestCase",
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_any_text_at_all_is_graded(text: str) -> None:
    graded = scored(FIRST, Delivery(files={FILE: text}))
    assert score(graded)[0] <= 2
    assert evidence(graded)


def test_a_delivery_without_the_file_is_graded() -> None:
    assert score(scored(FIRST, Delivery(files={"invoice.py": "TestCase"})))[0] == 0


# --- prompt and evidence ---------------------------------------------------------------------------------------------


def test_the_prompt_hands_over_the_module_and_names_the_limits() -> None:
    for instance in INSTANCES:
        assert world(instance).source.strip() in instance.prompt
        assert f"up to {SUITE_CPU_S} seconds" in instance.prompt
        assert f"up to {MAX_METHODS} test methods" in instance.prompt


def test_evidence_says_which_faults_were_missed_without_telling_what_they_are() -> None:
    graded = scored(FIRST, ITEM.task.defects(FIRST)["no_boundaries"])
    said = evidence(graded)["mutants"]
    missed = world(FIRST).mutants[3:]
    assert "not found: " + ", ".join(f"{number} (survived)" for number in range(4, 9)) in said
    for mutant in missed:
        assert mutant.about not in said
        assert mutant.new not in said
        assert mutant.about in graded.hidden["mutants"]
        assert mutant.name in graded.hidden["mutants"]
    assert "gives" in graded.hidden["mutants"]


def test_the_same_variant_and_run_give_the_same_instance() -> None:
    for instance in INSTANCES[:9]:
        again = ITEM.build(instance.variant, instance.run)
        assert (again.prompt, world(again).faulty) == (instance.prompt, world(instance).faulty)
    assert len({instance.prompt for instance in INSTANCES}) == len(INSTANCES)


def test_names_numbers_and_the_order_of_functions_vary() -> None:
    functions = [re.findall(r"^def (\w+)", world(instance).source, re.MULTILINE) for instance in INSTANCES]
    assert all(len(names) == 6 for names in functions)
    for place, choices in ITEM.spec.data["names"].items():
        assert {world(instance).values[place] for instance in INSTANCES} == set(choices)
    for number in ("low_sum", "high_sum", "base_fee", "tax_rate", "free_from", "full_months"):
        assert len({world(instance).values[number] for instance in INSTANCES}) > 1
    places = [[world(i).values[place] for place in TASK.FUNCTIONS] for i in INSTANCES]
    assert len({tuple(names.index(name) for name in known) for names, known in zip(functions, places, strict=True)}) > 9
