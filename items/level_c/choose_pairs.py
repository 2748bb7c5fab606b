"""Writes the pairs of C1 and the questions of C2: `python choose_pairs.py INDEX.tsv EMOJI.json`.

INDEX.tsv lists a package index (name, version, month, rank among the most downloaded); EMOJI.json maps code points to
their official name and the year in which they became an emoji. Candidates are matched loosely; ``drawn`` in
``pytest_llmbench.grading.twins`` decides which of them are pairs, for the variants and runs below, and what it refuses
is counted by reason. Everything is drawn with one seed: the same input gives the same files.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_llmbench.bank import Item, read_items
from pytest_llmbench.grading.twins import MOST_DRAWS, Pair, twin

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SEED = 20261130
VARIANTS, RUNS = range(3), range(1, 4)
OLD = ("2015-01", "2023-06")
RECENT = ("2026-06", "2026-12")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)

MOST_MISSES = 100
"""Attempts in a row without a group after which there are no more."""

Facts = dict[str, Any]
Candidate = tuple[Facts, Facts]
Row = tuple[str, str, str]


# --- releases --------------------------------------------------------------------------------------------------------


class Releases:
    """The rows of the index, each used once."""

    def __init__(self, path: Path) -> None:
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
        kept: list[Row] = [
            (name, version, month)
            for name, version, month, rank, *_ in rows
            if rank.strip("0")
            and re.fullmatch(r"\d{1,2}\.\d{1,2}\.\d{1,2}", version)
            and re.fullmatch(r"[a-z][a-z-]{3,17}[a-z]", name)
            and "--" not in name
        ]
        self.old = [row for row in kept if OLD[0] <= row[2] <= OLD[1]]
        self.recent = [row for row in kept if RECENT[0] <= row[2] <= RECENT[1]]
        self.chance = random.Random(SEED)
        self.chance.shuffle(self.old)
        self.chance.shuffle(self.recent)

    def matched(self, size: int, exact: bool, placebo: bool) -> Iterator[tuple[list[Row], list[Row]]]:
        """Groups of rows of one year, each with a group of the other side, row by row alike."""
        misses = 0
        while misses < MOST_MISSES:
            misses += 1
            year = self.chance.choice(sorted({row[2][:4] for row in self.old}))
            one: list[Row] = []
            other: list[Row] = []
            pool = [row for row in self.old if row[2][:4] == year]
            rest = [row for row in self.old if row[2][:4] != year] if placebo else self.recent
            later = self.chance.choice(sorted({row[2][:4] for row in rest}))
            near: dict[tuple[object, ...], list[Row]] = {}
            for row in rest:
                if row[2][:4] == later:
                    near.setdefault(self.key(row, exact), []).append(row)
            for row in pool:
                some = near.get(self.key(row, exact), [])
                hit = next((r for r in some if abs(len(row[0]) - len(r[0])) <= 2 and r not in other), None)
                if hit is not None and len({row[2] for row in [*one, row]}) > len(one) - 2:
                    one.append(row)
                    other.append(hit)
                    if len(one) == size:
                        misses = 0
                        yield one, other
                        break

    def use(self, rows: Iterable[Row]) -> None:
        """These rows are not used again."""
        used = set(rows)
        self.old = [row for row in self.old if row not in used]
        self.recent = [row for row in self.recent if row not in used]

    @staticmethod
    def key(row: Row, exact: bool) -> tuple[object, ...]:
        """What two rows have in common that are loosely alike; the lengths of their names are compared beside it."""
        major, minor, patch = row[1].split(".")
        version: tuple[object, ...] = (row[1],) if exact else (len(major), minor, len(patch), minor == "0" and row[0])
        return row[2][5:], row[0].count("-"), *version


INDEX = "names, newest versions and months of the Python Package Index, as listed in November 2026"


def dated(rows: Sequence[Row], first: bool) -> Facts:
    """The stamp of a group: what is old is known since its latest row, what is recent since its earliest."""
    months = [row[2] for row in rows]
    return {"source": INDEX, "known_from": max(months) if first else min(months)}


def tables(releases: Releases, size: int, exact: bool, placebo: bool) -> Iterator[Candidate]:
    """Candidates of T1 and T5."""
    for one, other in releases.matched(size, exact, placebo):
        releases.use([*one, *other])
        releases.chance.shuffle(order := list(range(size)))
        yield (
            {**dated(one, True), "rows": [one[place] for place in order]},
            {**dated(other, placebo), "rows": [other[place] for place in order]},
        )


def notices(releases: Releases, placebo: bool) -> Iterator[Candidate]:
    """Candidates of T6."""
    for [one], [other] in releases.matched(1, False, placebo):
        releases.use([one, other])
        yield tuple(  # type: ignore[misc]
            {
                **dated([row], placebo or row is one),
                "name": row[0],
                "version": row[1],
                "month": f"{MONTHS[int(row[2][5:]) - 1]} {row[2][:4]}",
            }
            for row in (one, other)
        )


# --- time zones ------------------------------------------------------------------------------------------------------

TZ = "IANA time zone database 2026f"
ZONES = (
    # zone, offsets before and after, last change forward, first day asked for, days, known from
    ("America/Whitehorse", -8, -7, "2020-03-08", "2020-11-15", 90, "2020-03"),
    ("America/Dawson", -8, -7, "2020-03-08", "2020-11-15", 90, "2020-03"),
    ("America/Fort_Nelson", -8, -7, "2015-03-08", "2015-11-15", 90, "2015-03"),
    ("America/Chihuahua", -7, -6, "2022-04-03", "2022-11-15", 90, "2022-10"),
    ("America/Punta_Arenas", -4, -3, "2016-08-14", "2017-05-20", 80, "2016-12"),
    ("America/Vancouver", -8, -7, "2026-03-08", "2026-11-15", 90, "2026-03"),
    ("America/Edmonton", -7, -6, "2026-03-08", "2026-11-15", 90, "2026-03"),
    ("America/Inuvik", -7, -6, "2026-03-08", "2026-11-15", 90, "2026-03"),
    ("America/Winnipeg", -6, -5, "2026-03-08", "2026-11-15", 90, "2026-03"),
    ("America/Rainy_River", -6, -5, "2026-03-08", "2026-11-15", 90, "2026-03"),
    ("America/Asuncion", -4, -3, "2024-10-06", "2025-05-20", 80, "2024-10"),
    ("America/Coyhaique", -4, -3, "2024-09-08", "2025-05-20", 80, "2025-03"),
)
SOUTH = ("America/Punta_Arenas", "America/Asuncion", "America/Coyhaique")


def zones(placebo: bool) -> Iterator[Candidate]:
    """Candidates of T3: every old zone with every recent one of its half of the earth, or with another old one."""
    made: list[Facts] = [
        {
            "source": TZ,
            "known_from": known,
            "zone": zone,
            "winter": winter,
            "summer": summer,
            "last": last,
            "from": first,
            "days": days,
        }
        for zone, winter, summer, last, first, days, known in ZONES
    ]
    old = [facts for facts in made if facts["known_from"] < "2024"]
    for one in old:
        for other in old if placebo else [facts for facts in made if facts not in old]:
            alike = (one["zone"] in SOUTH) == (other["zone"] in SOUTH)
            if alike and (not placebo or one["zone"] < other["zone"]):
                yield one, other


# --- library functions -----------------------------------------------------------------------------------------------

DOCS = "documentation of {}"
DATES = {
    "heapq": ("2008-10", "2025-05", "Python 2.6", "Python 3.14"),
    "operator": ("2008-10", "2025-05", "Python 2.6", "Python 3.14"),
    "base64": ("2014-03", "2024-05", "Python 3.4", "Python 3.13"),
    "counter": ("2010-07", "2025-09", "Python 2.7", "Python 3.15"),
    "pieces": ("2021-10", "2024-05", "more-itertools 8.11", "Python 3.13"),
    "math": ("2019-06", "2023-05", "Python 3.8", "Python 3.12"),
}
"""Since when either side can be known, and what it is documented in."""


def stamp(family: str, first: bool) -> Facts:
    old, recent, before, after = DATES[family]
    return {
        "source": DOCS.format(before if first else after),
        "known_from": old if first else recent,
        "family": family,
    }


def functions() -> Iterator[Candidate]:
    """Candidates of T2."""

    def side(family: str, first: bool, origin: str, name: str, parameters: str, cases: str, rules: list[str]) -> Facts:
        demands = [rule.partition(" ")[0] for rule in ("value", "change", "errors")]
        return {
            **stamp(family, first),
            "origin": origin,
            "name": name,
            "parameters": parameters,
            "rules": rules,
            "golden": name,
            "cases": cases,
            "demands": demands,
        }

    texts = {
        "push": ("<A>, <B>", ["The function adds <B> to <A> and returns None."]),
        "pop": (
            "<A>",
            [
                "The function takes the {which} item out of <A> and returns it.",
                "If <A> is empty, IndexError is raised.",
            ],
        ),
        "replace": (
            "<A>, <B>",
            [
                "The function takes the {which} item out of <A>, then adds <B>, and returns the item that it took out.",
                "The item that is returned may be {more} than <B>. If <A> is empty, IndexError is raised.",
            ],
        ),
        "pushpop": (
            "<A>, <B>",
            [
                "The function adds <B> to <A>, then takes the {which} item out of <A> and returns it.",
                "If <A> is empty, <B> is returned and <A> stays empty.",
            ],
        ),
    }
    kinds = (
        (True, "", "smallest", "min-heap", "larger", "<="),
        (False, "_max", "largest", "max-heap", "smaller", ">="),
    )
    for call, (parameters, rules) in texts.items():
        sides = []
        for first, suffix, which, kind, more, sign in kinds:
            about = [
                f"<A> is a list of numbers that is a {kind}: <A>[k] {sign} <A>[2*k+1] and <A>[k] {sign} <A>[2*k+2] for "
                "every k for which these items exist.",
                f"<A> is changed in place and is a {kind} again afterwards.",
            ]
            said = [rule.format(which=which, more=more) for rule in rules]
            sides.append(
                side("heapq", first, "the module heapq", f"heap{call}{suffix}", parameters, call, about + said)
            )
        yield sides[0], sides[1]
    sides = []
    for first, suffix, _, kind, _, sign in kinds:
        about = [
            "<A> is a list of numbers in any order. It is changed in place, and the function returns None.",
            f"Afterwards <A> is a {kind}: <A>[k] {sign} <A>[2*k+1] and <A>[k] {sign} <A>[2*k+2] for every k for which "
            "these items exist.",
            "<A> holds the same numbers as before, each as often as before.",
        ]
        sides.append(side("heapq", first, "the module heapq", f"heapify{suffix}", "<A>", "heapify", about))
    yield sides[0], sides[1]
    alphabets = {
        "b85": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
        "z85": "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    }
    for call, rules in {
        "encode": [
            "<A> is a list of whole numbers from 0 to 255, which stand for bytes. Its length is a multiple of 4.",
            "Every four bytes make one number, the first byte being the most significant. It is written with five "
            "digits in base 85, the most significant one first.",
            "The function returns one text with all the digits, without anything between them.",
        ],
        "decode": [
            "<A> is a text whose length is a multiple of 5. Every five characters are digits in base 85, the most "
            "significant one first, and make one number.",
            "Every number makes four bytes, the most significant one first. The function returns a list with all the "
            "bytes, as whole numbers from 0 to 255.",
            "A character that is no digit, or a number above 2**32 - 1, raises ValueError.",
        ],
    }.items():
        yield tuple(  # type: ignore[misc]
            side(
                *("base64", name == "b85", "the module base64", f"{name}{call}", "<A>", call),
                [*rules, f"The 85 digits, from 0 to 84, are these characters: {signs}"],
            )
            for name, signs in alphabets.items()
        )
    for (old, says), (recent, tells) in (
        (
            ("truth", "True is returned if <A> counts as true in a condition, and False in every other case."),
            ("is_none", "True is returned if <A> is the object None itself, and False in every other case."),
        ),
        (
            ("not_", "False is returned if <A> counts as true in a condition, and True in every other case."),
            ("is_not_none", "False is returned if <A> is the object None itself, and True in every other case."),
        ),
    ):
        also = "<A> can be any object, such as a number, a text, a list or None. It is not changed."
        yield (
            side("operator", True, "the module operator", old, "<A>", "truth", [says, also]),
            side("operator", False, "the module operator", recent, "<A>", "truth", [tells, also]),
        )
    rest = [
        "<A> and <B> are dicts whose values are counts, whole numbers from 0 upwards. They are not changed.",
        "A key that is missing in one of them has the count 0 there.",
        "Only keys whose count in the result is above 0 are kept.",
    ]
    says = "The function returns a dict that gives each key the {} in <A> and in <B>."
    origin = "the class Counter in collections (operator {}, here as a function of two dicts)"
    yield (
        side(
            *("counter", True, origin.format("&"), "counter_and", "<A>, <B>", "counts"),
            [says.format("lower one of its two counts"), *rest],
        ),
        side(
            *("counter", False, origin.format("^"), "counter_xor", "<A>, <B>", "counts"),
            [says.format("distance between its counts"), *rest],
        ),
    )
    yield tuple(  # type: ignore[misc]
        side(
            *("pieces", first, origin, name, "<A>, <B>, <C>", "pieces"),
            [
                f"The function cuts the list <A> into {kind} of <B> items each, in the order of <A>, and returns a "
                "list of them. <B> is at least 1.",
                f"If <C> is False, the last {kind[:-1]} holds what is left over and may be shorter.",
                f"If <C> is True and the last {kind[:-1]} would be shorter, ValueError is raised.",
            ],
        )
        for first, origin, name, kind in (
            (True, "the package more-itertools (here it takes and gives lists)", "chunked", "lists"),
            (False, "the module itertools (here it takes and gives back lists)", "batched", "tuples"),
        )
    )
    rest = ["<A> and <B> are lists of whole numbers.", "If their lengths differ, ValueError is raised."]
    yield (
        side(
            *("math", True, "the module math", "dist", "<A>, <B>", "sums"),
            [
                "The function returns the square root of the sum of (a - b)**2 over the pairs a, b that stand side by "
                "side.",
                *rest,
            ],
        ),
        side(
            *("math", False, "the module math", "sumprod", "<A>, <B>", "sums"),
            [
                "The function returns the sum of the products a * b over all the pairs a, b that stand side by side in "
                "both.",
                *rest,
            ],
        ),
    )


ORDERS = (
    *("push pop push pop", "pop push pop push", "replace pop push pop", "pushpop push pop pop", "push replace pop"),
    *("replace pushpop pop", "pushpop replace pop", "push push pop pop", "pop pop push push", "replace push pop pop"),
    *("pushpop pushpop pop", "pop pushpop push pop", "push pushpop replace", "replace replace pop"),
    *("pop replace pushpop", "push pop replace pop"),
)
"""Calls of the programs of T4."""


def traces() -> Iterator[Candidate]:
    """Candidates of T4."""

    def heap(calls: str, first: bool) -> Facts:
        suffix, which = ("", "smallest") if first else ("_max", "largest")
        names = {call: f"heap{call}{suffix}" for call in ("push", "pop", "replace", "pushpop")}
        rules = [
            f"A heap is a list of numbers; the {which} number of the heap is always its first item.",
            f"{names['push']}(heap, item), here called push, adds item to the heap.",
            f"{names['pop']}(heap), here called pop, takes the {which} number out of the heap and returns it.",
            f"{names['replace']}(heap, item), here called replace, takes the {which} number out of the heap, "
            "then adds item, and returns the number that it took out.",
            f"{names['pushpop']}(heap, item), here called pushpop, adds item to the heap, then takes the "
            f"{which} number out of the heap and returns it.",
        ]
        return {
            **stamp("heapq", first),
            "kind": "heap",
            "least": first,
            "calls": calls.split(),
            "rules": rules,
            "origin": "the module heapq",
        }

    def pieces(number: int, first: bool) -> Facts:
        name, kind = ("chunked", "lists") if first else ("batched", "tuples")
        rules = [
            f"{name}(values, size) gives {kind} of size items each, made of the items of values in their order.",
            "The last of them holds what is left over and may be shorter.",
        ]
        facts = {"kind": "pieces", "name": name, "rules": rules, "number": number}
        origin = "the package more_itertools" if first else "the module itertools"
        return {**stamp("pieces", first), **facts, "origin": origin}

    def counts(number: int, first: bool) -> Facts:
        sign, says = ("&", "lower one of its two counts") if first else ("^", "distance between its counts")
        rules = [
            "Counter(values) holds a count for each key.",
            f"one {sign} other gives a new Counter that holds, for each key, the {says} in one and in other.",
        ]
        facts = {"kind": "counts", "sign": sign, "rules": rules, "number": number}
        return {**stamp("counter", first), **facts, "origin": "the class Counter in collections"}

    yield from ((heap(calls, True), heap(calls, False)) for calls in ORDERS)
    yield from ((pieces(number, True), pieces(number, False)) for number in range(4))
    yield from ((counts(number, True), counts(number, False)) for number in range(4))


# --- recall ----------------------------------------------------------------------------------------------------------

PYTHON = {
    "3.7": ("2018-06", "dataclasses", "contextvars", "breakpoint()", "time.time_ns()", "importlib.resources"),
    "3.8": ("2019-10", "math.dist()", "math.prod()", "math.isqrt()", "functools.cached_property", "shlex.join()"),
    "3.9": ("2020-10", "str.removeprefix()", "zoneinfo", "graphlib", "functools.cache()", "random.randbytes()"),
    "3.10": ("2021-10", "itertools.pairwise()", "int.bit_count()", "contextlib.aclosing()", "match statements",
             "statistics.covariance()"),
    "3.11": ("2022-10", "tomllib", "enum.StrEnum", "math.cbrt()", "contextlib.chdir()", "asyncio.TaskGroup"),
    "3.12": ("2023-10", "itertools.batched()", "math.sumprod()", "pathlib.Path.walk()", "typing.override()",
             "sys.monitoring"),
    "3.13": ("2024-10", "copy.replace()", "base64.z85encode()", "math.fma()", "warnings.deprecated()",
             "os.process_cpu_count()"),
    "3.14": ("2025-10", "heapq.heappush_max()", "operator.is_none()", "uuid.uuid7()", "string.templatelib",
             "compression.zstd"),
    "3.15": ("2026-10", "math.integer", "zlib.crc32_combine()", "the built-in type frozendict",
             "bytearray.take_bytes()", "the operator ^ for collections.Counter"),
}  # fmt: skip
"""What each version of Python brought, with the month of its release."""
PER_YEAR = 6
"""Code points of a year that are asked for, where there are as many."""
EMOJI_MONTHS = {
    2018: "06",
    2019: "03",
    2020: "03",
    2021: "09",
    2022: "09",
    2023: "09",
    2024: "09",
    2025: "09",
    2026: "09",
}


# --- writing ---------------------------------------------------------------------------------------------------------

CAPS = "{ max_tokens = 6144 }"
"""Room for some thinking, and still for a window of 8,192 tokens."""
ANSWER = (
    'rows = [{ id = "q1", title = "The answer is right", points = 1 }]\nanswers = { keys = ["1"], format = "integer" }'
)
RIGHT = 'rows = [{ id = "right", title = "The reply is right", points = 1 }]'
CODE = """rows = [
  { id = "files", title = "answer.py is there and valid", points = 0.1, kind = "hygiene" },
  { id = "behaviour", title = "The function passes every hidden case", points = 0.9 },
]
runs_code = true
files = ["answer.py"]"""
RECALL = 'rows = [{ id = "recalled", title = "The fact is recalled", points = 1 }]\nonce = true'
TEMPLATES = {
    "T1": ("t1_release_table", ANSWER, 0, "q1", "The rows before the month are added too."),
    "T2": ("t2_library_function", CODE, 0.1, "behaviour", "A function of the right name that gives its argument back."),
    "T3": ("t3_time_zone", RIGHT, 0, "right", "The clocks from before the change are taken."),
    "T4": ("t4_library_trace", ANSWER, 0, "q1", "A common mistake in one rule of the documentation."),
    "T5": ("t5_intake_rules", ANSWER, 0, "q1", "The rules on hyphens and on the upper bound are forgotten."),
    "T6": ("t6_release_notice", f'{RIGHT}\nfiles = ["notice.txt"]', 0, "right", "An ordinary announcement."),
}
TITLES = {
    "T1": "Sum over a release table",
    "T2": "Library function",
    "T3": "Time zone notice",
    "T4": "Traced library calls",
    "T5": "Rules for releases",
    "T6": "Release notice",
}


def head(fields: str, kind: str, references: str) -> str:
    """The table of defaults."""
    fixed = f'version = "1.0.0"\nlevel = "C"\nmode = "single"\npoints = 1\ncaps = {CAPS}\n'
    return f'# Written by choose_pairs.py.\n\n[defaults]\n{fixed}{fields}\ngroup = "{kind}"\n\n{references}'


def toml(data: Mapping[str, object]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in data.items()) + " }"


def write_pairs(kind: str, pairs: Sequence[tuple[str, bool, Candidate]]) -> None:
    """The facts and the items of a template."""
    folder, fields, points, row, why = TEMPLATES[kind]
    side = ROOT / "fixtures" / f"c1_{kind.lower()}"
    side.mkdir(parents=True, exist_ok=True)
    document = [{"id": name, "placebo": placebo, "pre": pre, "post": post} for name, placebo, (pre, post) in pairs]
    (side / "pairs.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    text = head(
        fields, f"C1_{kind}", f'[defaults.references.defective]\nwhy = "{why}"\npoints = {points}\nloses = ["{row}"]\n'
    )
    for name, placebo, sides in pairs:
        for place, (facts, which) in enumerate(zip(sides, ("pre", "post"), strict=True)):
            data = {
                "probe": "placebo" if placebo else "twins",
                "pair": name,
                "side": which,
                "cluster": f"{kind}/{facts['family']}" if "family" in facts else kind,
                "known_from": facts["known_from"],
                "source": facts["source"],
            }
            label = ("first", "second")[place] if placebo else which
            title = f"{TITLES[kind]} {name}, {label}"
            text += f'\n[[items]]\nid = "C1_{name}_{label}"\ntitle = "{title}"\ndata = {toml(data)}\n'
    (HERE / folder / "items.toml").write_text(text, encoding="utf-8")


def write_recall(kind: str, folder: str, facts: Sequence[tuple[str, str, str, dict[str, str]]]) -> None:
    """The facts and the items of a kind of recall: title, month, source and what the item's code needs."""
    side = ROOT / "fixtures" / f"c2_{kind.lower()}"
    side.mkdir(parents=True, exist_ok=True)
    names = [f"C2_{kind}_{number:03d}" for number in range(1, len(facts) + 1)]
    document = {name: fact for name, (*_, fact) in zip(names, facts, strict=True)}
    (side / "facts.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    references = "".join(
        f'[defaults.references.{name}]\nwhy = "{why}"\npoints = 0\nloses = ["recalled"]\n\n'
        for name, why in (("defective", "Something else is made up."), ("abstains", "The honest way out."))
    )
    text = head(RECALL, f"C2_{kind}", references.rstrip() + "\n")
    for name, (title, month, source, _) in zip(names, facts, strict=True):
        data = {"probe": "recall", "known_from": month, "source": source}
        text += f'\n[[items]]\nid = "{name}"\ntitle = {json.dumps(title)}\ndata = {toml(data)}\n'
    (HERE / folder / "items.toml").write_text(text, encoding="utf-8")


