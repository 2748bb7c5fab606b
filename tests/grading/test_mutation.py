"""Suites against mutants: what counts as a find, and why no suite gains by anything but testing."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from sandbox.confined import confined, fieldcase, stored

from pytest_llmbench.grading.mutation import (
    MAX_FLAKY,
    SUITE_CPU_S,
    Assessment,
    Bench,
    Mutant,
    MutantError,
    Subject,
    SuiteRunError,
    assess,
    read,
)
from pytest_llmbench.grading.rewriting import rewritten
from pytest_llmbench.sandbox.jail import Ending
from pytest_llmbench.sandbox.suite import MAX_METHODS

SOURCE = '''"""Fares."""

_LIMIT = 60
_RATE = 3


def fare(minutes):
    """Three per minute, twice as much from minute 60 on."""
    if minutes >= _LIMIT:
        return 2 * minutes * _RATE
    return minutes * _RATE


def halves(amount):
    """Half of the amount, rounded up."""
    return (amount + 1) // 2
'''
MUTANTS = (
    Mutant("boundary", "60 is still single", ">= _LIMIT", "> _LIMIT"),
    Mutant("rate", "four per minute", "_RATE = 3", "_RATE = 4"),
    Mutant("rounding", "rounded down", "(amount + 1) // 2", "amount // 2"),
)
SUBJECT = Subject("fares", SOURCE, {mutant.name: mutant.apply(SOURCE) for mutant in MUTANTS})
ALL = ("boundary", "rate", "rounding")
HEAD = "import os, sys, unittest\nimport fares\n\n"
GOOD = f"""{HEAD}
class FareTest(unittest.TestCase):
    def test_boundary(self):
        self.assertEqual(fares.fare(59), 177)
        self.assertEqual(fares.fare(60), 360)

    def test_halves(self):
        for amount, half in ((4, 2), (5, 3)):
            with self.subTest(amount=amount):
                self.assertEqual(fares.halves(amount), half)
"""


def judged(text: str, subject: Subject = SUBJECT, seed: str = "seed") -> Assessment:
    return assess(confined(), "test_fares", text, subject, seed)


def with_methods(body: str, head: str = HEAD) -> str:
    """A suite of one class with these methods."""
    return f"{head}\nclass T(unittest.TestCase):\n" + "\n".join(f"    {line}" for line in body.strip().splitlines())


def fates(assessment: Assessment) -> dict[str, str]:
    return {name: trial.fate for name, trial in assessment.trials.items()}


def test_a_good_suite_finds_every_mutant_and_stands_on_its_own() -> None:
    found = judged(GOOD)
    assert found.killed == ALL
    assert found.valid == ("test_fares.FareTest.test_boundary", "test_fares.FareTest.test_halves")
    assert (found.problem, found.invalid, found.skipped, found.dependent) == (None, {}, (), None)
    assert found.trials["rounding"].by == ("test_fares.FareTest.test_halves",)


def test_the_same_suite_is_judged_the_same_way_again() -> None:
    assert judged(GOOD) == judged(GOOD)
    assert judged(GOOD, seed="another") == judged(GOOD)


def test_a_suite_of_types_and_signs_finds_nothing() -> None:
    found = judged(with_methods("def test_types(self):\n    self.assertGreater(fares.fare(60) + fares.halves(5), 0)"))
    assert found.killed == ()
    assert found.invalid == {}
    assert set(fates(found).values()) == {"survived"}


def test_a_method_that_fails_on_the_correct_module_finds_nothing_and_spoils_nothing() -> None:
    found = judged(GOOD + "\n    def test_wrong(self):\n        self.assertEqual(fares.fare(1), 4)\n")
    assert list(found.invalid) == ["test_fares.FareTest.test_wrong"]
    assert "3 != 4" in found.invalid["test_fares.FareTest.test_wrong"]
    assert found.killed == ALL
    assert all("test_wrong" not in by for trial in found.trials.values() for by in trial.by)
    assert found.dependent is None


# --- suites that recognise what they run against ---------------------------------------------------------------------

RECOGNISERS = {
    "text": "import inspect\nSEEN = inspect.getsource(fares)\nKNOWN = COPY",
    "size": "import pathlib\nSEEN = pathlib.Path(fares.__file__).stat().st_size\nKNOWN = len(COPY)",
    "tree": "from ast import dump, parse\nSEEN = dump(parse(open(fares.__file__).read()))\nKNOWN = dump(parse(COPY))",
    "code": "SEEN = fares.fare.__code__.co_code\nKNOWN = OTHER.fare.__code__.co_code",
    "constants": "SEEN = set(fares.fare.__code__.co_consts)\nKNOWN = set(OTHER.fare.__code__.co_consts)",
    "rate": "SEEN = [v for k, v in sorted(vars(fares).items()) if type(v) is int]\nKNOWN = [60, 3]",
    "names": "SEEN = sorted(vars(fares))\nKNOWN = sorted([*vars(OTHER), '__builtins__'])",
    "names in code": "SEEN = fares.halves.__code__.co_names\nKNOWN = ('halved',)",
}


@pytest.mark.parametrize("kind", RECOGNISERS)
def test_a_suite_that_recognises_the_module_finds_nothing(kind: str) -> None:
    copy = f"COPY = {SOURCE!r}\nimport types\nOTHER = types.ModuleType('fares')\nexec(COPY, vars(OTHER))\n"
    body = "def test_same(self):\n    self.assertEqual(SEEN, KNOWN)"
    found = judged(with_methods(body, f"{HEAD}{copy}{RECOGNISERS[kind]}\n"))
    assert found.killed == ()
    assert found.valid == ()
    assert len(found.invalid) == 1


def test_every_run_has_the_same_names_and_times_and_a_directory_of_its_own() -> None:
    body = """
