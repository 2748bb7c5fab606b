"""A01, a loop with faults: what earns its points whatever the tools answer, and what each way of going wrong costs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sandbox.confined import confined

from pytest_llmbench.bank import read_items
from pytest_llmbench.faults import Fault, FaultKind, Schedule, load_plan
from pytest_llmbench.grading.grade import Graded, grade
from pytest_llmbench.harness.agent import Conversation
from pytest_llmbench.harness.assignment import agent_opening, deliver
from pytest_llmbench.harness.frozen import Profile, Rules
from pytest_llmbench.harness.references import NULLS
from pytest_llmbench.harness.scripted import Call, Policy, finisher, scripted
from pytest_llmbench.harness.tools import Tester, confined_tests
from pytest_llmbench.records import Turn
from pytest_llmbench.runtimes.base import Conversation as Speaker
from pytest_llmbench.sandbox.calls import Returned, open_worker
from pytest_llmbench.spec import AgentWork, CallMade, Delivery, Instance

ROOT = Path(__file__).parents[2]
ITEM = read_items(ROOT / "items/level_a/a01_fault_injection/item.toml")[0]
TASK: Any = ITEM.task
PLAN = load_plan(ITEM.side("fixtures") / "faults.toml", ITEM.spec.tools)
RULES = Rules.under(Profile(), ITEM.spec)
INSTANCES = [ITEM.build(variant, run) for variant in range(30) for run in (1, 2, 3)]
FIRST = INSTANCES[0]
NAMES = sorted(ITEM.spec.references)
FULL: tuple[Decimal, set[str]] = (Decimal(24), set())
NOTHING: tuple[Decimal, set[str]] = (Decimal(0), {row.id for row in ITEM.spec.rows})
KINDS: tuple[FaultKind, ...] = ("timeout", "malformed", "deceptive")
DECEIVED = ("read_file", "run_tests", "http_get", "sql")
"""Tools of which a plausible false result is made."""
LATEST = 20
"""Calls among which faults are tried."""
GOLDEN_TURNS = 21
"""Turns of the golden agent where nothing fails."""


def setting(instance: Instance) -> Any:
    return instance.data["setting"]


def folder(instance: Instance) -> dict[str, str]:
    return dict(instance.data["surroundings"].folder)


def all_pass(files: Mapping[str, str], only: str) -> str:
    """Output of tests for agents that do not need it."""
    return "7 tests run: 7 passed, 0 failed\n\nOK\n"


@dataclass
class Played:
    """A conversation that is over."""

    instance: Instance
    conversation: Conversation

    @property
    def fired(self) -> list[int | None]:
        return [fault.fired_at for fault in self.conversation.record().faults]

    @property
    def left(self) -> dict[str, str]:
        return self.conversation.world.files

    def graded(self) -> Graded:
        return grade(TASK, self.instance, deliver(self.instance, self.conversation), confined())

    def score(self) -> tuple[Decimal, set[str]]:
        """The score and the rows that are lost."""
        return points(self.graded())


def points(graded: Graded) -> tuple[Decimal, set[str]]:
    assert all(row.evidence and len(row.evidence) < 600 and row.evidence.isprintable() for row in graded.rows)
    lost = {row.id for row in graded.rows if row.earned < row.points}
    return sum((row.earned for row in graded.rows), Decimal(0)), lost


def play(
    instance: Instance,
    policy: Callable[[], Policy],
    faults: Sequence[Fault] | None = None,
    tester: Tester = all_pass,
) -> Played:
    """The conversation of a policy, under the schedule of the instance's run or under other faults."""
    return converse(instance, scripted(policy), faults, tester)


def converse(
    instance: Instance, say: Speaker, faults: Sequence[Fault] | None = None, tester: Tester = all_pass
) -> Played:
    conversation = Conversation(
        opening=agent_opening(instance, RULES),
        tools=ITEM.spec.tools,
        world=TASK.world(instance),
        chat=lambda messages, cap: Turn(role="assistant", content=say(messages)),
        run_tests=tester,
        rules=RULES,
        schedule=PLAN.schedule(instance.run) if faults is None else Schedule(tuple(faults)),
    )
    conversation.work()
    return Played(instance, conversation)


