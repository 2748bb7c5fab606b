"""A delivered test suite against a correct module and wrong versions of it.

The suite is hostile code and runs inside of the sandbox, so what it reports is only what it claims. It gains nothing
from false claims, because it cannot know what it runs against: every run has its own fresh directory and process, the
same file names and times, and, apart from the very first, a rewritten text of its own; correct versions and mutants
come in mixed order. A method counts only where it passes on every correct version. It kills a mutant by failing on it,
and where mutants are run again, a sample of them or, after any change of mind, all of them, it must do the same again.
"""

from __future__ import annotations

import json
import os
import random
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pytest_llmbench.grading.rewriting import rewritten
from pytest_llmbench.sandbox import suite as suite_program
from pytest_llmbench.sandbox.jail import Ending, Sandbox

PROGRAM = Path(suite_program.__file__)
SUITE_CPU_S = 2
"""CPU time of a suite in one order."""
WALL_PER_CPU = 4
"""Wall clock of a run, in its CPU times."""
MAX_RESTARTS = 3
"""So often the correct module is run again without a method that ended the process."""
CONFIRMED = 2
"""Killed mutants that are run a second time where no method has changed its mind so far."""
MAX_FLAKY = 2
"""Methods that may change their mind before nothing the suite reports is believed."""
TEXTS = 512
"""Rewritten texts that are kept, so that the next suite against the same module does not wait for them."""
AT_ONCE = 2
"""Runs of one suite at the same time."""
SAME_TIME_S = 1_000_000_000
"""Modification time of every file, in seconds since 1970."""
LISTED = 3
"""Methods that a sentence of evidence names."""
SHOWN_CHARACTERS = 120
"""Characters of a name or a reason in evidence."""
PLACES = ("reversed", "the loader's", "shuffled")
"""The first orders in which the valid methods are run; parts of the suite follow."""
ORDERS = "orders"
"""The run that tries them, among the runs that have a mutant's name."""

Fate = Literal["killed", "survived", "unfinished"]


class MutantError(Exception):
    """A mutant does not fit its module."""


class SuiteRunError(Exception):
    """The program that runs suites did not start; nothing was measured."""


