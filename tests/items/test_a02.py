"""A02, a budget: what the sheets say, what looking at them costs, and what an agent earns for which habit."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmbench.bank import read_items
from pytest_llmbench.campaign.agents import conversation_of, messages_of, schedule_of
from pytest_llmbench.campaign.validate import score_references
from pytest_llmbench.faults import Fault, FaultKind, Schedule
from pytest_llmbench.grading.grade import Graded, grade
from pytest_llmbench.harness.agent import Conversation
from pytest_llmbench.harness.assignment import deliver
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.harness.references import NULLS
from pytest_llmbench.harness.scripted import Call, Policy, scripted
from pytest_llmbench.harness.tools import SQL_ROWS
from pytest_llmbench.records import Turn
from pytest_llmbench.spec import AgentWork, CallMade, Delivery, Instance

FILE = "answer.json"
KEYS = ["planks", "wood", "hours", "wages"]
ITEM = read_items(Path(__file__).parents[2] / "items/level_a/a02_cost_budget/item.toml")[0]
TASK: Any = ITEM.task
VARIANTS = [0, 1, 2, 3, 17, 999, -4]
CASES = [(variant, run) for variant in VARIANTS for run in (1, 2, 3)]
BUILT = [ITEM.build(variant, run) for variant in range(30) for run in (1, 2, 3)]
FIRST = BUILT[0]
FULL: tuple[Decimal, set[str]] = (Decimal(18), set())
PROFILE = Profile()


@cache
def built(variant: int, run: int) -> Instance:
    return ITEM.build(variant, run)


def no_tests(files: Mapping[str, str], only: str) -> str:
    raise AssertionError("the item has no such tool")


def say(instance: Instance, script: Callable[[Any], str], schedule: Schedule | None = None) -> Conversation:
    """A conversation under the run's own faults where no others are given."""
    faults = schedule_of(ITEM, instance.run) if schedule is None else schedule
    conversation = conversation_of(
        ITEM,
        instance,
        faults,
        PROFILE,
        lambda messages, cap: Turn(role="assistant", content=script(messages)),
        no_tests,
    )
    conversation.work()
    return conversation


def work(instance: Instance, policy: Callable[[], Policy], *faults: Fault) -> Conversation:
    return say(instance, scripted(policy), Schedule(faults) if faults else None)


def golden(instance: Instance, *faults: Fault) -> Conversation:
    return work(instance, ITEM.task.golden(instance).agent, *faults)  # type: ignore[arg-type]


def score(graded: Graded) -> tuple[Decimal, set[str]]:
    """The points, and the rows that are not earned in full."""
    assert all(row.evidence.isprintable() and 0 < len(row.evidence) < 400 for row in graded.rows)
    lost = {row.id for row in graded.rows if row.earned < row.points}
    return sum((row.earned for row in graded.rows), Decimal(0)), lost


def earned(instance: Instance, conversation: Conversation) -> tuple[Decimal, set[str]]:
    return score(grade(ITEM.task, instance, deliver(instance, conversation)))


def graded(content: str | None, spent: int = 0, instance: Instance = FIRST) -> Graded:
    """What an agent gets that leaves this answer file behind."""
    files = {} if content is None else {FILE: content}
    left = AgentWork(end="finish", statement=None, calls=(), files=files, database=None, spent=spent)
    return grade(ITEM.task, instance, Delivery(files=files, work=left))


def evidence(result: Graded, row: str) -> str:
    return next(r.evidence for r in result.rows if r.id == row)


# --- the archive, read by a program that knows the prompt and nothing of how it was made -----------------------------