def golden(instance: Instance) -> Callable[[], Policy]:
    agent: Callable[[], Policy] = TASK.golden(instance).agent
    return agent


def corrected(instance: Instance) -> dict[str, str]:
    """The files that the golden agent leaves."""
    return play(instance, golden(instance), []).left


def writer(files: Mapping[str, str], statement: str, reads_back: bool = True) -> Callable[[], Policy]:
    """An agent that writes files, reads them back and finishes."""

    def policy() -> Policy:
        for path, content in files.items():
            yield Call("write_file", {"path": path, "content": content})
            if reads_back:
                yield Call("read_file", {"path": path})
        yield Call("finish", {"statement": statement})

    return policy


def visible_tests(instance: Instance) -> list[str]:
    return re.findall(r"def (test_\w+)", folder(instance)["test_bills.py"])


def stated(changed: Iterable[str], instance: Instance, fails: Sequence[str] = ()) -> str:
    words = [f"{'FAILS' if test in fails else 'PASSES'} {test}" for test in visible_tests(instance)]
    return "\n".join([*(f"CHANGED {name}" for name in changed), *words])


def work_of(instance: Instance, files: Mapping[str, str], statement: str | None = "") -> tuple[Decimal, set[str]]:
    """The score of files that an agent left behind, and of what it said."""
    return points(grade(TASK, instance, delivery(files, statement), confined()))


def delivery(files: Mapping[str, str], statement: str | None, calls: Sequence[CallMade] = ()) -> Delivery:
    wanted = {name: files[name] for name in ITEM.spec.files if name in files}
    return Delivery(files=wanted, work=AgentWork("finish", statement, calls, files, None))


# --- golden -----------------------------------------------------------------------------------------------------------


def test_the_six_rows_are_worth_twenty_four_points() -> None:
    assert {row.id: row.points for row in ITEM.spec.rows} == {
        "files": 1,
        "syntax": 1,
        "bugs": 6,
        "figures": 6,
        "intact": 6,
        "statement": 4,
    }


@pytest.mark.parametrize("run", range(1, 7))
@pytest.mark.parametrize("variant", [0, 11])
def test_the_golden_agent_earns_every_point_in_every_run(variant: int, run: int) -> None:
    played = play(ITEM.build(variant, run), golden(ITEM.build(variant, run)), tester=confined_tests(confined()))
    assert played.score() == FULL
    assert None not in played.fired, "every fault of the run reached it"
    assert played.conversation.end == "finish"


def test_every_run_holds_one_false_result_and_each_of_another_tool() -> None:
    false = [[fault.tool for fault in run if fault.kind == "deceptive"] for run in PLAN.runs]
    assert false == [["read_file"], ["run_tests"], ["sql"]]


def test_without_faults_the_task_takes_two_thirds_of_the_turns() -> None:
    for instance in INSTANCES[:9]:
        turns = play(instance, golden(instance), []).conversation.record().turns
        assert turns == GOLDEN_TURNS <= 0.7 * RULES.agent_max_turns


@pytest.mark.parametrize("kind", KINDS)
def test_one_fault_at_any_call_of_any_tool_changes_nothing_of_what_the_golden_agent_leaves(kind: FaultKind) -> None:
    plain = play(FIRST, golden(FIRST), [])
    tools = [tool for tool in ITEM.spec.tools if tool != "finish"]
    for call in range(1, LATEST):
        for tool in [None, *tools]:
            played = play(FIRST, golden(FIRST), [Fault(call=call, kind=kind, tool=tool)])
            assert (played.left, played.conversation.statement) == (plain.left, plain.conversation.statement)


@pytest.mark.parametrize(
    "faults",
    [
        [Fault(call=1, kind="deceptive", tool=tool) for tool in DECEIVED],
        [Fault(call=10, kind="deceptive", tool=tool) for tool in DECEIVED],
        [Fault(call=2 * call, kind="timeout") for call in range(1, 10)],
        [Fault(call=2 * call, kind="malformed") for call in range(1, 10)],
        [Fault(call=call, kind=kind) for call in (5, 11, 17) for kind in KINDS],
    ],
)
def test_many_faults_at_once_cost_the_golden_agent_nothing(faults: Sequence[Fault]) -> None:
    for instance in INSTANCES[:3]:
        assert play(instance, golden(instance), faults).score() == FULL


