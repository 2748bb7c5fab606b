"""A03: records are entered, and half way a table and a settings file move to a new version."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from string import Template
from typing import Any, cast

from pytest_llmbench.bank import Item
from pytest_llmbench.faults import GARBAGE, Armed
from pytest_llmbench.grading.hidden_tests import clipped, same
from pytest_llmbench.harness.protocol import Call, Result
from pytest_llmbench.harness.scripted import Policy
from pytest_llmbench.harness.tools import Toolbox, World, dump_database, open_database
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

SCRIPT = "load.sql"
SETTINGS = "settings.conf"
GUIDES = ("guide1.md", "guide2.md")
LAST_LOT = "intake.last_lot"
MONEY = ("order.limit", "order.fee")
NOTICE = "NOTICE"
MIGRATE = "golden/migrate.sql"
OLD_COLUMNS = ("lot", "article", "quantity", "price", "remark")
NEW_COLUMNS = ("lot", "article", "amount", "unit", "price_cents", "remark")
ROUNDED = "round(price * 100)"
TRUNCATED = "price * 100"
MAX_SHOWN_CHARS = 160
"""Longest part of a database's own words in the evidence."""
MAX_HIDDEN_CHARS = 2_000
"""Longest list of rows among the hidden cases."""

_NOTED_LOT = re.compile(
    r"^Lot (?P<number>\d+): (?P<article>.+)\n  quantity: (?P<amount>\d+) (?P<unit>.+)\n"
    r"  price: (?P<euros>\d+)\.(?P<cents>\d\d)\n  remark: (?P<remark>.+)$",
    re.MULTILINE,
)
_NOTED_SUM = re.compile(r"^Sum of the prices: (\d+)\.(\d\d)$", re.MULTILINE)
_NOTED_PRICE = re.compile(r"(?<=^  price: )\d+", re.MULTILINE)
_ROWS = re.compile(r"\((\d+) rows\)\n\Z")
_SECTION = re.compile(r"\[([^\[\]]+)\]")

Row = tuple[object, ...]
Settings = dict[tuple[str, str], str]
"""Values by section and key; what stands before the first section has the section ""."""


@dataclass(frozen=True)
class Lot:
    """One record."""

    number: int
    article: str
    amount: int
    unit: str
    cents: int
    remark: str | None

    @property
    def price(self) -> str:
        return money(self.cents)

    @property
    def old(self) -> Row:
        """Its row in version 1."""
        return self.number, self.article, f"{self.amount} {self.unit}", self.price, self.remark

    @property
    def noted(self) -> str:
        """What a delivery note says of it."""
        _, article, quantity, price, remark = self.old
        return f"Lot {self.number}: {article}\n  quantity: {quantity}\n  price: {price}\n  remark: {remark or 'none'}\n"


def money(cents: int) -> str:
    """An amount of money in version 1."""
    return f"{cents // 100}.{cents % 100:02}"


def survives_cutting(cents: int) -> bool:
    """Whether a price comes out right when its binary fraction is cut down to cents."""
    return int(float(money(cents)) * 100) == cents


@cache
def prices() -> tuple[list[int], list[int]]:
    """Prices that do not survive cutting, and prices that do."""
    fragile = [cents for cents in range(101, 2000) if not survives_cutting(cents)]
    robust = [cents for cents in range(1001, 9000) if cents % 100 and survives_cutting(cents)]
    return fragile, robust


