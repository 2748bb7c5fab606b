"""A03: a migration in the middle of the work, judged by what is in database and files at the end."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmbench.bank import read_items
from pytest_llmbench.campaign.agents import converse_scripted, messages_of
from pytest_llmbench.campaign.validate import Finding, score_references
from pytest_llmbench.faults import Fault, FaultKind, Schedule
from pytest_llmbench.grading.grade import grade
from pytest_llmbench.harness.agent import Conversation
from pytest_llmbench.harness.assignment import deliver
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.harness.scripted import Call, Policy, scripted
from pytest_llmbench.records import Row
from pytest_llmbench.spec import AgentWork, Delivery, Instance

ITEM = read_items(Path(__file__).parents[2] / "items/level_a/a03_migration/item.toml")[0]
TASK: Any = sys.modules[ITEM.task.__name__]  # type: ignore[attr-defined]
ROWS = {"files": 2, "carried_over": 7, "new_interface": 7, "clean": 4}
CASES = [(0, 1), (0, 2), (0, 3), (1, 1), (2, 3), (9, 2), (100, 6), (-4, 5)]
some_cases = pytest.mark.parametrize(("variant", "run"), CASES)
PROFILE = Profile()
QUIET = Schedule()
SCRIPT, SETTINGS = "load.sql", "settings.conf"


@cache
def built(variant: int, run: int) -> Instance:
    return ITEM.build(variant, run)


def facts(instance: Instance) -> Any:
    return instance.data["facts"]


def at_work(instance: Instance, policy: Callable[[], Policy], schedule: Schedule | None = None) -> Conversation:
    """A policy's conversation, under the run's own faults where no others are given."""
    return converse_scripted(ITEM, instance, PROFILE, scripted(policy), None, schedule)


def rows_of(instance: Instance, delivery: Delivery) -> dict[str, Row]:
    rows = {row.id: row for row in grade(ITEM.task, instance, delivery).rows}
    assert all(row.evidence and len(row.evidence) < 700 and row.evidence.isprintable() for row in rows.values())
    return rows


def lost(instance: Instance, delivery: Delivery) -> set[str]:
    return {row.id for row in rows_of(instance, delivery).values() if row.earned != row.points}


def golden(instance: Instance) -> Callable[[], Policy]:
    policy: Callable[[], Policy] = ITEM.task.golden(instance).agent  # type: ignore[assignment]
    return policy


def agent(instance: Instance, name: str) -> Callable[[], Policy]:
    policy: Callable[[], Policy] = ITEM.task.defects(instance)[name].agent  # type: ignore[assignment]
    return policy


def calls(*made: Call) -> Callable[[], Policy]:
    def policy() -> Policy:
        for call in made:  # noqa: UP028  # a tuple takes no results
            yield call

    return policy


@cache
def golden_work(variant: int, run: int) -> AgentWork:
    instance = built(variant, run)
    work = deliver(instance, at_work(instance, golden(instance))).work
    assert work is not None
    return work


def changed(instance: Instance, **changes: Any) -> Delivery:
    """The golden delivery, with other files or another database."""
    work = replace(golden_work(instance.variant, instance.run), **changes)
    return Delivery(files={name: work.files[name] for name in ITEM.spec.files if name in work.files}, work=work)


def right(instance: Instance, name: str) -> str:
    return golden_work(instance.variant, instance.run).files[name]


def with_file(instance: Instance, name: str, text: str) -> Delivery:
    return changed(instance, files={**golden_work(instance.variant, instance.run).files, name: text})


def with_table(instance: Instance, edit: Callable[[list[list[Any]]], object]) -> Delivery:
    """The golden delivery after an edit of the rows of the new table."""
    database: dict[str, Any] = deepcopy(dict(golden_work(instance.variant, instance.run).database or {}))
    edit(database[facts(instance).new]["rows"])
    return changed(instance, database=database)


# --- the references --------------------------------------------------------------------------------------------------


def test_the_four_rows_are_worth_twenty_points() -> None:
    assert ITEM.spec.points == 20
    assert {row.id: row.points for row in ITEM.spec.rows} == ROWS


@cache
def findings() -> dict[str, Finding]:
    return {finding.reference: finding for finding in score_references(ITEM, 3)}


@pytest.mark.parametrize("reference", ["golden", "defective", "null"])
def test_golden_defective_and_null_agents_score_what_is_declared(reference: str) -> None:
    found = {name: finding for name, finding in findings().items() if name.partition(":")[0] == reference}
    assert found
    assert not [finding.wrong for finding in found.values() if finding.wrong]


def test_every_agent_that_is_named_is_scored_and_nothing_is_had_for_nothing() -> None:
    scores = {name.partition(":")[2]: finding.points for name, finding in findings().items()}
    assert set(ITEM.spec.references) - {"defective"} <= set(scores)
    assert {scores[null] for null in ("silent", "echo", "constant", "random", "finish")} == {Decimal(0)}


@some_cases
def test_the_golden_agent_earns_every_point_in_at_most_twenty_turns(variant: int, run: int) -> None:
    instance = built(variant, run)
    conversation = at_work(instance, golden(instance))
    assert lost(instance, deliver(instance, conversation)) == set()
    assert conversation.end == "finish"
    assert conversation.record().turns <= 20


@pytest.mark.parametrize("run", [1, 2, 3])
def test_every_fault_of_a_run_reaches_the_golden_agent(run: int) -> None:
    for variant in range(20):
        record = at_work(built(variant, run), golden(built(variant, run))).record()
        assert {fault.kind for fault in record.faults} == set(get_args(FaultKind))
        assert all(fault.fired_at for fault in record.faults), (variant, record.faults)


faults = st.builds(
    Fault,
    call=st.integers(1, 16),
    kind=st.sampled_from(get_args(FaultKind)),
    tool=st.sampled_from([None, *(tool for tool in ITEM.spec.tools if tool != "finish")]),
)


@settings(max_examples=100, deadline=None)
@given(st.integers(-3, 30), st.integers(1, 6), st.lists(faults, max_size=6))
def test_the_golden_agent_survives_faults_of_any_kind_at_any_call(variant: int, run: int, drawn: list[Fault]) -> None:
    instance = built(variant, run)
    twice = [fault for place, fault in enumerate(drawn) if [one.kind for one in drawn[:place]].count(fault.kind) < 2]
    conversation = at_work(instance, golden(instance), Schedule(tuple(twice)))
    assert conversation.end == "finish"
    assert lost(instance, deliver(instance, conversation)) == set()


def test_an_agent_that_misses_the_faults_loses_the_same_rows() -> None:
    for name, declared in ITEM.spec.references.items():
        if name not in {"believes_the_misread", "gives_up_at_the_first_timeout"}:
            delivery = deliver(built(3, 1), at_work(built(3, 1), agent(built(3, 1), name), QUIET))
            assert lost(built(3, 1), delivery) == set(declared.loses), name


# --- the migration ---------------------------------------------------------------------------------------------------


@some_cases
def test_the_notice_is_given_once_at_the_stated_call_whatever_is_called(variant: int, run: int) -> None:
    instance = built(variant, run)
    for policy in (golden(instance), agent(instance, "never_finishes")):
        turns = at_work(instance, policy).turns[2:]
        told = [number for number, turn in enumerate(turns) if "\nNOTICE: All depots" in turn.content]
        assert [turns[number].content.split(" ", 2)[1] for number in told] == ["7"]


def test_nobody_can_be_done_before_the_notice() -> None:
    for variant in range(10):
        instance = built(variant, 1)
        work = at_work(instance, agent(instance, "ignores_the_notice"), QUIET)
        done = [call.tool for call in work.calls]
        needed = [*["read_file"] * 4, "sql", "write_file", "write_file"]
        assert done == [*needed, "finish"]
        assert ITEM.spec.data["notice_call"] == len(needed)


@some_cases
def test_the_golden_agent_has_entered_lots_into_the_old_table_before_the_notice(variant: int, run: int) -> None:
    instance = built(variant, run)
    before = [call for call in golden_work(variant, run).calls if call.number <= ITEM.spec.data["notice_call"]]
    entered = [call for call in before if call.tool == "sql" and not call.failed]
    assert [f"INTO {facts(instance).old} " in call.arguments["query"] for call in entered] == [True]


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE $old",
        "BEGIN; DELETE FROM $old",
        "DROP TABLE $old; CREATE VIEW $old AS SELECT 1 AS lot",
        "CREATE TABLE $new (lot)",
        "ALTER TABLE $old RENAME TO $new",
        "CREATE TRIGGER t BEFORE INSERT ON $old BEGIN SELECT RAISE(ABORT, 'no'); END",
        "CREATE TABLE n (x); CREATE TRIGGER t AFTER INSERT ON $old BEGIN INSERT INTO n WITH RECURSIVE "
        "a (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) SELECT x FROM a; END",
        "CREATE TABLE big (x); INSERT INTO big WITH RECURSIVE a (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a "
        "LIMIT 250) SELECT zeroblob(65000) FROM a; INSERT INTO big WITH RECURSIVE a (x) AS (SELECT 1 UNION ALL "
        "SELECT x + 1 FROM a LIMIT 4000) SELECT zeroblob(100) FROM a",
    ],
)
def test_the_migration_comes_whatever_the_database_was_made_into(query: str) -> None:
    instance = built(0, 1)
    broken = query.replace("$old", facts(instance).old).replace("$new", facts(instance).new)
    looks = [Call("list_files"), Call("read_file", {"path": "guide1.md"})] * 3
    work = at_work(instance, calls(Call("sql", {"query": broken}), *looks, Call("finish", {"statement": ""})), QUIET)
    assert "guide2.md" in work.world.files
    assert lost(instance, deliver(instance, work)) == set(ROWS)


def test_a_transaction_that_is_rolled_back_does_not_take_the_migration_back() -> None:
    instance = built(0, 1)
    opened = Call("sql", {"query": "BEGIN"})
    looks = [Call("list_files"), Call("read_file", {"path": "guide1.md"})] * 3
    end = [Call("sql", {"query": "ROLLBACK"}), Call("finish", {"statement": ""})]
    work = deliver(instance, at_work(instance, calls(opened, *looks, *end), QUIET)).work
    assert work is not None
    assert set(work.database or {}) == {facts(instance).old, facts(instance).new}


# --- what the agent is told ------------------------------------------------------------------------------------------


def told(instance: Instance) -> dict[str, str]:
    """All files that an agent can read, after the migration."""
    world = TASK.world(instance)
    world.events[ITEM.spec.data["notice_call"]](world)
    files: dict[str, str] = world.files
    return files


def old_rows(instance: Instance) -> list[tuple[Any, ...]]:
    """The rows of the old table at the moment of the migration, before any work."""
    world = TASK.world(instance)
    world.events[ITEM.spec.data["notice_call"]](world)
    rows: list[tuple[Any, ...]] = world.database.execute(f"SELECT * FROM {facts(instance).old}").fetchall()
    return rows


def noted_rows(text: str) -> list[tuple[Any, ...]]:
    """The lots of a note as rows of the old table, by a second reader."""
    found = []
    for block in text.split("Lot ")[1:]:
        head, *lines = block.splitlines()
        number, article = head.split(": ")
        quantity, price, remark = (line.split(": ")[1] for line in lines[:3])
        found.append((int(number), article, quantity, price, None if remark == "none" else remark))
    return found


def quoted(value: object) -> str:
    """A value in SQL, as SQLite itself writes it."""
    text: str = sqlite3.connect(":memory:").execute("SELECT quote(?)", [value]).fetchone()[0]
    return text


def new_row(guide: str, row: Sequence[Any]) -> list[Any]:
    """A row in version 2, by the rules of the guide alone."""
    zeros = re.search(r"lot 6 becomes ([A-Z]-0+)6\.", guide)
    assert zeros is not None
    name = zeros[1][: len(zeros[1]) + 1 - len(str(row[0]))] + str(row[0])
    amount, _, unit = row[2].partition(" ")
    return [name, row[1], int(amount), unit, int(Decimal(row[3]) * 100), row[4]]


@settings(max_examples=60, deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(1, 50))
def test_guides_notes_and_table_say_what_has_to_be_there_in_the_end(variant: int, run: int) -> None:
    instance = built(variant, run)
    files = told(instance)
    guide = files["guide2.md"]
    old, new = re.findall(r"table (\w+) takes the place of the table (\w+)\.", guide)[0][::-1]
    notes = re.findall(r"note_\w+\.txt", instance.prompt)
    noted = [row for name in notes for row in noted_rows(files[name])]
    for name in notes:
        total = re.search(r"Sum of the prices: (.*)", files[name])
        assert total is not None
        assert Decimal(total[1]) == sum(Decimal(row[3]) for row in noted_rows(files[name]))
    lots = [new_row(guide, row) for row in [*old_rows(instance), *noted]]
    own = [new_row(guide, row) for row in noted]
    lines = dict(line.split(" = ") for line in files[SETTINGS].splitlines())
    lines["intake.last_lot"] = max(own)[0]
    text = "format = 2\n"
    for key in sorted(set(lines) - {"format"}):
        value = lines[key].replace(".", "") if key in ("order.limit", "order.fee") else lines[key]
        section, name = key.split(".")
        text += f"[{section}]\n{name} = {value}\n" if f"[{section}]" not in text else f"{name} = {value}\n"
    columns = ["lot", "article", "amount", "unit", "price_cents", "remark"]
    script = "".join(f"INSERT OR REPLACE INTO {new} VALUES ({', '.join(map(quoted, row))});\n" for row in own)
    work = AgentWork("finish", "", (), {}, {new: {"sql": "", "columns": columns, "rows": lots}})
    assert lost(instance, Delivery(files={SCRIPT: script, SETTINGS: text}, work=work)) == set()
    assert old == facts(instance).old
    assert (len(lots), len(noted)) == (11, 4)


@settings(max_examples=40, deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(1, 50))
def test_prices_that_were_there_do_not_survive_cutting_and_those_of_the_notes_do(variant: int, run: int) -> None:
    instance = built(variant, run)
    database = sqlite3.connect(":memory:")

    def cut(price: str) -> bool:
        found: int = database.execute("SELECT CAST(? * 100 AS INTEGER)", [price]).fetchone()[0]
        return found != int(price.replace(".", ""))

    assert sum(cut(row[3]) for row in old_rows(instance)) >= 3
    assert not any(cut(lot.price) for lot in facts(instance).noted)


@some_cases
def test_the_opening_gives_nothing_of_the_migration_away(variant: int, run: int) -> None:
    instance = built(variant, run)
    opening = messages_of(instance, PROFILE)[1].content
    assert not re.search(r"version|migrat|guide2|format = 2", opening)
    assert not re.search(rf"\b{facts(instance).new}\b", instance.prompt)
    assert "$" not in instance.prompt + "".join(told(instance).values())


def test_variants_differ_in_everything_but_their_structure() -> None:
    instances = [built(variant, run) for variant in range(12) for run in (1, 2, 3)]
    assert len({instance.prompt + str(told(instance)) for instance in instances}) == len(instances)
    for name in ("old", "new", "letter", "width"):
        assert len({getattr(facts(instance), name) for instance in instances}) > 2
    for instance in instances:
        again = ITEM.build(instance.variant, instance.run)
        assert (again.prompt, told(again)) == (instance.prompt, told(instance))
        numbers = [lot.number for lot in [*facts(instance).start, facts(instance).late, *facts(instance).noted]]
        assert len(set(numbers)) == 11
        assert {len(str(number)) for number in numbers} == {2, 3, 4}
        assert not set(numbers) & {lot.number for lot in facts(instance).elsewhere}
        assert max(numbers) == max(lot.number for lot in next(iter(facts(instance).notes.values())))


@settings(max_examples=60, deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(1, 50))
def test_a_misread_note_differs_in_one_price_and_its_sum_does_not_bear_it_out(variant: int, run: int) -> None:
    instance = built(variant, run)
    world = TASK.world(instance)
    for name in facts(instance).notes:
        true = world.files[name]
        false = world.deceive("read_file", {"path": name}, true)
        pairs = list(zip(noted_rows(true), noted_rows(false), strict=True))
        different = [(one[3], other[3]) for one, other in pairs if one != other]
        assert len(different) == 1
        assert Decimal(different[0][1]) - Decimal(different[0][0]) == 10
        assert true.splitlines()[-1] == false.splitlines()[-1]
    for name in ("guide1.md", SETTINGS):
        assert world.deceive("read_file", {"path": name}, world.files[name]) is None


def test_a_deceptive_table_lacks_its_last_row_and_a_short_one_is_true() -> None:
    deceive = TASK.world(built(0, 1)).deceive
    assert deceive("sql", {}, "a\n1\n2\n3\n(3 rows)\n") == "a\n1\n2\n(2 rows)\n"
    for true in ("a\n1\n2\n(2 rows)\n", "OK\n", "OK, 7 rows changed.\n", ""):
        assert deceive("sql", {}, true) is None


# --- the database ----------------------------------------------------------------------------------------------------


def place_of(instance: Instance, lot: Any) -> Callable[[list[list[Any]]], list[Any]]:
    """How to find a lot's row in the new table."""
    return lambda rows: next(row for row in rows if row[0] == facts(instance).name(lot.number))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (0, lambda name: name.replace("-0", "-")),
        (0, lambda name: name.lower()),
        (1, lambda article: f"{article} "),
        (2, float),
        (2, str),
        (3, lambda unit: unit.split()[0][:-1]),
        (4, lambda cents: cents - 1),
        (4, lambda cents: cents / 100),
        (5, lambda remark: "" if remark is None else None),
    ],
)
@some_cases
def test_one_altered_value_costs_the_row_of_its_lot(
    column: int, value: Callable[[Any], Any], variant: int, run: int
) -> None:
    instance = built(variant, run)
    known = facts(instance)
    for lot, row in ((known.late, "carried_over"), (known.start[0], "carried_over"), (known.noted[0], "new_interface")):

        def edit(rows: list[list[Any]], lot: Any = lot) -> None:
            found = place_of(instance, lot)(rows)
            found[column] = value(found[column])

        assert lost(instance, with_table(instance, edit)) == {row}