# --- defects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_defect_loses_exactly_its_rows_in_every_run(name: str) -> None:
    declared = ITEM.spec.references[name]
    for instance in INSTANCES[:3] + INSTANCES[12:15]:
        defects = TASK.defects(instance)
        assert sorted(defects) == NAMES
        score = play(instance, defects[name].agent).score()
        assert score == (declared.points, set(declared.loses)), (instance.variant, instance.run)


def test_the_believer_is_met_by_the_false_result_of_each_run_and_by_nothing_else_does_it_go_wrong() -> None:
    for instance in INSTANCES[:6]:
        agent = TASK.defects(instance)["believes_the_deception"].agent
        told = play(instance, agent).conversation.record().faults
        assert [fault.fired_at is not None for fault in told if fault.kind == "deceptive"] == [True]
        others = [fault for fault in PLAN.schedule(instance.run).faults if fault.kind != "deceptive"]
        assert play(instance, agent, others).score() == FULL


def test_the_one_who_takes_half_a_page_earns_everything_where_no_page_breaks_off() -> None:
    agent = TASK.defects(FIRST)["takes_malformed_rates"].agent
    assert play(FIRST, agent, []).score() == FULL


@pytest.mark.parametrize("name", NULLS)
def test_nothing_is_to_be_had_for_words(name: str) -> None:
    for instance in INSTANCES[:3]:
        assert converse(instance, NULLS[name](instance)).score() == NOTHING


def test_nothing_is_to_be_had_for_finishing_at_once_or_for_a_true_statement_of_nothing() -> None:
    for instance in INSTANCES[:3]:
        assert play(instance, finisher).score() == NOTHING
        true = stated([], instance, fails=["test_half_a_cent_goes_up"])
        assert play(instance, writer({}, true)).score() == NOTHING


# --- what the sources say ---------------------------------------------------------------------------------------------


def rows(table: str) -> list[list[str]]:
    return [line.split(" | ") for line in table.split("\n") if " | " in line]


def test_the_figures_follow_from_the_prompt_the_rules_the_page_and_the_database() -> None:
    for instance in INSTANCES:
        world = TASK.world(instance)
        customer, quarter = re.search(r'customer "(.+?)" for the quarter (\S+),', instance.prompt).groups()  # type: ignore[union-attr]
        keys = re.search(r'keys "(\w+)", "(\w+)" and "(\w+)"', instance.prompt).groups()  # type: ignore[union-attr]
        [address] = re.findall(r"http\S+index\.txt", instance.prompt)
        page = world.pages[dict(re.findall(r"(\S+): (http\S+)", world.pages[address]))[quarter]]
        rates = {room: int(rate) for room, rate in re.findall(r"(\w+): (\d+)$", page, re.MULTILINE)}
        terms = dict(world.database.execute("SELECT * FROM terms"))
        stays = world.database.execute("SELECT * FROM stays WHERE customer = ? AND quarter = ?", (customer, quarter))
        unit_days, storage, fees = 0, 0, terms["papers"]
        for *_, room, units, days in stays:
            charged = max(days - terms["free_days"], 0)
            cost = Decimal(units * charged * rates[room])
            if charged >= terms["long_stay"]:
                cost = (cost * terms["long_percent"] / 100).quantize(Decimal(1), ROUND_HALF_UP)
            unit_days, storage = unit_days + units * charged, storage + int(cost)
            fees += units * terms["handling"]
        assert setting(instance).figures == dict(zip(keys, (unit_days, storage, storage + fees), strict=True))


def test_the_corrected_program_itself_makes_the_bill_that_the_result_states() -> None:
    for instance in INSTANCES[:4]:
        files = corrected(instance)
        code = {name: text for name, text in files.items() if name.endswith(".py")}
        wanted = setting(instance)
        with open_worker(confined(), code, module="invoice") as worker:
            made = worker.call("bill", [list(stay) for stay in wanted.stays], dict(wanted.rates))
        assert isinstance(made, Returned)
        result = json.loads(files["result.json"])
        assert result == {key: made.value[key] for key in result}


