"""The bank of level C: every pair is a pair of twins, dated, with facts that hold; nothing of it is asked twice."""

from __future__ import annotations

import datetime
import json
import random
import re
from collections import Counter
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pytest_llmbench.bank import Item, load_bank
from pytest_llmbench.grading.twins import NotTwins, Side, drawn, read_pairs, twin
from pytest_llmbench.spec import Delivery

ROOT = Path(__file__).parents[2]
BANK = load_bank(ROOT / "items/level_c")
TWINS = [item for item in BANK if item.spec.data["probe"] in ("twins", "placebo")]
RECALL = [item for item in BANK if item.spec.data["probe"] == "recall"]
TEMPLATES = sorted({str(item.spec.group) for item in TWINS})
INSTANCES = [(variant, run) for variant in range(3) for run in (1, 2, 3)]


def by_pair() -> dict[str, dict[str, Item]]:
    found: dict[str, dict[str, Item]] = {}
    for item in TWINS:
        found.setdefault(item.spec.data["pair"], {})[item.spec.data["side"]] = item
    return found


@cache
def sides(pair: str, variant: int, run: int) -> tuple[Side, Side]:
    pre, post = (by_pair()[pair][side].build(variant, run).data["side"] for side in ("pre", "post"))
    return pre, post


def test_there_are_at_least_120_pairs_of_six_templates_and_placebo_pairs_beside_them() -> None:
    probes = Counter(items["pre"].spec.data["probe"] for items in by_pair().values())
    assert probes["twins"] >= 120
    assert probes["placebo"] >= 30
    assert len(TEMPLATES) == 6


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_pair_is_a_pair_of_twins_in_every_instance(template: str) -> None:
    pairs = [name for name, items in by_pair().items() if items["pre"].spec.group == template]
    refused = {
        (name, variant, run): why
        for name in pairs
        for variant, run in INSTANCES
        if (why := twin(*sides(name, variant, run)))
    }
    assert pairs
    assert not refused


@pytest.mark.parametrize("template", TEMPLATES)
def test_instances_of_other_runs_and_variants_are_other_questions(template: str) -> None:
    pairs = [name for name, items in by_pair().items() if items["pre"].spec.group == template]
    prompts = [{sides(name, variant, run)[1].prompt for variant, run in INSTANCES} for name in pairs]
    assert min(map(len, prompts)) >= 4


def test_a_pair_whose_sides_are_no_twins_is_refused_when_it_is_built() -> None:
    item = next(item for item in TWINS if item.spec.group == "C1_T1")
    pair = read_pairs(item.side("fixtures"))[item.spec.data["pair"]]
    rows = [["a-very-long-name-of-a-package", *row[1:]] for row in pair.facts[1]["rows"]]
    broken = type(pair)(pair.id, False, (pair.facts[0], {**pair.facts[1], "rows": rows}))
    task: Any = item.task
    with pytest.raises(NotTwins, match=f"pair {pair.id} is not used: .*characters"):
        drawn(broken, 0, 1, lambda facts, chance: task.make(item, facts, chance))


def test_both_sides_state_source_and_date_and_the_facts_say_the_same() -> None:
    for name, items in by_pair().items():
        pair = read_pairs(items["pre"].side("fixtures"))[name]
        for item, facts in zip((items["pre"], items["post"]), pair.facts, strict=True):
            assert item.spec.data["source"] == facts["source"]
            assert item.spec.data["known_from"] == facts["known_from"]
            assert re.fullmatch(r"\d{4}-\d\d", facts["known_from"])
        pre, post = (facts["known_from"] for facts in pair.facts)
        assert pair.placebo == (items["pre"].spec.data["probe"] == "placebo")
        assert post < "2023-07" if pair.placebo else pre < post


def test_no_release_stands_in_two_pairs() -> None:
    rows = [
        (row[0], row[1])
        for group in ("c1_t1", "c1_t5")
        for pair in read_pairs(ROOT / "fixtures" / group).values()
        for facts in pair.facts
        for row in facts["rows"]
    ]
    assert len(rows) == len(set(rows))


def test_time_zone_facts_are_those_of_the_database() -> None:
    try:
        if version("tzdata") < "2026.6":
            pytest.skip("the time zone database is older than the facts")
    except PackageNotFoundError:
        pytest.skip("no tzdata package")
    import zoneinfo

    zoneinfo.reset_tzpath(to=[])
    try:
        for pair in read_pairs(ROOT / "fixtures/c1_t3").values():
            for facts in pair.facts:
                zone, first = ZoneInfo(facts["zone"]), datetime.date.fromisoformat(facts["from"])
                last = datetime.date.fromisoformat(facts["last"])
                before, after = (
                    datetime.datetime(day.year, day.month, day.day, 12, tzinfo=zone).utcoffset()
                    for day in (last - datetime.timedelta(days=3), last + datetime.timedelta(days=3))
                )
                hours = datetime.timedelta(hours=1)
                assert (before, after) == (facts["winter"] * hours, facts["summer"] * hours)
                for days in range(facts["days"]):
                    day = first + datetime.timedelta(days=days)
                    assert datetime.datetime(day.year, day.month, day.day, tzinfo=zone).utcoffset() == after
    finally:
        zoneinfo.reset_tzpath()


