"""The tools of agent items and the world they act on: simulated, but for ``run_tests``, which really runs."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final

import psutil

from pytest_llmbench import sandbox as sandbox_package
from pytest_llmbench.faults import Armed, Fault, malformed
from pytest_llmbench.harness.protocol import Call, Result, filled
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.sandbox.names import UnsafeName, plain_parts

SQL_ROWS: Final = 50
"""Rows of a query that are shown."""
SQL_CELL_CHARS: Final = 1_000
"""Part of a value that is shown."""
SQL_COLUMNS: Final = 100
"""Columns of a table or a query."""
SQL_STEPS: Final = 10_000
"""Instructions of the database between two looks at a query."""
SQL_LOOKS: Final = 2_000
"""Looks after which a query is stopped."""
SQL_SEMICOLONS: Final = 500
"""Semicolons inside one statement."""
SQL_BYTES: Final = 65_536
"""Longest value and longest statement."""
SQL_PAGES: Final = 4_096
"""Size of the database."""
SQL_MEMORY_BYTES: Final = 134_217_728
"""Memory that one query may take."""

TEST_PROGRAM: Final = Path(sandbox_package.__file__).with_name("tests.py")

Tester = Callable[[Mapping[str, str], str], str]
"""Files of the work folder and part of the tests' names → output of the tests."""
Event = Callable[["World"], str | None]
"""A change of the world; gives the notice that announces it, if any."""
Deceiver = Callable[[str, Mapping[str, str], str], str | None]
"""Tool, arguments and true result → a plausible false one; None where there is none."""


class ToolError(Exception):
    """A call failed; the message is for the model."""


def _never(tool: str, arguments: Mapping[str, str], result: str) -> str | None:
    return None


@dataclass
class World:
    """The surroundings of one conversation, made afresh for each."""

    files: dict[str, str] = field(default_factory=dict)
    """The work folder: content by plain relative name."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """What ``http_get`` finds, by address."""
    database: sqlite3.Connection | None = None
    """In memory, made by ``open_database``."""
    read_only: bool = False
    """The model may only read the database."""
    prices: Mapping[str, int] = field(default_factory=dict)
    """Cost of one call by tool; what is not named is free."""
    events: Mapping[int, Event] = field(default_factory=dict)
    """What happens before the tool of a call answers, by number of the call."""
    deceive: Deceiver = _never
    """What the fault ``deceptive`` makes of a true result."""
    spent: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    """Free for the item."""

    def state(self) -> dict[str, Any]:
        """The world as JSON-able data: ``files``, ``database`` (None where there is none), ``spent``."""
        return {
            "files": dict(sorted(self.files.items())),
            "database": None if self.database is None else dump_database(self.database),
            "spent": self.spent,
        }


@dataclass(frozen=True)
class Answer:
    """What one call gave."""

    result: Result
    cost: int
    notice: str | None
    """What happened in the world before the call, where that is announced."""
    fault: str | None = None
    """Kind of the fault that fired."""
    ran: str | None = None
    """True output of a program that was run."""


@dataclass(frozen=True)
class Toolbox:
    """The tools as a conversation has them: events, prices and faults included."""

    world: World
    armed: Armed
    run_tests: Tester
    timeout_s: int
    """What a simulated timeout claims to have taken."""

    def answer(self, number: int, call: Call) -> Answer:
        """Run call ``number``. A fault changes what it says; a timeout takes its place."""
        event = self.world.events.get(number)
        notice = event(self.world) if event is not None else None
        cost = self.world.prices.get(call.tool, 0)
        self.world.spent += cost
        due = self.armed.due(number, call.tool)
        if due and due[0].fault.kind == "timeout":
            due[0].fired_at = number
            text = filled("agent_timed_out", tool=call.tool, seconds=self.timeout_s)
            return Answer(Result(f"{text}\n", failed=True), cost, notice, "timeout")
        result, ran = self._use(call)
        for armed in due:
            changed = self._faulty(armed.fault, call, result)
            if changed is not None:
                armed.fired_at = number
                return Answer(Result(changed, result.failed), cost, notice, armed.fault.kind, ran)
        return Answer(result, cost, notice, ran=ran)

    def _use(self, call: Call) -> tuple[Result, str | None]:
        """The true result, and the output of a program that was run for it."""
        try:
            if call.tool == "run_tests":
                output = self.run_tests(self.world.files, call.arguments.get("only", ""))
                return Result(output), output
            return Result(_TOOLS[call.tool](self.world, call.arguments)), None
        except ToolError as error:
            return Result(f"{error}\n", failed=True), None

    def _faulty(self, fault: Fault, call: Call, result: Result) -> str | None:
        """The result under a fault; None where the fault cannot fire at this call and stays armed."""
        if fault.kind == "malformed":
            return malformed(result.text)
        if fault.kind == "timeout" or result.failed:
            return None
        changed = self.world.deceive(call.tool, call.arguments, result.text)
        return None if changed == result.text else changed


# --- files -----------------------------------------------------------------------------------------------------------


def plain_name(name: str) -> str:
    """The plain form of a relative file name.

    Raises:
        ToolError: for a name that leaves the work folder or does not mean the same on every system.
    """
    try:
        return "/".join(plain_parts(name))
    except UnsafeName as unsafe:
        raise ToolError(f"The name {unsafe}. Use a name relative to the work folder, such as a/b.txt.") from None


def _list_files(world: World, arguments: Mapping[str, str]) -> str:
    lines = [f"{name} ({len(content)} characters)\n" for name, content in sorted(world.files.items())]
    return "".join(lines) or "The work folder is empty.\n"


def _read_file(world: World, arguments: Mapping[str, str]) -> str:
    name = plain_name(arguments["path"])
    if name not in world.files:
        raise ToolError(f"There is no file {name}. list_files gives the names.")
    return world.files[name]


def _write_file(world: World, arguments: Mapping[str, str]) -> str:
    name, content = plain_name(arguments["path"]), arguments["content"]
    for other in world.files:
        for one, two in zip(accumulate(name.split("/"), _joined), accumulate(other.split("/"), _joined), strict=False):
            if one != two and _folded(one) == _folded(two):
                raise ToolError(f"The name {one} differs from {two} in its case only; nothing was written.")
        if _folded(other).startswith(f"{_folded(name)}/"):
            raise ToolError(f"{name} is a folder; nothing was written.")
        if _folded(name).startswith(f"{_folded(other)}/"):
            raise ToolError(f"{other} is a file, not a folder; nothing was written.")
    world.files[name] = content
    return f"Wrote {name} ({len(content)} characters).\n"


def _joined(folder: str, part: str) -> str:
    return f"{folder}/{part}"


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


# --- tests -----------------------------------------------------------------------------------------------------------


def confined_tests(sandbox: Sandbox) -> Tester:
    """What runs the unit tests of a copy of the work folder in ``sandbox``; what they change is thrown away."""

    def run(files: Mapping[str, str], only: str) -> str:
        with sandbox.workdir(files) as folder:
            ending = sandbox.run(TEST_PROGRAM, [only], folder, profile="tool")
        output = plain(ending.output.decode("utf-8", "replace").replace(str(folder), "."))
        if ending.limit is not None:
            return f"{output}\nThe tests were stopped: they ran into the limit {ending.limit}.\n".lstrip("\n")
        return output or f"The tests ended without a result, with exit code {ending.code}.\n"

    return run


def plain(text: str) -> str:
    """``text`` without control characters."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


