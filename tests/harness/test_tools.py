"""The tools act on a world of their own: nothing leaves it, and everything in it can be told again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmbench.faults import Armed
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.harness.protocol import Call
from pytest_llmbench.harness.tools import (
    SQL_CELL_CHARS,
    SQL_ROWS,
    Tester,
    Toolbox,
    World,
    confined_tests,
    open_database,
)
from pytest_llmbench.sandbox.layers import choose

SCHEMA = """
CREATE TABLE stock (item TEXT, amount INTEGER);
INSERT INTO stock VALUES ('bolt', 12), ('nut; small', NULL), ('wire', 7);
"""
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


def no_tests(files: Mapping[str, str], only: str) -> str:
    raise AssertionError("no tests are run here")


def use(world: World, tool: str, **arguments: str) -> tuple[str, bool]:
    """Text and failure of one call."""
    result = Toolbox(world, Armed(), no_tests, 30).answer(1, Call(tool, arguments)).result
    return result.text, result.failed


def query(world: World, text: str) -> str:
    answer, failed = use(world, "sql", query=text)
    return f"FAILED {answer}" if failed else answer


@pytest.fixture
def stock() -> World:
    return World(database=open_database(SCHEMA))


# --- files -----------------------------------------------------------------------------------------------------------


def test_what_was_written_is_listed_and_read() -> None:
    world = World(files={"b.txt": "old"})
    assert use(world, "write_file", path="a/new.txt", content="one\n") == ("Wrote a/new.txt (4 characters).\n", False)
    assert use(world, "list_files") == ("a/new.txt (4 characters)\nb.txt (3 characters)\n", False)
    assert use(world, "read_file", path="./a/new.txt") == ("one\n", False)


def test_a_file_that_is_not_there_is_an_error_that_can_be_read() -> None:
    text, failed = use(World(), "read_file", path="gone.txt")
    assert failed
    assert "no file gone.txt" in text


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/passwd",
        "C:\\x",
        "C:x",
        "a\\b",
        "a/../../b",
        "~/x",
        "",
        ".",
        "a//b",
        "a/",
        "aux.py",
        "x.",
        "a\0b",
        "a\u202eb",
        "n" * 300,
    ],
)
@pytest.mark.parametrize("tool", ["read_file", "write_file"])
def test_no_name_leaves_the_work_folder(tool: str, name: str) -> None:
    world = World(files={"a.txt": "kept"})
    text, failed = use(world, tool, path=name, content="x")
    assert failed
    assert "name" in text
    assert world.files == {"a.txt": "kept"}


@pytest.mark.parametrize(
    ("name", "words"), [("ReadMe.md", "case only"), ("readme.md/x", "not a folder"), ("src", "is a folder")]
)
def test_names_that_collide_are_refused(name: str, words: str) -> None:
    world = World(files={"readme.md": "1", "src/a.py": "2"})
    text, failed = use(world, "write_file", path=name, content="x")
    assert failed
    assert words in text
    assert world.files == {"readme.md": "1", "src/a.py": "2"}


@given(
    st.lists(
        st.tuples(st.text(max_size=12) | st.sampled_from(["a", "A", "a/b", "a.b", "a/c/d"]), st.text()), max_size=8
    )
)
def test_any_sequence_of_writes_leaves_files_that_a_disk_can_hold(writes: list[tuple[str, str]]) -> None:
    world = World()
    for path, content in writes:
        use(world, "write_file", path=path, content=content)
    folded = [name.casefold() for name in world.files]
    assert len(set(folded)) == len(folded)
    assert not [(one, two) for one in folded for two in folded if two.startswith(f"{one}/")]
    assert json.loads(json.dumps(world.state())) == world.state()


# --- web -------------------------------------------------------------------------------------------------------------


def test_pages_answer_by_their_exact_address() -> None:
    world = World(pages={"http://rates.test/today": "eur 1.25\n"})
    assert use(world, "http_get", url="http://rates.test/today") == ("eur 1.25\n", False)
    assert use(world, "http_get", url="http://rates.test/")[1]


# --- database --------------------------------------------------------------------------------------------------------


def test_a_query_gives_a_table(stock: World) -> None:
    assert query(stock, "SELECT * FROM stock") == "item | amount\nbolt | 12\nnut; small | NULL\nwire | 7\n(3 rows)\n"


def test_statements_run_in_order_and_the_last_one_answers(stock: World) -> None:
    script = "UPDATE stock SET amount = 0 WHERE item = 'nut; small'; SELECT count(*) FROM stock WHERE amount = 0"
    assert query(stock, script) == "count(*)\n1\n(1 rows)\n"
    assert query(stock, "DELETE FROM stock WHERE amount = 7;") == "OK, 1 rows changed.\n"


def test_an_error_names_the_statement_and_the_ones_before_it_stay(stock: World) -> None:
    answer = query(stock, "DELETE FROM stock; SELECT * FROM stick;")
    assert answer.startswith("FAILED Statement 2 failed: no such table: stick")
    assert query(stock, "SELECT * FROM stock") == "item | amount\n(0 rows)\n"


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO stock VALUES ('x', 1)",
        "DROP TABLE stock",
        "CREATE TABLE other (x)",
        "CREATE TEMP TABLE other (x)",
        "PRAGMA query_only = 0",
        "PRAGMA writable_schema = 1",
        "WITH gone AS (SELECT 1) DELETE FROM stock",
    ],
)
def test_a_read_only_database_stays_as_it_was(stock: World, statement: str) -> None:
    stock.read_only = True
    before = stock.state()
    assert "can only be read" in query(stock, f"{statement}; DELETE FROM stock")
    assert stock.state() == before
    assert query(stock, "SELECT count(*) FROM stock").endswith("3\n(1 rows)\n")


def test_the_schema_can_be_looked_at(stock: World) -> None:
    stock.read_only = True
    assert "amount" in query(stock, "PRAGMA table_info(stock)")
    assert "CREATE TABLE stock" in query(stock, "SELECT sql FROM sqlite_master")


def test_no_statement_reaches_a_disk(stock: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for statement in (
        "ATTACH 'x.db' AS x",
        "VACUUM INTO 'y.db'",
        "SELECT load_extension('z')",
        "PRAGMA temp_store_directory='.'",
    ):
        assert query(stock, statement).startswith("FAILED")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value", ["random()", "datetime('now')", "date()", "CURRENT_TIMESTAMP", "strftime('%s')", "hex(randomblob(4))"]
)
def test_the_database_has_no_chance_and_no_clock(stock: World, value: str) -> None:
    assert query(stock, f"SELECT {value}").startswith("FAILED")


def test_dates_can_be_computed(stock: World) -> None:
    assert "2024-03-01" in query(stock, "SELECT date('2024-01-31', '+1 month', '-1 day')")


@pytest.mark.parametrize(
    "statement",
    [
        f"{ENDLESS} SELECT count(*) FROM n",
        f"{ENDLESS} SELECT x, zeroblob(60000) AS y FROM n ORDER BY y",
        f"CREATE TABLE big AS {ENDLESS} SELECT zeroblob(60000) FROM n",
        "SELECT zeroblob(100000000)",
        "SELECT " + "1," * 500 + "1",
        "SELECT '" + "x" * 70_000 + "'",
        "SELECT '\udc80'",
        "SELECT 'a\0b'",
        "SELECT CAST(x'ff' AS TEXT)",
        "BEGIN; BEGIN",
    ],
)
def test_a_hostile_statement_costs_itself_only(stock: World, statement: str) -> None:
    assert query(stock, statement).startswith("FAILED")
    assert query(stock, "SELECT count(*) FROM stock") == "count(*)\n3\n(1 rows)\n"


def test_long_tables_and_long_values_are_shortened(stock: World) -> None:
    answer = query(stock, f"{ENDLESS} SELECT x, printf('%5000d', x) FROM n LIMIT 900")
    assert answer.endswith(f"first {SQL_ROWS} are shown.\n")
    assert len(answer) < (SQL_ROWS + 2) * (SQL_CELL_CHARS + 20)


def test_the_state_tells_every_table(stock: World) -> None:
    query(stock, 'CREATE TABLE "odd "" name" (x)')
    query(stock, """INSERT INTO "odd "" name" VALUES (x'00ff'), (1.5), (9e999), (CAST(x'ff' AS TEXT))""")
    state = stock.state()
    assert state["database"]["stock"]["rows"][0] == ["bolt", 12]
    assert state["database"]['odd " name']["columns"] == ["x"]
    assert json.loads(json.dumps(state, allow_nan=False)) == state


def test_without_a_database_there_is_nothing_to_ask() -> None:
    assert query(World(), "SELECT 1").startswith("FAILED There is no database")


# --- tests -----------------------------------------------------------------------------------------------------------

ADDER = "def add(a, b):\n    return a + b\n"
TESTS = """
import unittest
from adder import add

