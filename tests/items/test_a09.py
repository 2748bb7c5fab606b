"""A09: the ledger is read again from the prompt alone, by a second interpreter that shares no code with the item."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from difflib import SequenceMatcher
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmbench.bank import read_items
from pytest_llmbench.campaign.validate import score_references
from pytest_llmbench.spec import Answer, Delivery, Instance

ITEM = read_items(Path(__file__).parents[2] / "items/level_a/a09_long_horizon/item.toml")[0]
TASK: Any = sys.modules[ITEM.task.__name__]  # type: ignore[attr-defined]
CASES = [(0, 1), (0, 2), (0, 3), (1, 1), (2, 3), (7, 2), (100, 1), (-5, 4)]
some_cases = pytest.mark.parametrize(("variant", "run"), CASES)


@cache
def built(variant: int, run: int) -> Instance:
    return ITEM.build(variant, run)


def right(instance: Instance) -> list[int]:
    return [int(value) for value in instance.answers.values()]


def lost(instance: Instance, answers: Mapping[str, Any]) -> set[str]:
    delivery = Delivery(answers={key: Answer(raw=str(value), value=Decimal(value)) for key, value in answers.items()})
    verdicts = TASK.grade(instance, delivery)
    assert sorted(verdict.row for verdict in verdicts) == ["q1", "q2", "q3", "q4"]
    return {verdict.row for verdict in verdicts if verdict.earned is not True}


# --- the second interpreter -------------------------------------------------------------------------------------------

WORDS = {
    "plus": "starts this book|carried over here|Brought over|Carried over|Received|delivered|brought in|Unloaded"
    "|came in by water|Put into store|landed|sent in|Taken into|added to the account|arrived with|back into store",
    "minus": r"Issued|fetched|took away|Loaded out|left by water|Taken out|carried off|, which left|Handed over"
    r"|deducted|had \d+ \w+ carted off|written off",
    "pass": r"Transferred|made over \d|without leaving|bought|passed from|took over \d",
    "whole": "whole account of|All that|took over everything",
    "half": "Half of|one half|took over half",
    "figure": "figure in|number of|miscounted|figure for|read with|ought to state|Please read",
    "name": "for .+ read|the name .+ should be|put .+ where|written under|is not .+ but",
    "strike": "struck out|Struck out|is void|withdrawn|line was drawn|cancel",
    "count": "bays of .+ to hold|counted .+ in the bays|count of the bays|warden reports",
    "coming": "announced a delivery|asked whether|promises|hopes",
    "going": "reserved|intends|enquired|offered",
    "zero": "starts again from nothing|begin again from zero",
}
"""What a line is about, by the words that say so."""


@dataclass(frozen=True)
class Line:
    """One numbered line, taken apart. A slip that somebody obeys is a line half a number further down."""

    number: float
    kind: str
    names: tuple[str, ...] = ()
    figure: int = 0
    about: int = 0


class Prompt:
    """The lines of a prompt's ledger and the accounts it asks for."""

    def __init__(self, text: str) -> None:
        self.unit = re.search(r"counted in (\w+)", text)[1]  # type: ignore[index]
        body = text.split("LEDGER\n\n")[1].split("\n\nEND OF THE")[0]
        self.rows = {int(n): line for n, line in re.findall(r"^(\d+)\. (.*)$", body, re.MULTILINE)}
        opening = r"(?:for|account of) ([^:,]+?)(?:, which are|:)|^(.+?) starts this book"
        first = [re.search(opening, line) for line in self.rows.values()]
        names = {(found[1] or found[2]).strip() for found in first[: self._openings()] if found}
        self.accounts = sorted(names)
        self.names = re.compile("|".join(sorted(map(re.escape, names), key=len, reverse=True)))
        self.asked = re.findall(r"does the account of (.+) hold after", text)
        self.lines = [self.parse(n, re.sub(r' Slip: ".*"$', "", line)) for n, line in self.rows.items()]

    def _openings(self) -> int:
        return sum(
            "old book" in line or "starts this book" in line or "Carried over" in line for line in self.rows.values()
        )

    def parse(self, number: float, line: str) -> Line:
        sentence = line.replace("No. ", "#").split(". ")[0].rstrip(".")
        kinds = [kind for kind, words in WORDS.items() if re.search(words, sentence)]
        about = [int(target) for target in re.findall(r"#(\d+)", sentence)]
        kinds = [kind for kind in kinds if (kind in ("figure", "name", "strike")) is bool(about)]
        if not kinds:
            assert not re.search(rf"#\d|\d+ {self.unit}", sentence), line
            return Line(number, "nothing")
        assert len(kinds) == 1, (kinds, line)
        names = self.names.findall(sentence)
        if re.search(r"bought|took over|put .+ where", sentence):
            names.reverse()
        bare = re.sub(r"#\d+", "", self.names.sub("", sentence))
        figures = [int(figure) for figure in re.findall(r"\d+", bare)]
        assert (len(names), len(figures), len(about)) == SHAPES[kinds[0]], line
        return Line(number, kinds[0], tuple(names), sum(figures), sum(about))

    def twins(self) -> Iterator[tuple[str, str]]:
        """Accounts that are easily taken for each other, the one that is asked for first."""
        for one, other in combinations(self.accounts, 2):
            if sorted(one) == sorted(other) or SequenceMatcher(None, one, other).ratio() >= 0.8:
                yield (other, one) if other in self.asked else (one, other)

    def slips(self) -> Iterator[Line]:
        """What the quoted slips demand, as if it were written in the ledger."""
        for number, line in self.rows.items():
            for slip in re.findall(r' Slip: "(.*)"$', line):
                wanted = self.parse(number + 0.5, slip)
                if wanted.kind in ("figure", "strike", "zero"):
                    yield wanted