# --- web -------------------------------------------------------------------------------------------------------------


def _http_get(world: World, arguments: Mapping[str, str]) -> str:
    if arguments["url"] not in world.pages:
        raise ToolError("HTTP 404: there is no page at this address.")
    return world.pages[arguments["url"]]


# --- database --------------------------------------------------------------------------------------------------------

_FORBIDDEN_FUNCTIONS: Final = frozenset(
    ("random", "randomblob", "load_extension", "current_timestamp", "current_date", "current_time")
)
_CLOCKS: Final = ("date", "time", "datetime", "julianday", "unixepoch", "strftime")
_PRAGMAS: Final = frozenset(("table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"))
_READS: Final = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
_NEVER: Final = frozenset((sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH))


def open_database(script: str) -> sqlite3.Connection:
    """A database in memory, filled by a script of SQL. It has no clock and no chance."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    for name in _CLOCKS:
        database.create_function(name, -1, _without_now(name), deterministic=True)
    for limit in (sqlite3.SQLITE_LIMIT_LENGTH, sqlite3.SQLITE_LIMIT_SQL_LENGTH):
        database.setlimit(limit, SQL_BYTES)
    database.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, SQL_COLUMNS)
    database.execute(f"PRAGMA max_page_count = {SQL_PAGES}")
    database.execute("PRAGMA temp_store = MEMORY")
    for statement in _statements(script):
        database.execute(statement)
    return database


@cache
def _pristine() -> sqlite3.Connection:
    return sqlite3.connect(":memory:")


def _without_now(name: str) -> Callable[..., Any]:
    """SQLite's own function ``name``, which refuses to tell the time of now."""
    least = 2 if name == "strftime" else 1

    def call(*values: Any) -> Any:
        if len(values) < least or any(isinstance(value, str) and value.strip().lower() == "now" for value in values):
            raise ValueError("there is no clock")
        return _pristine().execute(f"SELECT {name}({', '.join('?' * len(values))})", values).fetchone()[0]

    return call


