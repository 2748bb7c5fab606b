"""A05: the programs, their answers and the deliveries that get one rule wrong."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmbench.bank import read_items
from pytest_llmbench.spec import Answer, Delivery, Instance

ITEM = read_items(Path(__file__).parents[2] / "items/level_a/a05_counterfactual_tracing/item.toml")[0]
TASK: Any = sys.modules[ITEM.task.__name__]  # type: ignore[attr-defined]
CASES = [(0, 1), (0, 2), (1, 1), (2, 3), (7, 1), (23, 5)]
some_cases = pytest.mark.parametrize(("variant", "run"), CASES)


@cache
def built(variant: int, run: int) -> Instance:
    return ITEM.build(variant, run)


def programs(instance: Instance) -> list[Any]:
    return list(instance.data["programs"])


def deliver(answers: Mapping[str, Any]) -> Delivery:
    return Delivery(answers={key: Answer(raw=str(value), value=Decimal(value)) for key, value in answers.items()})


def lost(instance: Instance, delivery: Delivery) -> set[str]:
    verdicts = TASK.grade(instance, delivery)
    assert sorted(verdict.row for verdict in verdicts) == sorted(row.id for row in ITEM.spec.rows)
    return {verdict.row for verdict in verdicts if verdict.earned is not True}


def score(rows_lost: set[str]) -> Decimal:
    return sum((row.points for row in ITEM.spec.rows if row.id not in rows_lost), Decimal(0))


def real_python(text: str) -> int:
    printed: list[int] = []
    exec(text, {"print": printed.append})
    return printed[0]


# --- the specification ---


def test_eight_rows_share_eighteen_points_evenly() -> None:
    assert ITEM.spec.points == 18
    assert [(row.id, row.points, row.kind) for row in ITEM.spec.rows] == [
        (f"q{number}", Decimal("2.25"), "check") for number in range(1, 9)
    ]


def test_every_row_is_lost_by_a_defect_that_models_one_mistake() -> None:
    named = {name: reference for name, reference in ITEM.spec.references.items() if name != "defective"}
    assert len(named) >= 4
    assert {row for reference in named.values() for row in reference.loses} == {row.id for row in ITEM.spec.rows}


# --- the deliveries ---


@some_cases
def test_the_golden_delivery_earns_everything(variant: int, run: int) -> None:
    instance = built(variant, run)
    assert lost(instance, deliver(TASK.golden(instance).answers)) == set()


@some_cases
def test_every_declared_defect_loses_exactly_its_rows(variant: int, run: int) -> None:
    instance = built(variant, run)
    found = TASK.defects(instance)
    assert set(found) == set(ITEM.spec.references)
    for name, declared in ITEM.spec.references.items():
        rows = lost(instance, deliver(found[name].answers))
        assert (name, rows, score(rows)) == (name, set(declared.loses), declared.points)


def test_the_answers_of_ordinary_python_earn_nothing() -> None:
    instance = built(0, 1)
    answers = {str(n): real_python(program.text) for n, program in enumerate(programs(instance), 1)}
    assert score(lost(instance, deliver(answers))) == 0


def test_an_empty_delivery_earns_nothing_and_raises_nothing() -> None:
    assert score(lost(built(0, 1), Delivery())) == 0


# --- the programs ---


@some_cases
def test_ordinary_python_runs_every_program_and_prints_another_number(variant: int, run: int) -> None:
    for program in programs(built(variant, run)):
        assert real_python(program.text) == program.python != program.answer


@some_cases
def test_the_interpreter_without_any_rule_is_python(variant: int, run: int) -> None:
    for program in programs(built(variant, run)):
        assert TASK.trace(program.text, ()).printed == real_python(program.text)


@some_cases
def test_each_rule_that_a_program_uses_decides_its_answer_and_no_other_rule_does(variant: int, run: int) -> None:
    for program, skeleton in zip(programs(built(variant, run)), TASK.SKELETONS, strict=True):
        deciding = {rule for rule, printed in program.without.items() if printed != program.answer}
        assert deciding == set(skeleton.uses)


def test_every_rule_is_used_by_several_programs() -> None:
    used = Counter(rule for skeleton in TASK.SKELETONS for rule in skeleton.uses)
    assert set(used) == set(TASK.RULES)
    assert min(used.values()) >= 4


@some_cases
def test_the_programs_grow_longer_and_the_last_takes_over_150_steps(variant: int, run: int) -> None:
    found = programs(built(variant, run))
    lengths = [len(program.text.splitlines()) for program in found]
    assert lengths == sorted(set(lengths))
    assert found[-1].steps >= 150
    assert found[-1].steps == max(program.steps for program in found)
    assert found[0].steps <= 3


# --- variants and the prompt ---


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 50))
def test_a_variant_is_as_long_as_the_published_one_and_shows_no_answer(variant: int, run: int) -> None:
    instance = ITEM.build(variant, run)
    published = len(built(0, 1).prompt)
    assert abs(len(instance.prompt) - published) <= published * 0.05
    shown = {int(number) for number in re.findall(r"\d+", instance.prompt)}
    values = list(instance.answers.values())
    assert len(set(values)) == 8
    assert not shown & {int(value) for value in values}
    assert all(100 <= value <= 99_999 for value in values)
    assert max(values) >= 10 * min(values)


def test_the_prompt_is_short_enough_for_a_small_context() -> None:
    assert all(len(built(*case).prompt) <= 4_000 for case in CASES)


def test_the_same_variant_and_run_give_the_same_instance() -> None:
    assert ITEM.build(3, 2) == ITEM.build(3, 2)


def test_another_variant_or_run_gives_other_programs() -> None:
    assert len({built(*case).prompt for case in CASES}) == len(CASES)


def test_programs_differ_between_variants_in_names_and_digits_only() -> None:
    def shape(instance: Instance) -> list[Counter[str]]:
        return [
            Counter(re.sub(r"\b[a-z]\b", "v", re.sub(r"\d", "0", line)) for line in program.text.splitlines())
            for program in programs(instance)
        ]

    assert all(shape(built(*case)) == shape(built(0, 1)) for case in CASES)


def test_a_guess_is_worth_next_to_nothing() -> None:
    instances = [built(variant, 1) for variant in range(60)]
    for key in ITEM.spec.answers.keys if ITEM.spec.answers else ():
        values = Counter(instance.answers[key] for instance in instances)
        assert len(values) > 40
        assert max(values.values()) <= 6


# --- the interpreter, rule by rule ---


@pytest.mark.parametrize(
    ("text", "rule", "with_rule", "without_rule"),
    [
        ("t = 0\nfor i in range(2, 4):\n t += i\nprint(t)", "range", 9, 5),
        ("t = 0\nfor i in range(3, 3):\n t += i\nprint(t)", "range", 3, 0),
        ("print(7 // 2)", "division", 4, 3),
        ("print(8 // 2)", "division", 4, 4),
        ("s = [5, 6, 7]\nprint(s[2])", "index", 6, 7),
        ("s = [5, 6, 7]\ns[1] = 9\nprint(s[1] + s[2])", "index", 15, 16),
        ("t = 1\nif 4 < 4:\n t = 2\nprint(t)", "less", 2, 1),
        ("t = 1\nif 5 < 4:\n t = 2\nprint(t)", "less", 1, 1),
        ("k = 1\nwhile k < 3:\n k += 1\nprint(k)", "less", 4, 3),
        ("x = 3\nx -= 10 + 1\nprint(x)", "minus", 8, -8),
        ("s = [3, 4]\ns[1] -= 10\nprint(s[1])", "minus", 6, -6),
        ("print(9 - 4)", "minus", 5, 5),
        ("print(2 + 3 * 4)", "precedence", 20, 14),
        ("print(2 + (1 + 2 * 2) * 4)", "precedence", 32, 22),
        ("print(20 - 6 // 2 + 1 * 3)", "precedence", 24, 20),
        ("print(9 + 5 % 4)", "precedence", 2, 10),
        ("t = 1\nt += 2 + 3 * 4\nprint(t)", "precedence", 21, 15),
        ("s = [1, 2, 3, 4, 5, 6, 7]\nprint(s[1 + 1 * 3] + s[0] * 2)", "precedence", 16, 7),
        ("def f(a, b):\n return a + b * 2\nprint(1 + f(1 + 1 * 2, 3) * 2)", "precedence", 30, 19),
    ],
)
def test_a_rule_changes_what_it_says_and_nothing_else(text: str, rule: str, with_rule: int, without_rule: int) -> None:
    assert TASK.trace(text, [rule]).printed == with_rule
    assert TASK.trace(text, ()).printed == without_rule == real_python(text)


@pytest.mark.parametrize(
    "text",
    [
        "while 1 < 2:\n t = 1",
        "s = [1]\nprint(s[0])",
        "print(missing)",
        "print(1 // 0)",
        "print(1 ** 2)",
        "import os",
        "def f(a):\n a = 1\nprint(f(1))",
        "t = 1",
    ],
)
def test_whatever_leaves_the_language_is_a_trace_error(text: str) -> None:
    with pytest.raises(TASK.TraceError):
        TASK.trace(text)


# --- a second way to the answers: the text rewritten into ordinary Python, with no parser in common ---

_HEADS: list[tuple[str, Callable[..., str]]] = [
    (r"def (\w+)\((.*)\):", lambda name, names: f"def {name}({names}):"),
    (r"for (\w+) in range\((.*), (.*)\):", lambda v, a, b: f"for {v} in inclusive({fold(a)}, {fold(b)}):"),
    (r"(if|while) (.*) < (.*):", lambda word, a, b: f"{word} {fold(a)} <= {fold(b)}:"),
    (r"else:", lambda: "else:"),
    (r"return (.*)", lambda e: f"return {fold(e)}"),
    (r"print\((.*)\)", lambda e: f"show({fold(e)})"),
    (r"(.*) = \[(.*)\]", lambda v, items: f"{v} = OneBased([{items}])"),
    (r"(.*) -= (.*)", lambda v, e: f"{fold(v)} = {fold(e)} - {fold(v)}"),
    (r"(.*) \+= (.*)", lambda v, e: f"{fold(v)} = {fold(v)} + {fold(e)}"),
    (r"(.*) = (.*)", lambda v, e: f"{fold(v)} = {fold(e)}"),
]


class OneBased(list[int]):
    def __getitem__(self, place: Any) -> Any:
        assert place >= 1
        return super().__getitem__(place - 1)

    def __setitem__(self, place: Any, value: Any) -> None:
        assert place >= 1
        super().__setitem__(place - 1, value)


def fold(expression: str) -> str:
    return _chain(iter([*re.findall(r"\w+|//|\S", expression), ""]), "")


def _chain(tokens: Iterator[str], end: str) -> str:
    """Source text in which every operator is a call, up to the token ``end``."""
    items: list[str] = []
    result, operator = "", ""
    for token in tokens:
        if token == end:
            return ", ".join([*items, result])
        if token == ",":
            items.append(result)
            result = ""
        elif token in ("+", "-", "*", "//", "%"):
            operator = token
        elif token == "[":
            # only names are indexed or called, so the open operand is the last one
            result = _attach(result, f"[{_chain(tokens, ']')}]")
        elif token == "(" and result and not operator:
            result = _attach(result, f"({_chain(tokens, ')')})")
        else:
            operand = f"({_chain(tokens, ')')})" if token == "(" else token
            result = f"apply({result}, '{operator}', {operand})" if operator else operand
            operator = ""
    raise AssertionError("the expression does not end")


def _attach(result: str, suffix: str) -> str:
    """Put an index or an argument list behind the last operand of what was folded so far."""
    return result[:-1] + suffix + ")" if result.endswith(")") else result + suffix


def apply(left: int, operator: str, right: int) -> int:
    if operator == "//":
        whole, rest = divmod(left, right)
        return whole + (rest > 0)
    by_name = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "%": int.__mod__}
    return by_name[operator](left, right)


def rewritten(text: str) -> str:
    lines = []
    for line in text.splitlines():
        bare = line.lstrip()
        for pattern, write in _HEADS:
            if match := re.fullmatch(pattern, bare):
                bare = write(*match.groups())
                break
        lines.append(" " * (len(line) - len(line.lstrip())) + bare)
    return "\n".join(lines)


def test_the_rewriting_groups_from_left_to_right() -> None:
    assert fold("a + b[j + 1] * 2") == "apply(apply(a, '+', b[apply(j, '+', 1)]), '*', 2)"
    assert fold("f(i + 2, i) // 9") == "apply(f(apply(i, '+', 2), i), '//', 9)"


@pytest.mark.parametrize("variant", range(12))
def test_programs_rewritten_into_ordinary_python_print_the_same_answers(variant: int) -> None:
    instance = built(variant, 1)
    for key, program in enumerate(programs(instance), 1):
        shown: list[int] = []
        tools = {
            "inclusive": lambda low, high: range(low, high + 1),
            "OneBased": OneBased,
            "apply": apply,
            "show": shown.append,
        }
        exec(rewritten(program.text), tools)
        assert shown == [instance.answers[str(key)]]