def test_heap_programs_print_what_python_prints() -> None:
    import heapq

    for name, items in by_pair().items():
        side = sides(name, 1, 2)[0]
        if items["pre"].spec.group == "C1_T4" and side.steps["kind"] == "heap":
            printed: list[int] = []
            space = {call: getattr(heapq, f"heap{call}") for call in ("push", "pop", "replace", "pushpop")}
            exec(side.slots["program"], {**space, "print": printed.append})
            assert printed == [side.answer]


def test_the_clocks_of_before_the_change_are_told_apart_as_prior_knowledge() -> None:
    item = next(item for item in TWINS if item.spec.group == "C1_T3")
    instance, task = item.build(0, 1), item.task
    before, right = instance.data["side"].mistake, instance.data["side"].answer
    for text, earned, begins in (
        (right, True, "answered"),
        (f"It is {before}.", False, "prior overrides text"),
        (f"First {before}, no: {right}", True, "answered"),
        ("2030-01-01T00:00Z", False, "answered"),
        ("in the morning", False, "no moment"),
    ):
        [verdict] = task.grade(instance, Delivery(text=text))
        assert (verdict.earned, verdict.evidence.startswith(begins)) == (earned, True)


@pytest.mark.parametrize(
    ("notice", "wrong"),
    [
        ("In May 2026 the-kit came out as 2.5.1. Old copies keep on working.\nNobody needs to hurry.", None),
        ("In May 2026 the-kit came out as 2.5.1. Newer and brand-new copies work. Nobody hurries.", None),
        ("In May 2026 the-kit came out as 2.5.1. A new copy works. Nobody hurries.", "word new"),
        ("In May 2026 the-kit came out as 2.5.1. Nobody needs to hurry.", "2 sentences"),
        ("In May 2026 the-kit came out as 2.5.10. Old copies work. Nobody hurries.", "the version"),
        ("In May 2026 another-the-kit came out as 2.5.1. Old copies work. Nobody hurries.", "the name"),
        ("In May 2026, the-kit came out as 2.5.1. Old copies work. Nobody hurries.", "forbidden sign"),
        ("In May 2026 the-kit came out as 2.5.1. The old copies work. Nobody hurries.", "begins with the"),
        ("In May 2026 the-kit came out as 2.5.1. It has News. Nobody hurries.", "forbidden word has"),
        ("In May 2026 the-kit came out as 2.5.1 and all of the people were very glad. It works. Good.", "words"),
        ("In May 2026 the-kit came out as 2.5.1. Old copies work. Nobody hurries", "full stop"),
    ],
)
def test_the_notice_keeps_its_prohibitions(notice: str, wrong: str | None) -> None:
    item = next(item for item in TWINS if item.spec.group == "C1_T6")
    task: Any = item.task
    offence = __import__("sys").modules[task.__name__].offence
    found = offence(notice, {"name": "the-kit", "version": "2.5.1", "month": "May 2026"}, ("has", "new"), 10)
    assert (found is None) == (wrong is None)
    assert wrong is None or wrong in found


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ("{}", "right"),
        ("**{}**", "right"),
        ("The name is {}.", "right"),
        ("UNKNOWN", "unknown"),
        ("Unknown.", "unknown"),
        ("SMALL RED HAT", "made up: SMALL RED HAT"),
        ("", "no answer"),
    ],
)
def test_recall_has_three_outcomes(reply: str, outcome: str) -> None:
    item = next(item for item in RECALL if item.spec.group == "C2_R1")
    instance = item.build(0, 1)
    [verdict] = item.task.grade(instance, Delivery(text=reply.format(instance.data["expected"])))
    assert (verdict.evidence, verdict.earned) == (outcome, outcome == "right")


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [("3.15", "right"), ("Python 3.15.", "right"), ("3.1", "made up: 3.1"), ("3.14 or 3.15", "made up: 3.14, 3.15")],
)
def test_a_version_is_recalled_or_not(reply: str, outcome: str) -> None:
    item = next(item for item in RECALL if "3.15" in item.spec.data["source"])
    [verdict] = item.task.grade(item.build(0, 1), Delivery(text=reply))
    assert verdict.evidence == outcome


def test_code_points_have_the_names_that_python_knows_where_it_knows_them() -> None:
    import unicodedata

    facts = json.loads((ROOT / "fixtures/c2_r1/facts.json").read_text(encoding="utf-8"))
    known = {fact["name"]: unicodedata.name(chr(int(fact["code"], 16)), None) for fact in facts.values()}
    assert all(mine == its for mine, its in known.items() if its is not None)


def test_what_python_311_has_is_said_to_be_there_by_then() -> None:
    import importlib

    facts = json.loads((ROOT / "fixtures/c2_r2/facts.json").read_text(encoding="utf-8"))
    for fact in facts.values():
        name = fact["what"].removesuffix("()")
        if re.fullmatch(r"[a-z]+(\.\w+)+", name) and not name.startswith(("str.", "int.", "bytearray.")):
            module, _, attribute = name.rpartition(".")
            try:
                there = hasattr(importlib.import_module(module), attribute)
            except ImportError:
                there = False
            if int(fact["version"].split(".")[1]) <= 11:
                assert there or name == "importlib.resources", name


def test_recall_is_asked_once_and_holds_no_answer_in_its_question() -> None:
    chance = random.Random(1)
    for item in chance.sample(RECALL, 30):
        instance = item.build(0, 1)
        fact = instance.data["expected"]
        assert item.spec.once
        assert fact not in instance.prompt