class Reader:
    """Reads prompt, sheets and catalogue of an instance."""

    def __init__(self, instance: Instance) -> None:
        world = TASK.world(instance)
        self.files: Mapping[str, str] = world.files
        self.database: sqlite3.Connection = world.database
        self.prompt = instance.prompt

    def number(self, pattern: str) -> int:
        found = re.findall(pattern, self.prompt)
        assert len(set(found)) == 1, pattern
        return int(found[0])

    def rows(self, where: str, *values: str) -> list[Any]:
        return self.database.execute(f"SELECT path, total FROM sheets WHERE {where}", values).fetchall()

    def sheet(self, where: str, *values: str) -> dict[str, str]:
        """The lines of the one kept sheet that is meant."""
        [(path, _)] = self.rows(f"path IS NOT NULL AND {where}", *values)
        return lines(self.files[path])

    def dated(self, kind: str, name: str, day: str) -> dict[str, str]:
        where = "kind = ? AND name = ? AND ? BETWEEN first_day AND coalesce(last_day, '9999-12-31')"
        return self.sheet(where, kind, name, day)

    def answer(self) -> dict[str, int]:
        number = str(self.number(r"Reckon order (\d+)"))
        order = self.sheet("kind = 'order' AND name = ?", number)
        [text] = [text for text in self.files.values() if text.startswith(f"ORDER {number}\n")]
        [day] = re.findall(r"Placed on (\S+),", text)
        boat = self.dated("type", order["type"], day)
        wood, crew = self.dated("wood", boat["wood"], day), self.dated("crew", boat["crew"], day)
        planks = int(order["boats"]) * int(boat["planks per boat"]) + int(order["spare planks"])
        bundles = next(n for n in range(planks + 1) if n * int(wood["planks per bundle"]) >= planks)
        hours = int(order["boats"]) * int(boat["hours per boat"])
        wages = hours * int(crew["marks per hour"])
        return {"planks": planks, "wood": bundles * int(wood["marks per bundle"]), "hours": hours, "wages": wages}


def lines(text: str) -> dict[str, str]:
    return dict(line.split(": ") for line in text.splitlines() if ": " in line)


def test_the_sheets_and_the_prompt_lead_to_the_expected_values() -> None:
    for instance in BUILT:
        assert Reader(instance).answer() == instance.data["expected"], (instance.variant, instance.run)
        assert list(instance.data["expected"]) == KEYS


def test_the_catalogue_tells_of_every_sheet_what_stands_on_it() -> None:
    for instance in BUILT:
        reader = Reader(instance)
        catalogue = reader.database.execute("SELECT * FROM sheets").fetchall()
        kept = [row for row in catalogue if row[5] is not None]
        assert sorted(row[5] for row in kept) == sorted(reader.files)
        for kind, name, edition, first_day, _, path, total in kept:
            text = reader.files[path]
            head = f"{kind.upper()} {name}" + (f", edition {edition}" if kind != "order" else "")
            assert text.startswith(f"{head}\n")
            assert (f"\nIn force from {first_day}.\n" in text) == (kind != "order")
            assert sum(int(value) for value in lines(text).values() if value.isdecimal()) == total
        columns = [column[1] for column in reader.database.execute("PRAGMA table_info(sheets)")]
        assert f"sheets ({', '.join(columns)})" in instance.prompt


def test_of_each_name_at_most_one_edition_is_in_force_on_a_day() -> None:
    overlaps = """
        SELECT * FROM sheets a JOIN sheets b ON a.kind = b.kind AND a.name = b.name AND a.edition < b.edition
        WHERE a.last_day IS NULL OR a.last_day >= b.first_day OR a.first_day > a.last_day"""
    for instance in BUILT:
        database = Reader(instance).database
        assert database.execute(overlaps).fetchall() == []
        [twice] = database.execute("SELECT count(*) - count(DISTINCT kind || name || ifnull(edition, '')) FROM sheets")
        assert twice == (0,)


def test_the_names_of_the_files_tell_nothing_and_the_catalogue_is_longer_than_what_is_shown() -> None:
    for instance in BUILT:
        reader = Reader(instance)
        assert all(re.fullmatch(r"sheets/\d{3}\.txt", path) for path in reader.files)
        shown = reader.database.execute(f"SELECT path FROM sheets LIMIT {SQL_ROWS}").fetchall()
        right = [sheet.path for sheet in instance.data["archive"].right]
        assert not {path for (path,) in shown} & set(right[1:])