def test_surroundings(self):
    self.assertEqual(sorted(os.listdir()), ["fares.py", "test_fares.py"])
    self.assertEqual({os.stat(name).st_mtime for name in os.listdir()}, {1_000_000_000})
    self.assertEqual(os.path.basename(fares.__file__), "fares.py")
    self.assertEqual(sys.argv, ["test_fares"])
    with open("left", "w") as file:
        file.write("here")
def test_a_find(self):
    self.assertEqual(fares.fare(1), 3)
"""
    found = judged(with_methods(body))
    assert found.invalid == {}
    assert found.killed == ("rate",)
    assert found.dependent is not None


# --- suites that lie or gamble ---------------------------------------------------------------------------------------

FORGERIES = {
    "leaves with success": "def test_it(self):\n    os._exit(0)",
    "leaves while loading": "import os; os._exit(0)\ndef test_it(self):\n    pass",
    "exits": "def test_it(self):\n    sys.exit(0)",
    "interrupts": "def test_it(self):\n    raise KeyboardInterrupt",
    "floods": "def test_it(self):\n    while True:\n        os.write(3, b'x' * 65536 + b'\\n')",
    "claims": (
        "def test_it(self):\n    for fd in range(40):\n        try:\n"
        '            os.write(fd, b\'["?","done",0,"failed",""]\\n["?","end"]\\n\')\n        except OSError:\n'
        "            pass\n    os._exit(0)"
    ),
    "loops": "def test_it(self):\n    while True:\n        pass",
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_suite_that_does_not_let_itself_be_run_finds_nothing(kind: str) -> None:
    found = judged(with_methods(FORGERIES[kind]))
    assert found.killed == ()
    assert found.valid == ()


def test_a_method_that_ends_the_process_costs_the_others_nothing() -> None:
    for end in ("os._exit(0)", "os.abort()", "raise KeyboardInterrupt"):
        found = judged(GOOD + f"\n    def test_z(self):\n        {end}\n    def test_a(self):\n        {end}\n")
        assert found.killed == ALL, end
        assert set(found.invalid) == {"test_fares.FareTest.test_a", "test_fares.FareTest.test_z"}, end
        assert found.dependent is None, end


def test_the_limit_that_ended_a_run_is_named() -> None:
    found = judged(GOOD + "\n    def test_endless(self):\n        while True:\n            pass\n")
    assert "cpu_s" in found.invalid["test_fares.FareTest.test_endless"]
    assert found.killed == ALL


def test_patching_unittest_or_json_gains_nothing() -> None:
    patches = """
import json
json.dumps = lambda *a, **k: '["x", "end"]'
os.write = lambda *a: None
def run(self, result=None):
    result.startTest(self)
    result.addSuccess(self)
    result.stopTest(self)
unittest.TestCase.run = run
"""
    found = judged(with_methods("def test_it(self):\n    self.fail()", HEAD + patches))
    assert found.killed == ()
    assert found.valid == ("test_fares.T.test_it",)


def test_methods_that_fail_by_chance_find_nothing() -> None:
    methods = "\n".join(f"def test_{n:03}(self):\n    self.assertLess(RANDOM.random(), 0.7)" for n in range(120))
    found = judged(with_methods(methods, HEAD + "import random\nRANDOM = random.SystemRandom()\n"))
    assert found.killed == ()
    assert found.valid == ()
    assert len(found.invalid) > MAX_FLAKY


def test_a_skipped_method_is_neither_valid_nor_a_find_nor_a_fault() -> None:
    body = """