def test_each_trap_decides_the_figures() -> None:
    for instance in INSTANCES:
        wanted = setting(instance)
        stays, rates, key, right = wanted.stays, wanted.rates, wanted.key, wanted.figures
        earlier = replace(wanted.terms, long_stay=wanted.terms.long_stay - 1)
        old = replace(wanted.terms, **{wanted.stale: wanted.old})
        wrong = [
            TASK.bill(earlier, stays, rates, key),
            TASK.bill(old, stays, rates, key),
            TASK.bill(wanted.terms, stays, rates, key, TASK.BUGS[wanted.bug]),
            TASK.bill(wanted.terms, stays, {**rates, stays[2][0]: 0}, key),
        ]
        assert all(TASK.figures(made, key) != right for made in wrong)
        assert wanted.old != getattr(wanted.terms, wanted.stale)


def test_a_page_that_breaks_off_lacks_a_rate_that_the_bill_needs() -> None:
    for instance in INSTANCES:
        wanted = setting(instance)
        page = instance.data["surroundings"].pages[wanted.addresses[wanted.quarter]]
        known = dict(re.findall(r"^(\w+): (\d+)$", page[: len(page) // 2], re.MULTILINE))
        assert {room for room, _, _ in wanted.stays} - set(known)


def test_exactly_one_test_fails_at_the_start_and_one_term_differs() -> None:
    tester = confined_tests(confined())
    for instance in INSTANCES[:6]:
        output = tester(folder(instance), "")
        assert output.startswith("7 tests run: 6 passed, 1 failed")
        assert "FAIL: test_bills.Charges.test_half_a_cent_goes_up" in output
        terms = dict(TASK.world(instance).database.execute("SELECT upper(name), value FROM terms"))
        shown = dict(re.findall(r"^([A-Z_]+) = (\d+)$", folder(instance)["terms.py"], re.MULTILINE))
        different = [name for name in terms if str(terms[name]) != shown[name]]
        assert different == [setting(instance).stale.upper()]
        assert tester(corrected(instance), "") == all_pass({}, "")


def test_everything_that_can_be_drawn_is_drawn() -> None:
    drawn = [setting(instance) for instance in INSTANCES]
    assert {wanted.theme["place"] for wanted in drawn} == {theme["place"] for theme in ITEM.spec.data["themes"]}
    assert {wanted.bug for wanted in drawn} == set(TASK.BUGS)
    assert {wanted.stale for wanted in drawn} == set(TASK.FEES)


def test_the_same_variant_and_run_give_the_same_instance_and_others_another() -> None:
    for instance in INSTANCES[:12]:
        again = ITEM.build(instance.variant, instance.run)
        assert again.prompt == instance.prompt
        assert again.data == instance.data
    assert len({str(setting(instance)) for instance in INSTANCES}) == len(INSTANCES)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_any_variant_can_be_done_and_looks_the_same(variant: int, run: int) -> None:
    instance = ITEM.build(variant, run)
    played = play(instance, golden(instance))
    assert played.conversation.end == "finish"
    assert json.loads(played.left["result.json"]) == setting(instance).figures
    assert abs(len(instance.prompt) - len(FIRST.prompt)) < 0.05 * len(FIRST.prompt)
    assert "$" not in instance.prompt + "".join(folder(instance).values())
    assert sum(len(text) for text in folder(instance).values()) < RULES.result_chars


# --- false results ----------------------------------------------------------------------------------------------------


def test_a_false_reading_shows_the_agents_own_file_but_for_one_function_that_looks_broken() -> None:
    for instance in INSTANCES[:20]:
        text = corrected(instance)["charges.py"]
        false = TASK.deceived(instance, "read_file", {"path": "./charges.py"}, text)
        head, _, tail = text.partition("def storage(")
        assert false.startswith(f"{head}def storage(")
        assert false.endswith(tail[tail.index("def handling(") :])
        assert "reduced = " in false
        assert "return reduced" not in false
        compile(false, "charges.py", "exec")


def test_what_is_shown_falsely_is_wrong_even_when_the_fault_that_leaps_to_the_eye_is_mended() -> None:
    for instance in INSTANCES[:3]:
        files = corrected(instance)
        false = TASK.deceived(instance, "read_file", {"path": "charges.py"}, files["charges.py"])
        for mended in (false, false.replace("reduced = share", "return share")):
            assert "intact" in work_of(instance, {**files, "charges.py": mended})[1]


def test_the_false_output_of_the_tests_has_the_form_of_a_true_one() -> None:
    files = folder(FIRST)
    files["charges.py"] = files["charges.py"].replace(
        "        return share(full, terms.LONG_PERCENT)\n", "        pass\n"
    )
    tester = confined_tests(confined())
    for only in ("", "long_stay", "Charges"):
        true = tester(files, only)
        false = TASK.deceived(FIRST, "run_tests", {"only": only}, true)
        block = false.partition("\n\n")[2]
        assert block in true + "\n"
        assert re.match(r"\d+ tests run: \d+ passed, 1 failed\n\nFAIL: ", false)
    assert TASK.deceived(FIRST, "run_tests", {"only": "money"}, tester(files, "money")) is None


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT name, value FROM terms", True),
        ("select * from terms where name = 'long_stay'", True),
        ("SELECT sum(days) FROM stays", True),
        ("SELECT * FROM stays WHERE quarter = '{quarter}' ORDER BY id", True),
        ("SELECT customer FROM stays", False),
        ("SELECT name FROM sqlite_master", False),
        ("SELECT value FROM terms WHERE name = 'papers'", False),
        ("SELECT * FROM stays WHERE id < 0", False),
        ("PRAGMA table_info(stays)", False),
    ],
)
def test_a_false_result_of_the_database_differs_in_one_number(query: str, told: bool) -> None:
    for instance in INSTANCES[:9]:
        asked = Call("sql", {"query": query.format(quarter=setting(instance).quarter)})

        def twice(asked: Call = asked) -> Policy:
            yield asked
            yield asked

        calls = play(instance, twice, [Fault(call=1, kind="deceptive", tool="sql")]).conversation.calls
        false, true = (re.findall(r"\w+", call.result) for call in calls[:2])
        assert sum(one != other for one, other in zip(false, true, strict=True)) == told


def test_a_false_page_has_two_rates_the_other_way_round() -> None:
    for instance in INSTANCES[:9]:
        wanted = setting(instance)
        page = instance.data["surroundings"].pages[wanted.addresses[wanted.quarter]]
        false = TASK.deceived(instance, "http_get", {}, page)
        rates = {room: int(rate) for room, rate in re.findall(r"^(\w+): (\d+)$", false, re.MULTILINE)}
        assert sorted(rates.values()) == sorted(wanted.rates.values())
        assert TASK.figures(TASK.bill(wanted.terms, wanted.stays, rates, wanted.key), wanted.key) != wanted.figures
        assert TASK.deceived(instance, "http_get", {}, instance.data["surroundings"].pages[wanted.index]) is None


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(ITEM.spec.tools),
    st.text() | st.sampled_from(["charges.py", "SELECT 1 FROM terms", "long"]),
    st.text()
    | st.from_regex(r"(\w+: \d+\n){1,4}|def storage\(.*|\d tests run: \d passed, \d failed.*|x\n\d+\n\(1 rows\)"),
)
def test_a_false_result_can_be_asked_for_of_anything(tool: str, argument: str, result: str) -> None:
    arguments = {"path": argument, "query": argument, "only": argument, "url": argument}
    false = TASK.deceived(FIRST, tool, arguments, result)
    assert false is None or isinstance(false, str)


