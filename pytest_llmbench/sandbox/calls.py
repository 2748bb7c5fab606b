"""Calls into delivered code, judged from outside: one JSON line per call, and nothing that comes back is trusted.

No expected value enters the sandbox, and every call carries a fresh token. So the most that delivered code can forge is
its own answer to its own call, which is no more than it could have returned.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from pytest_llmbench.sandbox import worker
from pytest_llmbench.sandbox.jail import Ended, Ending, Jail, Limits, Profile, Sandbox, TooLate
from pytest_llmbench.sandbox.processor import current, kept_on
from pytest_llmbench.sandbox.worker import (
    COMPARISONS,
    MARK,
    MAX_BASES,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_LINE_BYTES,
    MAX_MESSAGE_CHARS,
    Text,
    revived,
)

DEFAULT_CALL_DEADLINE_S: Final = 10.0
"""Seconds of real time for one call where the caller says nothing."""
START_DEADLINE_S: Final = 30.0
"""Seconds until a new worker must have said that it is there; none of the delivered code has run by then."""
MAX_RESTARTS: Final = 3
"""Workers that replace one that a call has ended. A delivery that has ended these too gets no further call."""

WORKER_LIFE: Final = 0.5
"""Part of the CPU limit, in real time, after which a worker gets no new call: each call has the other part at least."""
MAX_NAME_CHARS: Final = 80
"""A longer name of an exception's class is cut."""

CALL_DEADLINE: Final = "call_deadline_s"
"""The limit that a ``Broken`` names where a call's deadline has passed."""

_PROGRAM: Final = Path(worker.__file__)
_FILE_LIMITS: Final = ("disk_bytes", "files")
"""Limits that the delivered files alone can pass."""
_READY: Final = b'{"ready":true}'
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
_LONG_NUMBER: Final = re.compile(rb"(?<![0-9])[0-9]{%d}" % (MAX_DIGITS + 1))
_MARKED: Final = f'"{MARK}"'.encode()
_NO_BRACKET: Final = re.compile(rb"[^\[\]{}]++")
_OPERATIONS: Final = (*COMPARISONS, None)
_OPERATION: Final = re.compile(rb"\[[0-9]{1,9}(?:, ?[0-9]{1,9}){5,}\]")


class WorkerFault(Exception):
    """The worker did not start, before any delivered code ran: the fault is not the delivery's."""


@dataclass(frozen=True)
class Returned:
    """The call came back with a value."""

    value: Any
    """None, bool, int, float, str, list, tuple, dict with text keys, set, frozenset or Decimal; exactly these types."""


@dataclass(frozen=True)
class Raised:
    """The call ended in an exception."""

    type: str
    """Name of its class."""
    message: str
    """Its text, cut to a moderate length."""
    bases: tuple[str, ...] = ()
    """Names of the base classes of its class."""
    importing: bool = False
    """The module could not be imported, or has no such function: the function was never called."""


@dataclass(frozen=True)
class Broken:
    """The call gave no usable answer."""

    reason: str
    limit: str | None = None
    """Name of the limit that ended it."""
    detail: str = ""
    """What the delivered code itself says of it; not to be believed and not to be shown with a hidden case."""


Result = Returned | Raised | Broken