@dataclass(frozen=True)
class Facts:
    """What differs between instances."""

    item: Item
    old: str
    new: str
    letter: str
    width: int
    currency: str
    start: Sequence[Lot]
    """In the old table from the beginning."""
    late: Lot
    """Entered by another desk just before the migration."""
    notes: Mapping[str, Sequence[Lot]]
    """The lots of each delivery note, by the name of its file."""
    elsewhere: Sequence[Lot]
    """In the database of the other depot."""
    settings: Mapping[str, str]
    """The settings of the start, in format 1."""

    @property
    def noted(self) -> list[Lot]:
        """The lots of all notes."""
        return [lot for lots in self.notes.values() for lot in lots]

    def name(self, number: int) -> str:
        """A lot's number in version 2."""
        return f"{self.letter}-{number:0{self.width}}"

    def row(self, lot: Lot) -> Row:
        """A lot's row in version 2."""
        return self.name(lot.number), lot.article, lot.amount, lot.unit, lot.cents, lot.remark

    def rows(self, lots: Sequence[Lot]) -> dict[object, Row]:
        """Rows in version 2 by the number of their lot."""
        return {self.name(lot.number): self.row(lot) for lot in lots}

    @cached_property
    def migrated(self) -> Settings:
        """The settings that are right in the end."""
        found = {("", "format"): "2"}
        for key, value in {**self.settings, LAST_LOT: self.name(max(lot.number for lot in self.noted))}.items():
            section, _, name = key.partition(".")
            found[section, name] = value.replace(".", "") if key in MONEY else value
        return found

    @cached_property
    def files(self) -> dict[str, str]:
        """The work folder at the start."""
        lines = [f"{key} = {value}\n" for key, value in self.settings.items()]
        return {
            GUIDES[0]: self.text(GUIDES[0], schema=self.text("schema1.sql")),
            SETTINGS: "".join(["format = 1\n", *lines]),
            **{name: self._note(name) for name in self.notes},
        }

    def _note(self, name: str) -> str:
        lots = self.notes[name]
        day = name.partition("_")[2].partition(".")[0].upper()
        return self.text(
            "note.txt",
            day=day,
            lots="\n".join(lot.noted for lot in lots),
            count=len(lots),
            sum=money(sum(lot.cents for lot in lots)),
        )

    def text(self, name: str, **values: object) -> str:
        """A fixture with its places filled in."""
        text = (self.item.side("fixtures") / name).read_text(encoding="utf-8")
        names = {"old": self.old, "new": self.new, "letter": self.letter, "width": self.width}
        return Template(text).substitute(names, currency=self.currency, six=f"{6:0{self.width}}", **values)