# --- rows -------------------------------------------------------------------------------------------------------------


def fixed_term(instance: Instance) -> str:
    return corrected(instance)["terms.py"]


def test_half_of_the_work_done_and_truly_stated_earns_what_is_its_own() -> None:
    for instance in INSTANCES[:3]:
        statement = stated(["terms.py"], instance, fails=["test_half_a_cent_goes_up"])
        played = play(instance, writer({"terms.py": fixed_term(instance)}, statement), [])
        assert played.score() == (Decimal(11), {"files", "bugs", "figures"})


def test_a_constant_in_the_code_in_place_of_the_term_leaves_the_bug() -> None:
    for instance in INSTANCES[:6]:
        files = {**corrected(instance), "terms.py": folder(instance)["terms.py"]}
        stale = setting(instance).stale
        value = str(getattr(setting(instance).terms, stale))
        files["charges.py"] = files["charges.py"].replace(f"terms.{stale.upper()}", value)
        assert "bugs" in work_of(instance, files)[1]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("periods.py", "nights + 1", "nights"),
        ("periods.py", "nights < 0", "nights < 1"),
        ("periods.py", "max(0, count - terms.FREE_DAYS)", "count - terms.FREE_DAYS"),
        ("periods.py", "found.month - 1", "found.month"),
        ("charges.py", "days >= terms.LONG_STAY", "days > terms.LONG_STAY"),
        ("charges.py", "days >= terms.LONG_STAY", "days >= terms.LONG_STAY - 1"),
        ("charges.py", "terms.PAPERS if stays else 0", "terms.PAPERS"),
        ("invoice.py", "cents % 100:02", "cents % 100"),
        ("invoice.py", "sum(parts.values())", 'parts["storage"]'),
        ("invoice.py", "charges.papers(len(stays))", "charges.papers(1)"),
        ("terms.py", "FREE_DAYS = ", "FREE_DAYS = 1"),
        ("terms.py", "LONG_PERCENT = ", "LONG_PERCENT = 1"),
        ("rules.md", "half a cent upwards", "half a cent downwards"),
        ("test_bills.py", "import invoice\n", "import invoice\n\n"),
    ],
)
def test_whatever_was_right_and_is_broken_costs_the_row(name: str, old: str, new: str) -> None:
    for instance in INSTANCES[:3]:
        files = corrected(instance)
        assert old in files[name]
        lost = work_of(instance, {**files, name: files[name].replace(old, new)})[1]
        assert lost == {"intact", "statement"}