def chosen(
    kind: str, candidates: Iterator[Candidate], most: int, placebo: bool, refused: Counter[str]
) -> list[tuple[str, bool, Candidate]]:
    """The candidates that are pairs in every instance looked at; the others are counted by what differs."""
    folder = HERE / TEMPLATES[kind][0]
    item = _item(folder)
    task: Any = item.task
    found: list[tuple[str, bool, Candidate]] = []
    for sides in candidates:
        name = f"{kind}_{'PLACEBO' if placebo else ''}{len(found) + 1:0{2 if placebo else 3}d}"
        why = _refusal(Pair(name, placebo, sides), item, task)
        if why is None:
            found.append((name, placebo, sides))
            if len(found) == most:
                break
        else:
            refused[why] += 1
    return found


def _item(folder: Path) -> Item:
    """Some item of a template: only its folder matters."""
    if not (folder / "items.toml").exists():
        (folder / "items.toml").write_text(
            head(RIGHT, "C1_X", "") + '[[items]]\nid = "X"\ntitle = "x"\n', encoding="utf-8"
        )
    return read_items(folder / "items.toml")[0]


def _refusal(pair: Pair, item: Item, task: Any) -> str | None:
    """What differs, in the first instance without a draw that makes twins; None where every instance has one."""
    for variant in VARIANTS:
        for run in RUNS:
            seen: Counter[str] = Counter()
            for attempt in range(MOST_DRAWS):
                seed = f"{pair.id}/{variant}/{run}/{attempt}"
                one, other = (task.make(item, facts, random.Random(seed)) for facts in pair.facts)
                if one is None or other is None:
                    seen["draw"] += 1
                    continue
                differs = twin(one, other)
                if not differs:
                    break
                seen.update(list(differs))
            else:
                return seen.most_common(1)[0][0]
    return None