class Overdrawn(Exception):
    """A remote argument refuses to go on: the named limit is passed."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


class Remote(ABC):
    """An argument of a call that stays outside: the delivered code gets a stand-in and asks for every operation."""

    @abstractmethod
    def __len__(self) -> int:
        """The length that the stand-in shows."""

    @abstractmethod
    def begin(self) -> None:
        """A call starts: forget what was counted before."""

    @abstractmethod
    def operate(
        self, operation: str | None, left: int, right: int, foreign: int, mutations: int, reads: Sequence[int]
    ) -> bool:
        """Take note of what the stand-in reports, and compare what two reads gave.

        Args:
            operation: name of the comparison's method; None where nothing is compared, and the result is not used.
            left, right: reads, numbered from 0 in the order of their arrival.
            foreign: comparisons with something that is no element.
            mutations: attempts to change the sequence.
            reads: positions that were read.

        Raises:
            Overdrawn: where a limit is passed.
            IndexError: where no honest stand-in would say this.
        """


class _Unusable(Exception):
    """What came from the worker breaks the protocol."""


class Worker:
    """Calls into one module of a delivery. Made by ``open_worker``.

    A worker that has died, hung or broken the protocol is replaced for the next call, in a fresh directory, at most
    ``MAX_RESTARTS`` times; a call that a remote argument has ended does not count. One that is ``WORKER_LIFE`` of its
    CPU limit old is replaced too, so that the limit holds for a call and not for all calls together.
    """

    def __init__(
        self, sandbox: Sandbox, files: Mapping[str, bytes], module: str, profile: Profile, limits: Limits | None
    ) -> None:
        self._sandbox, self._files, self._module = sandbox, files, module
        self._profile, self._limits = profile, limits
        self._life_s = WORKER_LIFE * (limits or sandbox.limits).cpu_s
        self._broken = 0
        self._jail: Jail | None = None
        self._stack = ExitStack()
        self._old_at = 0.0
        self._processor: int | None = None

    def call(
        self,
        name: str,
        *arguments: object,
        named: Mapping[str, object] | None = None,
        deadline_s: float | None = None,
    ) -> Result:
        """Call a function of the module.

        Args:
            name: of the function.
            arguments: None, bool, int, float, str, list, tuple, dict with text keys, set, frozenset, Decimal, of these
                exact types and at most 64 deep; or a ``Remote`` by itself.
            named: keyword arguments.
            deadline_s: seconds of real time; ``DEFAULT_CALL_DEADLINE_S`` without.

        Returns:
            Whatever the delivered code does ends in one of the three results, never in an exception.

        Raises:
            TypeError: for arguments that cannot be sent.
            WorkerFault: where no worker starts.
        """
        remotes = [argument for argument in arguments if isinstance(argument, Remote)]
        token = secrets.token_hex()
        request = _request(token, name, arguments, named or {})
        if self._broken > MAX_RESTARTS:
            return Broken(f"not called: earlier calls have ended {self._broken} workers")
        for remote in remotes:
            remote.begin()
        deadline = DEFAULT_CALL_DEADLINE_S if deadline_s is None else deadline_s
        if self._jail is None:
            self._processor = current()
        try:
            with kept_on(self._processor):
                line = _served(self._asked(request), remotes, deadline)
            return _answer(line, token)
        except TooLate:
            broken = Broken(f"no answer within {deadline:g} s", CALL_DEADLINE)
        except Ended as ended:
            broken = Broken(_end_of(ended.ending), ended.ending.limit)
        except Overdrawn as overdrawn:
            self.close()
            return Broken(f"more {overdrawn.limit} than allowed", overdrawn.limit)
        except _Unusable as unusable:
            broken = Broken(str(unusable))
        self._broken += 1
        self.close()
        return broken

    def close(self) -> None:
        """End the worker that runs, if any, with all that it left behind."""
        self._jail = None
        self._stack.close()

    def _asked(self, request: bytes) -> Jail:
        """A worker that has got the request. One that has ended since the last call is replaced."""
        if self._jail is not None and time.monotonic() < self._old_at:
            try:
                self._jail.send(request)
                return self._jail
            except Ended:
                self._broken += 1
        jail = self._started()
        jail.send(request)
        return jail

    def _started(self) -> Jail:
        self.close()
        workdir = self._stack.enter_context(self._sandbox.workdir(self._files))
        jail = self._stack.enter_context(
            self._sandbox.start(_PROGRAM, [self._module], workdir, profile=self._profile, limits=self._limits)
        )
        try:
            line = jail.read_line(START_DEADLINE_S, MAX_LINE_BYTES)
        except TooLate:
            line = b""
        except Ended as ended:
            if ended.ending.limit in _FILE_LIMITS:
                raise
            line = ended.ending.errors
        if line != _READY:
            self.close()
            raise WorkerFault(f"no worker started in layer {self._sandbox.layer}: {line[-MAX_MESSAGE_CHARS:]!r}")
        self._old_at = time.monotonic() + self._life_s
        self._jail = jail
        return jail


@contextmanager
def open_worker(
    sandbox: Sandbox,
    files: Mapping[str, str],
    module: str,
    profile: Profile = "pure",
    limits: Limits | None = None,
) -> Iterator[Worker]:
    """A worker for ``module`` in a fresh directory that holds ``files``; ended and removed when the block is left.

    Raises:
        ValueError: where the module has the name of one of the standard library, which would be imported instead.
    """
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ValueError(f"{module} is a module of the standard library")
    held = {name: content.encode("utf-8", "surrogatepass") for name, content in files.items()}
    opened = Worker(sandbox, held, module, profile, limits)
    try:
        yield opened
    finally:
        opened.close()


def _request(token: str, name: str, arguments: Sequence[object], named: Mapping[str, object]) -> bytes:
    text = Text()
    number = 0
    try:
        text.raw(f'{{"t":"{token}","call":')
        text.value(name)
        text.raw(',"args":[')
        for position, argument in enumerate(arguments):
            text.raw("," if position else "")
            if isinstance(argument, Remote):
                text.raw(f'{{"{MARK}":["remote",[{number},{len(argument)}]]}}')
                number += 1
            else:
                text.value(argument)
        text.raw('],"named":')
        text.value(dict(named))
    except worker.Unsupported as unsupported:
        raise TypeError(f"the argument cannot be sent: {unsupported}") from None
    return f"{text}}}\n".encode("ascii")


def _served(jail: Jail, remotes: Sequence[Remote], deadline_s: float) -> bytes:
    """Serve the remote arguments of a call until it is over, and return the line that is its answer."""
    stop = time.monotonic() + deadline_s
    while True:
        line = jail.read_line(max(0.0, stop - time.monotonic()), MAX_LINE_BYTES)
        if not line.startswith(b"["):
            break
        answer = _operate(line, remotes)
        if answer is not None:
            jail.send(answer)
    try:
        jail.read_line(0.0, MAX_LINE_BYTES)
    except (TooLate, Ended):
        return line
    raise _Unusable("more than one answer was written")


def _operate(line: bytes, remotes: Sequence[Remote]) -> bytes | None:
    """What a report of a remote argument is answered with; None: nothing."""
    if not _OPERATION.fullmatch(line):
        raise _Unusable("a malformed operation")
    number, operation, left, right, foreign, mutations, *reads = map(int, line[1:-1].split(b","))
    try:
        name = _OPERATIONS[operation]
        answer = remotes[number].operate(name, left, right, foreign, mutations, reads)
    except IndexError:
        raise _Unusable("an operation on something that is not there") from None
    return None if name is None else b"1\n" if answer else b"0\n"


def _answer(line: bytes, token: str) -> Result:
    answer = _parse(line)
    if isinstance(answer, dict) and answer.pop("t", None) == token:
        match list(answer.items()):
            case [("ok", value)]:
                return Returned(_value(value, _MARKED in line))
            case [("exc", [str(stage), [*names], str(message)])] if names and all(isinstance(n, str) for n in names):
                kept = [name[:MAX_NAME_CHARS] for name in names[: 1 + MAX_BASES]]
                return Raised(kept[0], message[:MAX_MESSAGE_CHARS], tuple(kept[1:]), stage == "import")
            case [("unsupported", str(reason))]:
                return Broken("unsupported type or size of the returned value", detail=reason[:MAX_MESSAGE_CHARS])
    raise _Unusable("an answer that does not belong to the call")


def _value(tree: object, marked: bool) -> object:
    if not marked:
        return tree
    try:
        return revived(tree)
    except (ValueError, TypeError, KeyError, ArithmeticError):
        raise _Unusable("a malformed value") from None


def _parse(line: bytes) -> object:
    """A line as JSON; depth and lengths of numbers are checked before anything is built."""
    bare = _STRING.sub(b"", line)
    if _LONG_NUMBER.search(bare):
        raise _Unusable(f"a number of more than {MAX_DIGITS} digits")
    # One level for the answer itself, and up to two more for each tagged value.
    if _depth(bare) > 1 + MAX_DEPTH * (1 + 2 * (_MARKED in line)):
        raise _Unusable(f"a value nested deeper than {MAX_DEPTH}")
    try:
        return _DECODER.decode(line.decode("ascii"))
    except (ValueError, RecursionError):
        raise _Unusable("no strict JSON") from None


def _depth(bare: bytes) -> int:
    """How deep brackets are nested in JSON without its strings; a larger number where there are few of them."""
    if (opened := bare.count(b"[") + bare.count(b"{")) <= MAX_DEPTH:
        return opened
    level = deepest = 0
    for bracket in _NO_BRACKET.sub(b"", bare):
        level += 1 if bracket in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key twice")
    return members


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse_constant)


def _end_of(ending: Ending) -> str:
    if ending.limit is not None:
        return f"ended by the limit {ending.limit}"
    if ending.code is not None and ending.code < 0:
        return f"the process was ended by signal {-ending.code} during the call"
    return f"the process ended with exit code {ending.code} during the call"