class Adding(unittest.TestCase):
    def test_small(self):
        print("adding")
        self.assertEqual(add(1, 2), 3)

    def test_object(self):
        self.assertEqual(add([], []), object())
"""


@pytest.fixture(scope="module")
def run_tests() -> Tester:
    return confined_tests(choose(Profile().sandbox(), allow_unconfined=True))


def test_tests_really_run(run_tests: Tester) -> None:
    output = run_tests({"adder.py": ADDER, "tests/test_adder.py": TESTS}, "")
    assert output.startswith("2 tests run: 1 passed, 1 failed\n")
    assert "FAIL: tests.test_adder.Adding.test_object" in output
    assert 'File "tests/test_adder.py", line 11' in output
    assert "Printed by the tests:\nadding" in output


def test_the_same_files_give_the_same_output(run_tests: Tester) -> None:
    files = {"adder.py": ADDER, "test_adder.py": TESTS}
    assert run_tests(files, "") == run_tests(files, "")
    assert "/" not in run_tests(files, "").replace("0x...", "")


def test_some_of_the_tests_can_be_chosen(run_tests: Tester) -> None:
    output = run_tests({"adder.py": ADDER, "test_adder.py": TESTS}, "small")
    assert output.startswith("1 tests run: 1 passed, 0 failed\n")
    assert output.endswith("OK\n")


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("import nothing_of_that_name\n", "nothing_of_that_name"),
        ("exit(0)\n", "SystemExit"),
        ("import os\nos._exit(3)\n", "exit code 3"),
        ("x = 1\n", "No tests were found"),
        ("print('\\x1b[2J', '\\udc80')\n" + TESTS, "Printed by the tests"),
    ],
)
def test_whatever_a_test_file_does_the_output_is_text(run_tests: Tester, test: str, words: str) -> None:
    output = run_tests({"adder.py": ADDER, "test_it.py": test}, "")
    assert words in output
    assert all(char.isprintable() or char in "\n\t" for char in output)


def test_what_the_tests_change_is_thrown_away(run_tests: Tester) -> None:
    files = {"test_it.py": "open('left.txt', 'w').write('x')\n"}
    run_tests(files, "")
    assert list(files) == ["test_it.py"]


def test_tests_that_never_end_are_stopped_by_a_named_limit() -> None:
    small = Profile().sandbox()
    limits = type(small)(**{**small.__dict__, "cpu_s": 1.0, "wall_s": 8.0})
    run = confined_tests(choose(limits, allow_unconfined=True))
    assert "stopped: they ran into the limit cpu_s" in run({"test_it.py": "while True: pass\n"}, "")


def test_an_open_quote_with_many_semicolons_is_refused(stock: World) -> None:
    assert query(stock, "SELECT '" + ";" * 60_000).startswith("FAILED A statement holds more than 500 semicolons")
    assert query(stock, "SELECT 1;" * 600).startswith("1")


def test_folders_that_differ_in_their_case_only_are_refused() -> None:
    world = World(files={"A/x.py": ""})
    text, failed = use(world, "write_file", path="a/y.py", content="1\n")
    assert (text, failed) == ("The name a differs from A in its case only; nothing was written.\n", True)
    assert use(world, "write_file", path="A/y.py", content="1\n")[1] is False