def facts_of(instance: Instance) -> Facts:
    """The facts of an instance."""
    return cast("Facts", instance.data["facts"])


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Draw names, lots and settings."""
    data = item.spec.data
    base = seed.randrange(1100, 8000)
    known = [seed.randrange(11, 99), *seed.sample(range(101, 999), 2), *seed.sample(range(base - 90, base + 1), 3)]
    one, two, late, three, highest = sorted(seed.sample(range(base + 1, base + 30), 5))
    taken = {*known, one, two, late, three, highest}
    others = seed.sample([number for number in range(10, base + 90) if number not in taken], 3)
    fragile, robust = prices()
    count = len(taken) + len(others)
    articles = seed.sample(data["articles"], count)
    units = [seed.choice(data["packed" if place % 3 == 2 else "units"]) for place in range(count)]
    amounts = seed.sample(range(2, 400), count)
    quoted = seed.sample(data["apostrophes"], 2)

    def lot(number: int, cents: int, remark: str | None) -> Lot:
        return Lot(number, articles.pop(), amounts.pop(), units.pop(), cents, remark)

    def any_remark() -> str | None:
        return cast("str | None", seed.choice([*data["remarks"], None]))

    paid = [*seed.sample(fragile, 4), *seed.sample(robust, 2)]
    remarks = [quoted[0], None, *(any_remark() for _ in range(4))]
    seed.shuffle(paid)
    seed.shuffle(remarks)
    start = [lot(*drawn) for drawn in zip(known, paid, remarks, strict=True)]
    noted = seed.sample(robust, 4)
    first, second = (f"note_{day}.txt" for day in seed.sample(data["days"], 2))
    notes = {
        first: [lot(highest, noted[0], None), lot(one, noted[1], any_remark())],
        second: [lot(two, noted[2], any_remark()), lot(three, noted[3], quoted[1])],
    }
    settings = {
        "depot.name": seed.choice(data["depots"]),
        "depot.currency": seed.choice(data["currencies"]),
        "order.limit": money(seed.randrange(200, 900) * 100),
        "order.fee": money(seed.choice(fragile)),
        "intake.clerk": seed.choice(data["clerks"]),
        LAST_LOT: str(max(known)),
    }
    facts = Facts(
        item=item,
        old=seed.choice(data["old_tables"]),
        new=seed.choice(data["new_tables"]),
        letter=seed.choice(data["letters"]),
        width=seed.choice([5, 6, 7]),
        currency=settings["depot.currency"],
        start=start,
        late=lot(late, seed.choice(fragile), any_remark()),
        notes=notes,
        elsewhere=[lot(number, seed.choice(robust), any_remark()) for number in others],
        settings=dict(seed.sample(list(settings.items()), len(settings))),
    )
    prompt = item.render(depot=settings["depot.name"], old=facts.old, first=first, second=second)
    return Instance(item.spec, variant, run, prompt, data={"facts": facts})


# --- the world -------------------------------------------------------------------------------------------------------


def world(instance: Instance) -> World:
    """The depot in version 1, which moves to version 2 at a stated call."""
    facts = facts_of(instance)
    database = open_database(facts.text("schema1.sql"))
    database.executemany(f"INSERT INTO {facts.old} VALUES (?, ?, ?, ?, ?)", [lot.old for lot in facts.start])
    return World(
        files=dict(facts.files),
        database=database,
        events={instance.spec.data["notice_call"]: partial(migration, facts)},
        deceive=partial(misread, facts),
    )


def migration(facts: Facts, surroundings: World) -> str:
    """Another desk enters a lot, the new table and its guide appear; gives the notice.

    A transaction that the agent has left open is committed. Where what the agent has made of its database stands in
    the way, that part does not happen.
    """
    late = insertion(facts.old, OLD_COLUMNS, [facts.late.old], "INSERT OR REPLACE")
    for query in ("COMMIT", late, facts.text("schema2.sql")):
        run_sql(surroundings, query)
    surroundings.files[GUIDES[1]] = facts.text(GUIDES[1], schema=facts.text("schema2.sql"))
    return facts.text("notice.txt").strip()


def run_sql(surroundings: World, query: str) -> Result:
    """Run SQL on a database, guarded as that of an agent."""
    alone = World(database=surroundings.database)
    return Toolbox(alone, Armed(), lambda files, only: "", 0).answer(0, Call("sql", {"query": query})).result


def misread(facts: Facts, tool: str, arguments: Mapping[str, str], result: str) -> str | None:
    """A note with another price, which its sum does not bear out; a table without its last row."""
    if tool == "read_file" and result in [facts.files[name] for name in facts.notes]:
        return _NOTED_PRICE.sub(lambda price: str(int(price[0]) + 10), result, count=1)
    rows = _ROWS.search(result) if tool == "sql" else None
    if rows is None or int(rows[1]) < 3:
        return None
    shown = result[: rows.start() - 1].rpartition("\n")[0]
    return f"{shown}\n({int(rows[1]) - 1} rows)\n"


def literal(value: object) -> str:
    """A value in SQL."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def insertion(table: str, columns: Sequence[str], rows: Sequence[Row], verb: str) -> str:
    """The statement that enters rows."""
    values = ",\n".join(f"    ({', '.join(map(literal, row))})" for row in rows)
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES\n{values};\n"


# --- grading ---------------------------------------------------------------------------------------------------------


def read_settings(text: str) -> Settings | None:
    """The settings of a file in either format; None where a line is neither section, setting, comment nor empty."""
    found: Settings = {}
    section = ""
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        key, equals, value = map(str.strip, line.partition("="))
        if heading := _SECTION.fullmatch(line):
            section = heading[1].strip()
        elif not equals or not key or (section, key) in found:
            return None
        else:
            found[section, key] = value
    return found