@some_cases
def test_a_lot_that_is_missing_costs_its_row_and_one_too_many_is_not_clean(variant: int, run: int) -> None:
    instance = built(variant, run)
    known = facts(instance)
    for lot, row in ((known.late, "carried_over"), (known.noted[-1], "new_interface")):
        without = with_table(instance, lambda rows, lot=lot: rows.remove(place_of(instance, lot)(rows)))  # type: ignore[misc]
        assert lost(instance, without) == {row}
    assert lost(instance, with_table(instance, lambda rows: rows.append(["6", *rows[0][1:]]))) == {"clean"}


@some_cases
def test_the_order_of_rows_and_columns_is_free(variant: int, run: int) -> None:
    instance = built(variant, run)
    database: dict[str, Any] = deepcopy(dict(golden_work(variant, run).database or {}))
    table = database[facts(instance).new]
    table["columns"].reverse()
    table["rows"] = [row[::-1] for row in reversed(table["rows"])]
    assert lost(instance, changed(instance, database=database)) == set()
    table["columns"][0] = "remarks"
    assert lost(instance, changed(instance, database=database)) == {"carried_over", "new_interface", "clean"}


@some_cases
def test_any_other_table_is_not_clean(variant: int, run: int) -> None:
    instance = built(variant, run)
    database = golden_work(variant, run).database or {}
    for name in (facts(instance).old, "helper"):
        other = {**database, name: {"sql": "", "columns": ["lot"], "rows": []}}
        assert lost(instance, changed(instance, database=other)) == {"clean"}