PLAN = (("T1", 30), ("T2", 40), ("T3", 40), ("T4", 40), ("T5", 28), ("T6", 20))
PLACEBOS = {"T1": 8, "T3": 4, "T5": 10, "T6": 10}
TRIES = 400
"""Candidates of a template at most."""


def candidates(releases: Releases, kind: str, placebo: bool) -> Iterator[Candidate]:
    """The candidates of a template."""
    match kind:
        case "T1" | "T5":
            return tables(releases, 7 if kind == "T1" else 3, kind == "T5", placebo)
        case "T2":
            return functions()
        case "T3":
            return zones(placebo)
        case "T4":
            return traces()
        case _:
            return notices(releases, placebo)


def main(index: Path, emoji: Path) -> None:
    """Choose, write, and tell what was accepted and refused."""
    releases = Releases(index)
    for kind, most in PLAN:
        all_pairs: list[tuple[str, bool, Candidate]] = []
        for placebo in (False, True):
            count = PLACEBOS.get(kind, 0) if placebo else most
            if count:
                refused: Counter[str] = Counter()
                limited = (sides for _, sides in zip(range(TRIES), candidates(releases, kind, placebo), strict=False))
                found = chosen(kind, limited, count, placebo, refused)
                reasons = ", ".join(f"{why} {number}" for why, number in refused.most_common()) or "none"
                print(f"{kind}{' placebo' if placebo else ''}: {len(found)} accepted, refused: {reasons}")
                all_pairs += found
        write_pairs(kind, all_pairs)
    years: dict[int, list[tuple[str, str]]] = {}
    for code, (name, year) in sorted(json.loads(emoji.read_text(encoding="utf-8")).items()):
        years.setdefault(year, []).append((code, name))
    points = [
        (f"Name of U+{code}", f"{year}-{EMOJI_MONTHS[year]}", f"Unicode emoji of {year}", {"code": code, "name": name})
        for year, some in sorted(years.items())
        for code, name in sorted(random.Random(f"{SEED}/{year}").sample(some, min(PER_YEAR, len(some))))
    ]
    write_recall("R1", "r1_code_point", points)
    versions = [
        (f"Python version of {what}", month, DOCS.format(f"Python {version}"), {"what": what, "version": version})
        for version, (month, *brought) in PYTHON.items()
        for what in brought
    ]
    write_recall("R2", "r2_python_version", versions)
    print(f"C2: {len(points)} code points, {len(versions)} questions on versions")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
