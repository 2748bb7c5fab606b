"""A08, fifteen negative constraints: what earns its points and what does not."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmbench.bank import read_items
from pytest_llmbench.spec import Delivery, Instance, Reference

FILE = "notice.txt"
ITEM = read_items(Path(__file__).parents[2] / "items/level_a/a08_negative_constraints/item.toml")[0]
RULES = [f"p{number:02}" for number in range(1, 16)]
INSTANCES = [ITEM.build(variant, run) for variant in range(40) for run in (1, 2, 3)]
FIRST = INSTANCES[0]
NAMES = sorted(ITEM.spec.references)
NULL = Decimal("0.8")
FULL: tuple[Decimal, set[str]] = (Decimal(16), set())
variants = st.integers(0, 10**6)
runs = st.integers(1, 50)


def delivered(reference: Reference) -> Delivery:
    if reference.text is not None:
        repair = "unfenced_reply_taken_as_file"
        return Delivery(text=reference.text, files={FILE: reference.text}, repairs=(repair,))
    return Delivery(files=reference.files)


def grade(instance: Instance, delivery: Delivery | str) -> tuple[Decimal, set[str]]:
    """The score and the rows that are lost."""
    if isinstance(delivery, str):
        delivery = Delivery(files={FILE: delivery})
    verdicts = {verdict.row: verdict for verdict in ITEM.task.grade(instance, delivery)}
    assert set(verdicts) == {row.id for row in ITEM.spec.rows}
    assert all(v.evidence and len(v.evidence) < 400 and v.evidence.isprintable() for v in verdicts.values())
    points = sum((row.points for row in ITEM.spec.rows if verdicts[row.id].earned is True), Decimal(0))
    return points, {row for row, verdict in verdicts.items() if verdict.earned is not True}


def golden(instance: Instance) -> str:
    return ITEM.task.golden(instance).files[FILE]


def facts(instance: Instance) -> Any:
    return instance.data["facts"]


def test_the_rows_are_worth_sixteen_points() -> None:
    assert ITEM.spec.points == 16
    assert [row.id for row in ITEM.spec.rows] == ["file", "form", "content", "length", *RULES]
    assert {row.points for row in ITEM.spec.rows if row.id in RULES} == {Decimal("0.8")}


def test_the_golden_notice_earns_every_point_in_every_variant_and_run() -> None:
    for instance in INSTANCES:
        assert grade(instance, delivered(ITEM.task.golden(instance))) == FULL, (instance.variant, instance.run)


@settings(max_examples=60, deadline=None)
@given(variants, runs)
def test_any_variant_has_a_faultless_notice_and_a_prompt_of_the_same_length(variant: int, run: int) -> None:
    instance = ITEM.build(variant, run)
    assert grade(instance, golden(instance)) == FULL
    assert abs(len(instance.prompt) - len(FIRST.prompt)) <= 0.05 * len(FIRST.prompt)
    assert len(instance.prompt) <= 3400
    assert "$" not in instance.prompt


def test_every_name_can_be_drawn_and_keeps_the_rules() -> None:
    drawn = {(facts(i).place, facts(i).other) for i in INSTANCES}
    assert {place for place, _ in drawn} == set(ITEM.spec.data["places"])
    assert {other for _, other in drawn} == set(ITEM.spec.data["others"])
    assert {facts(i).letter for i in INSTANCES} == set(ITEM.spec.data["letters"])


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_defect_loses_exactly_its_rows(name: str) -> None:
    declared = ITEM.spec.references[name]
    for instance in INSTANCES:
        defects: Mapping[str, Reference] = ITEM.task.defects(instance)
        assert sorted(defects) == NAMES
        assert grade(instance, delivered(defects[name])) == (declared.points, set(declared.loses)), instance.variant


def edits(instance: Instance) -> dict[str, str]:
    """The golden notice with one small change per rule."""
    text, wanted = golden(instance), facts(instance)
    last = "Staff there can solve most issues each day."

    def ending(line: str) -> str:
        assert last in text
        return text.replace(last, line)

    letter = {"b": "bold", "k": "keen", "p": "plain"}[wanted.letter]
    return {
        "p01": ending("Staff there can solve most issues each day 7."),
        "p02": ending("Staff there can solve most issues each day?"),
        "p03": ending("Staff there can solve most (old) issues each day."),
        "p04": ending("Staff there can solve most issues each \u2018day\u2019."),
        "p05": ending("Staff there can solve most issues EACH day."),
        "p06": ending("Staff there can solve your issues each day."),
        "p07": ending("Staff there can solve most issues daily."),
        "p08": ending(f"Staff there can solve {wanted.banned[0].title()} most issues each day."),
        "p09": ending(f"Staff there can solve {letter} issues each day."),
        "p10": ending("Staff there can solve most issues economiclessness."),
        "p11": ending("Staff there can solve urgent issues each day."),
        "p12": ending("Staff can do a lot on any day in May at no fee."),
        "p13": ending("Its staff can solve most issues each day."),
        "p14": ending("Staff there can solve most issues in each day."),
        "p15": ending("Staff there can solve most issues each day." + " " * 30),
    }


@pytest.mark.parametrize("row", RULES)
def test_one_small_change_breaks_one_rule_only(row: str) -> None:
    for instance in INSTANCES:
        changed = edits(instance)[row]
        assert grade(instance, changed) == (Decimal("15.2"), {row}), (instance.variant, changed)


def test_the_notice_without_content_breaks_no_other_demand() -> None:
    task: Any = ITEM.task
    for instance in INSTANCES:
        text = task.Text(task.defects(instance)["no_content"].files[FILE].strip())
        assert {row: found for row, rule in task.JUDGED.items() if (found := rule(text, facts(instance)))} == {}


@pytest.mark.parametrize("fact", ["shuts", "reopens", "seats"])
def test_a_wrong_fact_leaves_only_the_file(fact: str) -> None:
    for instance in INSTANCES:
        phrase = facts(instance).computed[fact]
        wrong = golden(instance).replace(phrase, "a point soon" if fact != "seats" else "many seats")
        points, lost = grade(instance, wrong)
        assert points == 1
        assert "file" not in lost


def test_facts_count_across_hyphens_line_breaks_and_capitals() -> None:
    for instance in INSTANCES:
        text = golden(instance)
        for phrase in facts(instance).computed.values():
            text = text.replace(phrase, phrase.replace("-", " ").replace(" on ", "\non ").title())
        assert grade(instance, text) == FULL


def test_the_facts_agree_with_the_data_of_the_prompt() -> None:
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    small = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    tens = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]

    def words(number: int) -> str:
        if number < 20:
            return small[number] if number < 13 else {15: "fifteen"}[number]
        return tens[number // 10] + (f"-{small[number % 10]}" if number % 10 else "")

    def spoken(minutes: int) -> str:
        hour = minutes // 60 % 24
        return f"{words(hour % 12 or 12)} {words(minutes % 60)} on {days[minutes // 1440]}"

    for instance in INSTANCES:
        day, clock = re.search(r"begins on (\w+) at (\d\d:\d\d)", instance.prompt).groups()  # type: ignore[union-attr]
        start = days.index(day) * 1440 + int(clock[:2]) * 60 + int(clock[3:])
        lead = int(re.search(r"shuts (\d+) minutes", instance.prompt)[1])  # type: ignore[index]
        hours, minutes = re.search(r"reopens (\d+) hours and (\d+)", instance.prompt).groups()  # type: ignore[union-attr]
        gone, total = re.search(r"(\d+) of its (\d+) seats", instance.prompt).groups()  # type: ignore[union-attr]
        assert facts(instance).shuts == spoken(start - lead)
        assert facts(instance).reopens == spoken(start + int(hours) * 60 + int(minutes))
        assert facts(instance).seats == words(int(total) - int(gone))


def test_nothing_without_the_facts_earns_anything() -> None:
    chance = random.Random(8)
    for instance in INSTANCES[:30]:
        vocabulary = re.findall(r"[^\W\d_]+", instance.prompt + golden(instance))
        guesses = [" ".join(chance.choices(vocabulary, k=80)) + "." for _ in range(20)]
        prompt = instance.prompt
        parts = [prompt[a : a + 900] for a in range(0, len(prompt), 300)]
        constants = ["", " \n", "x", "Yes.", facts(instance).place, prompt, prompt.lower(), prompt * 3]
        for text in [*constants, *parts, *guesses]:
            assert grade(instance, text)[0] <= NULL
        assert grade(instance, Delivery())[0] == 0
        assert grade(instance, Delivery(no_answer="thinking_not_closed"))[0] == 0


def test_the_golden_notice_of_another_instance_earns_next_to_nothing() -> None:
    total = sum((grade(i, golden(FIRST))[0] for i in INSTANCES[3:]), Decimal(0))
    assert total <= NULL * len(INSTANCES[3:])


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(), max_size=300), st.integers(0, 400), st.booleans())
def test_any_text_at_all_is_graded(noise: str, at: int, with_facts: bool) -> None:
    text = golden(FIRST)
    text = text[:at] + noise + text[at:] if with_facts else noise
    points, lost = grade(FIRST, text)
    assert (points, lost) == grade(FIRST, text)
    if not with_facts:
        assert points <= NULL


HUGE = [
    "a",
    ".",
    "\n",
    "a.",
    "a.b!",
    "\n \n",
    "\ud800",
    "\u00b2\u00bd",
    "\x00\x0b\u2028",
    "ab ",
    "K\u0130 ",
    "!",
    "\u00e9\u0301-",
    "1 2\r",
]


@pytest.mark.parametrize("unit", HUGE, ids=ascii)
def test_a_megabyte_is_graded(unit: str) -> None:
    for text in (unit * (2**20 // len(unit)), golden(FIRST) + "\n" + unit * (2**20 // len(unit))):
        assert grade(FIRST, text) == grade(FIRST, text)


def test_the_same_variant_and_run_give_the_same_instance() -> None:
    for instance in INSTANCES[:20]:
        again = ITEM.build(instance.variant, instance.run)
        assert again.prompt == instance.prompt
        assert facts(again) == facts(instance)
    assert len({instance.prompt for instance in INSTANCES}) == len(INSTANCES)


BOUNDS = [
    ("p01", "twelve", "\u0663 days"),
    ("p03", "A, b. c - d [e]", "a (b"),
    ("p04", "a `b`", "the house\u2019s"),
    ("p05", "I Do", "an \u00c4\u00d6"),
    ("p06", "mine wet yours", "a WE-b"),
    ("p07", "lyre ingot", "Only"),
    ("p08", "{banned}x", "x_{banned}"),
    ("p09", "odd", "o{letter}d"),
    ("p10", "{longest}", "{longest}x"),
    ("p11", "there There", "though-Though"),
    ("p12", "{sentence}. {sentence}", "{sentence}\n x."),
    ("p12", "{sentence}\n \n x", "{sentence}, x"),
    ("p13", "a. b! ... c? d a", "the. b. \n(The"),
    ("p13", "a b\n\nb a", "a\n\nA b"),
    ("p14", "a b", "b.\n\nBy"),
    ("p15", "{line}\r\n{line}", "a\n{line} "),
]


@pytest.mark.parametrize(("row", "kept", "broken"), BOUNDS)
def test_a_rule_ends_exactly_where_the_prompt_says(row: str, kept: str, broken: str) -> None:
    task: Any = ITEM.task
    for instance in INSTANCES[:10]:
        wanted = facts(instance)
        values = {
            "banned": wanted.banned[2],
            "letter": wanted.letter.upper(),
            "longest": "x" * wanted.word_letters,
            "sentence": " ".join(["x"] * wanted.sentence_words),
            "line": "x" * wanted.line_characters,
        }
        assert task.PROHIBITIONS[row](task.Text(kept.format(**values)), wanted) is None
        assert task.PROHIBITIONS[row](task.Text(broken.format(**values)), wanted)


def test_the_stated_numbers_of_words_are_included() -> None:
    task: Any = ITEM.task
    wanted = facts(FIRST)
    counts = [n for n in range(50, 110) if task.wrong_length(task.Text("x " * n), wanted) is None]
    assert counts == list(range(wanted.least, wanted.most + 1))


def test_evidence_names_the_offender() -> None:
    text = golden(FIRST).replace("each day.", "each day?")
    evidence = {verdict.row: verdict.evidence for verdict in ITEM.task.grade(FIRST, Delivery(files={FILE: text}))}
    assert "'?' in line 13" in evidence["p02"]
    assert "most issues each day?" in evidence["p02"]
    assert evidence["p01"] == "kept"
