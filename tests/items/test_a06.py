"""A06, rules that contradict each other: what is planted, what is none, what earns its points and what does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple, fields, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandbox.confined import confined

from pytest_llmbench.bank import read_items
from pytest_llmbench.grading.grade import Graded, delivery_of, grade
from pytest_llmbench.harness.references import NULLS, nulls_for, reply_text
from pytest_llmbench.harness.single import opening
from pytest_llmbench.spec import Delivery, Instance

CONFLICTS, CODE = "conflicts.txt", "settlement.py"
ITEM = read_items(Path(__file__).parents[2] / "items/level_a/a06_specification_conflict/item.toml")[0]
TASK: Any = ITEM.task
INSTANCES = [ITEM.build(variant, run) for variant in range(40) for run in (1, 2, 3)]
FIRST = INSTANCES[0]
RUN = INSTANCES[:2] + INSTANCES[3::29]
"""The few instances for which delivered code is really run."""
NAMES = sorted(ITEM.spec.references)
KINDS = ["plain", "converted", "boundary"]
FULL: tuple[Decimal, set[str]] = (Decimal(16), set())
COUNTS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
loads = st.builds(
    lambda tare, net, foreign, stay, supplier, earlier: (tare + net, tare, foreign, stay, supplier, earlier),
    *(st.integers(0, 9000), st.integers(1, 30000), st.integers(0, 1000), st.integers(0, 600), st.integers(0, 2)),
    st.integers(0, 30),
)


def book(instance: Instance) -> Any:
    return instance.data["book"]


def golden(instance: Instance) -> Mapping[str, str]:
    return ITEM.task.golden(instance).files


def graded(instance: Instance, files: Mapping[str, str]) -> Graded:
    return grade(TASK, instance, Delivery(files=files), confined())


def score(result: Graded) -> tuple[Decimal, set[str]]:
    """The points and the rows that are lost."""
    assert all(row.evidence.isprintable() and 0 < len(row.evidence) < 600 for row in result.rows)
    return sum((row.earned for row in result.rows), Decimal(0)), {r.id for r in result.rows if r.earned < r.points}


def declaring(instance: Instance, text: str) -> set[str]:
    """The rows about declarations that a conflicts file earns."""
    rows = graded(instance, {CONFLICTS: text}).rows
    return {row.id for row in rows if row.earned and row.id in {*KINDS, "nothing_else"}}


def pairs(instance: Instance) -> list[tuple[str, str]]:
    return [book(instance).pair(topic) for topic in book(instance).planted.values()]


def lookalikes(instance: Instance) -> list[tuple[str, str]]:
    planted, numbers = book(instance).planted.values(), book(instance).numbers
    alike = [topic for group in TASK.TOPICS.values() for topic in group if topic not in planted]
    return [*map(book(instance).pair, alike), *((numbers[one], numbers[two]) for one, two in TASK.RESTATED)]


def lines(declared: list[tuple[str, str]]) -> str:
    return "".join(f"CONFLICT {one} {two}\n" for one, two in declared)


def test_seven_rows_are_worth_sixteen_points() -> None:
    assert ITEM.spec.points == 16
    assert [row.id for row in ITEM.spec.rows] == ["files", "syntax", *KINDS, "nothing_else", "code"]


@pytest.mark.parametrize("instance", RUN, ids=lambda instance: f"{instance.variant}-{instance.run}")
def test_the_golden_delivery_earns_every_point(instance: Instance) -> None:
    assert score(graded(instance, golden(instance))) == FULL


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_defect_loses_exactly_its_rows(name: str) -> None:
    declared = ITEM.spec.references[name]
    for instance in RUN[:3]:
        defects = TASK.defects(instance)
        assert sorted(defects) == NAMES
        delivery = delivery_of(ITEM.spec, reply_text(defects[name]))
        lost = score(grade(TASK, instance, delivery, confined()))
        assert lost == (declared.points, set(declared.loses)), (instance.variant, instance.run)


def test_a_missing_import_is_repaired_and_listed() -> None:
    result = graded(FIRST, TASK.defects(FIRST)["missing_import"].files)
    assert result.repairs == (f"{CODE}: added `import decimal`",)


# --- the prompt, read by a program that knows its sentences and nothing of how it was made ---------------------------


def sections(instance: Instance) -> dict[str, str]:
    rules = instance.prompt.partition("The rules:\n")[2]
    found = re.findall(r"^(\d+\.\d+) (.*?)(?=\n\n\d+\.|\Z)", rules, re.MULTILINE | re.DOTALL)
    return dict(found)


def minutes(clock: str) -> int:
    hours, past = clock.split(":")
    return 60 * int(hours) + int(past)


def stated(texts: Mapping[str, str]) -> dict[str, list[tuple[str, int]]]:
    """What is ruled twice: the two sections and the figure that each of them gives."""
    everything = "\n".join(texts.values())

    def one(pattern: str) -> tuple[str, ...]:
        [hit] = re.finditer(pattern, everything)
        return hit.groups()

    small, litres, large, smalls, parts, slot = one(
        r"A (\w+) is (\d+) litres, a (\w+) is (\d+) \w+, and a shift has (\d+) (\w+)s\."
    )
    opens, closes = one(r"open from ([\d:]+) to ([\d:]+)\. These hours are two shifts")
    density, step, sample, origin, standing = (
        int(one(pattern)[0])
        for pattern in (
            r"a cubic metre stands for (\d+) kg",
            r"rounded down to a multiple of (\d+) kg",
            r"A sample of (\d+) kg",
            r"The first has the number (\d)",
            r"is charged at (\d+) cents per",
        )
    )
    readings: dict[str, list[tuple[str, Any]]] = {
        "weighing": [
            (r"pays a weighing charge of (\d+) cents", int),
            (r"shows (\d+) cents as the weighing charge", int),
        ],
        "refusal": [(r"a refusal charge of (\d+) cents", int), (r"shows (\d+) cents as the refusal charge", int)],
        "minimum": [
            (r"net weight below (\d+) kg", int),
            (
                rf"below that of (\w+) {large}s? and (\w+) {small}s counts",
                lambda whole, rest: Fraction(
                    int(litres) * density * (int(smalls) * COUNTS.index(whole) + COUNTS.index(rest)), 1000
                ),
            ),
        ],
        "free": [
            (r"free time is the first (\d+) minutes", int),
            (
                rf"may stay for (\w+) {slot}s without",
                lambda count: Fraction((minutes(closes) - minutes(opens)) * COUNTS.index(count), 2 * int(parts)),
            ),
        ],
        "sorted_from": [
            (r"\| (\d+) to \d+ \| \d+ \| yes", int),
            (r"if (\d+) grams or more of its sample", lambda grams: Fraction(int(grams), sample)),
        ],
        "rebate_from": [
            (r"with the number (\d+) or a higher one earns", lambda number: int(number) - origin + 1),
            (r"first (\w+) accepted loads", lambda count: COUNTS.index(count) + 1),
        ],
        "heavy_from": [
            (r"net weight exceeds (\d+) kg", lambda most: (int(most) // step + 1) * step),
            (r"a load of (\d+) kg net weight or more", lambda least: -(-int(least) // step) * step),
        ],
        "most_slots": [
            (rf"for more than (\d+) {slot}s", int),
            (r"shows at most (\d+) cents as the standing", lambda most: Fraction(int(most), standing)),
        ],
        "top": [
            (r"with more than (\d+) per mille", int),
            (r"of which ([\d.]+) percent or less can rot", lambda most: 1000 - int(Decimal(most) * 10) - 1),
        ],
    }
    found: dict[str, list[tuple[str, int]]] = {}
    for topic, both in readings.items():
        for pattern, read in both:
            [(number, match)] = [(n, hit) for n, text in texts.items() if (hit := re.search(pattern, text))]
            found.setdefault(topic, []).append((number, read(*match.groups())))
    return found


def date_of(number: str, texts: Mapping[str, str]) -> datetime:
    """The last date at which a section was amended by an order that counts."""
    everything = "\n".join(texts.values())
    issued = re.search(r"date of issue, (\d+ \w+ \d+)\.", everything)
    assert issued
    revoked = re.search(r"The order of (\d+ \w+ \d+) has been revoked", everything)
    days = [issued[1]]
    for day, amended in re.findall(r"On (\d+ \w+ \d+): ([\d., ]+)\.", everything):
        days += [day] if number in amended.split(", ") and not (revoked and day == revoked[1]) else []
    return max(datetime.strptime(day, "%d %B %Y") for day in days)


def place(number: str) -> tuple[int, ...]:
    return tuple(map(int, number.split(".")))


def resolved(texts: Mapping[str, str], both: list[tuple[str, int]]) -> int:
    """The figure that prevails."""
    tie = re.search(r"the one with the (lower|higher) number prevails", "\n".join(texts.values()))
    assert tie
    sign = -1 if tie[1] == "lower" else 1
    return max(both, key=lambda one: (date_of(one[0], texts), *(sign * part for part in place(one[0]))))[1]


def test_who_reads_closely_finds_three_contradictions_and_no_other() -> None:
    for instance in INSTANCES:
        found = stated(sections(instance))
        apart = {frozenset(n for n, _ in both) for both in found.values() if len({figure for _, figure in both}) == 2}
        assert apart == {frozenset(line.split()[1:]) for line in golden(instance)[CONFLICTS].splitlines()}
        assert len(apart) == 3


def test_who_reads_closely_resolves_them_as_the_golden_code_does() -> None:
    for instance in INSTANCES:
        texts = sections(instance)
        for field, both in stated(texts).items():
            assert getattr(book(instance).rules, field) == resolved(texts, both), (instance.variant, field)


def test_a_contradiction_at_a_bound_is_one_by_a_single_step() -> None:
    for instance in INSTANCES:
        topic = book(instance).planted["boundary"]
        one, two = book(instance).stated[topic]
        assert abs(one - two) == (book(instance).rules.step if topic == "heavy" else 1)


def test_exceptions_name_the_section_they_depart_from() -> None:
    for instance in INSTANCES:
        texts, numbers = sections(instance), book(instance).numbers
        for rule, exception in TASK.EXCEPTIONS:
            assert texts[numbers[exception]].startswith(f"As an exception to {numbers[rule]},")
        assert sum("exception to" in text for text in texts.values()) == len(TASK.EXCEPTIONS) + 1


def test_rules_that_no_load_tells_apart_often_show_figures_further_apart_than_rules_that_differ() -> None:
    gaps: dict[bool, set[int]] = {True: set(), False: set()}
    for instance in INSTANCES:
        shown = [re.search(rf"{words} (\d+) kg", instance.prompt) for words in ("exceeds", "a load of")]
        above, least = (int(figure[1]) for figure in shown if figure)
        gaps["heavy" in book(instance).planted.values()].add(abs(least - above))
    assert max(gaps[False]) > min(gaps[True]) > 0
    assert 0 in gaps[False]


def test_what_is_planted_depends_on_sections_that_are_part_of_no_contradiction() -> None:
    for instance in INSTANCES:
        texts, numbers = sections(instance), book(instance).numbers
        others = {**texts, numbers["numbered"]: re.sub(r"\d", lambda n: str(1 - int(n[0])), texts[numbers["numbered"]])}
        changed = stated(others)["rebate_from"]
        assert changed[0][1] - stated(texts)["rebate_from"][0][1] in (-1, 1)


def test_no_simple_reading_resolves_every_contradiction() -> None:
    for instance in INSTANCES:
        texts = sections(instance)
        planted = [both for both in stated(texts).values() if both[0][1] != both[1][1]]
        right = [resolved(texts, both) for both in planted]
        assert right != [min(both, key=lambda one: place(one[0]))[1] for both in planted]
        assert right != [max(both, key=lambda one: place(one[0]))[1] for both in planted]
        forgetful = {number: text for number, text in texts.items() if "has been revoked" not in text}
        assert len(forgetful) == len(texts) - 1
        assert right != [resolved(forgetful, both) for both in planted]
        assert len({date_of(both[0][0], texts) == date_of(both[1][0], texts) for both in planted}) == 2


def test_every_topic_and_either_section_can_be_the_planted_one_and_prevail() -> None:
    drawn = {(topic, book(i).prevails(topic)) for i in INSTANCES for topic in book(i).planted.values()}
    assert drawn == {(topic, side) for topics in TASK.TOPICS.values() for topic in topics for side in (0, 1)}
    assert {book(i).tie for i in INSTANCES} == {"lower", "higher"}
    assert len({tuple(book(i).numbers) for i in INSTANCES}) == len(INSTANCES)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 50))
def test_any_variant_has_a_prompt_of_about_two_pages(variant: int, run: int) -> None:
    instance = ITEM.build(variant, run)
    rules = instance.prompt.partition("The rules:\n")[2]
    assert 1000 <= len(rules.split()) <= 1250
    assert abs(len(instance.prompt) - len(FIRST.prompt)) <= 0.03 * len(FIRST.prompt)
    assert "$" not in instance.prompt
    assert list(sections(instance)) == list(book(instance).numbers.values())


def test_the_example_of_a_declaration_names_sections_that_are_not_there() -> None:
    for instance in INSTANCES:
        shown = re.search(r"`CONFLICT (\S+) (\S+)`", instance.prompt)
        assert shown
        assert not set(shown.groups()) & set(sections(instance))
        assert shown[1] != shown[2]


def test_the_prompt_states_the_number_of_lines_that_count() -> None:
    assert f"more than {COUNTS[TASK.MOST_LINES]} lines" in FIRST.prompt


def test_the_same_variant_and_run_give_the_same_instance() -> None:
    for instance in INSTANCES[:20]:
        again = ITEM.build(instance.variant, instance.run)
        assert (again.prompt, again.data["loads"]) == (instance.prompt, instance.data["loads"])
    assert len({instance.prompt for instance in INSTANCES}) == len(INSTANCES)


# --- the hidden loads --------------------------------------------------------------------------------------------


def missed(instance: Instance, rules: Any) -> bool:
    """Whether code that follows other rules would pass on every load."""
    right = book(instance).rules
    return all(TASK.settle(rules, load) == TASK.settle(right, load) for _, load in instance.data["loads"])


def test_every_load_is_a_valid_call() -> None:
    for instance in INSTANCES:
        assert len(instance.data["loads"]) >= 25
        for _, load in instance.data["loads"]:
            assert 0 <= load.tare < load.gross
            assert 0 <= load.foreign <= 1000
            assert min(load.stay, load.earlier) >= 0
            assert f'"{load.supplier}"' in instance.prompt


def test_each_contradiction_resolved_wrongly_fails_a_load() -> None:
    for instance in INSTANCES:
        for topic in book(instance).planted.values():
            assert not missed(instance, book(instance).wrong_on(topic)), (instance.variant, topic)


def test_every_figure_counts_to_the_unit() -> None:
    for instance in INSTANCES[:40]:
        right = book(instance).rules
        for field in fields(right):
            value = getattr(right, field.name)
            if isinstance(value, int):
                steps = (-20, 20) if field.name in ("minimum", "heavy_from") else (-1, 1)
                wrong = [replace(right, **{field.name: value + step}) for step in steps]
            elif field.name == "rates":
                wrong = [replace(right, rates=tuple(r + (at == k) for k, r in enumerate(value))) for at in range(3)]
            else:
                wrong = [replace(right, **{field.name: value[::-1]})]
            assert not any(missed(instance, rules) for rules in wrong), (instance.variant, field.name)


def defined(code: str) -> Any:
    names: dict[str, Any] = {}
    exec(code, names)
    return names["settle"]


GOLDEN_CODE = [(instance, defined(golden(instance)[CODE])) for instance in INSTANCES[::8]]


@settings(max_examples=200, deadline=None)
@given(loads)
def test_the_golden_code_and_the_trusted_one_agree_on_any_load(load: tuple[Any, ...]) -> None:
    for instance, settle in GOLDEN_CODE:
        rules = book(instance).rules
        kinds = (rules.reduced, rules.capped, rules.plain)
        asked = TASK.Load(*load[:4], kinds[load[4]], load[5])
        assert settle(*astuple(asked)) == TASK.settle(rules, asked)


MISREADINGS = {
    "the cap holds for sorted loads too": (" and not to_sort)", ")"),
    "every kind of supplier is capped": (' == "{capped}"', ' != ""'),
    "heavy loads are reduced too": (" and net < {heavy_from}", ""),
    "the rebate is rounded half up": ("charges * {rebate} // 100", "(charges * {rebate} + 50) // 100"),
    "the rebate is taken of the basic charge alone": ('bill["basic"] + bill["sorting"]', 'bill["basic"]'),
    "the rebate is taken of a charge not rounded": (
        'bill["basic"] +',
        '(bill["basic"] if supplier == "{reduced}" else decimal.Decimal(max(net, {minimum}) * rate) / 100) +',
    ),
    "the rebate is not limited": (' if supplier == "{plain}" else whole', " if not supplier else whole"),
    "every rebate is limited": (' if supplier == "{plain}" else whole', ""),
    "the sorted weight is not rounded up": ("portions * {portion}", "net"),
    "the sorted weight is the charged weight": ("-(-net //", "-(-max(net, {minimum}) //"),
    "the load itself counts as an earlier one": ("earlier + 1 >=", "earlier >="),
}


@pytest.mark.parametrize("reading", MISREADINGS)
def test_code_that_misreads_one_rule_fails_a_load(reading: str) -> None:
    for instance in INSTANCES[:60]:
        rules, code = book(instance).rules, golden(instance)[CODE]
        old, new = (part.format_map(vars(rules)) for part in MISREADINGS[reading])
        assert code.count(old) == 1
        settle = defined(code.replace(old, new))
        calls = [(load, settle(*astuple(load))) for _, load in instance.data["loads"]]
        assert any(bill != TASK.settle(rules, load) for load, bill in calls), instance.variant


def test_a_settlement_worked_out_by_hand() -> None:
    rules = TASK.Rules(
        bands=("clean", "mixed", "coarse"),
        rates=(243, 331, 509),
        plain="trade",
        reduced="farm",
        capped="council",
        step=20,
        first_to=14,
        second_to=40,
        top=120,
        minimum=680,
        percent=85,
        heavy_from=4820,
        sorted_from=40,
        sorting=143,
        portion=50,
        free=45,
        slot_minutes=15,
        standing=300,
        most_slots=3,
        rebate_from=9,
        rebate=6,
        most_weighings=2,
        weighing=420,
        refusal=1900,
    )
    bill = dict.fromkeys(("basic", "rebate", "sorting", "standing", "weighing", "refusal"), 0)

    def settled(*load: Any) -> tuple[list[Any], dict[str, Any]]:
        result = TASK.settle(rules, TASK.Load(*load))
        return list(map(result.pop, ("net", "band", "total"))), result

    # 690 kg round to 680; 680 × 3.31 × 0.85 = 1913.18; 700 × 1.43 = 1001; 6 % of 2914 = 174.84; 61 minutes: 2 periods.
    due = bill | {"basic": 1913, "rebate": 174, "sorting": 1001, "standing": 600, "weighing": 420}
    assert settled(4690, 4000, 40, 61, "farm", 8) == ([680, "mixed", 3760], due)
    # 4820 kg are no longer reduced: 4820 × 2.43 = 11712.6; the eighth load earns no rebate.
    due = bill | {"basic": 11713, "weighing": 420}
    assert settled(8820, 4000, 14, 45, "farm", 7) == ([4820, "clean", 12133], due)
    # 6 % of 11713 = 702.78; of 24300 = 1458, which is more than 840; 106 minutes: 5 periods, of which 3 count.
    due = bill | {"basic": 11713, "rebate": 702, "standing": 900, "weighing": 420}
    assert settled(8820, 4000, 14, 106, "council", 8) == ([4820, "clean", 12331], due)
    due = bill | {"basic": 24300, "rebate": 840, "standing": 1500, "weighing": 420}
    assert settled(14000, 4000, 14, 106, "trade", 8) == ([10000, "clean", 25380], due)
    # A sorted load is not capped; 100 kg count as 680, 680 × 5.09 = 3461.2; 100 × 1.43 = 143.
    due = bill | {"basic": 3461, "sorting": 143, "standing": 1500, "weighing": 420}
    assert settled(4100, 4000, 41, 106, "council", 0) == ([100, "coarse", 5524], due)
    due = bill | {"refusal": 1900}
    assert settled(4690, 4000, 121, 400, "farm", 8) == ([680, None, 1900], due)


# --- declarations ------------------------------------------------------------------------------------------------


def test_the_numbers_of_a_pair_and_the_lines_may_stand_in_any_order() -> None:
    for instance in INSTANCES[:30]:
        for order in permutations(pairs(instance)):
            assert declaring(instance, lines([(two, one) for one, two in order])) == {*KINDS, "nothing_else"}


@pytest.mark.parametrize(
    "noise",
    [
        lambda text: text.lower(),
        lambda text: text.replace("\n", "  \r\n\r\n \t\r\n"),
        lambda text: "\ufeff\n" + text.replace(" ", " \t "),
        lambda text: text.strip(),
        lambda text: text.replace("CONFLICT", "  Conflict"),
        lambda text: text + text.splitlines()[0],
    ],
)
def test_trivial_noise_costs_nothing(noise: Any) -> None:
    assert declaring(FIRST, noise(lines(pairs(FIRST)))) == {*KINDS, "nothing_else"}


@pytest.mark.parametrize(
    "form",
    ["- CONFLICT {} {}", "CONFLICT {}, {}", "CONFLICT: {} {}", "{} {}", "CONFLICT {} {}.", "CONFLICT 0{} {}"],
)
def test_any_other_form_is_a_false_declaration(form: str) -> None:
    (one, two), *others = pairs(FIRST)
    assert declaring(FIRST, form.format(one, two) + "\n" + lines(others)) == {*KINDS[1:]}


def test_every_contradiction_has_a_row_of_its_own() -> None:
    for instance in INSTANCES[:30]:
        for kind, pair in zip(book(instance).planted, pairs(instance), strict=True):
            assert declaring(instance, lines([pair])) == {kind, "nothing_else"}


def test_one_false_declaration_costs_its_row() -> None:
    for instance in INSTANCES[:10]:
        one, two = pairs(instance)[0]
        for wrong in [*lookalikes(instance), (one, one), (one, pairs(instance)[1][0]), ("99.9", two)]:
            assert declaring(instance, lines([*pairs(instance), wrong])) == set(KINDS)


def test_no_declaration_at_all_earns_nothing() -> None:
    for text in ("", "\n \n", "none", "CONFLICT", "CONFLICT 1.1", lines(lookalikes(FIRST))):
        assert declaring(FIRST, text) == set()


def test_to_declare_everything_that_looks_alike_earns_nothing() -> None:
    for instance in INSTANCES[:30]:
        assert declaring(instance, lines([*pairs(instance), *lookalikes(instance)])) == set()
        assert declaring(instance, lines(list(combinations(sections(instance), 2)))) == set()


def test_guessed_pairs_earn_next_to_nothing() -> None:
    for instance in INSTANCES[:20]:
        every = list(combinations(sections(instance), 2))
        guesses = [lines(every[at : at + TASK.MOST_LINES]) for at in range(0, len(every), TASK.MOST_LINES)]
        earned = sum(2 * len(declaring(instance, guess)) for guess in guesses)
        assert earned / len(guesses) < 0.8


# --- whatever is delivered -----------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(), max_size=200), st.integers(0, 60), st.booleans())
def test_any_conflicts_file_is_graded(noise: str, at: int, beside: bool) -> None:
    right = lines(pairs(FIRST))
    text = right[:at] + noise + right[at:] if beside else noise
    assert score(graded(FIRST, {CONFLICTS: text})) == score(graded(FIRST, {CONFLICTS: text}))


@pytest.mark.parametrize(
    "unit", ["CONFLICT ", "CONFLICT 1.1 1.2\n", "\n", "\ud800", "\x00", " ", "1.", "\u2028", "9"], ids=ascii
)
def test_a_megabyte_is_graded(unit: str) -> None:
    huge = unit * (2**20 // len(unit))
    assert score(graded(FIRST, {CONFLICTS: huge, CODE: huge}))[0] <= 3
    assert score(graded(FIRST, {**golden(FIRST), CONFLICTS: "CONFLICT 1.1" + huge}))[0] >= 7


HEAD = "def settle(gross, tare, foreign, stay, supplier, earlier):\n    "
RIGHT = golden(FIRST)[CODE] + "\n\nright = settle\n\n\n" + HEAD
RIGHT += "bill = right(gross, tare, foreign, stay, supplier, earlier)\n    "
SAME = "class Same(dict):\n    def __eq__(self, other):\n        return True\n\n\n"
HOSTILE = {
    "raises": HEAD + "raise ValueError",
    "exits": "import os\n\n\n" + HEAD + "os._exit(0)",
    "exits on import": HEAD + "return {}\nraise SystemExit",
    "returns itself": HEAD + "bill = {}\n    bill['net'] = bill\n    return bill",
    "returns a float": RIGHT + "return {**bill, 'net': float(bill['net'])}",
    "returns a key more": RIGHT + "return {**bill, 'charged': 0}",
    "returns a key less": RIGHT + "del bill['net']\n    return bill",
    "says it equals everything": SAME + HEAD + "return Same()",
    "has another signature": "def settle():\n    return {}",
    "is no function": "settle = 3  # def settle(",
    "holds half a surrogate pair": "x = '\ud800'  # def settle(",
    "holds a zero byte": "def settle(*load):\n    return {}\n\x00",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_code_that_is_wrong_in_any_way_costs_the_code_and_nothing_else(name: str) -> None:
    points, lost = score(graded(FIRST, {**golden(FIRST), CODE: HOSTILE[name]}))
    assert "code" in lost
    assert lost <= {"code", "syntax"}
    assert points in (9, 10)


def test_the_golden_delivery_of_another_instance_earns_its_hygiene_only() -> None:
    assert [score(graded(instance, golden(FIRST))) for instance in RUN[1:]] == [
        (Decimal(2), {*KINDS, "nothing_else", "code"})
    ] * len(RUN[1:])


@pytest.mark.parametrize("name", nulls_for("single"))
def test_nothing_is_had_for_nothing(name: str) -> None:
    for instance in INSTANCES[:4]:
        delivery = delivery_of(ITEM.spec, NULLS[name](instance)(opening(instance)))
        assert score(grade(TASK, instance, delivery, confined()))[0] <= Decimal("0.8")


def test_evidence_gives_no_hidden_case_and_no_pair_away() -> None:
    for instance in RUN[:3]:
        result = graded(instance, TASK.defects(instance)["defective"].files)
        evidence = {row.id: row.evidence for row in result.rows}
        assert re.search(r"settle\(…\), [a-z]", evidence["code"])
        assert not re.search(r"\d{3}", evidence["code"])
        assert "expected {'net':" in result.hidden["code"]
        for kind, (one, two) in zip(book(instance).planted, pairs(instance), strict=True):
            assert not {one, two} & set(evidence[kind].split())
            assert {one, two} <= set(result.hidden[kind].split())