def test_a_delivery_without_work_or_database_keeps_its_files_only() -> None:
    instance = built(0, 1)
    files = {SCRIPT: right(instance, SCRIPT), SETTINGS: right(instance, SETTINGS)}
    for delivery in (Delivery(files=files), changed(instance, database=None), changed(instance, database={})):
        assert lost(instance, delivery) == {"carried_over", "new_interface", "clean"}
    for delivery in (Delivery(), Delivery(no_answer="no_call"), changed(instance, files={}, database=None)):
        assert lost(instance, delivery) == set(ROWS)


# --- load.sql --------------------------------------------------------------------------------------------------------


def names_in(instance: Instance) -> str:
    return ", ".join(f"'{facts(instance).name(lot.number)}'" for lot in facts(instance).noted)


@pytest.mark.parametrize(
    "form",
    [
        "{plain} ON CONFLICT DO NOTHING;",
        "{plain} ON CONFLICT (lot) DO UPDATE SET unit = excluded.unit;\n",
        "DELETE FROM {new} WHERE lot IN ({names});\n{plain};",
        "BEGIN;\n{right}COMMIT;\n-- done\n",
        "-- the lots of two notes\nDROP TABLE IF EXISTS {old};\n{right}",
        "CREATE TEMP TABLE t AS SELECT * FROM {new} WHERE 0;\n{into_t};\n"
        "INSERT INTO {new} SELECT * FROM t WHERE lot NOT IN (SELECT lot FROM {new});\nDROP TABLE t;",
        "{right}SELECT count(*) FROM {new};",
    ],
)
@some_cases
def test_a_script_may_do_it_in_any_way(form: str, variant: int, run: int) -> None:
    instance = built(variant, run)
    assert lost(instance, with_file(instance, SCRIPT, written(instance, form))) == set()


