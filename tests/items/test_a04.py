"""Item A04: six reasoning problems whose answers come from a solver and are confirmed here by a second one."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from itertools import combinations, permutations
from math import lcm
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmbench.bank import read_items
from pytest_llmbench.spec import Answer, Delivery, Instance, Reference

ITEM_FILE = Path(__file__).parents[2] / "items" / "level_a" / "a04_verifiable_reasoning" / "item.toml"
ITEM = read_items(ITEM_FILE)[0]
KEYS = ("1", "2", "3", "4", "5", "6")
SOME = [(variant, run) for variant in (0, 1, 7, 23, 104) for run in (1, 2)]


@cache
def built(variant: int, run: int = 1) -> Instance:
    return ITEM.build(variant, run)


def delivered(reference: Reference) -> Delivery:
    return Delivery(answers={k: Answer(raw=str(v), value=Decimal(v)) for k, v in reference.answers.items()})


def score(instance: Instance, delivery: Delivery) -> tuple[Decimal, set[str]]:
    """Points, and the rows that were not earned."""
    points = {row.id: row.points for row in ITEM.spec.rows}
    verdicts = ITEM.task.grade(instance, delivery)
    assert sorted(verdict.row for verdict in verdicts) == sorted(points)
    lost = {verdict.row for verdict in verdicts if verdict.earned is not True}
    return sum((points[row] for row in points if row not in lost), Decimal(0)), lost


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def problems(instance: Instance) -> Mapping[str, str]:
    """The text of each problem as printed, by its number."""
    parts = (part.split(". ", 1) for part in instance.prompt.split("\n\n")[1:])
    return dict(parts)


def jars_by_formula(text: str) -> int:
    shelves, _, last, base, growth, step = numbers(text)
    assert shelves == last
    emptied = shelves // step
    every = shelves * base + growth * shelves * (shelves + 1) // 2
    return every - emptied * base - growth * step * emptied * (emptied + 1) // 2


def badges_by_inclusion_and_exclusion(text: str) -> int:
    _, last, *divisors = numbers(text)
    pairs = sum(last // lcm(*pair) for pair in combinations(divisors, 2))
    return pairs - 3 * (last // lcm(*divisors))


def parcels_one_by_one(text: str) -> int:
    _, _, days, base, factor, modulus, lorry, rail, _, _, last = numbers(text)
    assert days == last
    depot: deque[int] = deque()
    nights = 0
    for day in range(1, days + 1):
        depot.extend([day] * (base + divmod(day * factor, modulus)[1]))
        for _ in range(lorry):
            if depot:
                depot.popleft()
        if not day % rail:
            for _ in range(len(depot) // 2):
                depot.popleft()
        nights += len(depot)
    return nights


def paths_listed(text: str) -> int:
    x0, y0, width, height, _, *points, stretch = numbers(text)
    assert (x0, y0) == (0, 0)
    forbidden = set(zip(points[::2], points[1::2], strict=True))
    assert len(forbidden) == 3
    total = 0
    for ups in combinations(range(width + height), height):
        moves = "".join("U" if move in ups else "R" for move in range(width + height))
        if "U" * stretch in moves or "R" * stretch in moves:
            continue
        visited = {(moves[:end].count("R"), moves[:end].count("U")) for end in range(len(moves))}
        total += not visited & forbidden
    return total


def orders_by_pairs(text: str) -> int:
    _, places, most, between, *barred, least_sum = numbers(text)
    everywhere = frozenset(range(1, places + 1))
    total = 0
    for c, d in combinations(everywhere, 2):
        for f, g in combinations(everywhere - {c, d}, 2):
            if abs(c - d) <= between or f + g < least_sum:
                continue
            rest = everywhere - {c, d, f, g}
            for e in rest - set(barred):
                total += 4 * sum(a < b and a <= most and abs(a - h) != 1 for a, b, h in permutations(rest - {e}))
    return total


def rotas_listed(text: str) -> int:
    _, nights, exactly, pause, first_barred, second_barred, early, late = numbers(text)
    rotas = [""]
    for night in range(1, nights + 1):
        rotas = [
            rota + keeper
            for rota in rotas
            for keeper in "PQRS"
            if rota[-1:] != keeper
            and rota[-1:] + keeper != "PS"
            and not (keeper == "Q" and "Q" in rota[-pause:])
            and not (keeper == "R" and night in (first_barred, second_barred))
            and not (night == late and rota[early - 1] != keeper)
            and (rota + keeper).count("P") <= exactly
        ]
    return sum(rota.count("P") == exactly and rota.count("Q") > rota.count("R") for rota in rotas)


SECOND_SOLVERS: Mapping[str, Callable[[str], int]] = {
    "1": jars_by_formula,
    "2": badges_by_inclusion_and_exclusion,
    "3": parcels_one_by_one,
    "4": paths_listed,
    "5": orders_by_pairs,
    "6": rotas_listed,
}


def test_the_item_is_worth_18_points_in_six_equal_rows() -> None:
    assert (ITEM.spec.id, ITEM.spec.level, ITEM.spec.mode) == ("A04", "A", "single")
    assert ITEM.spec.points == sum(row.points for row in ITEM.spec.rows) == 18
    assert [row.id for row in ITEM.spec.rows] == [f"q{key}" for key in KEYS]
    assert all(row.points == 3 and row.kind == "check" for row in ITEM.spec.rows)
    assert ITEM.spec.answers is not None
    assert (ITEM.spec.answers.keys, ITEM.spec.answers.format) == (KEYS, "integer")


@pytest.mark.parametrize(("variant", "run"), SOME)
def test_the_golden_reference_earns_everything(variant: int, run: int) -> None:
    instance = built(variant, run)
    assert score(instance, delivered(ITEM.task.golden(instance))) == (Decimal(18), set())


@pytest.mark.parametrize("name", sorted(ITEM.spec.references))
@pytest.mark.parametrize(("variant", "run"), SOME)
def test_every_mistake_loses_exactly_its_rows(variant: int, run: int, name: str) -> None:
    instance, declared = built(variant, run), ITEM.spec.references[name]
    assert score(instance, delivered(ITEM.task.defects(instance)[name])) == (declared.points, set(declared.loses))


def test_every_declared_mistake_is_modelled_and_no_other() -> None:
    assert set(ITEM.task.defects(built(0))) == set(ITEM.spec.references)
    assert ITEM.spec.references["defective"].points == 0


@pytest.mark.parametrize("variant", range(10))
@pytest.mark.parametrize("key", KEYS)
def test_a_second_solver_that_reads_the_printed_problem_agrees(key: str, variant: int) -> None:
    instance = built(variant)
    assert SECOND_SOLVERS[key](problems(instance)[key]) == instance.answers[key]


@pytest.mark.parametrize("key", KEYS)
def test_no_answer_is_worth_guessing(key: str) -> None:
    seen = Counter(built(variant).answers[key] for variant in range(60))
    assert max(seen.values()) <= 6
    assert len(seen) > 40


@settings(max_examples=40, deadline=None)
@given(variant=st.integers(0, 10_000), run=st.integers(1, 50))
def test_every_variant_is_as_long_as_the_published_one_and_gives_no_answer_away(variant: int, run: int) -> None:
    instance, published = built(variant, run), built(0)
    assert abs(len(instance.prompt) - len(published.prompt)) <= len(published.prompt) * 0.05
    assert re.sub(r"\d", "0", instance.prompt) == re.sub(r"\d", "0", published.prompt)
    answers = list(instance.answers.values())
    assert len(set(answers)) == 6
    assert all(isinstance(answer, int) and 100 <= answer <= 99_999 for answer in answers)
    assert not set(answers) & set(numbers(instance.prompt))


@settings(max_examples=40, deadline=None)
@given(variant=st.integers(0, 10_000), run=st.integers(1, 50))
def test_every_variant_tells_all_mistakes_from_the_right_answers(variant: int, run: int) -> None:
    instance = built(variant, run)
    for name, reference in ITEM.task.defects(instance).items():
        declared = ITEM.spec.references[name]
        assert score(instance, delivered(reference)) == (declared.points, set(declared.loses))
        assert all(int(value) > 0 for value in reference.answers.values())


def test_the_prompt_leaves_room_for_a_reply_in_a_small_context() -> None:
    assert len(built(0).prompt) <= 3300


def test_building_is_deterministic_and_runs_differ() -> None:
    again = ITEM.build(3, 2)
    assert (again.prompt, again.answers, again.data) == (built(3, 2).prompt, built(3, 2).answers, built(3, 2).data)
    assert built(3, 1).answers != built(3, 2).answers


@pytest.mark.parametrize(
    "delivery",
    [
        Delivery(),
        Delivery(no_answer="thinking_not_closed"),
        Delivery(answers={key: Answer(raw="many", value=None, problem="not a number") for key in KEYS}),
        Delivery(answers={"7": Answer(raw="12", value=Decimal(12))}),
    ],
)
def test_a_delivery_without_usable_answers_earns_nothing(delivery: Delivery) -> None:
    assert score(built(0), delivery)[0] == 0