def rows_of(database: Mapping[str, Any] | None, table: str) -> list[Row]:
    """The rows of a table in version 2; none where it has other columns."""
    content = (database or {}).get(table)
    if content is None or sorted(content["columns"]) != sorted(NEW_COLUMNS):
        return []
    order = [content["columns"].index(column) for column in NEW_COLUMNS]
    return [tuple(row[place] for place in order) for row in content["rows"]]


def missing(wanted: Mapping[object, Row], rows: Sequence[Row]) -> list[Row]:
    """The wanted rows that are not there exactly once, type by type."""
    by_lot: dict[object, list[Row]] = {}
    for row in rows:
        if isinstance(row[0], str):
            by_lot.setdefault(row[0], []).append(row)
    return [row for lot, row in wanted.items() if not same(by_lot.get(lot), [row])]


@dataclass(frozen=True)
class Trial:
    """What load.sql does to the database of the other depot, in one of the versions."""

    first: Result
    second: Result
    """Not tried where the first run fails."""
    before: Mapping[str, Any]
    after_first: Mapping[str, Any]
    after_second: Mapping[str, Any]

    def enters(self, table: str) -> bool:
        """The first run ends without an error, and afterwards the table has more rows."""
        had = len(self.before[table]["rows"])
        return not self.first.failed and len(self.after_first.get(table, {"rows": ()})["rows"]) > had

    @property
    def repeatable(self) -> bool:
        """The second run ends without an error and changes nothing."""
        return not self.second.failed and _unordered(self.after_first) == _unordered(self.after_second)


def _unordered(database: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (table["columns"], sorted(map(repr, table["rows"]))) for name, table in database.items()}


def tried(facts: Facts, script: str, version: int) -> Trial:
    """Run a script twice on a fresh database of the other depot."""
    table = (facts.old, facts.new)[version - 1]
    rows = [lot.old if version == 1 else facts.row(lot) for lot in facts.elsewhere]
    database = open_database(facts.text(f"schema{version}.sql"))
    try:
        database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        surroundings = World(database=database)
        before = dump_database(database)
        first = run_sql(surroundings, script)
        after_first = dump_database(database)
        second = first if first.failed else run_sql(surroundings, script)
        return Trial(first, second, before, after_first, dump_database(database))
    finally:
        database.close()


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """Judge the two files and the database as they are in the end."""
    facts = facts_of(instance)
    database = delivery.work.database if delivery.work is not None else None
    rows = rows_of(database, facts.new)
    script = delivery.files.get(SCRIPT)
    settings = read_settings(delivery.files.get(SETTINGS, ""))
    trial = tried(facts, script, 2) if script is not None else None
    return [
        _files(facts, script, trial, delivery.files.get(SETTINGS), settings),
        _carried_over(facts, rows),
        _verdict("new_interface", [*_interface(facts, rows, trial, settings)], "lots, script and settings are right"),
        _verdict("clean", [*_remains(facts, database, rows, trial)], "nothing is left, a second run changes nothing"),
    ]


def _verdict(row: str, faults: Sequence[tuple[str, str]], fine: str) -> Verdict:
    """Earned where there is no fault; a fault is what may be said and what is hidden."""
    said = "; ".join(public for public, _ in faults)
    return Verdict(row, not faults, said or fine, "\n".join(hidden for _, hidden in faults if hidden))


def _files(
    facts: Facts, script: str | None, trial: Trial | None, text: str | None, settings: Settings | None
) -> Verdict:
    faults: list[str] = []
    if script is None or trial is None:
        faults.append(f"{SCRIPT} is not there")
    elif not trial.enters(facts.new) and not tried(facts, script, 1).enters(facts.old):
        faults.append(f"{SCRIPT} enters no lot, neither in version 1 nor in version 2")
    if text is None:
        faults.append(f"{SETTINGS} is not there")
    elif settings is None:
        faults.append(f"{SETTINGS} holds a line that is no setting, or a setting twice")
    elif settings == read_settings(facts.files[SETTINGS]):
        faults.append(f"{SETTINGS} is as it was")
    elif not settings.keys() & {("", LAST_LOT), tuple(LAST_LOT.split("."))}:
        faults.append(f"{SETTINGS} does not hold the last lot")
    return Verdict("files", not faults, "; ".join(faults) or "both files are there and can be read")