def written(instance: Instance, form: str) -> str:
    script, known = right(instance, SCRIPT), facts(instance)
    plain = script.replace("INSERT OR IGNORE", "INSERT").strip().removesuffix(";")
    into_t = plain.replace(f"INTO {known.new}", "INTO t")
    return form.format(plain=plain, right=script, old=known.old, new=known.new, names=names_in(instance), into_t=into_t)


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        ("{plain};", {"clean"}),
        ("BEGIN;\n{right}", {"clean"}),
        ("CREATE TABLE IF NOT EXISTS {old} (lot);\n{right}", {"clean"}),
        ("UPDATE {new} SET amount = amount + 1 WHERE lot IN ({names});\n{right}", {"clean"}),
        ("{right}CREATE TABLE IF NOT EXISTS runs (x); INSERT INTO runs VALUES (1);", {"clean"}),
        ("{right}UPDATE {new} SET unit = 'kg';", {"new_interface"}),
        ("{right}DELETE FROM {new} WHERE lot NOT IN ({names});", {"new_interface"}),
        ("{right}INSERT OR IGNORE INTO {new} VALUES ('x', 'x', 1, 'x', 1, NULL);", {"new_interface"}),
        ("{right}DELETE FROM {old};", {"files", "new_interface", "clean"}),
        ("", {"files", "new_interface", "clean"}),
        ("DROP TABLE {new};", {"files", "new_interface", "clean"}),
        ("{right}DROP TABLE {new};", {"files", "new_interface", "clean"}),
        ("SELECT 1;", {"files", "new_interface", "clean"}),
    ],
)
@some_cases
def test_a_script_that_does_something_else_loses_what_it_spoils(
    form: str, rows: set[str], variant: int, run: int
) -> None:
    instance = built(variant, run)
    assert lost(instance, with_file(instance, SCRIPT, written(instance, form))) == rows