@dataclass(frozen=True)
class Mutant:
    """One intended change of a module."""

    name: str
    about: str
    """What it does wrong."""
    old: str
    """The text that is replaced; it stands exactly once in the module."""
    new: str

    def apply(self, source: str) -> str:
        """The module with this change.

        Raises:
            MutantError: where ``old`` does not stand exactly once, nothing changes, or the result is no Python.
        """
        found = source.count(self.old)
        if found != 1 or self.old == self.new:
            raise MutantError(f"mutant {self.name}: {found} places for {self.old!r}; exactly one must change")
        changed = source.replace(self.old, self.new)
        try:
            compile(changed, self.name, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise MutantError(f"mutant {self.name}: {error}") from error
        return changed


@dataclass(frozen=True)
class Subject:
    """What the suite is about: the correct module and its mutants, each as whole source."""

    module: str
    source: str
    mutants: Mapping[str, str]


@dataclass(frozen=True)
class Trial:
    """What the valid methods say of one mutant."""

    fate: Fate
    by: tuple[str, ...] = ()
    """The methods that killed it."""


@dataclass(frozen=True)
class Assessment:
    """What a suite is worth."""

    problem: str | None = None
    """Why no method could be judged."""
    valid: tuple[str, ...] = ()
    """Methods that pass on every correct version, in the loader's order."""
    invalid: Mapping[str, str] = field(default_factory=dict)
    """Methods that failed on a correct version or were not run, and why."""
    skipped: tuple[str, ...] = ()
    """Methods that skipped themselves; neither valid nor invalid."""
    trials: Mapping[str, Trial] = field(default_factory=dict)
    """Per mutant, in the order given."""
    dependent: str | None = None
    """Why the valid methods do not stand on their own. Only examined where a mutant was killed."""

    @property
    def killed(self) -> tuple[str, ...]:
        """The mutants that were killed."""
        return tuple(name for name, trial in self.trials.items() if trial.fate == "killed")


@dataclass
class Run:
    """What one process reported."""

    methods: tuple[str, ...] = ()
    over: int = 0
    """Methods beyond the cap."""
    passes: list[dict[str, tuple[str, str]]] = field(default_factory=list)
    """Per pass what became of each method, and why."""
    left: list[list[str]] = field(default_factory=list)
    """Per pass what it left behind."""
    running: str | None = None
    """The method that had begun and not ended."""
    problem: str | None = None
    whole: bool = False
    """It ran to its end."""

    def fate(self, method: str, number: int = 0) -> str | None:
        """What became of a method in a pass, None where nothing was reported."""
        known = self.passes[number] if number < len(self.passes) else {}
        return known[method][0] if method in known else None

    def why(self, method: str, number: int = 0) -> str:
        """The reason that came with its fate."""
        known = self.passes[number] if number < len(self.passes) else {}
        return known[method][1] if method in known else self.problem or "no result"

    def failed(self, methods: Sequence[str]) -> tuple[str, ...]:
        """Those of ``methods`` that failed."""
        return tuple(method for method in methods if self.fate(method) == "failed")


Passes = Sequence[Sequence[str] | None]
Job = tuple[str, Passes]
"""The source of a version, and the methods to run on it in each pass."""


@dataclass(frozen=True)
class Bench:
    """Runs one suite against one version of the module after the other."""

    sandbox: Sandbox
    suite: str
    """Name of the suite's module."""
    text: str
    module: str

    def run(self, source: str, passes: Passes) -> Run:
        """One confined process: load the suite beside ``source`` and run it once per entry of ``passes``.

        Raises:
            SuiteRunError: where not even our own program began.
        """
        token = secrets.token_hex()
        order = {"token": token, "suite": self.suite, "module": self.module, "passes": passes}
        files = {f"{self.suite}.py": self.text, f"{self.module}.py": source}
        cpu_s = min(SUITE_CPU_S * len(passes), self.sandbox.limits.cpu_s)
        cap = replace(self.sandbox.limits, cpu_s=cpu_s, wall_s=min(WALL_PER_CPU * cpu_s, self.sandbox.limits.wall_s))
        with self.sandbox.workdir(files) as workdir:
            for name in files:
                os.utime(workdir / name, (SAME_TIME_S, SAME_TIME_S))
            line = json.dumps(order).encode() + b"\n"
            ending = self.sandbox.run(PROGRAM, (), workdir, profile="pure", limits=cap, stdin=line)
        return read(ending, token)

    def run_all(self, jobs: Mapping[str, Job]) -> dict[str, Run]:
        """Several runs, in the order of ``jobs``, a few at the same time."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(jobs, pool.map(lambda job: self.run(*job), jobs.values()), strict=True))


def read(ending: Ending, token: str) -> Run:
    """Put together what a run reported. A line that is not ours ends the reading.

    Raises:
        SuiteRunError: where not even our own program began.
    """
    run = Run()
    lines = ending.output.split(b"\n")
    if _words(lines[0], token) != ["ready"]:
        raise SuiteRunError(f"the program that runs suites did not start: {ending.errors[-SHOWN_CHARACTERS:]!r}")
    for line in lines[1:]:
        words = _words(line, token)
        if words is None or not _take(run, words):
            break
    if not run.whole and run.problem is None:
        run.problem = f"the run ended early ({ending.limit or f'exit code {ending.code}'})"
    return run


def _words(line: bytes, token: str) -> list[Any] | None:
    try:
        words = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return words[1:] if isinstance(words, list) and words[:1] == [token] else None


def _take(run: Run, words: list[Any]) -> bool:
    """Add one report to a run; False where it is none, or the last one."""
    match words:
        case ["unloadable", str(why)]:
            run.problem = f"the suite cannot be loaded: {why}"
            run.whole = True
        case ["loaded", [*ids], int(over)] if not run.methods and all(isinstance(name, str) for name in ids):
            run.methods, run.over = tuple(ids), over
        case ["pass"]:
            run.passes.append({})
        case ["start", int(number)] if 0 <= number < len(run.methods) and run.passes:
            run.running = run.methods[number]
        case ["done", int(number), str(fate), str(why)] if 0 <= number < len(run.methods) and run.passes:
            known, method = run.passes[-1], run.methods[number]
            if known.get(method, ("", ""))[0] != "failed":
                known[method] = fate, why
            run.running = None
        case ["left", [*left]]:
            run.left.append([str(name) for name in left])
        case ["end"]:
            run.whole = True
        case _:
            return False
    return not run.whole


def assess(sandbox: Sandbox, suite: str, text: str, subject: Subject, seed: str) -> Assessment:
    """Judge a unittest suite by what it finds.

    Args:
        sandbox: where the suite runs.
        suite: name of the suite's module.
        text: its source; valid Python.
        subject: the correct module and the mutants, and the name under which the suite imports them.
        seed: decides orders and rewritten texts.

    Raises:
        SuiteRunError: where the sandbox does not run our own program.
    """
    bench = Bench(sandbox, suite, text, subject.module)
    chance = random.Random(seed)
    first, invalid = _first(bench, subject.source)
    if not (first.whole and first.methods):
        return Assessment(first.problem or "the suite has no test method", invalid=invalid)
    ran = [method for method in first.methods if method not in invalid]
    invalid |= {method: first.why(method) for method in ran if first.fate(method) not in ("passed", "skipped")}
    candidates = [method for method in ran if first.fate(method) == "passed"]
    skipped = tuple(method for method in ran if first.fate(method) == "skipped")
    if first.over:
        invalid[f"{first.over} more"] = f"more than {suite_program.MAX_METHODS} methods are not run"
    if not candidates:
        return Assessment(None, (), invalid, skipped)

    jobs: dict[str, Job] = {"": (subject.source, [ran])}
    jobs |= {name: (source, [ran]) for name, source in subject.mutants.items()}
    trials = _runs(bench, jobs, chance, f"{seed}/first")
    correct = trials.pop("")
    invalid |= {
        method: f"on a rewritten, correct module: {correct.why(method)}"
        for method in candidates
        if correct.fate(method) != "passed"
    }
    valid = [method for method in candidates if method not in invalid]
    orders = _orders(valid, chance)
    doubtful = len(valid) < len(candidates)
    flaky: dict[str, str] = {}
    alone: Run | None = None
    while killed := [name for name, run in trials.items() if run.failed(valid)]:
        sample = killed if doubtful else chance.sample(killed, min(CONFIRMED, len(killed)))
        again = {name: jobs[name] for name in ("", *sample)}
        second = _runs(
            bench, again if alone else {**again, ORDERS: (subject.source, orders)}, chance, f"{seed}/again/{len(flaky)}"
        )
        alone = second.pop(ORDERS, None) or alone
        changed = [method for method in valid if _changes(method, trials, second)]
        flaky |= dict.fromkeys(changed, "its result changes from run to run")
        valid = [method for method in valid if method not in flaky] if len(flaky) <= MAX_FLAKY else []
        doubtful = True
        if not changed:
            break
    return Assessment(
        None,
        tuple(valid),
        invalid | flaky,
        skipped,
        {name: _trial(trials[name], valid) for name in subject.mutants},
        _dependence(alone, orders, valid) if alone else None,
    )


def _changes(method: str, trials: Mapping[str, Run], second: Mapping[str, Run]) -> bool:
    """Whether a method that passed on the correct module did otherwise in a second round of the same versions. A run
    of a mutant that did not end says nothing."""
    before = {name: run.fate(method) for name, run in trials.items()}
    after = {name: run.fate(method) for name, run in second.items()}
    return after.pop("") != "passed" or any(
        before[name] != now and None not in (before[name], now) for name, now in after.items()
    )


def _first(bench: Bench, source: str) -> tuple[Run, dict[str, str]]:
    """The run on the module as it was handed over, without the methods that end the process."""
    ended: dict[str, str] = {}
    wanted: list[str] | None = None
    for _ in range(MAX_RESTARTS + 1):
        run = bench.run(source, [wanted])
        if run.whole or run.running is None or run.running in ended:
            break
        ended[run.running] = run.problem or "the run ended early"
        wanted = [method for method in run.methods if method not in ended]
    return run, ended


def _runs(bench: Bench, jobs: Mapping[str, Job], chance: random.Random, seed: str) -> dict[str, Run]:
    """Run the jobs in mixed order, each with a text of its own."""
    mixed = chance.sample(sorted(jobs), len(jobs))
    return bench.run_all({name: (_text(jobs[name][0], f"{seed}/{name}"), jobs[name][1]) for name in mixed})


@lru_cache(maxsize=TEXTS)
def _text(source: str, seed: str) -> str:
    return rewritten(source, random.Random(seed))


def _trial(run: Run, valid: Sequence[str]) -> Trial:
    by = run.failed(valid)
    if by:
        return Trial("killed", by)
    return Trial("survived" if all(run.fate(method) is not None for method in valid) else "unfinished")


def _orders(methods: Sequence[str], chance: random.Random) -> list[list[str]]:
    """Reversed, as loaded, shuffled class by class, one half, the other half."""
    classes: dict[str, list[str]] = {}
    for method in chance.sample(methods, len(methods)):
        classes.setdefault(method.rpartition(".")[0], []).append(method)
    shuffled = [method for members in classes.values() for method in members]
    half = set(shuffled[: len(shuffled) // 2])
    return [
        list(reversed(methods)),
        list(methods),
        shuffled,
        [method for method in methods if method in half],
        [method for method in methods if method not in half],
    ]


def _dependence(run: Run, orders: Sequence[Sequence[str]], valid: Sequence[str]) -> str | None:
    for number, order in enumerate(orders):
        for method in order:
            if method in valid and run.fate(method, number) != "passed":
                place = f"in {PLACES[number]} order" if number < len(PLACES) else "in a part of the suite"
                return f"{shown(method)} does not pass {place}: {shown(run.why(method, number))}"
        if number < len(run.left) and run.left[number]:
            return f"the tests leave something changed: {shown(run.left[number][0])}"
    return None if run.whole else run.problem


def shown(text: str) -> str:
    """A name or a reason as it may stand in evidence: printable and short."""
    return ascii(text)[1:-1][:SHOWN_CHARACTERS]


def named(reasons: Mapping[str, str]) -> str:
    """The first few methods with their reasons, and how many there are more."""
    first = [f"{shown(method)} ({shown(why)})" for method, why in list(reasons.items())[:LISTED]]
    more = [f"{len(reasons) - LISTED} more"] if len(reasons) > LISTED else []
    return ", ".join([*first, *more])