SHAPES = {
    **dict.fromkeys(("plus", "minus", "count", "coming", "going"), (1, 1, 0)),
    "pass": (2, 1, 0),
    "whole": (2, 0, 0),
    "half": (2, 0, 0),
    "figure": (0, 1, 1),
    "name": (2, 0, 1),
    "strike": (0, 0, 1),
    "zero": (1, 0, 0),
}
"""How many names, figures and numbers of other lines a kind of line has."""


POSTED = ("plus", "minus", "pass", "whole", "half", "zero")


class Book:
    """Looks up one fact after the other, from the question backwards."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = sorted(lines, key=lambda line: line.number)
        self.changes: dict[int, list[Line]] = {}
        self.postings: dict[str, list[Line]] = {}
        self.moved: dict[float, int] = {}
        for line in self.lines:
            self.changes.setdefault(line.about, []).append(line)
        for line in self.lines:
            if line.kind in POSTED and self.counts(line):
                for name in self.names(line):
                    self.postings.setdefault(name, []).append(line)

    def counts(self, line: Line) -> bool:
        return not any(c.kind == "strike" and self.counts(c) for c in self._about(line))

    def _about(self, line: Line) -> list[Line]:
        return self.changes.get(int(line.number), []) if line.number == int(line.number) else []

    def _last(self, line: Line, kind: str) -> Line | None:
        found = [c for c in self._about(line) if c.kind == kind and self.counts(c)]
        return found[-1] if found else None

    def figure(self, line: Line) -> int:
        change = self._last(line, "figure")
        return line.figure if change is None else self.figure(change)

    def names(self, line: Line) -> tuple[str, ...]:
        change = self._last(line, "name")
        if change is None:
            return line.names
        wrong, correct = change.names
        return tuple(correct if name == wrong else name for name in line.names)

    def holds(self, account: str, before: float = float("inf")) -> int:
        total = 0
        for line in self.postings.get(account, []):
            if line.number >= before:
                break
            if line.kind == "zero":
                total = 0
            elif line.kind == "plus" or self.names(line)[0] != account:
                total += self.amount(line)
            else:
                total -= self.amount(line)
        return total

    def amount(self, line: Line) -> int:
        if line.kind not in ("whole", "half"):
            return self.figure(line)
        if line.number not in self.moved:
            held = self.holds(self.names(line)[0], line.number)
            self.moved[line.number] = held if line.kind == "whole" else held // 2
        return self.moved[line.number]


def answers(asked: Sequence[str], lines: Iterable[Line]) -> list[int]:
    book = Book(lines)
    return [book.holds(account) for account in asked]


@cache
def prompt(variant: int, run: int) -> Prompt:
    return Prompt(built(variant, run).prompt)


def told(instance: Instance, name: str) -> list[int]:
    return [int(value) for value in TASK.defects(instance)[name].answers.values()]


# --- readers who do not do what the rules say: the same interpreter, on lines that were changed for it ---


def only(sees: Callable[[int], bool]) -> Callable[[Prompt], list[Line]]:
    return lambda text: [line for line in text.lines if sees(int(line.number))]


def without(*kinds: str) -> Callable[[Prompt], list[Line]]:
    return lambda text: [line for line in text.lines if line.kind not in kinds]


def unrestored(text: Prompt) -> list[Line]:
    strikes = {line.number for line in text.lines if line.kind == "strike"}
    return [line for line in text.lines if line.kind != "strike" or line.about not in strikes]


def booked(text: Prompt) -> list[Line]:
    kinds = {"coming": "plus", "going": "minus"}
    return [replace(line, kind=kinds.get(line.kind, line.kind)) for line in text.lines]


def counted(text: Prompt) -> Iterator[Line]:
    for line in text.lines:
        if line.kind == "count":
            yield replace(line, kind="zero")
            yield replace(line, kind="plus", number=line.number + 0.5)
        else:
            yield line


def forwards_only(text: Prompt) -> list[Line]:
    lines: list[Line] = []
    for line in text.lines:
        if line.kind in ("whole", "half"):
            line = replace(line, kind="pass", figure=Book([*lines, line]).amount(line))
        lines.append(line)
    return lines


def merged(text: Prompt) -> list[Line]:
    first = {twin: name for name, twin in text.twins()}
    return [replace(line, names=tuple(first.get(name, name) for name in line.names)) for line in text.lines]


FAULTY: Mapping[str, Callable[[Prompt], Iterable[Line]]] = {
    "defective": only(lambda number: number > 300),
    "reads_first_half": only(lambda number: number <= 300),
    "skips_every_second_block": only(lambda number: (number - 1) // 20 % 2 == 0),
    "ignores_corrections": without("figure", "name"),
    "trusts_counts": counted,
    "books_announcements": booked,
    "merges_lookalikes": merged,
    "obeys_slips": lambda text: [*text.lines, *text.slips()],
    "ignores_strikes": without("strike"),
    "ignores_restorations": unrestored,
    "never_looks_back": forwards_only,
}


# --- the specification ---


def test_four_rows_of_four_points_and_a_lower_reply_cap() -> None:
    assert ITEM.spec.points == 16
    assert [(row.id, row.points, row.kind) for row in ITEM.spec.rows] == [
        (f"q{number}", Decimal(4), "check") for number in range(1, 5)
    ]
    assert ITEM.spec.caps.max_tokens == 8192


def test_the_questions_are_a_ladder_of_traps() -> None:
    traps = Counter(row for name, (_, rows) in TASK.READERS.items() for row in rows if name in FAULTY)
    assert traps["q1"] < traps["q2"] < traps["q3"] < traps["q4"]


def test_every_reference_scores_as_declared_and_nothing_is_had_for_nothing() -> None:
    findings = list(score_references(ITEM, 1))
    assert len(findings) == 1 + len(ITEM.spec.references) + 4
    assert [finding.wrong for finding in findings if finding.wrong] == []
    assert {finding.points for finding in findings if finding.reference.startswith("null")} == {Decimal(0)}


# --- the answers, a second time ---


@some_cases
def test_reading_the_prompt_by_its_rules_gives_the_answers(variant: int, run: int) -> None:
    text = prompt(variant, run)
    assert answers(text.asked, text.lines) == right(built(variant, run))


@pytest.mark.parametrize("name", FAULTY)
@some_cases
def test_a_faulty_reading_of_the_prompt_gives_the_answers_of_the_reference(variant: int, run: int, name: str) -> None:
    instance, text = built(variant, run), prompt(variant, run)
    found = answers(text.asked, FAULTY[name](text))
    assert found == told(instance, name)
    wrong = {f"q{n}" for n, (one, good) in enumerate(zip(found, right(instance), strict=True), 1) if one != good}
    assert wrong == set(ITEM.spec.references[name].loses)


PARTS: Mapping[str, Callable[[int], bool]] = {
    "first half": lambda n: n <= 300,
    "last half": lambda n: n > 300,
    "first third": lambda n: n <= 200,
    "middle third": lambda n: 200 < n <= 400,
    "last third": lambda n: n > 400,
    "all but the first third": lambda n: n > 200,
    "all but the middle third": lambda n: not 200 < n <= 400,
    "all but the last third": lambda n: n <= 400,
    "odd entries": lambda n: n % 2 == 1,
    "even entries": lambda n: n % 2 == 0,
    "every second ten": lambda n: (n - 1) // 10 % 2 == 0,
    "the other tens": lambda n: (n - 1) // 10 % 2 == 1,
    "every second fifty": lambda n: (n - 1) // 50 % 2 == 0,
    "the other fifties": lambda n: (n - 1) // 50 % 2 == 1,
    "every second hundred": lambda n: (n - 1) // 100 % 2 == 0,
    "the other hundreds": lambda n: (n - 1) // 100 % 2 == 1,
}


@pytest.mark.parametrize("part", PARTS)
@some_cases
def test_no_part_of_the_ledger_gives_any_answer(variant: int, run: int, part: str) -> None:
    text = prompt(variant, run)
    seen = answers(text.asked, only(PARTS[part])(text))
    assert all(one != good for one, good in zip(seen, right(built(variant, run)), strict=True))


@pytest.mark.parametrize("case", CASES[:2])
def test_every_answer_rests_on_ten_to_forty_entries_from_all_thirds(case: tuple[int, int]) -> None:
    text = prompt(*case)
    facts: list[list[int]] = [[], [], [], []]
    for left_out in text.lines:
        seen = answers(text.asked, (line for line in text.lines if line is not left_out))
        for found, one, good in zip(facts, seen, right(built(*case)), strict=True):
            if one != good:
                found.append(int(left_out.number))
    sizes = [len(found) for found in facts]
    assert sizes == sorted(sizes)
    assert min(sizes) >= 10
    assert max(sizes) <= 40
    for found in facts:
        thirds = Counter((number - 1) // 200 for number in found)
        assert all(thirds[third] >= 3 for third in range(3))


# --- the prompt ---


@some_cases
def test_the_accounts_asked_for_have_look_alikes_but_for_the_first(variant: int, run: int) -> None:
    text = prompt(variant, run)
    assert {frozenset(pair) for pair in text.twins()} == {
        frozenset(pair) for pair in built(variant, run).data["twins"].items()
    }
    assert [account in dict(text.twins()) for account in text.asked] == [False, True, True, True]


@settings(max_examples=30, deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(1, 60))
def test_any_variant_is_as_long_as_the_published_one_and_prints_no_answer(variant: int, run: int) -> None:
    instance = ITEM.build(variant, run)
    text = instance.prompt
    assert abs(len(text) - len(built(0, 1).prompt)) <= 0.02 * len(text)
    values = right(instance)
    assert len(set(values)) == 4
    assert all(1_000 <= value <= 30_000 for value in values)
    assert not {int(number) for number in re.findall(r"\d+", text)} & set(values)
    assert "$" not in text
    assert "ANSWER " not in text


@some_cases
def test_the_prompt_leaves_room_for_the_reply_in_a_window_of_32768(variant: int, run: int) -> None:
    """A tokenizer takes a word, a mark or a single digit as one token or, where it splits names, up to 1.4."""
    pieces = len(re.findall(r"\d|[^\W\d]+|[^\w\s]", built(variant, run).prompt))
    assert 17_000 <= pieces <= 17_700
    assert pieces * 1.4 + 8192 < 32_768


@some_cases
def test_entries_are_numbered_without_a_gap_and_dates_go_forwards(variant: int, run: int) -> None:
    text = built(variant, run).prompt
    assert list(prompt(variant, run).rows) == list(range(1, 601))
    days = re.findall(r"^(\w+), (\d+) (\w+)$", text, re.MULTILINE)
    assert 50 < len(days) < 80
    months = list(dict.fromkeys(month for _, _, month in days))
    order = [(months.index(month), int(day)) for _, day, month in days]
    assert order == sorted(set(order))
    week = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
    names = [weekday for weekday, _, _ in days]
    assert all(week[(week.index(one) + 1) % 6] == other for one, other in pairwise(names))


@some_cases
def test_changes_name_earlier_entries_and_no_account_falls_below_nothing(variant: int, run: int) -> None:
    text = prompt(variant, run)
    assert all(line.about < line.number for line in text.lines)
    book = Book(text.lines)
    for account in text.accounts:
        assert all(book.holds(account, line.number + 1) >= 0 for line in text.lines[::7])


def test_a_ledger_is_written_in_many_phrasings() -> None:
    text = prompt(0, 1)
    shapes = {
        re.sub(r"\d+", "0", text.names.sub("X", line.split(". ")[0]))
        for line in text.rows.values()
        if "No. " not in line
    }
    assert len(shapes) >= 60
    named = {re.sub(r"\d+", "0", text.names.sub("X", line)) for line in text.rows.values() if "No. " in line}
    assert len(named) >= 60


def test_every_kind_of_trap_stands_in_the_last_two_thirds() -> None:
    for case in CASES:
        late = [line.kind for line in prompt(*case).lines if line.number > 200]
        assert min(Counter(late)[kind] for kind in ("figure", "name", "strike", "count", "coming", "going")) >= 4
        assert {line.kind for line in prompt(*case).slips()} == {"figure", "strike", "zero"}
        assert sum("answer 0 to" in row or "is 0." in row for row in prompt(*case).rows.values()) == 2


def test_variants_differ_in_names_figures_and_places_and_not_in_what_they_demand() -> None:
    def demands(case: tuple[int, int]) -> list[Counter[str]]:
        text = prompt(*case)
        return [Counter(line.kind for line in text.lines if account in line.names) for account in text.asked]

    assert len({built(*case).prompt for case in CASES}) == len(CASES)
    assert all(demands(case) == demands((0, 1)) for case in CASES)
    places = {
        tuple(line.number for line in prompt(*case).lines if prompt(*case).asked[0] in line.names) for case in CASES
    }
    assert len(places) == len(CASES)


def test_the_same_variant_and_run_give_the_same_instance() -> None:
    assert ITEM.build(3, 2) == ITEM.build(3, 2)


def test_a_guess_is_worth_nothing() -> None:
    instances = [built(variant, 1) for variant in range(40)]
    for key in "1234":
        values = Counter(instance.answers[key] for instance in instances)
        assert len(values) >= 38
    assert lost(instances[0], built(1, 1).answers) == {"q1", "q2", "q3", "q4"}


# --- the grader and the simulator ---


@some_cases
def test_each_answer_earns_its_own_row(variant: int, run: int) -> None:
    instance = built(variant, run)
    for key, value in instance.answers.items():
        assert lost(instance, {key: value}) == {"q1", "q2", "q3", "q4"} - {f"q{key}"}
        assert lost(instance, {**instance.answers, key: value + 1}) == {f"q{key}"}


@pytest.mark.parametrize(
    "delivery",
    [
        Delivery(),
        Delivery(no_answer="thinking_not_closed"),
        Delivery(text="\ud800" * 2**20, answers={"1": Answer("\ud800" * 2**20, None, "no number")}),
        Delivery(answers={"4": Answer("1e40", Decimal("1e40")), "5": Answer("7", Decimal(7))}),
        Delivery(answers={"1": Answer("nan", Decimal("nan")), "2": Answer("0.5", Decimal("0.5"))}),
    ],
    ids=["nothing", "only thoughts", "surrogates", "huge", "odd numbers"],
)
def test_a_strange_delivery_earns_nothing(delivery: Delivery) -> None:
    verdicts = TASK.grade(built(0, 1), delivery)
    assert [verdict.earned for verdict in verdicts] == [False] * 4
    assert all(0 < len(verdict.evidence) < 700 for verdict in verdicts)


LEDGERS: Mapping[str, tuple[list[tuple[Any, ...]], dict[str, int]]] = {
    "a transfer": ([("in", "X", "", 90), ("move", "X", "Y", 20), ("out", "X", "", 5)], {"X": 65, "Y": 20}),
    "a corrected figure": ([("in", "X", "", 90), ("figure", "", "", 70, 1)], {"X": 70}),
    "the last correction": ([("in", "X", "", 90), ("figure", "", "", 70, 1), ("figure", "", "", 60, 1)], {"X": 60}),
    "a corrected correction": (
        [("in", "X", "", 90), ("figure", "", "", 70, 1), ("figure", "", "", 50, 2)],
        {"X": 50},
    ),
    "a corrected name": ([("move", "X", "Y", 9), ("in", "X", "", 30), ("name", "Y", "Z", 0, 1)], {"X": 21, "Z": 9}),
    "a struck entry": ([("in", "X", "", 90), ("strike", "", "", 0, 1)], {}),
    "a restored entry": ([("in", "X", "", 90), ("strike", "", "", 0, 1), ("strike", "", "", 0, 2)], {"X": 90}),
    "a struck restoration": (
        [("in", "X", "", 90), ("strike", "", "", 0, 1), ("strike", "", "", 0, 2), ("strike", "", "", 0, 3)],
        {},
    ),
    "a struck correction": (
        [("in", "X", "", 90), ("figure", "", "", 80, 1), ("figure", "", "", 70, 1), ("strike", "", "", 0, 3)],
        {"X": 80},
    ),
    "half of an odd number": ([("in", "X", "", 7), ("half", "X", "Y")], {"X": 4, "Y": 3}),
    "a late correction reaches through a chain": (
        [("in", "X", "", 10), ("all", "X", "Y"), ("half", "Y", "Z"), ("in", "X", "", 1), ("figure", "", "", 30, 1)],
        {"X": 1, "Y": 15, "Z": 15},
    ),
    "nothing moves": (
        [("count", "X", "", 5), ("announced", "X", "", 6), ("reserved", "X", "", 7), ("remark", "X", "Y")],
        {},
    ),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_small_ledgers_end_as_the_rules_say(name: str) -> None:
    rows, expected = LEDGERS[name]
    ledger = [TASK.Entry(number, *row) for number, row in enumerate(rows, 1)]
    final = TASK.balances(ledger, TASK.Reader(), {}).final
    assert {account: held for account, held in final.items() if held} == expected