def test_the_day_of_the_order_is_the_first_day_of_one_edition_that_counts_and_the_last_of_another() -> None:
    for instance in BUILT:
        archive = instance.data["archive"]
        day, later = archive.order.values["placed"], archive.order.values["written"]
        assert sorted((sheet.first_day == day, sheet.last_day == day) for sheet in archive.right) == [
            (False, False),
            (False, True),
            (True, False),
        ]
        assert all(sheet.first_day <= day <= sheet.last_day < later for sheet in archive.right)


def test_instances_differ_and_are_built_alike() -> None:
    assert len({instance.prompt for instance in BUILT}) > 80
    assert len({tuple(instance.data["expected"].values()) for instance in BUILT}) == len(BUILT)
    for instance in BUILT:
        assert Counter(s.kind for s in instance.data["archive"].sheets if s.path) == dict.fromkeys(
            ["order", "type", "wood", "crew"], 10
        )
    assert ITEM.build(5, 2) == ITEM.build(5, 2)


# --- the budget ------------------------------------------------------------------------------------------------------


def test_to_read_everything_costs_three_budgets_and_to_search_well_a_third_of_one() -> None:
    for instance in BUILT:
        reader = Reader(instance)
        prices = {tool: reader.number(rf"{tool} (\d+)[,.]") for tool in ITEM.spec.tools}
        budget = reader.number(r"a cost of at most (\d+) in all")
        assert prices["list_files"] + len(reader.files) * prices["read_file"] + prices["write_file"] == 3 * budget
        assert TASK.world(instance).prices == {tool: price for tool, price in prices.items() if price}
        assert reader.number(r"keeps its records on (\d+) sheets") == len(reader.files) == 40


def test_the_reference_costs_what_the_budget_was_reckoned_from() -> None:
    for instance in BUILT[:12]:
        conversation = golden(instance, Fault(call=30, kind="timeout"))
        reader = Reader(instance)
        assert 3 * conversation.world.spent == reader.number(r"a cost of at most (\d+) in all")
        assert int(1.5 * conversation.world.spent) == reader.number(r"a cost of at most (\d+) still more")
        assert [call.tool for call in conversation.calls] == [
            *("sql", "read_file", "sql", "read_file", "read_file", "read_file", "write_file", "finish")
        ]


def test_a_cost_row_is_earned_up_to_its_bound_and_not_beyond() -> None:
    right = json.dumps(FIRST.data["expected"])
    assert score(graded(right, 67)) == FULL
    assert score(graded(right, 68)) == (Decimal(14), {"frugal"})
    assert score(graded(right, 135)) == (Decimal(14), {"frugal"})
    assert score(graded(right, 136)) == (Decimal(10), {"budget", "frugal"})


def test_to_cost_little_earns_nothing_without_the_right_answer() -> None:
    for key in KEYS:
        wrong = {**FIRST.data["expected"], key: 1}
        assert score(graded(json.dumps(wrong))) == (Decimal(8), {"answer", "budget", "frugal"})
    assert score(graded(None)) == (Decimal(0), {"files", "answer", "budget", "frugal"})


def test_without_a_conversation_the_cost_is_unknown_and_not_nothing() -> None:
    delivery = Delivery(files={FILE: json.dumps(FIRST.data["expected"])})
    assert score(grade(ITEM.task, FIRST, delivery)) == (Decimal(10), {"budget", "frugal"})


# --- references ------------------------------------------------------------------------------------------------------


def test_every_reference_earns_what_is_declared_and_nulls_nothing() -> None:
    findings = list(score_references(ITEM, 1))
    assert [finding.wrong for finding in findings if finding.wrong] == []
    assert len(findings) == 1 + len(ITEM.spec.references) + len(NULLS)


@pytest.mark.parametrize(("variant", "run"), [*CASES, (0, 4), (1, 5), (2, 6)])
def test_golden_earns_every_point_whatever_fires(variant: int, run: int) -> None:
    instance = built(variant, run)
    conversation = golden(instance)
    assert earned(instance, conversation) == FULL
    faults = conversation.record().faults
    assert [fault.fired_at is not None for fault in faults] == [True, True, True]
    assert sorted(fault.kind for fault in faults) == ["deceptive", "malformed", "timeout"]
    assert len(conversation.calls) <= 12


