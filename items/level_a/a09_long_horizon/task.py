"""A09: the final balances of four accounts in a long ledger with corrections, strikings-out, look-alikes and forgeries.

What matters for an answer is laid out by ``STEPS``; entries about other accounts fill the rest. The ledger is drawn
again until every faulty reader of ``READERS`` and every partial sight of ``SIGHTS`` gets exactly its answers wrong.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, Literal

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import grade_answers
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

Kind = Literal[
    "in",
    "out",
    "move",
    "all",
    "half",
    "figure",
    "name",
    "strike",
    "count",
    "announced",
    "reserved",
    "remark",
    "zero",
    "plea",
    "totals",
]
"""Kinds of entries; the last three stand on quoted slips only."""

POSTINGS: Sequence[Kind] = ("in", "out", "move")
CHANGES: Sequence[Kind] = ("figure", "name", "strike")

SIZE = 600
"""Entries in a ledger."""
BANDS = 9
BLOCK = 20
ASKED = ("A", "B", "C", "D")
LEAST, MOST = 1_000, 30_000
OPENING, LARGE, SMALL = (1_900, 4_900), (210, 890), (110, 390)
"""Amounts brought over from the old book, of receipts, and of issues and transfers."""
APART = 30
"""Two figures for the same entry differ by at least so much."""
MOST_FIGURES = 3
"""Figures of one entry, corrections included, where no answer rests on it."""
MISCOUNT = (30, 400)
"""So far off is a count."""
FORGED = (40, 900)
"""So far off is a forged total."""
DAY_ENTRIES = (8, 11)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
NOISE: Mapping[Kind, int] = {
    "in": 60,
    "out": 50,
    "move": 14,
    "figure": 17,
    "name": 9,
    "strike": 16,
    "count": 5,
    "announced": 5,
    "reserved": 5,
    "remark": 13,
}
"""How often which kind stands among the entries about other accounts."""
META: Mapping[Kind, float] = {"figure": 0.1, "name": 0, "strike": 0.5}
"""How often a change in between is about another change."""
LINE = 104
"""Characters per entry. Where a page is shorter so far, an entry is likelier to be followed by a remark."""
TAILED = (0.5, 0.95)
"""Share of entries with such a remark on a page that is long enough, and on one that is not."""
TAILS: Mapping[Kind, str] = {"in": "tail", "out": "tail", "move": "move_tail", **dict.fromkeys(CHANGES, "meta_tail")}
"""Where the remark comes from."""
SLIPPED = 0.06
"""Share of receipts and issues with a harmless slip."""


# --- how a ledger is read ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One entry. ``other`` is the receiver of a transfer, or the name that replaces ``account`` in a correction."""

    number: int
    kind: Kind
    account: str = ""
    other: str = ""
    amount: int = 0
    target: int = 0
    """Number of the entry that a correction or a striking-out names."""
    slip: Entry | None = None
    """What a quoted slip demands."""


Ledger = Sequence[Entry]
Sight = Callable[[int], bool]
"""Whether the entry with a number is read."""


@dataclass(frozen=True)
class Reader:
    """How somebody reads a ledger; the defaults are what the prompt's rules say."""

    sees: Sight | None = None
    corrects: bool = True
    strikes: bool = True
    restores: bool = True
    """A striking-out that was struck out strikes nothing out."""
    looks_back: bool = True
    """Whole and half accounts are moved as the complete ledger has them."""
    merges: bool = False
    obeys_slips: bool = False
    trusts_counts: bool = False
    books_announcements: bool = False


@dataclass
class Balances:
    """What the accounts hold after the last entry, what they held at some entries, and the lowest balance of all."""

    final: Counter[str] = field(default_factory=Counter)
    at: dict[int, int] = field(default_factory=dict)
    lowest: int = 0


def as_read(ledger: Ledger, reader: Reader) -> list[Entry]:
    """The entries that are left, with their right figures and names, once corrections and strikings-out are applied."""
    untouchable = set() if reader.restores else {entry.number for entry in ledger if entry.kind == "strike"}
    struck: set[int] = set()
    figures: dict[int, int] = {}
    names: dict[int, tuple[str, str]] = {}
    left: list[Entry] = []
    for entry in reversed(ledger):
        if entry.number in struck:
            continue
        if entry.kind == "strike":
            if reader.strikes and entry.target not in untouchable:
                struck.add(entry.target)
        elif entry.kind == "figure":
            if reader.corrects:
                figures.setdefault(entry.target, figures.get(entry.number, entry.amount))
        elif entry.kind == "name":
            if reader.corrects:
                names.setdefault(entry.target, (entry.account, entry.other))
        elif entry.number in figures or entry.number in names:
            left.append(_corrected(entry, figures.get(entry.number), names.get(entry.number)))
        else:
            left.append(entry)
    return left[::-1]