def _statements(script: str) -> Iterator[str]:
    """The single statements of a script.

    Raises:
        ToolError: for a statement that is not complete after ``SQL_SEMICOLONS`` semicolons.
    """
    start = looked = 0
    for end, char in enumerate(script):
        if char != ";":
            continue
        if sqlite3.complete_statement(script[start : end + 1]):
            yield script[start : end + 1]
            start, looked = end + 1, 0
        elif (looked := looked + 1) > SQL_SEMICOLONS:
            raise ToolError(f"A statement holds more than {SQL_SEMICOLONS} semicolons: a quote may be open.")
    if script[start:].strip():
        yield script[start:]


def _sql(world: World, arguments: Mapping[str, str]) -> str:
    database, query = world.database, arguments["query"]
    if database is None:
        raise ToolError("There is no database.")
    if len(query) > SQL_BYTES:
        raise ToolError(f"The query is longer than {SQL_BYTES} characters.")
    number, shown = 0, "The query holds no statement.\n"
    with _guarded(database, world.read_only):
        try:
            for statement in _statements(query):
                number += 1
                cursor = database.execute(statement)
                shown = _table(cursor) if cursor.description else _changed(cursor)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            raise ToolError(f"Statement {number} failed: {_reason(error, world.read_only)}.") from None
    return shown


@contextmanager
def _guarded(database: sqlite3.Connection, read_only: bool) -> Iterator[None]:
    """While this lasts the database runs what a model may run, for as long as it may run."""

    def allow(action: int, first: str | None, second: str | None, *where: object) -> int:
        if action == sqlite3.SQLITE_PRAGMA:
            fine = (first or "").lower() in _PRAGMAS
        elif action == sqlite3.SQLITE_FUNCTION:
            fine = (second or "").lower() not in _FORBIDDEN_FUNCTIONS
        else:
            fine = action in _READS or not (read_only or action in _NEVER)
        return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY

    process = psutil.Process()
    most = process.memory_info().rss + SQL_MEMORY_BYTES
    looks = iter(range(SQL_LOOKS))

    def stop() -> bool:
        return next(looks, None) is None or process.memory_info().rss > most

    database.execute(f"PRAGMA query_only = {int(read_only)}")
    database.set_progress_handler(stop, SQL_STEPS)
    database.set_authorizer(allow)
    try:
        yield
    finally:
        database.set_authorizer(None)
        database.set_progress_handler(None, 0)
        database.execute("PRAGMA query_only = 0")


def _reason(error: Exception, read_only: bool) -> str:
    text = str(error)
    if "user-defined function" in text:
        return "the database has no clock; write dates out"
    if "not authorized" in text or "prohibited" in text or "readonly" in text:
        return "the database can only be read" if read_only else f"not allowed here ({text})"
    return "it ran for too long and was stopped" if text == "interrupted" else text


def _changed(cursor: sqlite3.Cursor) -> str:
    return f"OK, {cursor.rowcount} rows changed.\n" if cursor.rowcount >= 0 else "OK\n"


def _table(cursor: sqlite3.Cursor) -> str:
    lines = [" | ".join(column[0] for column in cursor.description)]
    lines += [" | ".join(map(_cell, row)) for row in islice(cursor, SQL_ROWS)]
    more = cursor.fetchone() is not None
    cursor.close()
    end = f"There are more rows; the first {SQL_ROWS} are shown." if more else f"({len(lines) - 1} rows)"
    return "\n".join([*lines, end, ""])


def _cell(value: object) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()[:SQL_CELL_CHARS]}'"
    return "NULL" if value is None else str(value)[:SQL_CELL_CHARS].replace("\n", "\\n")


def dump_database(database: sqlite3.Connection) -> dict[str, Any]:
    """Every table: ``{name: {"sql": …, "columns": […], "rows": [[…]]}}``; blobs as ``{"hex": …}``."""
    tables = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    return {name: {"sql": sql, **_content(database, name)} for name, sql in tables if not name.startswith("sqlite_")}


def _content(database: sqlite3.Connection, name: str) -> dict[str, Any]:
    factory, database.text_factory = database.text_factory, _decoded
    try:
        quoted = name.replace('"', '""')
        cursor = database.execute(f'SELECT * FROM "{quoted}"')
        rows = [[_plain_value(value) for value in row] for row in cursor]
        return {"columns": [column[0] for column in cursor.description], "rows": rows}
    finally:
        database.text_factory = factory


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


def _plain_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return str(value) if isinstance(value, float) and value - value != 0 else value


_TOOLS: Final[Mapping[str, Callable[[World, Mapping[str, str]], str]]] = {
    "list_files": _list_files,
    "read_file": _read_file,
    "write_file": _write_file,
    "http_get": _http_get,
    "sql": _sql,
    "finish": lambda world, arguments: "",
}