def _carried_over(facts: Facts, rows: Sequence[Row]) -> Verdict:
    wanted = facts.rows([*facts.start, facts.late])
    lost = missing(wanted, rows)
    hidden = f"wanted: {lost}\nfound: {clipped(repr(rows), MAX_HIDDEN_CHARS)}" if lost else ""
    said = f"{len(wanted) - len(lost)} of {len(wanted)} lots of the table {facts.old} are in {facts.new}, unaltered"
    return Verdict("carried_over", not lost, said, hidden)


def _interface(
    facts: Facts, rows: Sequence[Row], trial: Trial | None, settings: Settings | None
) -> Iterator[tuple[str, str]]:
    noted = facts.rows(facts.noted)
    if lost := missing(noted, rows):
        yield f"{len(lost)} of {len(noted)} lots of the notes are not in {facts.new} as they should be", f"{lost}"
    if trial is None:
        yield f"there is no {SCRIPT}", ""
    elif trial.first.failed:
        yield f"{SCRIPT} failed in version 2: {clipped(trial.first.text.strip(), MAX_SHOWN_CHARS)}", ""
    else:
        found = rows_of(trial.after_first, facts.new)
        wanted = {**noted, **facts.rows(facts.elsewhere)}
        if len(found) != len(wanted) or missing(wanted, found):
            yield (
                f"{SCRIPT} does not enter the lots of the notes as they should be",
                clipped(repr(found), MAX_HIDDEN_CHARS),
            )
    if settings != facts.migrated:
        kept = sum(1 for place, value in facts.migrated.items() if (settings or {}).get(place) == value)
        other = len(settings or {}) - kept
        said = f"{SETTINGS}: {kept} of {len(facts.migrated)} settings are as they should be, {other} others are there"
        yield said, f"wanted: {facts.migrated}"


def _remains(
    facts: Facts, database: Mapping[str, Any] | None, rows: Sequence[Row], trial: Trial | None
) -> Iterator[tuple[str, str]]:
    if not rows:
        yield f"no lot is in the table {facts.new}", ""
    if others := len(set(database or {}) - {facts.new}):
        yield f"there are {others} tables besides {facts.new}", ""
    if (surplus := len(rows) - len([*facts.start, facts.late, *facts.noted])) > 0:
        yield f"{facts.new} has {surplus} rows too many", ""
    if trial is None or not trial.enters(facts.new):
        yield f"{SCRIPT} enters nothing in version 2, so a second run says nothing", ""
        return
    if set(trial.after_first) != {facts.new}:
        yield f"{SCRIPT} leaves other tables behind", ""
    if not trial.repeatable:
        said = trial.second.text.strip() if trial.second.failed else "rows changed"
        yield f"a second run of {SCRIPT} is not without effect: {clipped(said, MAX_SHOWN_CHARS)}", ""


# --- references ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Habits:
    """How an agent works; the defaults are faultless."""

    patient: bool = True
    """Calls again after a time-out."""
    checks_sums: bool = True
    heeds_notice: bool = True
    touches_database: bool = True
    """Does anything in the database of version 2."""
    carries: str | None = ROUNDED
    """The expression for cents, in SQL; None: it does not carry over the old rows."""
    types_again: bool = False
    """Enters the rows it saw at the beginning."""
    pads: bool = True
    drops: bool = True
    verb: str = "INSERT OR IGNORE"
    """How load.sql enters lots."""
    new_script: bool = True
    new_settings: bool = True
    lingers: bool = False
    """Goes on for as long as it is let."""