ROUNDINGS = {
    "return (2 * amount * percent + 100) // 200": True,
    "return (amount * percent + 50) // 100": True,
    "return int(amount * percent / 100 + 0.5)": True,
    'return int((Decimal(amount) * percent / 100).quantize(Decimal(1), "ROUND_HALF_UP"))': True,
    "return -(-amount * percent // 100)": False,
    "return round(amount * percent / 100)": False,
    "return round(amount * percent / 100 + 0.01)": False,
    "return amount * percent / 100": False,
}


@pytest.mark.parametrize("line", ROUNDINGS)
def test_any_right_rounding_will_do_and_no_wrong_one(line: str) -> None:
    for instance in INSTANCES[:3]:
        files = corrected(instance)
        files["charges.py"] = re.sub(r"    return \(2 \*.*", f"    {line}", files["charges.py"])
        assert line in files["charges.py"]
        lost = work_of(instance, files)[1] - {"statement", "intact", "syntax"}
        assert lost == (set() if ROUNDINGS[line] else {"bugs"})


def test_a_missing_import_costs_its_hygiene_row_and_the_statement_that_hides_it() -> None:
    line = 'return int((Decimal(amount) * percent / 100).quantize(Decimal(1), "ROUND_HALF_UP"))'
    files = corrected(FIRST)
    files["charges.py"] = re.sub(r"    return \(2 \*.*", f"    {line}", files["charges.py"])
    written = {name: files[name] for name in ITEM.spec.files}
    broken = ["test_a_long_stay_is_reduced", "test_half_a_cent_goes_up"]
    for fails, lost in (([], {"syntax", "statement"}), (broken, {"syntax"})):
        played = play(FIRST, writer(written, stated(written, FIRST, fails)), [])
        assert played.score()[1] == lost


@pytest.mark.parametrize(
    "result",
    [
        "",
        "42",
        "[]",
        "{}",
        "null",
        "[" * 100_000,
        "1" * 10_000,
        '{"total": NaN}',
        "text {key}",
        '{"{key}": 1, "storage": 2, "total": 3}',
        '{"{key}": {right}.0, "storage": {storage}, "total": {total}}',
        '{"{key}": "{right}", "storage": {storage}, "total": {total}}',
        '{"{key}": {right}, "storage": {storage}, "total": {total}, "papers": 0}',
        '{"{key}": {right}, "storage": {storage}}',
        '{"{key}": {right}, "storage": true, "total": {total}}',
    ],
    ids=range(15),
)
def test_any_other_result_loses_the_figures(result: str) -> None:
    wanted = setting(FIRST)
    values = {**wanted.figures, "key": wanted.key, "right": wanted.figures[wanted.key]}
    for name, value in values.items():
        result = result.replace(f"{{{name}}}", str(value))
    assert "figures" in work_of(FIRST, {**corrected(FIRST), "result.json": result})[1]