@unittest.skip("later")
def test_skipped(self):
    self.fail()
def test_skips_where_all_is_well(self):
    if fares.fare(60) == 360:
        self.skipTest("fine")
    self.fail()
def test_skips_where_it_is_not(self):
    if fares.fare(60) != 360:
        self.skipTest("not fine")
"""
    found = judged(with_methods(body))
    assert found.skipped == ("test_fares.T.test_skipped", "test_fares.T.test_skips_where_all_is_well")
    assert found.valid == ("test_fares.T.test_skips_where_it_is_not",)
    assert found.invalid == {}
    assert found.killed == ()


def test_announced_failures_are_judged_as_unittest_judges_them() -> None:
    body = """
@unittest.expectedFailure
def test_announced(self):
    self.assertEqual(fares.fare(60), 180)
@unittest.expectedFailure
def test_announced_in_vain(self):
    self.assertEqual(fares.fare(60), 360)
"""
    found = judged(with_methods(body))
    assert found.valid == ("test_fares.T.test_announced",)
    assert list(found.invalid) == ["test_fares.T.test_announced_in_vain"]
    assert found.killed == ("boundary",)


# --- what unittest itself offers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", ["setUp", "tearDown", "setUpClass", "tearDownClass"])
def test_a_fixture_that_raises_on_the_correct_module_makes_its_methods_invalid(fixture: str) -> None:
    decorated = "@classmethod\n    " if fixture.endswith("Class") else ""
    text = (
        GOOD
        + f"""
class Broken(unittest.TestCase):
    {decorated}def {fixture}(self):
        raise ValueError("no")

    def test_one(self):
        pass

    def test_two(self):
        pass
"""
    )
    found = judged(text)
    assert set(found.invalid) == {"test_fares.Broken.test_one", "test_fares.Broken.test_two"}
    assert found.killed == ALL


@pytest.mark.parametrize("fixture", ["setUpModule", "tearDownModule"])
def test_a_module_fixture_that_raises_makes_all_methods_invalid(fixture: str) -> None:
    found = judged(GOOD + f"\ndef {fixture}():\n    raise ValueError('no')\n")
    assert found.valid == ()
    assert len(found.invalid) == 2


def test_a_class_that_skips_itself_is_skipped() -> None:
    text = (
        GOOD
        + """