HABITS: Mapping[str, Habits] = {
    "ignores_the_notice": Habits(heeds_notice=False),
    "migrates_nothing": Habits(carries=None, drops=False),
    "migrates_only_its_own": Habits(carries=None),
    "migrates_what_it_saw": Habits(carries=None, types_again=True),
    "loses_precision": Habits(carries=TRUNCATED),
    "shortens_the_numbers": Habits(pads=False),
    "keeps_the_old_settings": Habits(new_settings=False),
    "keeps_the_old_script": Habits(new_script=False),
    "believes_the_misread": Habits(checks_sums=False),
    "leaves_the_old_table": Habits(drops=False),
    "not_repeatable": Habits(verb="INSERT"),
    "declares_success_falsely": Habits(touches_database=False),
    "gives_up_at_the_first_timeout": Habits(patient=False),
    "never_finishes": Habits(heeds_notice=False, lingers=True),
}


class GaveUp(Exception):
    """An agent wants to go on no more."""


class Clerk:
    """An agent that does the task from what its tools tell it, and calls again what gave no whole answer."""

    def __init__(self, facts: Facts, habits: Habits) -> None:
        self.habits = habits
        self.facts = facts if habits.pads else replace(facts, width=1)
        self.noticed = False
        self.seen: list[Lot] = []
        self.noted: list[Lot] = []
        self.settings: dict[str, str] = {}

    def work(self) -> Policy:
        """The whole conversation."""
        try:
            yield from self.version_1()
            if self.habits.heeds_notice:
                yield from self.version_2()
        except GaveUp:
            pass
        while self.habits.lingers:
            yield from self.ask("list_files")
            yield from self.ask("read_file", path=GUIDES[0])
        yield Call("finish", {"statement": f"All lots are in {self.facts.new}. {SCRIPT} and {SETTINGS} are done."})

    def ask(self, tool: str, **arguments: str) -> Generator[Call | str, Result, str]:
        """The whole answer to a call."""
        while True:
            result = yield Call(tool, arguments)
            self.noticed = self.noticed or NOTICE in result.notes
            if result.failed and not self.habits.patient:
                raise GaveUp
            if not result.failed and GARBAGE not in result.text:
                return result.text

    def version_1(self) -> Policy:
        """Read everything, then do the task in version 1 until there is a notice."""
        if self.habits.types_again:
            table = yield from self.ask("sql", query=f"SELECT {', '.join(OLD_COLUMNS)} FROM {self.facts.old}")
            self.seen = [shown_lot(line) for line in table.splitlines()[1:-1]]
        yield from self.ask("read_file", path=GUIDES[0])
        text = yield from self.ask("read_file", path=SETTINGS)
        self.settings = {key: value for (_, key), value in (read_settings(text) or {}).items()}
        for name in self.facts.notes:
            text = yield from self.ask("read_file", path=name)
            while self.habits.checks_sums and not adds_up(text):
                text = yield from self.ask("read_file", path=name)
            self.noted += noted_lots(text)
        for step in (self.enter_old, self.write_old_script, self.write_old_settings):
            if not (self.noticed and self.habits.heeds_notice):
                yield from step()

    def enter_old(self) -> Policy:
        """Enter the lots of the notes in version 1."""
        yield from self.ask("sql", query=self.old_script())

    def old_script(self) -> str:
        return insertion(self.facts.old, OLD_COLUMNS, [lot.old for lot in self.noted], "INSERT OR IGNORE")

    def write_old_script(self) -> Policy:
        """Write load.sql in version 1."""
        yield from self.ask("write_file", path=SCRIPT, content=self.old_script())

    def write_old_settings(self) -> Policy:
        """Write settings.conf in format 1."""
        settings = {**self.settings, LAST_LOT: max(lot.number for lot in self.noted)}
        content = "".join(f"{key} = {value}\n" for key, value in settings.items())
        yield from self.ask("write_file", path=SETTINGS, content=content)

    def version_2(self) -> Policy:
        """Move what is there to version 2 and do there what was not done yet."""
        yield from self.ask("read_file", path=GUIDES[1])
        if self.habits.touches_database:
            yield from self.migrate()
        if self.habits.new_script:
            yield from self.ask("write_file", path=SCRIPT, content=self.new_script(self.noted, self.habits.verb))
        else:
            yield from self.write_old_script()
        if self.habits.new_settings:
            yield from self.ask("write_file", path=SETTINGS, content=self.new_settings())
        else:
            yield from self.write_old_settings()

    def migrate(self) -> Policy:
        """Move the database, look whether every lot has arrived, and drop the old table."""
        facts, old, new = self.facts, self.facts.old, self.facts.new
        number = f"printf('{facts.letter}-%0{facts.width}d', lot)"
        moving = self.new_script([*self.seen, *self.noted], "INSERT OR IGNORE")
        if self.habits.carries is not None:
            values = {"old": old, "new": new, "letter": facts.letter, "width": facts.width}
            moving = facts.item.read(MIGRATE, cents=self.habits.carries, **values) + moving
        arrived = False
        while not arrived:
            yield from self.ask("sql", query=moving)
            left = yield from self.ask(
                "sql", query=f"SELECT count(*) FROM {old} WHERE {number} NOT IN (SELECT lot FROM {new})"
            )
            arrived = left.splitlines()[1] == "0" or self.habits.carries is None
        if self.habits.drops:
            yield from self.ask("sql", query=f"DROP TABLE IF EXISTS {old}")
        yield from self.ask("sql", query=f"SELECT * FROM {new}")

    def new_script(self, lots: Sequence[Lot], verb: str) -> str:
        """What enters lots in version 2."""
        return insertion(self.facts.new, NEW_COLUMNS, [self.facts.row(lot) for lot in lots], verb)

    def new_settings(self) -> str:
        """The settings in format 2."""
        last = self.facts.name(max(lot.number for lot in self.noted))
        sections: dict[str, list[str]] = {}
        for key, value in {**self.settings, LAST_LOT: last}.items():
            section, dot, name = key.partition(".")
            if dot:
                moved = value.replace(".", "") if key in MONEY else value
                sections.setdefault(section, []).append(f"{name} = {moved}\n")
        return "format = 2\n" + "".join(f"\n[{name}]\n{''.join(lines)}" for name, lines in sections.items())