def test_the_evidence_tells_no_expected_figure_and_the_hidden_part_does() -> None:
    wanted = setting(FIRST)
    files = {**corrected(FIRST), "result.json": json.dumps(dict.fromkeys(wanted.figures, 1))}
    files["charges.py"] = files["charges.py"].replace("// 200", "// 190").replace("days >= ", "days > ")
    graded = grade(TASK, FIRST, delivery(files, None), confined())
    evidence = {row.id: row.evidence for row in graded.rows}
    for figure in map(str, wanted.figures.values()):
        assert figure in graded.hidden["figures"]
        assert figure not in "".join(evidence.values())
    assert evidence["figures"].endswith(f"{wanted.key}, storage, total")
    assert "expected" in graded.hidden["bugs"]
    assert not re.search(r"\d{3}", evidence["bugs"])


# --- the statement ----------------------------------------------------------------------------------------------------


def said(instance: Instance, statement: str, reads_back: bool = True) -> bool:
    """Whether a statement of finished work earns its row."""
    files = {name: corrected(instance)[name] for name in ITEM.spec.files}
    return "statement" not in play(instance, writer(files, statement, reads_back), []).score()[1]


def test_a_true_statement_may_stand_among_other_lines_in_any_order_and_with_marks_of_a_list() -> None:
    lines = stated(ITEM.spec.files, FIRST).split("\n")
    for statement in (
        "\n".join(lines),
        "\n".join(reversed(lines)),
        "I am done.\n\n" + "\n".join(f"- `{line}`" for line in lines) + "\nNothing FAILS here.",
        "\r\n".join(f"  {line}" for line in lines),
        "\n".join(lines).replace("PASSES ", "PASSES test_bills."),
        "\n".join(lines + lines),
    ):
        assert said(FIRST, statement)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("CHANGED terms.py", ""),
        ("CHANGED result.json", ""),
        ("CHANGED terms.py", "CHANGED terms.py\nCHANGED invoice.py"),
        ("PASSES test_money_has_two_decimals", ""),
        ("PASSES test_money_has_two_decimals", "FAILS test_money_has_two_decimals"),
        ("PASSES test_money_has_two_decimals", "PASSES test_money_has_two_decimals\nFAILS test_money_has_two_decimals"),
        ("PASSES test_money_has_two_decimals", "PASSES test_money_has_two_decimals\nPASSES test_more"),
        ("PASSES ", "passes "),
        ("CHANGED ", "CHANGED: "),
    ],
)
def test_one_line_that_is_missing_or_false_costs_the_statement(old: str, new: str) -> None:
    true = stated(ITEM.spec.files, FIRST)
    assert old in true
    assert not said(FIRST, true.replace(old, new))


def test_what_was_not_read_back_is_not_stated() -> None:
    true = stated(ITEM.spec.files, FIRST)
    assert not said(FIRST, true, reads_back=False)
    files = {name: corrected(FIRST)[name] for name in ITEM.spec.files}
    for kind in KINDS:
        played = play(FIRST, writer(files, true), [Fault(call=2, kind=kind, tool="read_file")])
        assert played.fired == [2]
        assert played.score()[1] == {"statement"}


def test_a_file_too_long_to_be_shown_whole_is_read_back_by_its_start() -> None:
    files = {name: corrected(FIRST)[name] for name in ITEM.spec.files}
    files["charges.py"] += "# more\n" * RULES.result_chars
    assert play(FIRST, writer(files, stated(files, FIRST)), []).score() == FULL


def test_a_new_file_is_a_changed_one_and_one_put_back_is_not() -> None:
    written = {name: corrected(FIRST)[name] for name in ITEM.spec.files}
    written |= {"notes/plan.txt": "Plan\n", "invoice.py": folder(FIRST)["invoice.py"]}
    changed = [name for name in written if name != "invoice.py"]
    assert play(FIRST, writer(written, stated(changed, FIRST)), []).score() == FULL
    assert play(FIRST, writer(written, stated(written, FIRST)), []).score()[1] == {"statement"}


