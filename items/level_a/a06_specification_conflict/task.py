"""A06: rules with three planted contradictions, to be declared, and code that follows the rule of precedence."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import combinations
from string import Template
from typing import Any, cast

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.hidden_tests import Case, clipped, judge, verdict
from pytest_llmbench.sandbox.calls import open_worker
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

CONFLICTS = "conflicts.txt"
CODE = "settlement.py"
CALL = "settle"
MOST_LINES = 5
"""A conflicts file with more lines counts as empty: fewer than the topics, so that declaring all of them is void."""
DRAWN = 14
"""Loads that are drawn, beside those that the file of loads describes."""
ORDERS = 5
"""Orders that count; one more, the last in time, has been revoked."""
LINE_CHARS = 80
AMENDED = 0.45
"""Share of the other sections that an order has amended."""
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
TIMES = {2: "twice", 3: "three times"}

TOPICS: Mapping[str, tuple[str, ...]] = {
    "plain": ("weighing", "refusal"),
    "converted": ("minimum", "free"),
    "boundary": ("sorting", "rebate", "heavy"),
}
"""The points that two sections, p and q, rule on, by the row of their kind. One of each kind is planted, the others
look alike and are none."""

SETTLED = {
    "weighing": "weighing",
    "refusal": "refusal",
    "minimum": "minimum",
    "free": "free",
    "sorting": "sorted_from",
    "rebate": "rebate_from",
    "heavy": "heavy_from",
}
"""The field of ``Rules`` that a topic settles."""

EXCEPTIONS = (
    ("basic", "reduced"),
    ("reduced", "heavy_p"),
    ("reduced", "heavy_q"),
    ("standing", "capped"),
    ("standing", "capped_q"),
    ("capped", "uncapped"),
    ("rebate", "limited"),
    ("rounding", "floored"),
)
"""Sections and the exceptions to them that call themselves one."""

RESTATED = (("capped", "capped_q"), ("limit_p", "limit_q"))
"""Sections that always state the same, in other units."""

EDITS = {
    "rounds_half_to_even": ("ROUND_HALF_UP", "ROUND_HALF_EVEN"),
    "syntax_error": ("    else:", "    else"),
    "missing_import": ("import decimal\n", ""),
}
"""Changes to the golden code that give defective ones."""

_DECLARATION = re.compile(r"CONFLICT\s+(\d{1,3}\.\d{1,3})\s+(\d{1,3}\.\d{1,3})", re.ASCII | re.IGNORECASE)
_TERM = re.compile(r"[a-z_]+|[+-]\d+")

Chapter = tuple[str, Sequence[tuple[str, str]]]
"""A title and, by name, the text of every section."""


@dataclass(frozen=True)
class Rules:
    """What ``settle`` needs to know, without contradictions."""

    bands: tuple[str, str, str]
    rates: tuple[int, int, int]
    reduced: str
    capped: str
    step: int
    first_to: int
    second_to: int
    top: int
    minimum: int
    percent: int
    heavy_from: int
    sorted_from: int
    sorting: int
    portion: int
    free: int
    slot_minutes: int
    standing: int
    most_slots: int
    rebate_from: int
    rebate: int
    plain: str
    most_weighings: int
    weighing: int
    refusal: int


@dataclass(frozen=True)
class Load:
    """The arguments of one call, in their order."""

    gross: int
    tare: int
    foreign: int
    stay: int
    supplier: str
    earlier: int


@dataclass(frozen=True)
class Book:
    """The rules of one instance as a document: where its sections stand, when they were amended, what they state."""

    rules: Rules
    """With every contradiction resolved."""
    stated: Mapping[str, tuple[int, int]]
    """What the sections p and q of a topic state."""
    planted: Mapping[str, str]
    """The topic of the contradiction, by row."""
    numbers: Mapping[str, str]
    """Number of a section by its name, in the order of the document."""
    orders: Mapping[str, tuple[int, ...]]
    """The orders that amended a section, by their place in time."""
    revoked: Collection[str]
    """The sections that the last order amended, which has been revoked."""
    tie: str
    """``lower`` or ``higher``: which of two sections with the same date prevails."""

    def pair(self, topic: str) -> tuple[str, str]:
        """The numbers of a topic's two sections."""
        return self.numbers[f"{topic}_p"], self.numbers[f"{topic}_q"]

    def lower(self, topic: str) -> int:
        """0 where section p of a topic stands before section q, otherwise 1."""
        order = list(self.numbers)
        return 0 if order.index(f"{topic}_p") < order.index(f"{topic}_q") else 1

    def prevails(self, topic: str, date: Callable[[Sequence[int]], int] = max) -> int:
        """0 where section p of a topic prevails, 1 where q does; ``date`` picks a section's date of its orders."""
        one, two = (date(self.orders[f"{topic}_{side}"] or (-1,)) for side in "pq")
        if one != two:
            return 0 if one > two else 1
        return self.lower(topic) if self.tie == "lower" else 1 - self.lower(topic)

    def unrevoked(self) -> Book:
        """The same book for who overlooks that the last order has been revoked."""
        counted = {name: (*at, ORDERS) if name in self.revoked else at for name, at in self.orders.items()}
        return replace(self, orders=counted, revoked=())

    def resolved(self, side: Callable[[str], int]) -> Rules:
        """The rules where ``side`` says of each planted topic whether p (0) or q (1) prevails."""
        settled: dict[str, Any] = {SETTLED[t]: self.stated[t][side(t)] for t in self.planted.values()}
        return replace(self.rules, **settled)

    def wrong_on(self, topic: str) -> Rules:
        """The rules where the wrong section of one topic prevails."""
        return self.resolved(lambda other: self.prevails(other) ^ (other == topic))