HOSTILE = [
    "ATTACH 'x.db' AS x;",
    "WITH RECURSIVE a (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) SELECT sum(x) FROM a;",
    "SELECT load_extension('x');",
    "PRAGMA writable_schema = 1;",
    "\ud800",
    "\x00;",
    "'" * 9999,
    ";" * 9999,
    "(" * 60_000,
    "SELECT " + "-" * 60_000 + "1;",
    "x" * 2**20,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_files_lose_their_rows_and_nothing_else(text: str) -> None:
    instance = built(0, 1)
    assert lost(instance, with_file(instance, SCRIPT, text)) == {"files", "new_interface", "clean"}
    assert lost(instance, with_file(instance, SETTINGS, text)) == {"files", "new_interface"}


# --- settings.conf ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda text: text.replace(" = ", "="),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: "# settings of the depot\n" + text.replace("[", "  [ ").replace("]", " ]"),
        lambda text: text.rstrip("\n"),
    ],
)
@some_cases
def test_blanks_and_comments_in_the_settings_cost_nothing(form: Callable[[str], str], variant: int, run: int) -> None:
    instance = built(variant, run)
    assert lost(instance, with_file(instance, SETTINGS, form(right(instance, SETTINGS)))) == set()


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        (lambda text: text.replace("format = 2", "format = 1"), {"new_interface"}),
        (lambda text: text.replace("format = 2\n", "") + "format = 2\n", {"new_interface"}),
        (lambda text: re.sub(r"name = (.*)", r'name = "\1"', text), {"new_interface"}),
        (lambda text: re.sub(r"last_lot = [A-Z]-0+", "last_lot = ", text), {"new_interface"}),
        (lambda text: re.sub(r"fee = (\d+)(\d\d)", r"fee = \1.\2", text), {"new_interface"}),
        (lambda text: re.sub(r"clerk = .*\n", "", text), {"new_interface"}),
        (lambda text: text.replace("[order]\n", ""), {"new_interface"}),
        (lambda text: "depot.name = x\n" + text, {"new_interface"}),
        (lambda text: text + text, {"files", "new_interface"}),
        (lambda text: text + "that is all\n", {"files", "new_interface"}),
        (lambda text: "", {"files", "new_interface"}),
        (lambda text: "format = 2\n", {"files", "new_interface"}),
    ],
)
@some_cases
def test_settings_that_are_not_right_cost_the_new_interface(
    form: Callable[[str], str], rows: set[str], variant: int, run: int
) -> None:
    instance = built(variant, run)
    assert lost(instance, with_file(instance, SETTINGS, form(right(instance, SETTINGS)))) == rows