def noted_lots(note: str) -> list[Lot]:
    """The lots of a delivery note."""
    return [
        Lot(
            number=int(found["number"]),
            article=found["article"],
            amount=int(found["amount"]),
            unit=found["unit"],
            cents=int(found["euros"] + found["cents"]),
            remark=None if found["remark"] == "none" else found["remark"],
        )
        for found in _NOTED_LOT.finditer(note)
    ]


def adds_up(note: str) -> bool:
    """Whether the prices of a note make its sum."""
    total = _NOTED_SUM.search(note)
    return total is not None and sum(lot.cents for lot in noted_lots(note)) == int(total[1] + total[2])


def shown_lot(line: str) -> Lot:
    """A lot as a row of the old table shows it."""
    number, article, quantity, price, remark = line.split(" | ")
    amount, unit = quantity.split(" ", 1)
    cents = int(price.replace(".", ""))
    return Lot(int(number), article, int(amount), unit, cents, None if remark == "NULL" else remark)


def _careless() -> Policy:
    yield Call("list_files")
    yield Call("read_file", {"path": GUIDES[0]})
    yield Call("finish", {"statement": "Every lot has been entered and both files are written."})


def golden(instance: Instance) -> Reference:
    """The agent without a fault."""
    return Reference(agent=_policy(facts_of(instance), Habits()))


def defects(instance: Instance) -> Mapping[str, Reference]:
    """The agents with one bad habit each, and the one that does nothing."""
    facts = facts_of(instance)
    found = {name: Reference(agent=_policy(facts, habits)) for name, habits in HABITS.items()}
    return {"defective": Reference(agent=_careless), **found}


def _policy(facts: Facts, habits: Habits) -> Callable[[], Policy]:
    return lambda: Clerk(facts, habits).work()