@pytest.mark.parametrize("name", sorted(ITEM.spec.references))
def test_a_bad_habit_costs_exactly_its_rows_in_every_variant_and_run(name: str) -> None:
    declared = ITEM.spec.references[name]
    for variant, run in CASES:
        instance = built(variant, run)
        defects = ITEM.task.defects(instance)
        assert set(defects) == set(ITEM.spec.references)
        agent = defects[name].agent
        assert agent is not None
        assert earned(instance, work(instance, agent)) == (declared.points, set(declared.loses)), (variant, run)


def single_faults() -> Iterator[Fault]:
    for kind in get_args(FaultKind):
        for call in range(1, 10):
            for tool in (None, *ITEM.spec.tools[:-1]):
                yield Fault(call=call, kind=kind, tool=tool)


def test_golden_takes_any_single_fault_at_any_place() -> None:
    for fault in single_faults():
        assert earned(FIRST, golden(FIRST, fault)) == FULL, fault


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            Fault,
            call=st.integers(1, 12),
            kind=st.sampled_from(get_args(FaultKind)),
            tool=st.sampled_from([None, *ITEM.spec.tools[:-1]]),
        ),
        min_size=1,
        unique_by=lambda fault: fault.kind,
    ),
    st.integers(0, len(BUILT) - 1),
)
def test_golden_has_the_right_answer_under_one_fault_of_each_kind(faults: list[Fault], place: int) -> None:
    conversation = golden(BUILT[place], *faults)
    assert json.loads(conversation.world.files[FILE]) == BUILT[place].data["expected"]
    assert conversation.world.spent <= 135


def test_golden_never_starts_from_what_only_the_grader_knows() -> None:
    """Where the sheets say otherwise, the reference says otherwise."""
    instance = built(1, 1)
    archive = instance.data["archive"]
    world = TASK.world(instance)
    path = archive.right[2].path
    world.files[path] = re.sub(r"marks per hour: \d+", "marks per hour: 90", world.files[path])
    world.database.execute(
        "UPDATE sheets SET total = ? WHERE path = ?",
        (sum(int(v) for v in lines(world.files[path]).values()), path),
    )
    assert TASK.cost(ITEM.task.golden(instance).agent(), world) == 45  # type: ignore[misc]
    assert json.loads(world.files[FILE])["wages"] == 90 * instance.data["expected"]["hours"]


# --- faults ----------------------------------------------------------------------------------------------------------


def look(instance: Instance, call: Call) -> CallMade:
    """One call that is made under a deceptive fault."""

    def policy() -> Policy:
        yield call

    return work(instance, policy, Fault(call=1, kind="deceptive")).calls[0]


def test_a_deceptive_sheet_differs_in_one_figure_and_the_catalogue_tells() -> None:
    for instance in BUILT[:20]:
        reader = Reader(instance)
        for sheet, name in zip(instance.data["archive"].right[1:], ("marks per bundle", "marks per hour"), strict=True):
            told, true = lines(look(instance, Call("read_file", {"path": sheet.path})).result), lines(sheet.text)
            assert {key for key in true if told[key] != true[key]} == {name}
            [(_, total)] = reader.rows("path = ?", sheet.path)
            assert sum(map(int, told.values())) != total


def test_only_what_counts_is_ever_falsified() -> None:
    for instance in BUILT[:5]:
        archive = instance.data["archive"]
        counts = {sheet.path for sheet in archive.right[1:]}
        for path, text in archive.files.items():
            made = look(instance, Call("read_file", {"path": path}))
            assert (made.result != text) == (made.fault == "deceptive") == (path in counts)
        for call in (Call("list_files"), Call("sql", {"query": "SELECT count(*) FROM sheets"})):
            assert look(instance, call).fault is None


def test_a_deceptive_catalogue_has_two_editions_the_wrong_way_round_and_the_sheets_tell() -> None:
    query = "SELECT path, name, edition, total FROM sheets WHERE kind = 'crew' AND path IS NOT NULL"
    for instance in BUILT[:20]:
        told = look(instance, Call("sql", {"query": query})).result.splitlines()[1:-1]
        true = [" | ".join(map(str, row)) for row in TASK.world(instance).database.execute(query)]
        assert sorted(row.split(" | ")[0] for row in told) == sorted(row.split(" | ")[0] for row in true)
        wrong = [row for row in told if row not in true]
        assert len(wrong) == 2
        for row in wrong:
            path, name, edition, _ = row.split(" | ")
            assert f"CREW {name}, edition {edition}\n" not in Reader(instance).files[path]