def half_up(numerator: int, denominator: int) -> int:
    """A quotient of natural numbers, rounded to the nearest whole, a half up."""
    return (2 * numerator + denominator) // (2 * denominator)


def rounded_up(number: int, step: int) -> int:
    """The least multiple of ``step`` that is not below ``number``."""
    return -(-number // step) * step


def settle(rules: Rules, load: Load) -> dict[str, int | str | None]:
    """The settlement of a load, as the delivered function must return it."""
    net = (load.gross - load.tare) // rules.step * rules.step
    due = dict.fromkeys(("basic", "rebate", "sorting", "standing", "weighing", "refusal"), 0)
    if load.foreign > rules.top:
        due["refusal"] = rules.refusal
        return {"net": net, "band": None, **due, "total": rules.refusal}
    band = (load.foreign > rules.first_to) + (load.foreign > rules.second_to)
    to_sort = load.foreign >= rules.sorted_from
    share = rules.percent if load.supplier == rules.reduced and net < rules.heavy_from else 100
    due["basic"] = half_up(max(net, rules.minimum) * rules.rates[band] * share, 100 * 100)
    if to_sort:
        due["sorting"] = half_up(rounded_up(net, rules.portion) * rules.sorting, 100)
    due["weighing"] = rules.weighing
    if load.earlier >= rules.rebate_from - 1:
        due["rebate"] = (due["basic"] + due["sorting"]) * rules.rebate // 100
        if load.supplier == rules.plain:
            due["rebate"] = min(due["rebate"], rules.most_weighings * due["weighing"])
    slots = rounded_up(max(load.stay - rules.free, 0), rules.slot_minutes) // rules.slot_minutes
    if load.supplier == rules.capped and not to_sort:
        slots = min(slots, rules.most_slots)
    due["standing"] = rules.standing * slots
    total = sum(due.values()) - 2 * due["rebate"]
    return {"net": net, "band": rules.bands[band], **due, "total": total}


def half_sorted(rules: Rules) -> int:
    """A net weight whose sorting charge is an even number of cents and a half; portion / 50 and rate are odd."""
    weights = range(rules.portion, 100 * rules.portion, rules.portion)
    weight = next(weight for weight in weights if weight * rules.sorting % 200 == 50)
    return weight // rules.step * rules.step


def part_rebated(rules: Rules) -> int:
    """A net weight whose rebate in the first band is by half a cent or more above a whole one."""
    weights = range(5000, 9000, rules.step)
    return next(net for net in weights if half_up(net * rules.rates[0], 100) * rules.rebate % 100 >= 50)


def twice_rounded(rules: Rules) -> int:
    """A net weight whose rebate in the first band is another if the basic charge is not rounded before."""
    weights = range(5000, 50_000, rules.step)
    return next(
        net
        for net in weights
        if half_up(net * rules.rates[0], 100) * rules.rebate // 100 != net * rules.rates[0] * rules.rebate // 10_000
    )


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Draw names and figures, the order of the sections, the contradictions and which section of each prevails."""
    chapters = _shuffled(seed, tomllib.loads(item.read("specification.toml"))["chapters"])
    names = _names(seed, item.spec.data)
    figures = _figures(seed)
    book = _book(seed, chapters, names, figures)
    numbers = {f"at_{name}": number for name, number in book.numbers.items()}
    texts = {**names, **figures, **_worded(book, names, figures), **_dated(seed, book), **numbers}
    absent = [f"{chapter}.{seed.randrange(1, 5)}" for chapter in seed.sample(range(20, 40), 2)]
    prompt = item.render(
        **{name: texts[name] for name in ("at_precedence", "plain", "reduced", "capped")},
        last=len(chapters),
        absent_1=absent[0],
        absent_2=absent[1],
        rules=_document(chapters, texts),
    )
    data = {"item": item, "book": book, "texts": texts, "loads": _loads(seed, item, book, names)}
    return Instance(item.spec, variant, run, prompt, data=data, holds={CONFLICTS: ".", CODE: f"def {CALL}"})


def _shuffled(seed: random.Random, document: Sequence[Mapping[str, Any]]) -> list[Chapter]:
    """The chapters, and their sections, in a new order; the first and the last chapter stay as they are."""
    first, *middle, last = [(str(chapter["title"]), list(chapter["sections"].items())) for chapter in document]
    seed.shuffle(middle)
    for _, sections in middle:
        seed.shuffle(sections)
    return [first, *middle, last]


def _document(chapters: Sequence[Chapter], texts: Mapping[str, object]) -> str:
    """The rules as the prompt shows them."""
    lines: list[str] = []
    for chapter, (title, sections) in enumerate(chapters, 1):
        lines.append(f"{chapter}. {title}")
        lines += [f"{chapter}.{at} {Template(text).substitute(texts)}" for at, (_, text) in enumerate(sections, 1)]
    return "\n\n".join(lines)


def _names(seed: random.Random, data: Mapping[str, Any]) -> dict[str, str]:
    small, large = seed.choice(data["units"])
    bands = dict(zip(("band_1", "band_2", "band_3"), seed.choice(data["bands"]), strict=True))
    drawn = {key: seed.choice(data[key]) for key in ("works", "waste", "slot", "plain", "reduced", "capped")}
    return {"small": small, "large": large, **bands, **drawn}


def _figures(seed: random.Random) -> dict[str, int]:
    """Figures that stand in one section only, or from which others follow."""
    first_to, second_to = seed.randrange(11, 24), seed.randrange(35, 65, 5)
    rate_1 = 10 * seed.randrange(24, 33) + seed.choice((1, 3, 7, 9))
    rate_2 = rate_1 + 5 * seed.randrange(12, 26) + 1
    opening = seed.randrange(300, 425, 5)
    slot_minutes, shift, step = seed.choice((12, 15, 20)), seed.choice((360, 420, 480)), seed.choice((10, 20))
    return {
        "litres": seed.choice((80, 100)),
        "density": seed.choice((250, 300, 350, 400, 450)),
        "larges": seed.choice((10, 12, 14)),
        "whole": seed.choice((1, 2)),
        "rest": seed.randrange(2, 7),
        "slot_minutes": slot_minutes,
        "shift_slots": shift // slot_minutes,
        "opening": opening,
        "closing": opening + 2 * shift,
        "free_slots": seed.randrange(3, 6),
        "step": step,
        "first_to": first_to,
        "second_from": first_to + 1,
        "second_to": second_to,
        "third_from": second_to + 1,
        "top": seed.randrange(100, 150, 10),
        "sample": seed.choice((2, 3, 4, 5)),
        "rate_1": rate_1,
        "rate_2": rate_2,
        "rate_3": rate_2 + 5 * seed.randrange(20, 40) + 2,
        "percent": seed.choice((81, 83, 85, 87, 89, 91)),
        "above": 5 * seed.randrange(1, step // 5),
        "below": 5 * seed.randrange(step // 5),
        "sorting": 10 * seed.randrange(12, 22) + seed.choice((1, 3, 7, 9)),
        "portion": seed.choice((50, 150)),
        "standing": seed.randrange(250, 460, 10),
        "most_slots": seed.randrange(3, 6),
        "rebate": seed.randrange(4, 10),
        "most_weighings": seed.choice(tuple(TIMES)),
        "origin": seed.randrange(2),
        "tested": seed.choice((6, 12, 18)),
        "degrees": seed.randrange(55, 80, 5),
        "keep_accepted": seed.choice((14, 21)),
        "keep_refused": seed.choice((60, 90)),
        "payment": seed.choice((20, 30)),
    }


def _stated(seed: random.Random, figures: Mapping[str, int], planted: Collection[str]) -> dict[str, tuple[int, int]]:
    """What the two sections of every topic state: the same, but for the planted ones."""
    step, small_kg = figures["step"], figures["litres"] * figures["density"] // 1000
    minimum = small_kg * (figures["larges"] * figures["whole"] + figures["rest"])
    free = figures["slot_minutes"] * figures["free_slots"]
    weighing, refusal = seed.randrange(380, 560, 10), seed.randrange(1400, 2600, 50)
    rebate, heavy = seed.randrange(7, 13), step * seed.randrange(4000 // step, 6000 // step)
    apart = {
        "weighing": (weighing, weighing + seed.choice((-90, -70, -40, 40, 70, 90))),
        "refusal": (refusal, refusal + seed.choice((-350, -200, -150, 150, 200, 350))),
        "minimum": (minimum + small_kg * seed.choice((-3, -2, -1, 1, 2, 3)), minimum),
        "free": (free + seed.choice((-10, -5, 5, 10)), free),
        "sorting": (figures["third_from"], figures["third_from"] + seed.choice((-1, 1))),
        "rebate": (rebate, rebate + seed.choice((-1, 1))),
        "heavy": (heavy, heavy + step * seed.choice((-1, 1))),
    }
    alike = {"minimum": minimum, "free": free}
    return {
        topic: values if topic in planted else (alike.get(topic, values[0]),) * 2 for topic, values in apart.items()
    }


def _book(
    seed: random.Random, chapters: Sequence[Chapter], names: Mapping[str, str], figures: Mapping[str, int]
) -> Book:
    """Choose what is planted, and which section of it prevails."""
    planted = {row: seed.choice(topics) for row, topics in TOPICS.items()}
    stated = _stated(seed, figures, set(planted.values()))
    rules = Rules(
        bands=(names["band_1"], names["band_2"], names["band_3"]),
        rates=(figures["rate_1"], figures["rate_2"], figures["rate_3"]),
        plain=names["plain"],
        reduced=names["reduced"],
        capped=names["capped"],
        **{name: figures[name] for name in Rules.__annotations__ if name in figures},
        **{field: stated[topic][0] for topic, field in SETTLED.items()},
    )
    numbers = {
        name: f"{chapter}.{place}"
        for chapter, (_, sections) in enumerate(chapters, 1)
        for place, (name, _) in enumerate(sections, 1)
    }
    undated = Book(rules, stated, planted, numbers, {}, (), seed.choice(("lower", "higher")))
    amendable = [name for _, sections in chapters[:-1] for name, _ in sections]
    book = replace(undated, orders=_amended(seed, undated, amendable))
    book = replace(book, revoked=_revoked(seed, book, amendable))
    return replace(book, rules=book.resolved(book.prevails))


def _amended(seed: random.Random, book: Book, amendable: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The orders by section. Of the contradictions one has two sections of the same date; one has a section that was
    amended before and after the other; and in at least one the date overrules what the numbers alone would say."""
    orders: dict[str, tuple[int, ...]] = dict.fromkeys(book.numbers, ())
    for name in amendable:
        if seed.random() < AMENDED:
            orders[name] = (seed.randrange(ORDERS),)
    same, later, again = seed.sample(sorted(book.planted.values()), len(book.planted))
    for topic, swapped in zip((later, again), seed.choice(((1, 0), (0, 1), (1, 1))), strict=True):
        side = book.lower(topic) ^ (book.tie == "higher") ^ swapped
        winner, loser = (f"{topic}_{'pq'[s]}" for s in (side, 1 - side))
        first, second, third = sorted(seed.sample(range(ORDERS), 3))
        if topic == again:
            orders[winner], orders[loser] = (first, third), (second,)
        else:
            orders[winner], orders[loser] = (third,), seed.choice(((), (second,)))
    orders[f"{same}_p"] = orders[f"{same}_q"] = (seed.randrange(ORDERS),)
    return orders


def _revoked(seed: random.Random, book: Book, amendable: Collection[str]) -> Collection[str]:
    """The sections of the order that was revoked: the weaker one of a contradiction among them, so that who overlooks
    this resolves it wrongly."""
    dated = [topic for topic in book.planted.values() if book.orders[f"{topic}_p"] != book.orders[f"{topic}_q"]]
    topic = seed.choice(dated)
    weaker = f"{topic}_{'qp'[book.prevails(topic)]}"
    aside = [name for name in amendable if name.rpartition("_")[0] not in book.planted.values()]
    return {weaker, *seed.sample(sorted(aside), 3)}


def _worded(book: Book, names: Mapping[str, str], figures: Mapping[str, int]) -> dict[str, object]:
    """What the sections of the topics state, in their words."""
    stated = book.stated
    whole = f"one {names['large']}" if figures["whole"] == 1 else f"two {names['large']}s"
    opens, closes = (f"{minutes // 60}:{minutes % 60:02}" for minutes in (figures["opening"], figures["closing"]))
    return {
        "weighing_p": stated["weighing"][0],
        "weighing_q": stated["weighing"][1],
        "refusal_p": stated["refusal"][0],
        "refusal_q": stated["refusal"][1],
        "minimum_p": stated["minimum"][0],
        "minimum_q": f"{whole} and {NUMBERS[figures['rest']]} {names['small']}s",
        "free_p": stated["free"][0],
        "free_q": NUMBERS[figures["free_slots"]],
        "sorted_grams": stated["sorting"][1] * figures["sample"],
        "rebate_p": stated["rebate"][0] - 1 + figures["origin"],
        "rebate_q": NUMBERS[stated["rebate"][1] - 1],
        "heavy_p": stated["heavy"][0] - figures["above"],
        "heavy_q": stated["heavy"][1] - figures["below"],
        "most_standing": figures["most_slots"] * figures["standing"],
        "rotting": f"{(1000 - figures['top'] - 1) / 10:.1f}",
        "times": TIMES[figures["most_weighings"]],
        "opens": opens,
        "closes": closes,
    }


def _dated(seed: random.Random, book: Book) -> dict[str, str]:
    """The date of issue, the orders in another order than that of time, which one is void, the rule for equal dates."""
    years = sorted(seed.sample(range(2006, 2025), ORDERS + 2))
    issued, *days = [f"{seed.randrange(1, 29)} {seed.choice(MONTHS)} {year}" for year in years]
    orders = book.unrevoked().orders
    listed = list(range(ORDERS + 1))
    while listed in (sorted(listed), sorted(listed, reverse=True)):
        seed.shuffle(listed)
    texts = []
    for order in listed:
        amended = [number for name, number in book.numbers.items() if order in orders[name]]
        if amended:
            texts.append(f"On {days[order]}: {', '.join(amended)}.")
    return {"issued": issued, "orders": " ".join(texts), "revoked": days[ORDERS], "tie": book.tie}


def _loads(seed: random.Random, item: Item, book: Book, names: Mapping[str, str]) -> list[tuple[str, Load]]:
    """What every delivery is tried on: the loads of the hidden file, and drawn ones."""
    rules, stated = book.rules, book.stated
    free, minimum = sorted(stated["free"]), sorted(stated["minimum"])
    rebate, heavy, longest = sorted(stated["rebate"]), sorted(stated["heavy"]), rules.slot_minutes * rules.most_slots
    bounds = {
        "step": rules.step,
        "slot": rules.slot_minutes,
        "first_to": rules.first_to,
        "second_to": rules.second_to,
        "top": rules.top,
        "minimum_low": minimum[0],
        "minimum_high": minimum[1],
        "free_low": free[0],
        "free_high": free[1],
        "longest_low": free[0] + longest,
        "longest_high": free[1] + longest,
        "rebate_low": rebate[0],
        "rebate_high": rebate[1],
        "heavy_low": heavy[0],
        "heavy_high": heavy[1],
        "half_sorted": half_sorted(rules),
        "part_rebated": part_rebated(rules),
        "twice_rounded": twice_rounded(rules),
    }

    def figure(written: int | str) -> int:
        if isinstance(written, int):
            return written
        return sum(int(term) if term.lstrip("+-").isdigit() else bounds[term] for term in _TERM.findall(written))

    def load(net: int, over: int, foreign: int, stay: int, supplier: str, earlier: int) -> Load:
        tare = seed.randrange(2900, 9000)
        return Load(tare + net + over, tare, foreign, stay, names[supplier], earlier)

    described = tomllib.loads((item.side("hidden_tests") / "loads.toml").read_text(encoding="utf-8"))["loads"]
    found = []
    for entry in described:
        net, over, foreign, stay, earlier = (
            figure(entry.get(key, 0)) for key in ("net", "over", "foreign", "stay", "earlier")
        )
        found.append((entry["about"], load(net, over, foreign, stay, entry["supplier"], earlier)))
    for _ in range(DRAWN):
        net, over = seed.randrange(rules.step, 9000, rules.step), seed.randrange(rules.step)
        foreign, stay = seed.randrange(rules.top + 1), seed.randrange(free[1] + 2 * longest)
        supplier = seed.choice(("plain", "reduced", "capped"))
        found.append(("a load drawn at random", load(net, over, foreign, stay, supplier, seed.randrange(20))))
    return found


def grade(instance: Instance, delivery: Delivery, sandbox: Sandbox) -> list[Verdict]:
    """Judge the declarations, and the code on every load of the instance."""
    return [*_declarations(instance, delivery.files.get(CONFLICTS)), _code(instance, delivery, sandbox)]


def _declarations(instance: Instance, text: str | None) -> list[Verdict]:
    book: Book = instance.data["book"]
    wanted = {frozenset(book.pair(topic)): row for row, topic in book.planted.items()}
    lines = list(filter(None, map(str.strip, (text or "").lstrip("\ufeff").replace("\r", "\n").split("\n"))))
    if len(lines) > MOST_LINES:
        lines, problem = [], f"{CONFLICTS} has {len(lines)} lines, more than {MOST_LINES}, and counts as empty"
    elif text is None:
        problem = f"{CONFLICTS} was not delivered"
    else:
        problem = f"not among the {len(lines)} lines of {CONFLICTS}"
    found: set[str] = set()
    false: list[str] = []
    for line in lines:
        declaration = _DECLARATION.fullmatch(line)
        row = wanted.get(frozenset(declaration.groups())) if declaration else None
        if row is None:
            false.append(line)
        else:
            found.add(row)
    verdicts = [
        Verdict(row, row in found, "declared" if row in found else problem, f"sections {' and '.join(sorted(pair))}")
        for pair, row in wanted.items()
    ]
    if false:
        said = f"{len(false)} false declarations, the first: {clipped(false[0], LINE_CHARS)}"
    elif not found:
        said = f"no contradiction was declared: {problem}"
    else:
        said = f"{len(found)} contradictions were declared and nothing else"
    return [*verdicts, Verdict("nothing_else", bool(found) and not false, said)]


def _code(instance: Instance, delivery: Delivery, sandbox: Sandbox) -> Verdict:
    if CODE not in delivery.files:
        return Verdict("code", False, f"{CODE} was not delivered")
    rules = instance.data["book"].rules
    cases = [Case(CALL, astuple(load), about, settle(rules, load)) for about, load in instance.data["loads"]]
    with open_worker(sandbox, {CODE: delivery.files[CODE]}, CODE.removesuffix(".py")) as worker:
        return verdict("code", judge(worker, cases))


def _declared(pairs: Iterable[Iterable[str]]) -> str:
    return "".join(f"CONFLICT {' '.join(pair)}\n" for pair in pairs)


def _written(instance: Instance, rules: Rules) -> str:
    """The golden code for given rules."""
    texts = {**instance.data["texts"], **{name: getattr(rules, name) for name in Rules.__annotations__}}
    return cast("Item", instance.data["item"]).read("golden/settlement.py.txt", **texts)


def golden(instance: Instance) -> Reference:
    """Every contradiction, and code that follows the rule of precedence."""
    book: Book = instance.data["book"]
    pairs = [book.pair(topic) for topic in book.planted.values()]
    return Reference(files={CONFLICTS: _declared(pairs), CODE: _written(instance, book.rules)})


def defects(instance: Instance) -> Mapping[str, Reference]:
    """The golden delivery with other declarations, with other code, or without a file."""
    book: Book = instance.data["book"]
    files = golden(instance).files
    right = [book.pair(topic) for topic in book.planted.values()]
    alike = [book.pair(topic) for topics in TOPICS.values() for topic in topics if topic not in book.planted.values()]
    restated = [(book.numbers[one], book.numbers[two]) for one, two in RESTATED]
    excepted = [(book.numbers[rule], book.numbers[exception]) for rule, exception in EXCEPTIONS]
    lower_wins = _written(instance, book.resolved(book.lower))
    declarations = {
        "lists_every_pair": _declared(combinations(book.numbers.values(), 2)),
        "lists_lookalikes": _declared([*right, alike[-1], excepted[0]]),
        "declares_in_prose": "".join(f"Section {one} contradicts section {two}.\n" for one, two in right),
        "declares_nothing": "There are no contradictions in section 1.1 or any other section.\n",
        **{f"misses_{row}": _declared(right[:at] + right[at + 1 :]) for at, row in enumerate(book.planted)},
    }
    code = {
        "lower_number_wins": lower_wins,
        "higher_number_wins": _written(instance, book.resolved(lambda topic: 1 - book.lower(topic))),
        "first_order_counts": _written(instance, book.resolved(lambda topic: book.prevails(topic, min))),
        "revoked_order_counts": _written(instance, book.resolved(book.unrevoked().prevails)),
        **{f"resolves_{row}_wrong": _written(instance, book.wrong_on(topic)) for row, topic in book.planted.items()},
        **{name: files[CODE].replace(old, new) for name, (old, new) in EDITS.items()},
    }
    return {
        "defective": Reference(files={CONFLICTS: _declared([*alike[-2:], *restated, excepted[0]]), CODE: lower_wins}),
        "delivers_no_code": Reference(files={CONFLICTS: files[CONFLICTS]}),
        **{name: Reference(files={**files, CONFLICTS: text}) for name, text in declarations.items()},
        **{name: Reference(files={**files, CODE: text}) for name, text in code.items()},
    }