def test_settings_that_were_not_touched_are_not_delivered() -> None:
    instance = built(0, 1)
    start = TASK.world(instance).files[SETTINGS]
    for text in (start, f"# looked at\n{start}"):
        assert lost(instance, with_file(instance, SETTINGS, text)) == {"files", "new_interface"}


# --- evidence and robustness -----------------------------------------------------------------------------------------


@some_cases
def test_evidence_counts_and_only_what_is_hidden_tells_values(variant: int, run: int) -> None:
    instance = built(variant, run)
    known = facts(instance)
    for name in ("migrates_nothing", "loses_precision", "believes_the_misread", "declares_success_falsely"):
        delivery = deliver(instance, at_work(instance, agent(instance, name)))
        graded = grade(ITEM.task, instance, delivery)
        said = " ".join(row.evidence for row in graded.rows)
        for lot in [*known.start, known.late, *known.noted]:
            assert known.name(lot.number) not in said
            assert lot.article not in said
    graded = grade(ITEM.task, instance, deliver(instance, at_work(instance, agent(instance, "migrates_what_it_saw"))))
    assert {row.id: row.evidence for row in graded.rows}["carried_over"].startswith("6 of 7 lots")
    assert known.name(known.late.number) in graded.hidden["carried_over"]


texts = st.one_of(st.text(st.characters(), max_size=200), st.text(";'\"-/*()[]=#\n \x00\ud800", max_size=200))
values = st.one_of(st.none(), st.integers(), st.floats(), texts, st.just({"hex": "00"}))
tables = st.lists(st.lists(values, min_size=6, max_size=6), max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.none() | texts, st.none() | texts, tables, st.booleans(), texts)
def test_any_files_and_any_database_are_graded(
    script: str | None, conf: str | None, table: list[list[Any]], old: bool, statement: str
) -> None:
    instance = built(0, 1)
    known = facts(instance)
    files = {name: text for name, text in ((SCRIPT, script), (SETTINGS, conf)) if text is not None}
    columns = ["lot", "article", "amount", "unit", "price_cents", "remark"]
    database = {known.new: {"sql": "", "columns": columns, "rows": table}, **({known.old: {}} if old else {})}
    work = AgentWork("finish", statement, (), files, database)
    delivery = Delivery(text=statement, files=files, work=work)
    assert {"carried_over", "new_interface", "clean"} <= lost(instance, delivery)


@settings(max_examples=100, deadline=None)
@given(texts, texts, st.integers(0, 400))
def test_right_files_with_anything_in_them_are_graded(script: str, conf: str, at: int) -> None:
    instance = built(0, 1)
    files = {
        SCRIPT: right(instance, SCRIPT)[:at] + script + right(instance, SCRIPT)[at:],
        SETTINGS: right(instance, SETTINGS)[:at] + conf + right(instance, SETTINGS)[at:],
    }
    delivery = changed(instance, files=files)
    assert lost(instance, delivery) == lost(instance, delivery)
    assert "carried_over" not in lost(instance, delivery)