def test_the_written_faults_leave_a_careful_agent_room_for_three_more_queries() -> None:
    for variant, run in CASES:
        instance = built(variant, run)
        assert golden(instance).world.spent + 3 * 2 <= 67


# --- whatever is delivered -------------------------------------------------------------------------------------------

values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=9), st.lists(st.integers())
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(st.characters()), st.dictionaries(st.sampled_from([*KEYS, "", "x"]), values).map(json.dumps)))
def test_any_answer_file_is_graded(content: str) -> None:
    points, lost = score(graded(content))
    assert points <= 2
    assert lost >= {"answer", "budget", "frugal"}


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), values))
def test_each_right_value_is_worth_two_points(wrong: dict[str, Any]) -> None:
    expected = FIRST.data["expected"]
    result = graded(json.dumps({**expected, **wrong}))
    rows = {row.id: row.earned for row in result.rows}
    assert rows["answer"] >= 2 * sum(1 for key in KEYS if key not in wrong)


@pytest.mark.parametrize(
    "content",
    [
        *("", "42", "null", "[]", '"planks"', "{", "{}", "{'planks': 1}", "NaN", "\ud800", "\x00", "\ufeff{}"),
        *("[" * 10**6, '{"a":' * 10**5, "9" * 10**6, '{"planks": ' + "9" * 10**4 + "}", '{"planks": 1e999}'),
        '{"planks": 1, "wood": 1, "hours": 1}',
    ],
    ids=lambda content: ascii(content[:12]),
)
def test_what_is_not_the_object_that_was_asked_for_earns_nothing(content: str) -> None:
    assert score(graded(content)) == (Decimal(0), {"files", "answer", "budget", "frugal"})


def test_a_huge_number_is_shown_in_part() -> None:
    result = graded(json.dumps(dict.fromkeys(KEYS, 10**4000)))
    assert score(result) == (Decimal(2), {"answer", "budget", "frugal"})


@pytest.mark.parametrize(
    "form",
    [
        lambda values: {key: str(value) for key, value in values.items()},
        lambda values: {key: float(value) for key, value in values.items()},
        lambda values: {**values, "note": "done"},
    ],
)
def test_another_form_costs_the_hygiene_row_and_nothing_else(form: Callable[[Any], Any]) -> None:
    assert score(graded(json.dumps(form(FIRST.data["expected"])), 60)) == (Decimal(16), {"files"})


@pytest.mark.parametrize("blank", [None, 2, "\t"])
def test_blanks_and_the_order_of_keys_are_free(blank: Any) -> None:
    content = json.dumps(dict(reversed(FIRST.data["expected"].items())), indent=blank)
    assert score(graded(f"\n{content}\r\n", 60)) == FULL


def test_evidence_names_what_is_wrong_and_keeps_what_would_be_right() -> None:
    expected = FIRST.data["expected"]
    result = graded(json.dumps({**expected, "wood": 31}))
    assert evidence(result, "answer") == "right: planks, hours, wages; wrong: wood (31)"
    assert str(expected["wood"]) not in " ".join(row.evidence for row in result.rows)
    assert str(expected["wood"]) in result.hidden["answer"]
    assert evidence(graded(json.dumps(expected), 70), "frugal") == "all calls cost 70, at most 67 was asked for"
    assert evidence(graded(None), "files") == "there is no answer.json"


def test_the_task_fits_into_what_an_agent_is_shown() -> None:
    for instance in BUILT:
        [_, opening] = messages_of(instance, PROFILE)
        assert len(opening.content) < 6000
        assert "$" not in instance.prompt
        for value in instance.data["expected"].values():
            assert not re.search(rf"\b{value}\b", instance.prompt.replace("135", "").replace("67", ""))
