"""The program that runs a delivered unittest suite inside of the sandbox and reports what each method did.

One JSON line on standard input says what to do; JSON lines on standard output, each with the token of this run, say
what happened. Nothing here knows which version of the module it runs against, and no verdict is formed here.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
from types import ModuleType

SELDOM = ("argparse", "difflib", "pprint", "tokenize")
"""Modules that unittest imports and hardly uses; they and what they import are a third of the time of a start."""


def delay(name: str) -> None:
    """Import the module ``name`` only when something of it is asked for."""
    stand_in = ModuleType(name)

    def found(attribute: str) -> object:
        if attribute == "__path__":
            raise AttributeError(attribute)
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
        real = importlib.import_module(name)
        vars(stand_in).update(vars(real))
        return getattr(real, attribute)

    vars(stand_in)["__getattr__"] = found
    sys.modules[name] = stand_in


if __name__ == "__main__":
    for seldom in SELDOM:
        delay(seldom)

import json  # noqa: E402
import unittest  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from typing import Any  # noqa: E402

MAX_METHODS = 500
"""More test methods are not run."""
LONGEST_REASON = 160
"""Characters of an exception that are reported."""
MAX_FILES = 200
"""So many file names are compared before and after the tests."""
UNREADABLE = "an exception that cannot be shown"
SEVERITY = ("passed", "skipped", "failed")

Report = Callable[..., None]


def reason(error: BaseException | None) -> str:
    """An exception in one short line, whatever its class does."""
    if error is None:
        return ""
    try:
        return " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_REASON]
    except BaseException:
        return UNREADABLE


def flat(suite: Any) -> Iterator[unittest.TestCase]:
    """The test cases of a suite in its order."""
    for test in suite:
        if isinstance(test, unittest.TestCase):
            yield test
        elif isinstance(test, unittest.BaseTestSuite):
            yield from flat(test)


def load(name: str) -> tuple[dict[str, list[unittest.TestCase]], int]:
    """Fresh test cases of the module ``name`` by their id, as unittest's own loader finds them, and how many are over.

    Raises:
        BaseException: whatever the suite raises while it is loaded.
        ImportError: where the loader itself could not make a test.
    """
    loader = unittest.TestLoader()
    found: dict[str, list[unittest.TestCase]] = {}
    over = 0
    for test in flat(loader.loadTestsFromModule(importlib.import_module(name))):
        if len(found) < MAX_METHODS or test.id() in found:
            found.setdefault(test.id(), []).append(test)
        else:
            over += 1
    if loader.errors:
        raise ImportError(str(loader.errors[0]).strip().rpartition("\n")[2])
    return found, over


class Recorder(unittest.TestResult):
    """Reports each test case by the number of its id; subtests and class fixtures count for their methods."""

    def __init__(self, report: Report, tests: list[tuple[int, unittest.TestCase]]) -> None:
        super().__init__()
        self._report = report
        self._numbers = {id(test): number for number, test in tests}
        self._kinds = [(number, type(test)) for number, test in tests]
        self._fates: dict[int, tuple[str, str]] = {}
        self._last: type | None = None

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        """The method begins."""
        self._last = type(test)
        self._report("start", self._numbers[id(test)])

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        """The method is over: report it. One without a result is about to end the process."""
        number = self._numbers[id(test)]
        if number in self._fates:
            self._tell(number, *self._fates[number])

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        """The method passed."""
        self._note(test, "passed", "")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """An assertion failed."""
        self._note(test, "failed", reason(err[1]))

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """A method or a fixture raised."""
        self._note(test, "failed", reason(err[1]))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        """A method, a subtest or a fixture skipped itself."""
        self._note(test, "skipped", "skipped")

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """A failure that the suite announced: a pass, as for unittest itself."""
        self._note(test, "passed", "")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        """An announced failure that did not come: a failure, as for unittest itself."""
        self._note(test, "failed", "unexpected success")

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """One subtest is over; its method fails with it."""
        if err is not None:
            self._note(test, "failed", reason(err[1]))

    def addDuration(self, test: unittest.TestCase, elapsed: float) -> None:  # noqa: N802
        """Times are of no interest."""

    def _note(self, test: unittest.TestCase, fate: str, why: str) -> None:
        number = self._numbers.get(id(getattr(test, "test_case", test)))
        if number is None:
            for number in self._touched(test.id()):
                self._tell(number, fate, f"{test.id()}: {why}")
        else:
            self._fates[number] = max(self._fates.get(number, (fate, why)), (fate, why), key=_severity)

    def _touched(self, fixture: str) -> list[int]:
        """The methods that a fixture of a class or of the module, which raised, stands for."""
        if fixture.startswith(("setUpModule", "tearDownModule")):
            return [number for number, _ in self._kinds]
        if fixture.startswith("tearDown"):
            return [number for number, kind in self._kinds if kind is self._last and number in self._fates]
        waiting = [(number, kind) for number, kind in self._kinds if number not in self._fates]
        return [number for number, kind in waiting if kind is waiting[0][1]]

    def _tell(self, number: int, fate: str, why: str) -> None:
        self._fates[number] = (fate, why)
        self._report("done", number, fate, why)


def _severity(fate: tuple[str, str]) -> int:
    return SEVERITY.index(fate[0])


def shown(value: object) -> str:
    """A value as it is compared before and after: its identity and its content."""
    try:
        return f"{id(value)} {value!r}"
    except BaseException:
        return UNREADABLE


def surroundings(module: str, home: str) -> dict[str, dict[str, str]]:
    """What tests must leave as it was: attributes of the module under test, environment, directory, files."""
    attributes = vars(sys.modules[module]).items() if module in sys.modules else ()
    names = [os.path.join(top, name) for top, _, files in os.walk(home) for name in files if "__pycache__" not in top]
    try:
        directory = os.getcwd()
    except OSError:
        directory = ""
    return {
        f"attribute of {module}": {name: shown(value) for name, value in attributes},
        "environment variable": dict(os.environ),
        "working directory": {"changed": directory},
        "file": dict.fromkeys([os.path.relpath(name, home) for name in sorted(names)[:MAX_FILES]], ""),
    }


def changes(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> list[str]:
    """What differs, in words."""
    return [
        f"{kind}: {name}"[:LONGEST_REASON]
        for kind, then in before.items()
        for name in sorted(set(then) | set(after[kind]))
        if then.get(name) != after[kind].get(name)
    ]


def run(report: Report, suite: str, module: str, passes: list[list[str] | None]) -> None:
    """Load ``suite`` and run it once per entry of ``passes``: these ids in this order, or all of them."""
    home = os.getcwd()
    try:
        tests, over = load(suite)
    except BaseException as error:
        report("unloadable", reason(error))
        return
    ids = list(tests)
    report("loaded", ids, over)
    before = surroundings(module, home)
    for wanted in passes:
        tests, _ = load(suite)
        names = [name for name in (ids if wanted is None else wanted) if name in tests and name in ids]
        chosen = [(ids.index(name), test) for name in names for test in tests[name]]
        report("pass")
        unittest.TestSuite([test for _, test in chosen]).run(Recorder(report, chosen))
        report("left", changes(before, surroundings(module, home)))
        os.chdir(home)
    report("end")


def main() -> None:
    """Take the one line of instructions, give the channel away to nobody, run, and leave without ceremony."""
    order = json.loads(sys.stdin.readline())
    write, dumps, leave, channel = os.write, json.dumps, os._exit, os.dup(sys.stdout.fileno())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (sys.stdin.fileno(), sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(nowhere, descriptor)

    def report(*words: object) -> None:
        line = dumps([order["token"], *words]).encode() + b"\n"
        while line:
            line = line[write(channel, line) :]

    report("ready")
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    sys.dont_write_bytecode = True
    sys.argv = [order["suite"]]
    sys.path.insert(0, os.getcwd())
    try:
        run(report, order["suite"], order["module"], order["passes"])
    finally:
        leave(0)


if __name__ == "__main__":
    main()