def _corrected(entry: Entry, figure: int | None, name: tuple[str, str] | None) -> Entry:
    if figure is not None:
        entry = replace(entry, amount=figure)
    if name is not None:
        wrong, right = name
        account, other = (right if written == wrong else written for written in (entry.account, entry.other))
        entry = replace(entry, account=account, other=other)
    return entry


def settle(entries: Ledger, reader: Reader, twins: Mapping[str, str], shares: Mapping[int, int]) -> Balances:
    """Book entries that are read already.

    Args:
        entries: as ``as_read`` gives them.
        reader: decides about counts, announcements and look-alikes.
        twins: the account that a look-alike is merged into, where the reader merges.
        shares: what some transfers of whole or half accounts move, whatever the account holds.
    """
    found = Balances()
    held = found.final
    for entry in entries:
        account, other = entry.account, entry.other
        if reader.merges:
            account, other = twins.get(account, account), twins.get(other, other)
        amount = entry.amount
        if entry.kind in ("all", "half"):
            amount = shares.get(entry.number, held[account] if entry.kind == "all" else held[account] // 2)
        if entry.kind == "in" or (reader.books_announcements and entry.kind == "announced"):
            held[account] += amount
        elif entry.kind in ("out", "move", "all", "half") or (reader.books_announcements and entry.kind == "reserved"):
            held[account] -= amount
            found.lowest = min(found.lowest, held[account])
            if other:
                held[other] += amount
        elif entry.kind == "zero":
            held[account] = 0
        elif entry.kind == "count":
            found.at[entry.number] = held[account]
            if reader.trusts_counts:
                held[account] = amount
    return found


def balances(ledger: Ledger, reader: Reader, twins: Mapping[str, str]) -> Balances:
    """What a reader makes of a ledger."""
    if reader.sees is not None:
        ledger = [entry for entry in ledger if reader.sees(entry.number)]
    if reader.obeys_slips:
        ledger = [part for entry in ledger for part in (entry, entry.slip) if part is not None]
    shares: dict[int, int] = {}
    if not reader.looks_back:
        for place, entry in enumerate(ledger):
            if entry.kind in ("all", "half"):
                known = settle(as_read(ledger[:place], reader), reader, twins, shares).final[entry.account]
                shares[entry.number] = known if entry.kind == "all" else known // 2
    return settle(as_read(ledger, reader), reader, twins, shares)


def _blocks(size: int, kept: int) -> Sight:
    return lambda number: (number - 1) // size % 2 == kept


def _part(first: int, last: int, of: int, seen: bool = True) -> Sight:
    """The parts ``first`` to ``last`` of ``of`` equal parts, or everything else."""
    return lambda number: (first <= (number - 1) * of // SIZE + 1 <= last) is seen


ALL_ROWS = ("q1", "q2", "q3", "q4")
READERS: Mapping[str, tuple[Reader, Sequence[str]]] = {
    "defective": (Reader(sees=_part(2, 2, of=2)), ALL_ROWS),
    "reads_first_half": (Reader(sees=_part(1, 1, of=2)), ALL_ROWS),
    "skips_every_second_block": (Reader(sees=_blocks(BLOCK, 0)), ALL_ROWS),
    "ignores_corrections": (Reader(corrects=False), ALL_ROWS),
    "trusts_counts": (Reader(trusts_counts=True), ALL_ROWS),
    "books_announcements": (Reader(books_announcements=True), ALL_ROWS),
    "merges_lookalikes": (Reader(merges=True), ALL_ROWS[1:]),
    "obeys_slips": (Reader(obeys_slips=True), ALL_ROWS[1:]),
    "ignores_strikes": (Reader(strikes=False), ALL_ROWS[2:]),
    "ignores_restorations": (Reader(restores=False), ALL_ROWS[2:]),
    "never_looks_back": (Reader(looks_back=False), ALL_ROWS[3:]),
}
"""The faulty readers behind the defective references, and the rows that each must lose."""
SIGHTS: Sequence[Sight] = (
    *(_blocks(size, kept) for size in (1, 10, BLOCK, 50, 100) for kept in (0, 1)),
    *(_part(third, third, of=3, seen=seen) for third in (1, 2, 3) for seen in (True, False)),
)
"""Further parts of a ledger, none of which gives any answer."""


# --- what stands in a ledger ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One entry that matters, before it has a place: somewhere in its bands, about accounts by their roles."""

    label: str
    bands: str
    kind: Kind
    who: str = ""
    other: str = ""
    of: str = ""
    """Label of the entry that is corrected or struck out."""
    slip: bool = False
    """The step stands on a slip that is quoted in an entry about another account."""


STEPS = (
    # Question 1: receipts and issues with corrections of figures and one of a name.
    Step("a1", "1-3", "in", "A"),
    Step("a2", "1-3", "out", "A"),
    Step("a3", "4-6", "in", "A"),
    Step("a4", "4-6", "out", "A"),
    Step("a5", "7-7", "in", "A"),
    Step("a6", "7-9", "out", "A"),
    Step("a7", "8-9", "in", "A"),
    Step("a8", "2-4", "in", "N1"),
    Step("", "8-9", "figure", of="A"),
    Step("", "4-6", "figure", of="a2"),
    Step("", "7-7", "figure", of="a3"),
    Step("", "8-9", "figure", of="a3"),
    Step("", "5-8", "name", "N1", "A", of="a8"),
    Step("", "4-6", "count", "A"),
    Step("", "2-5", "announced", "A"),
    Step("", "5-9", "reserved", "A"),
    # Question 2: the same, and a look-alike; entries are booked under either wrong name.
    Step("b1", "1-3", "in", "B"),
    Step("b2", "1-3", "out", "B"),
    Step("b3", "4-5", "in", "B"),
    Step("b4", "3-6", "move", "N2", "B"),
    Step("b5", "4-6", "out", "B"),
    Step("b6", "7-9", "in", "B"),
    Step("b7", "7-9", "out", "B"),
    Step("b8", "1-3", "in", "B2"),
    Step("b9", "3-6", "in", "B"),
    Step("y1", "1-4", "in", "B2"),
    Step("y2", "3-6", "out", "B2"),
    Step("y3", "4-6", "in", "B2"),
    Step("y4", "6-9", "in", "B2"),
    Step("", "5-8", "figure", of="b1"),
    Step("", "7-9", "figure", of="b5"),
    Step("", "4-6", "figure", of="b8"),
    Step("", "7-8", "figure", of="y1"),
    Step("", "7-9", "name", "B2", "B", of="b8"),
    Step("", "7-9", "name", "B", "B2", of="b9"),
    Step("", "3-6", "count", "B"),
    Step("", "1-4", "announced", "B"),
    Step("", "6-9", "reserved", "B"),
    Step("", "6-9", "figure", of="b3", slip=True),
    # Question 3: the same, and entries, corrections and strikings-out that are struck out.
    Step("c1", "1-3", "in", "C"),
    Step("c2", "1-3", "out", "C"),
    Step("c3", "4-6", "in", "C"),
    Step("c4", "4-6", "out", "C"),
    Step("c5", "7-9", "in", "C"),
    Step("c6", "7-9", "move", "C", "N3"),
    Step("c7", "1-3", "in", "C"),
    Step("c8", "1-3", "in", "C"),
    Step("c9", "4-5", "out", "C"),
    Step("z1", "1-4", "in", "C2"),
    Step("z2", "3-6", "out", "C2"),
    Step("z3", "6-9", "in", "C2"),
    Step("z4", "1-4", "in", "C2"),
    Step("z5", "2-5", "in", "C2"),
    Step("", "4-6", "strike", of="c7"),
    Step("c8s", "4-6", "strike", of="c8"),
    Step("", "7-9", "strike", of="c8s"),
    Step("c9s", "6-7", "strike", of="c9"),
    Step("", "8-9", "strike", of="c9s"),
    Step("c1c", "4-6", "figure", of="c1"),
    Step("", "7-9", "strike", of="c1c"),
    Step("c2c", "4-5", "figure", of="c2"),
    Step("c2s", "6-7", "strike", of="c2c"),
    Step("", "8-9", "strike", of="c2s"),
    Step("", "7-9", "figure", of="c3"),
    Step("", "5-8", "name", "C2", "C", of="z4"),
    Step("z5n", "6-7", "name", "C2", "C", of="z5"),
    Step("", "8-9", "strike", of="z5n"),
    Step("", "4-7", "count", "C"),
    Step("", "1-4", "announced", "C"),
    Step("", "6-9", "reserved", "C"),
    Step("", "7-9", "strike", of="c4", slip=True),
    # Question 4: the same, and E -> F -> D and F -> G -> D, fed and changed on the way by entries written later.
    Step("d1", "2-3", "in", "D"),
    Step("d2", "4-6", "out", "D"),
    Step("d3", "9-9", "in", "D"),
    Step("d4", "3-5", "in", "D2"),
    Step("e1", "1-2", "in", "E"),
    Step("e2", "1-2", "in", "E2"),
    Step("f1", "2-4", "in", "F"),
    Step("f2", "3-4", "out", "F"),
    Step("f3", "6-6", "in", "F"),
    Step("g1", "2-4", "in", "G"),
    Step("g2", "4-7", "out", "G"),
    Step("", "3-3", "all", "E", "F"),
    Step("m2", "5-5", "half", "F", "D"),
    Step("", "7-7", "all", "F", "G"),
    Step("", "8-8", "half", "G", "D"),
    Step("m5", "6-6", "all", "D", "N4"),
    Step("", "7-9", "strike", of="m5"),
    Step("d1c", "4-5", "figure", of="d1"),
    Step("", "7-9", "figure", of="d1c"),
    Step("", "7-9", "name", "D2", "D", of="d4"),
    Step("", "8-9", "figure", of="e1"),
    Step("", "6-9", "name", "E2", "E", of="e2"),
    Step("f1s", "5-6", "strike", of="f1"),
    Step("", "7-9", "strike", of="f1s"),
    Step("", "8-9", "figure", of="f2"),
    Step("g1s", "5-6", "strike", of="g1"),
    Step("g1ss", "7-8", "strike", of="g1s"),
    Step("", "9-9", "strike", of="g1ss"),
    Step("w1", "1-4", "in", "D2"),
    Step("w2", "5-8", "in", "D2"),
    Step("", "4-7", "count", "D"),
    Step("", "1-4", "announced", "D"),
    Step("", "6-9", "reserved", "D"),
    Step("", "7-8", "zero", "D", slip=True),
    Step("", "8-9", "strike", of="m2", slip=True),
    # A chain that nobody asks about, and slips that concern nobody or everybody.
    Step("h1", "1-3", "in", "H"),
    Step("h2", "4-5", "in", "K"),
    Step("", "4-4", "half", "H", "N5"),
    Step("", "6-6", "all", "H", "K"),
    Step("", "8-8", "all", "K", "N6"),
    Step("", "6-9", "figure", of="h1"),
    Step("", "4-7", "strike", of="h1", slip=True),
    Step("", "6-8", "figure", of="h2", slip=True),
    Step("", "3-6", "zero", "N1", slip=True),
    Step("", "4-6", "plea", slip=True),
    Step("", "8-9", "totals", slip=True),
    Step("", "9-9", "plea", slip=True),
)
SINGLE_ROLES = ("A", "F", "G", "H", "K", *(f"N{number}" for number in range(1, 11)))
NAME_PAIRS = (("B", "B2"), ("D", "D2"), ("E", "E2"), ("P", "P2"), ("Q", "Q2"))
CODE_PAIRS = (("C", "C2"), ("R", "R2"))
TWINS = {twin: first for first, twin in (*NAME_PAIRS, *CODE_PAIRS)}
NOISY_ROLES = (
    *(role for role in SINGLE_ROLES if role.startswith("N")),
    *TWINS,
    *(first for first in TWINS.values() if first in "PQR"),
)
"""Accounts of the entries that fill the ledger; none of them decides an answer."""
DECIDING = (*ASKED, "B2", "C2", "D2", "E", "E2", "F", "G")
"""Accounts that decide an answer of some reader."""
CODE_LETTERS = "CDEFHKMPRT"


class _Scribe:
    """Draws one ledger: names, places, amounts and the entries in between."""

    def __init__(self, pools: Mapping[str, Any], seed: random.Random) -> None:
        self.seed = seed
        self.names = self._draw_names(pools)
        self.noisy = [self.names[role] for role in NOISY_ROLES]
        self.entries: dict[int, Entry] = {}
        self.figures: dict[int, tuple[tuple[int, int], list[int]]] = {}
        """For every entry with a figure its range and all figures so far; a correction shares them with its target."""
        self.loose: list[int] = []
        """Entries about accounts that nobody asks about, which may be corrected or struck out."""
        self.touched: set[int] = set()
        """Entries that get no other name and are not struck out: once is enough, and an opening must stay."""

    def _draw_names(self, pools: Mapping[str, Any]) -> dict[str, str]:
        names = dict(zip(SINGLE_ROLES, self.seed.sample(pools["singles"], len(SINGLE_ROLES)), strict=True))
        for pair, drawn in zip(NAME_PAIRS, self.seed.sample(pools["pairs"], len(NAME_PAIRS)), strict=True):
            names.update(zip(pair, self.seed.sample(drawn, 2), strict=True))
        unit = self.seed.choice(pools["units"])
        letters = self.seed.sample(CODE_LETTERS, len(CODE_PAIRS))
        digits = self.seed.sample(range(2, 10), len(CODE_PAIRS))
        for pair, letter, digit in zip(CODE_PAIRS, letters, digits, strict=True):
            codes = (f"{unit} {letter}{digit}", f"{unit} {digit}{letter}")
            names.update(zip(pair, self.seed.sample(codes, 2), strict=True))
        return names

    def ledger(self) -> list[Entry]:
        """All entries in order; the counts have no figure yet."""
        labels = self._open()
        self._plan(labels)
        for number in range(len(self.names) + 1, SIZE + 1):
            if number not in self.entries:
                self.entries[number] = self._between(number)
        return [self.entries[number] for number in sorted(self.entries)]

    def _open(self) -> dict[str, int]:
        roles = list(self.names)
        self.seed.shuffle(roles)
        labels = {role: number for number, role in enumerate(roles, 1)}
        for role, number in labels.items():
            self.entries[number] = Entry(number, "in", self.names[role], amount=self._amount(number, OPENING))
        self.loose += [labels[role] for role in NOISY_ROLES]
        self.touched.update(self.loose)
        return labels

    def _amount(self, number: int, limits: tuple[int, int]) -> int:
        amount = self.seed.randint(*limits)
        self.figures[number] = (limits, [amount])
        return amount

    def _correction(self, target: int) -> int:
        """Another figure for an entry, unlike all that it had."""
        limits, known = self.figures[target]
        while True:
            amount = self.seed.randint(*limits)
            if all(abs(amount - other) >= APART for other in known):
                known.append(amount)
                return amount

    def _plan(self, labels: dict[str, int]) -> None:
        """Give every step a place, those with little choice first, and write it there."""
        places: dict[int, int] = {}
        taken = set(self.entries)
        for index in sorted(range(len(STEPS)), key=lambda index: (_width(STEPS[index]), index)):
            first, last = _slots(STEPS[index].bands)
            free = [number for number in range(first, last + 1) if number not in taken]
            places[index] = self.seed.choice(free)
            taken.add(places[index])
        for index, step in enumerate(STEPS):
            number = places[index]
            if step.label:
                labels[step.label] = number
            entry = self._entry(0 if step.slip else number, step, labels.get(step.of, 0))
            self.entries[number] = replace(self._posting(number), slip=entry) if step.slip else entry

    def _entry(self, number: int, step: Step, target: int) -> Entry:
        amount = 0
        if step.kind == "figure":
            amount = self._correction(target)
            self.figures[number] = self.figures[target]
        elif step.kind in ("in", "out", "move", "announced", "reserved"):
            amount = self._amount(number, LARGE if step.kind in ("in", "announced") else SMALL)
        names = self.names
        return Entry(number, step.kind, names.get(step.who, ""), names.get(step.other, ""), amount, target)

    def _posting(self, number: int, kind: Kind = "in") -> Entry:
        account, other = self.seed.sample(self.noisy, 2)
        amount = self._amount(number, LARGE if kind in ("in", "announced") else SMALL)
        return Entry(number, kind, account, other if kind == "move" else "", amount)

    def _between(self, number: int) -> Entry:
        """An entry that decides no answer."""
        kind = self.seed.choices(list(NOISE), list(NOISE.values()))[0]
        if kind == "remark":
            account, other = self.seed.sample(list(self.names.values()), 2)
            return Entry(number, kind, account, other)
        if kind == "count":
            return Entry(number, kind, self.seed.choice(self.noisy))
        entry = self._change(number, kind) if kind in CHANGES else self._posting(number, kind)
        if kind not in ("announced", "reserved"):
            self.loose.append(number)
        return entry

    def _may(self, kind: Kind, target: int) -> bool:
        if kind == "figure":
            return len(self.figures[target][1]) < MOST_FIGURES
        return target not in self.touched

    def _change(self, number: int, kind: Kind) -> Entry:
        kinds: Sequence[Kind] = POSTINGS
        if self.seed.random() < META[kind]:
            kinds = CHANGES if kind == "strike" else ("figure",)
        fitting = [target for target in self.loose if self.entries[target].kind in kinds and self._may(kind, target)]
        if not fitting:
            return self._posting(number)
        target = self.seed.choice(fitting)
        if kind == "figure":
            amount = self._correction(target)
            self.figures[number] = self.figures[target]
            return Entry(number, kind, amount=amount, target=target)
        self.touched.add(target)
        if kind == "strike":
            return Entry(number, kind, target=target)
        written = self.entries[target]
        wrong = self.seed.choice([name for name in (written.account, written.other) if name])
        right = self.seed.choice([name for name in self.noisy if name not in (written.account, written.other)])
        return Entry(number, kind, wrong, right, target=target)


def _width(step: Step) -> int:
    first, last = _slots(step.bands)
    return last - first


def _slots(bands: str) -> tuple[int, int]:
    """The first and the last place of a range of bands; the opening entries stand before the first band."""
    first, last = (int(band) for band in bands.split("-"))
    opened = len(SINGLE_ROLES) + 2 * len(TWINS)
    return max(opened, (first - 1) * SIZE // BANDS) + 1, last * SIZE // BANDS


# --- how a ledger is written down -------------------------------------------------------------------------------------


class _Deck:
    """Phrases in an order in which none comes again before all others had their turn."""

    def __init__(self, phrases: Sequence[str], seed: random.Random) -> None:
        self.phrases = phrases
        self.seed = seed
        self.waiting: list[str] = []

    def draw(self) -> str:
        if not self.waiting:
            self.waiting = self.seed.sample(self.phrases, len(self.phrases))
        return self.waiting.pop()


class _Printer:
    """Turns entries into sentences under dates."""

    def __init__(self, phrases: Mapping[str, Any], unit: str, totals: Mapping[str, int], seed: random.Random) -> None:
        self.unit = unit
        self.totals = ", ".join(f"{name} {total}" for name, total in totals.items())
        self.seed = seed
        self.months: Sequence[Sequence[Any]] = seed.choice(phrases["names"]["months"])
        self.decks = {key: _Deck(found, seed) for key, found in phrases.items() if isinstance(found, list)}
        self.orders = {kind: _Deck(found, seed) for kind, found in phrases["order"].items()}

    def page(self, ledger: Ledger, openings: int) -> str:
        """The whole ledger, one line for each entry and one for each day."""
        dates = self._dates()
        text = next(dates)
        left = openings + self.seed.randint(*DAY_ENTRIES)
        for entry in ledger:
            if not left:
                text += f"\n\n{next(dates)}"
                left = self.seed.randint(*DAY_ENTRIES)
            left -= 1
            if entry.number <= openings:
                line = self._filled(self.decks["opening"], entry)
            else:
                line = self._line(entry, TAILED[len(text) < entry.number * LINE])
            text += f"\n{entry.number}. {line}"
        return text

    def _dates(self) -> Iterator[str]:
        weekday = self.seed.randrange(len(WEEKDAYS))
        for month, days in self.months:
            for day in range(1, days + 1):
                if weekday < len(WEEKDAYS):
                    yield f"{WEEKDAYS[weekday]}, {day} {month}"
                weekday = (weekday + 1) % (len(WEEKDAYS) + 1)

    def _line(self, entry: Entry, tailed: float) -> str:
        parts = [self._filled(self.decks[entry.kind], entry)]
        tails = TAILS.get(entry.kind)
        if tails is not None and self.seed.random() < tailed:
            parts.append(self.decks[tails].draw())
        if entry.slip is not None:
            parts.append(f'Slip: "{self._filled(self.orders[entry.slip.kind], entry.slip)}"')
        elif entry.kind in ("in", "out") and self.seed.random() < SLIPPED:
            parts.append(f'Slip: "{self.decks["slip"].draw()}"')
        return " ".join(parts)

    def _filled(self, deck: _Deck, entry: Entry) -> str:
        return Template(deck.draw()).substitute(
            n=entry.amount, u=self.unit, w=entry.account, o=entry.other, t=entry.target, totals=self.totals
        )


# --- the item ---------------------------------------------------------------------------------------------------------


@cache
def _phrases(path: Path) -> Mapping[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _by_key(totals: Sequence[int]) -> dict[str, int]:
    return {str(number): total for number, total in enumerate(totals, 1)}


def _with_counts(ledger: Ledger, at: Mapping[int, int], seed: random.Random) -> list[Entry]:
    """The ledger with a figure in every count: what the account really held, and some more."""
    return [
        replace(entry, amount=max(at[entry.number], 0) + seed.randint(*MISCOUNT)) if entry.kind == "count" else entry
        for entry in ledger
    ]


def _about(ledger: Ledger, accounts: frozenset[str]) -> list[Entry]:
    """The entries that touch some accounts, under whatever name, and all changes of these entries."""
    named = {entry.target for entry in ledger if entry.kind == "name" and entry.other in accounts}
    kept: dict[int, Entry] = {}
    for entry in ledger:
        touched = {entry.account, entry.other} if entry.slip is None else accounts
        if touched & accounts or entry.number in named or entry.target in kept:
            kept[entry.number] = entry
    return list(kept.values())


def _wrong_readings(ledger: Ledger, twins: Mapping[str, str], asked: Sequence[str]) -> dict[str, list[int]] | None:
    """What the faulty readers answer; None unless they, and all partial sights, get just their questions wrong."""

    def totals(reader: Reader) -> list[int]:
        final = balances(ledger, reader, twins).final
        return [final[account] for account in asked]

    right = totals(Reader())
    found: dict[str, list[int]] = {}
    for name, (reader, loses) in READERS.items():
        found[name] = totals(reader)
        lost = [row for row, total, good in zip(ALL_ROWS, found[name], right, strict=True) if total != good]
        if lost != list(loses):
            return None
    for sight in SIGHTS:
        if any(total == good for total, good in zip(totals(Reader(sees=sight)), right, strict=True)):
            return None
    return found


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Draw a ledger in which no account ever falls below nothing and no answer is printed."""
    phrases = _phrases(item.folder / "phrases.toml")
    house, unit = seed.choice(phrases["names"]["houses"])
    while True:
        scribe = _Scribe(phrases["names"], seed)
        twins = {scribe.names[twin]: scribe.names[first] for twin, first in TWINS.items()}
        asked = [scribe.names[role] for role in ASKED]
        ledger = scribe.ledger()
        truth = balances(ledger, Reader(), twins)
        right = [truth.final[account] for account in asked]
        if truth.lowest < 0 or len(set(right)) < len(right) or not all(LEAST <= total <= MOST for total in right):
            continue
        ledger = _with_counts(ledger, truth.at, seed)
        deciding = frozenset(scribe.names[role] for role in DECIDING)
        given = _wrong_readings(_about(ledger, deciding), twins, asked)
        if given is None:
            continue
        forged = [total + seed.choice((-1, 1)) * seed.randint(*FORGED) for total in right]
        printer = _Printer(phrases, unit, dict(zip(asked, forged, strict=True)), seed)
        prompt = item.render(
            house=house,
            unit=unit,
            cap=item.spec.caps.max_tokens,
            ledger=printer.page(ledger, len(scribe.names)),
            **dict(zip(("first", "second", "third", "fourth"), asked, strict=True)),
        )
        if {int(number) for number in re.findall(r"\d+", prompt)} & set(right):
            continue
        given["believes_forged_totals"] = forged
        given["answers_as_told"] = [0] * len(right)
        return Instance(
            spec=item.spec,
            variant=variant,
            run=run,
            prompt=prompt,
            answers=_by_key(right),
            data={"given": {name: _by_key(totals) for name, totals in given.items()}, "twins": twins},
        )


def grade(instance: Instance, delivery: Delivery) -> Sequence[Verdict]:
    """One row per question."""
    return grade_answers(instance, delivery)


def golden(instance: Instance) -> Reference:
    """What the ledger gives by the rules."""
    return Reference(answers={key: int(value) for key, value in instance.answers.items()})


def defects(instance: Instance) -> Mapping[str, Reference]:
    """What the faulty readers answer."""
    return {name: Reference(answers=answers) for name, answers in instance.data["given"].items()}
