"""Hidden cases: calls into delivered code whose results are judged outside the sandbox, type by type."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from pytest_llmbench.sandbox.calls import Broken, Raised, Result, Returned, Worker
from pytest_llmbench.spec import Verdict

MAX_SHOWN: Final = 2
"""Failed cases that the evidence of a row describes."""
MAX_SAID_CHARS: Final = 160
"""Longer words on one case are cut in the evidence."""
MAX_SHOWN_VALUE_CHARS: Final = 2_000
"""A longer value is cut where the hidden cases are shown."""


@dataclass(frozen=True)
class Case:
    """One call and what must come of it. Exactly one of ``expected``, ``raises`` and ``holds`` decides."""

    call: str
    """Name of the function in the module."""
    args: tuple[Any, ...]
    about: str
    """What the case is about, in words that do not give it away."""
    expected: object = None
    """The value that must be returned, by ``same``."""
    raises: str | None = None
    """Name of the exception that must be raised instead; one derived from it will do."""
    holds: Callable[[Any], str | None] | None = None
    """A property of the returned value: None where it holds, else what is wrong. It may raise on a value of another
    shape, which fails the case. Its words are shown with the hidden cases only."""
    named: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case."""

    case: Case
    passed: bool
    said: str
    """What was called, what came back and what was expected, in words that do not give the case away."""
    hidden: str
    """The same in full."""


def same(left: object, right: object) -> bool:
    """Equality with exact types all the way down: 1 is not True, not 1.0, and [1] is not (1,).

    Numbers compare by value: 0.0 equals -0.0, ``Decimal("1.50")`` equals ``Decimal("1.5")``, and NaN equals nothing.
    The order of a dict's keys does not count.
    """
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return _kinds(left) == _kinds(right) and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, (set, frozenset)) and isinstance(right, (set, frozenset)):
        return _kinds(left) == _kinds(right)
    return left == right


def _kinds(values: Iterable[object]) -> set[object]:
    """Hashable values together with their types."""
    return {_kind(value) for value in values}


def _kind(value: object) -> object:
    if isinstance(value, tuple):
        return tuple, tuple(map(_kind, value))
    if isinstance(value, frozenset):
        return frozenset, frozenset(_kinds(value))
    return type(value), value if value == value else object()


def judge(worker: Worker, cases: Iterable[Case], deadline_s: float | None = None) -> list[Outcome]:
    """Make every call and judge what comes back; ``deadline_s`` holds for each.

    A call that ran into a limit is the last one: a function that hangs costs one limit, not one for every case.
    """
    outcomes: list[Outcome] = []
    for case in cases:
        result = worker.call(case.call, *case.args, named=case.named, deadline_s=deadline_s)
        outcomes.append(_outcome(case, result))
        if isinstance(result, Broken) and result.limit is not None:
            break
    return outcomes


def verdict(row: str, outcomes: Sequence[Outcome]) -> Verdict:
    """The row is earned where there are outcomes and all of them passed."""
    failed = [outcome for outcome in outcomes if not outcome.passed]
    hidden = "\n".join(outcome.hidden for outcome in failed)
    if not outcomes:
        return Verdict(row, False, "no hidden case was tried")
    if not failed:
        return Verdict(row, True, f"all {len(outcomes)} hidden cases passed")
    said = "; ".join(clipped(outcome.said, MAX_SAID_CHARS) for outcome in failed[:MAX_SHOWN])
    return Verdict(row, False, f"{len(failed)} of {len(outcomes)} hidden cases failed: {said}", hidden)


def clipped(text: str, longest: int) -> str:
    """The text without characters that do not print, cut to ``longest`` characters."""
    printable = "".join(char if char.isprintable() else "?" for char in text[: longest + 1])
    return printable if len(printable) <= longest else printable[: longest - 1] + "…"


def _outcome(case: Case, result: Result) -> Outcome:
    wrong = _wrong(case, result)
    said = f"{case.call}(…), {case.about}: {_public(result)}"
    arguments = ", ".join([*map(repr, case.args), *(f"{name}={value!r}" for name, value in case.named.items())])
    hidden = f"{case.call}({clipped(arguments, MAX_SHOWN_VALUE_CHARS)}), {case.about}: {_full(result)}"
    if wrong is None:
        return Outcome(case, True, f"{said}, as expected", f"{hidden}, as expected")
    return Outcome(case, False, f"{said}; expected {_expected(case, result)}", f"{hidden}; {wrong}")


def _wrong(case: Case, result: Result) -> str | None:
    """What is wrong with a result, in full; None where nothing is."""
    if case.raises is not None:
        raised = isinstance(result, Raised) and not result.importing and case.raises in (result.type, *result.bases)
        return None if raised else f"expected {case.raises}"
    if case.holds is None:
        right = isinstance(result, Returned) and same(result.value, case.expected)
        return None if right else f"expected {clipped(repr(case.expected), MAX_SHOWN_VALUE_CHARS)}"
    if not isinstance(result, Returned):
        return "expected a value"
    try:
        return case.holds(result.value)
    except Exception as error:
        return f"the property cannot be applied to this value ({type(error).__name__}: {error})"


def _expected(case: Case, result: Result) -> str:
    """What was expected, in public words."""
    if case.raises is not None:
        return f"the exception {case.raises}"
    if case.holds is not None:
        return "a value with the property that was asked for"
    other = isinstance(result, Returned) and _shape(result.value) == _shape(case.expected)
    return f"{_shape(case.expected)} with other content" if other else _shape(case.expected)


def _public(result: Result) -> str:
    """What came back, in words that tell no value. Names that the delivery chose are not repeated either."""
    match result:
        case Returned(value):
            return f"it returned {_shape(value)}"
        case Raised(name, _, _, importing):
            known = f"raised {name}" if isinstance(vars(builtins).get(name), type) else "raised an exception"
            return f"its module could not be used: that {known}" if importing else f"it {known}"
        case Broken(reason):
            return reason


def _full(result: Result) -> str:
    match result:
        case Returned(value):
            return f"it returned {clipped(repr(value), MAX_SHOWN_VALUE_CHARS)}"
        case Raised(name, message, _, importing):
            what = clipped(f"{name}: {message}", MAX_SHOWN_VALUE_CHARS)
            return f"its module could not be used: {what}" if importing else f"it raised {what}"
        case Broken(reason, _, detail):
            return f"{reason} ({clipped(detail, MAX_SHOWN_VALUE_CHARS)})" if detail else reason


def _shape(value: object) -> str:
    """Type and size of a value, in words."""
    if value is None or isinstance(value, bool):
        return "a truth value" if value is not None else "None"
    if isinstance(value, (int, float, Decimal)):
        return {int: "an integer", float: "a float"}.get(type(value), "a decimal")
    if isinstance(value, (str, list, tuple, dict, set, frozenset)):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"a {type(value).__name__}"