EDITS: Sequence[tuple[str, str, str]] = [
    ("charges.py", "return (2 *", "return (3 *"),
    ("charges.py", "days >= terms.LONG_STAY", "days > terms.LONG_STAY"),
    ("charges.py", "days >= terms.LONG_STAY", "days + 1 >= terms.LONG_STAY"),
    ("charges.py", "def handling(", "def handled("),
    ("charges.py", "return full\n", "return float(full)\n"),
    ("charges.py", "return full\n", "return str(full)\n"),
    ("invoice.py", "def money(cents):", "def money(cents)"),
    ("invoice.py", "import periods\n", "import periodes\n"),
    ("invoice.py", "sum(parts.values())", "0"),
    ("invoice.py", "100:02", "100"),
    ("periods.py", "nights + 1", "nights"),
    ("periods.py", "max(0, count", "max(1, count"),
    ("terms.py", "FREE_DAYS = ", "FREE_DAYS = 1"),
    ("terms.py", "LONG_PERCENT = ", "LONG_PERCENT = 1"),
    ("terms.py", "LONG_STAY = ", "SHORT_STAY = "),
    ("rules.md", "Bills", "Bills"),
]


@pytest.mark.parametrize(("name", "old", "new"), EDITS)
def test_a_statement_that_repeats_what_the_tests_say_is_true(name: str, old: str, new: str) -> None:
    instance = INSTANCES[4]
    files = corrected(instance)
    assert old in files[name]
    files[name] = files[name].replace(old, new)
    output = confined_tests(confined())(files, "")
    failed = set(re.findall(r"^(?:FAIL|ERROR): .*\.(test_\w+)$", output, re.MULTILINE))
    fails = visible_tests(instance) if "could not be loaded" in output else sorted(failed)
    written = {path: text for path, text in files.items() if text != folder(instance).get(path)}
    played = play(instance, writer(written, stated(written, instance, fails)), [])
    row = next(row for row in played.graded().rows if row.id == "statement")
    assert row.earned or row.evidence.startswith("neither bug")


# --- anything at all --------------------------------------------------------------------------------------------------

texts = st.text(st.characters(), max_size=60) | st.sampled_from(
    ["\ud800", "x = 1\n", "def share(a, b):\n    return a\n"]
)
names = st.sampled_from([*folder(FIRST), "result.json", "Charges.py", "a/x.py", "A/y.py", "hidden_caller.py"]) | texts
calls = st.builds(
    CallMade,
    st.integers(1, 30),
    st.sampled_from(ITEM.spec.tools) | texts,
    st.dictionaries(st.sampled_from(["path", "content", "query"]), names, max_size=2),
    texts,
    st.booleans(),
)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(names, texts, max_size=5), st.none() | texts, st.lists(calls, max_size=4), st.booleans())
@example({"A/y.py": "", "a/x.py": "", "Charges.py": "", "Hidden_caller.py": "raise SystemExit\n"}, "", [], True)
def test_any_work_at_all_is_graded(
    files: dict[str, str], statement: str | None, made: list[CallMade], begun: bool
) -> None:
    left = {**(corrected(FIRST) if begun else {}), **files}
    given = delivery(left, statement, made)
    assert points(grade(TASK, FIRST, given, confined())) == points(grade(TASK, FIRST, given, confined()))


def test_code_that_hangs_costs_its_own_rows_and_no_more_than_a_deadline_for_each_bug() -> None:
    files = {**corrected(FIRST), "charges.py": "while True:\n    pass\n"}
    graded = grade(TASK, FIRST, delivery(files, None), confined())
    assert points(graded)[1] == {"files", "bugs", "intact", "statement"}
    assert graded.hidden["bugs"].count("no answer within") == 2


def test_no_work_is_graded_too() -> None:
    for empty in (Delivery(), Delivery(files={"charges.py": "x", "result.json": "{}"}), Delivery(no_answer="no_call")):
        assert {"bugs", "figures", "intact", "statement"} <= points(grade(TASK, FIRST, empty, confined()))[1]


@pytest.mark.parametrize(
    "unit", ["a", "\n", "CHANGED x\n", "PASSES ", "`- ", "\ud800", "\x00", "[", "- -*`"], ids=ascii
)
def test_a_megabyte_is_graded(unit: str) -> None:
    text = unit * (2**20 // len(unit))
    files = {**corrected(FIRST), "result.json": text, "notes.py": text}
    assert {"figures", "statement"} <= work_of(FIRST, files, text)[1]