class Later(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("later")

    def test_one(self):
        self.fail()
"""
    )
    found = judged(text)
    assert found.skipped == ("test_fares.Later.test_one",)
    assert found.invalid == {}
    assert found.killed == ALL


def test_a_class_fixture_can_find_a_mutant() -> None:
    text = (
        HEAD
        + """
class T(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if fares.fare(60) != 360:
            raise ValueError("wrong fare")

    def test_rate(self):
        self.assertEqual(fares.fare(1), 3)
"""
    )
    assert judged(text).killed == ("boundary", "rate")


def test_load_tests_mocks_and_asynchronous_methods_are_run_as_unittest_runs_them() -> None:
    text = (
        HEAD
        + """
from unittest import mock

class Async(unittest.IsolatedAsyncioTestCase):
    async def test_boundary(self):
        self.assertEqual(fares.fare(60), 360)

def check():
    assert fares.fare(1) == 3

class Patched(unittest.TestCase):
    def test_patched(self):
        with mock.patch.object(fares, "halves", return_value=7):
            self.assertEqual(fares.halves(0), 7)
        self.assertEqual(fares.halves(5), 3)

def load_tests(loader, tests, pattern):
    return unittest.TestSuite([tests, unittest.TestSuite([unittest.FunctionTestCase(check)])])
"""
    )
    found = judged(text)
    assert found.killed == ALL
    assert len(found.valid) == 3
    assert found.dependent is None


def test_what_is_raised_while_loading_finds_nothing() -> None:
    found = judged(GOOD + "\nassert fares.fare(60) == 360\nassert fares.fare(1) == 3\n")
    assert found.killed == ("rounding",)
    assert fates(found)["boundary"] == "unfinished"
    assert "ZeroDivisionError" in str(judged("import fares\n1 / 0\n" + GOOD).problem)
    assert "no test method" in str(judged(HEAD).problem)


def test_methods_beyond_the_cap_are_not_run() -> None:
    many = f"for n in range({MAX_METHODS + 7}):\n    setattr(FareTest, f'test_a{{n}}', lambda self: None)\n"
    found = judged(GOOD + many)
    assert list(found.invalid) == ["9 more"]
    assert len(found.valid) == MAX_METHODS


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("type(self).count = getattr(self, 'count', 0) + 1\n    self.assertEqual(self.count, 1)", "order"),
        ("os.environ['FARE'] = '1'", "environment variable: FARE"),
        ("fares.extra = 1", "attribute of fares: extra"),
        ("fares.fare = lambda minutes: 360 if minutes == 60 else 3 * minutes", "attribute of fares: fare"),
        ("os.mkdir('new'); os.chdir('new')", "working directory: changed"),
        ("open('new', 'w').close()", "file: new"),
    ],
)
def test_methods_that_leave_something_behind_are_dependent(body: str, word: str) -> None:
    found = judged(GOOD + f"\n    def test_z(self):\n        {body.replace(chr(10), chr(10) + '    ')}\n")
    assert found.killed == ALL
    assert found.invalid == {}
    assert word in str(found.dependent)


def test_a_method_that_needs_another_one_is_dependent() -> None:
    text = (
        GOOD
        + """
    def test_x(self):
        type(self).seen = 1

    def test_y(self):
        self.assertEqual(self.seen, 1)
"""
    )
    found = judged(text)
    assert found.invalid == {}
    assert found.killed == ALL
    assert "test_y does not pass in reversed order" in str(found.dependent)


# --- field cases -----------------------------------------------------------------------------------------------------


def test_a_mutant_of_equal_size_and_time_runs_its_own_code() -> None:
    case = fieldcase("79")
    [original], [mutant] = stored(case / "original").values(), stored(case / "mutant").values()
    assert len(original) == len(mutant)
    text = with_methods("def test_it(self):\n    self.assertIs(calc.cmp(2, 2), True)", "import unittest, calc\n")
    bench = Bench(confined(), "test_calc", text, "calc")
    seen = [bench.run(source, [None]).fate("test_calc.T.test_it") for source in (original, mutant, original, mutant)]
    assert seen == ["passed", "failed"] * 2
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    assert expected == {"mutant_result": "False"}
    assert judged(text, Subject("calc", original, {"mutant": mutant})).killed == ("mutant",)


CLAMP = """
import unittest
from clamp import clamp

class T(unittest.TestCase):
    def test_inside_and_outside(self):
        for x, expected in ((5, 5), (11, 10), (10, 10), (0, 0)):
            self.assertEqual(clamp(x, 0, 10), expected)

    def test_below(self):
        self.assertEqual(clamp(-1, 0, 10), 0)
"""


def loaded(source: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(source, space)
    return space


def test_equivalent_and_endless_mutants_are_told_from_real_ones() -> None:
    case = fieldcase("81")
    sources = stored(case)
    original = sources.pop("original.py")
    found = assess(confined(), "test_clamp", CLAMP, Subject("clamp", original, sources), "seed")
    classes = {"killed": "countable", "unfinished": "timeout_class", "survived": "excluded"}
    seen: dict[str, list[str]] = {}
    for name, fate in fates(found).items():
        seen.setdefault(classes[fate], []).append(name)
    assert seen == json.loads((case / "expected.json").read_text(encoding="utf-8"))


def test_a_search_tells_an_equivalent_mutant_from_a_real_one() -> None:
    sources = stored(fieldcase("81"))
    versions = {name: loaded(source)["clamp"] for name, source in sources.items()}
    numbers = st.tuples(st.integers(-20, 20), st.integers(-10, 0), st.integers(0, 10))

    def differs(name: str) -> object:
        right, wrong = versions["original.py"], versions[name]
        return find(numbers, lambda args: right(*args) != wrong(*args), settings=settings(database=None))

    assert differs("mutant_real.py")
    with pytest.raises(NoSuchExample):
        differs("mutant_equivalent.py")


@pytest.mark.parametrize("log", ["log_py310.txt", "log_py311.txt", "log_subtests.txt"])
def test_ids_come_from_the_loader_and_subtests_count_for_their_method(log: str) -> None:
    case = fieldcase("84")
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))[log]
    lines = (case / log).read_text(encoding="utf-8").splitlines()
    bodies: dict[str, list[str]] = {}
    for line in lines:
        name, form, outcome = str(line.split()[0]), re.search(r"\(\w+=(\d)\)|\[(.*)\]", line), line.split()[-1]
        here = f"with self.subTest({form[2]!r}, i={form[1]}):" if form else "if True:"
        bodies.setdefault(name, []).append(f"{here} self.assertEqual({outcome!r}, 'ok')")
    methods = "".join(
        f"    def {name}(self):\n" + "".join(f"        {b}\n" for b in body) for name, body in bodies.items()
    )
    bench = Bench(confined(), "test_hidden", f"import unittest\nclass T(unittest.TestCase):\n{methods}", "fares")
    run = bench.run(SOURCE, [None])
    assert {method: run.fate(method) for method in run.methods} == {
        name: {"pass": "passed", "fail": "failed"}[fate] for name, fate in expected.items()
    }


# --- mutants and rewritten modules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"), [("_RATE", "_SPEED"), ("absent", "there"), ("_RATE = 3", "_RATE = 3"), ("_RATE = 3", "_RATE = ")]
)
def test_a_mutant_that_does_not_fit_is_refused(old: str, new: str) -> None:
    with pytest.raises(MutantError, match="odd"):
        Mutant("odd", "", old, new).apply(SOURCE)


EVERYTHING = '''"""Doc."""
from __future__ import annotations

import math

_STEP = 5
_TABLE = {"a": 3}
PUBLIC = 12


class Odd(ValueError):
    """An error."""


def _helper(value, *, scale=7):
    """Doc."""
    return value * scale + _STEP


def public(numbers, limit=20):
    """Doc."""
    total = 0
    for number in numbers:
        if number > limit:
            total += _helper(number)
        elif number == 13:
            continue
        else:
            total -= number if number >= 2 else _STEP
    squares = [number**2 for number in numbers if not number < 3]
    try:
        inverse = 100 // total
    except ZeroDivisionError as error:
        inverse = len(str(error))
    (lambda total: total)(4)
    return total, squares, inverse, f"{total:>5}{_TABLE['a']}", math.floor(limit / 3)


async def later():
    for _ in range(3):
        pass


def nothing():
    """Doc."""


def counted(number):
    global PUBLIC
    PUBLIC += number
    match number:
        case 5:
            return "five"
        case other:
            return other
'''


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.lists(st.integers(-30, 60)), st.integers(0, 40))
def test_a_rewritten_module_behaves_the_same(seed: int, numbers: list[int], limit: int) -> None:
    before, text = loaded(EVERYTHING), rewritten(EVERYTHING, random.Random(seed))
    after = loaded(text)
    for space in (before, after):
        assert {"Odd", "public", "later", "nothing", "counted", "PUBLIC", "math"} <= set(space)
    assert before["public"](numbers, limit=limit) == after["public"](numbers, limit=limit)
    for number in (5, 6):
        assert before["counted"](number) == after["counted"](number)
    assert before["PUBLIC"] == after["PUBLIC"] == 23


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_a_rewritten_module_has_other_text_and_other_code_in_every_function(seed: int) -> None:
    text = rewritten(EVERYTHING, random.Random(seed))
    assert text != EVERYTHING
    assert "_helper" not in text
    assert "_STEP" not in text
    before, after = loaded(EVERYTHING), loaded(text)
    for name in ("public", "nothing", "counted", "later"):
        one, two = (space[name].__code__ for space in (before, after))
        assert one.co_code != two.co_code
        assert one.co_varnames[: one.co_argcount] == two.co_varnames[: two.co_argcount]


def test_the_text_is_decided_by_chance_alone() -> None:
    texts = [rewritten(SOURCE, random.Random(seed)) for seed in (1, 1, 2, 3, 4)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 4


# --- reading what a run reported -------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.builds(
                lambda *words: json.dumps(["token", *words]).encode(),
                st.sampled_from(["loaded", "pass", "start", "done", "left", "end", "unloadable", "other"]),
                st.one_of(
                    st.integers(-3, 3), st.none(), st.lists(st.text(max_size=3), max_size=3), st.text(max_size=3)
                ),
                st.one_of(st.integers(), st.booleans(), st.text(max_size=3), st.dictionaries(st.text(), st.none())),
            ),
            st.just(b"[" * 5000),
            st.just(b"1" * 5000),
        ),
        max_size=12,
    )
)
def test_any_bytes_at_all_are_read(lines: list[bytes]) -> None:
    output = b"\n".join([b'["token", "ready"]', *lines])
    run = read(Ending(0, None, output), "token")
    assert all(set(known) <= set(run.methods) for known in run.passes)


def test_reports_with_another_token_are_not_believed() -> None:
    output = b'["token", "ready"]\n["other", "loaded", ["t"], 0]\n["other", "end"]\n'
    run = read(Ending(0, None, output), "token")
    assert (run.methods, run.whole) == ((), False)
    assert "ended early" in str(run.problem)


def test_a_sandbox_that_runs_nothing_is_no_fault_of_the_suite() -> None:
    with pytest.raises(SuiteRunError):
        read(Ending(127, None, b"", b"bwrap: no"), "token")


def test_the_caps_of_a_suite_are_within_those_of_the_sandbox() -> None:
    assert confined().limits.cpu_s >= SUITE_CPU_S
