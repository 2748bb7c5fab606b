"""The program that runs the unit tests of a work folder inside of the sandbox, for the eyes of an agent.

Its output is text for the model. It says the same for the same files: no times, no paths of the machine, no addresses.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import os
import re
import sys
import traceback
import unittest
from types import TracebackType
from typing import Any

PATTERN = re.compile(r"test\w*\.py")
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")
PRINTED_CHARS = 2000
"""Part of what the tests print that is shown."""

Failure = tuple[type[BaseException], BaseException, TracebackType | None]


class Failures(unittest.TestResult):
    """Keeps what went wrong, by test, in the order of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, str, str]] = []
        self.passed = 0

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        """The test passed."""
        self.passed += 1

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """An assertion failed."""
        self.told.append(("FAIL", test.id(), shown(err)))

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """Test or fixture raised."""
        self.told.append(("ERROR", test.id(), shown(err)))

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """One subtest is over."""
        if err is not None:
            kind = "FAIL" if issubclass(err[0], test.failureException) else "ERROR"
            self.told.append((kind, subtest.id(), shown(err)))

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        """An announced failure did not come."""
        self.told.append(("FAIL", test.id(), "unexpected success\n"))


def shown(failure: Failure) -> str:
    """A failure as Python shows it, with the frames of the work folder only."""
    try:
        error = traceback.TracebackException(*failure)
        home = os.path.join(HOME, "")
        for part in _chain(error):
            inside = [frame for frame in part.stack if frame.filename.startswith(home)]
            for frame in inside:
                frame.filename = frame.filename[len(home) :]
            part.stack = traceback.StackSummary.from_list(inside)
        return "".join(error.format())
    except BaseException:
        return f"{failure[0].__name__}\n"


def _chain(error: traceback.TracebackException | None) -> list[traceback.TracebackException]:
    found: list[traceback.TracebackException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def modules() -> list[str]:
    """Dotted names of all test modules below the work folder."""
    found = []
    for top, folders, files in os.walk(HOME):
        folders[:] = sorted(folder for folder in folders if folder.isidentifier() and folder != "__pycache__")
        package = os.path.relpath(top, HOME).replace(os.sep, ".").strip(".")
        found += [
            ".".join(filter(None, (package, name.removesuffix(".py"))))
            for name in sorted(files)
            if PATTERN.fullmatch(name)
        ]
    return found


def run(only: str) -> tuple[Failures, int]:
    """Load and run every test whose id holds ``only``; gives what happened and how many were run."""
    result = Failures()
    count = 0
    for name in modules():
        try:
            found = unittest.TestLoader().loadTestsFromModule(importlib.import_module(name))
        except BaseException:
            result.told.append(("ERROR", f"{name} could not be loaded", shown(sys.exc_info())))  # type: ignore[arg-type]
            continue
        chosen = unittest.TestSuite(test for test in _flat(found) if only in test.id())
        count += chosen.countTestCases()
        chosen.run(result)
    return result, count


def _flat(suite: Any) -> list[unittest.TestCase]:
    return [suite] if isinstance(suite, unittest.TestCase) else [test for part in suite for test in _flat(part)]


def report(result: Failures, count: int, printed: str) -> str:
    """The output: a summary first, then each failure, then what was printed."""
    if not count and not result.told:
        return "No tests were found.\n"
    bad = len({name for _, name, _ in result.told})
    skipped = f", {len(result.skipped)} skipped" if result.skipped else ""
    lines = [f"{count} tests run: {result.passed} passed, {bad} failed{skipped}\n"]
    lines += [f"\n{kind}: {name}\n{text}" for kind, name, text in result.told]
    lines += [f"\nPrinted by the tests:\n{printed[:PRINTED_CHARS]}"] if printed else []
    lines += ["\nOK\n"] if not result.told else []
    return ADDRESS.sub("0x...", "".join(lines)).replace(HOME, ".")


HOME = os.getcwd()

if __name__ == "__main__":
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    sys.dont_write_bytecode = True
    sys.path.insert(0, HOME)
    output, printed = sys.stdout, io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        result, count = run(sys.argv[1])
    output.buffer.write(report(result, count, printed.getvalue()).encode("utf-8", "backslashreplace"))
    output.flush()
    os._exit(0)
