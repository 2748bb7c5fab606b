"""The program inside the sandbox: ``worker.py MODULE`` answers calls into a delivered module, one JSON line each.

The delivered code shares this process and can do anything to it. No verdict rests on what stands here: whatever comes
out is judged outside, by ``calls.py``, which also uses the value format below. This file therefore serves honest code
and clear reports, and it starts fast: it is compiled anew for every process, so it imports next to nothing.

Values travel as JSON with exact types. What JSON lacks is an object with the one key ``~``, such as
``{"~": ["tuple", [1, 2]]}``; likewise ``set``, ``frozenset``, ``decimal`` (its text) and ``dict`` (one that has the key
``~`` itself). Two halves of a surrogate pair side by side in a text arrive as the one character they stand for.
"""

from __future__ import annotations

import builtins
import os
import sys
from _collections_abc import Callable, Iterable, Iterator, Sequence
from _json import encode_basestring_ascii, make_scanner
from _operator import index as as_index
from _thread import allocate_lock
from os import _exit as leave_at_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Functions defined below keep these builtins whatever the delivered code does to the common ones.
globals()["__builtins__"] = dict(vars(builtins))

MAX_DEPTH = 64
"""A value nested deeper is unsupported; it also ends values that hold themselves."""
MAX_DIGITS = 400
"""An integer or decimal of more digits is unsupported."""
MAX_VALUE_BYTES = 4_000_000
"""A value whose text is longer is unsupported."""
MAX_LINE_BYTES = 4_194_304
"""A longer line is refused: a value and what stands around it."""
MAX_SET_ITEMS = 1_000
"""A larger set is unsupported: elements chosen for equal hashes make the time for building it grow with the square."""
MAX_MESSAGE_CHARS = 300
"""A longer message of an exception is cut."""
MAX_BASES = 20
"""Of more base classes of an exception, the first ones are told."""
READ_CHUNK_BYTES = 65_536
"""What is read from the pipe at once."""
BATCH = 512
"""What happens to a remote sequence and needs no answer is reported in batches of this size at the latest."""

MARK = "~"
TOO_BIG = int("1" + "0" * MAX_DIGITS)
COMPARISONS = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")
REPORT = len(COMPARISONS)
"""Operation of a line that asks nothing and only reports."""
MUTATORS = (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear"),
    *("extend", "insert", "pop", "remove", "reverse", "sort"),
)


class Unsupported(Exception):
    """The value cannot leave the sandbox; the message names its type or its size."""


class Text:
    """JSON text of values, built up part by part, with caps on depth, digits and bytes."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._left = MAX_VALUE_BYTES

    def __str__(self) -> str:
        return "".join(self._parts)

    def raw(self, text: str) -> None:
        """Append text as it is."""
        self._left -= len(text)
        if self._left < 0:
            raise Unsupported(f"a value of more than {MAX_VALUE_BYTES} bytes")
        self._parts.append(text)

    def value(self, value: Any, depth: int = 1) -> None:
        """Append a value. Exact types only: a subclass could say anything of itself.

        Raises:
            Unsupported: for any other type, and over a cap.
        """
        kind = type(value)
        if kind is int:
            if not -TOO_BIG < value < TOO_BIG:
                raise Unsupported(f"an integer of more than {MAX_DIGITS} digits")
            self.raw(int.__repr__(value))
        elif kind is str:
            self.raw(encode_basestring_ascii(value))
        elif value is None:
            self.raw("null")
        elif kind is bool:
            self.raw("true" if value else "false")
        elif kind is float:
            text = float.__repr__(value)
            if text in ("nan", "inf", "-inf"):
                raise Unsupported(f"the number {text}")
            self.raw(text)
        elif kind is list:
            self._items(value, depth)
        elif kind is dict:
            self._members(value, depth)
        elif kind in (tuple, set, frozenset):
            if kind is not tuple and len(value) > MAX_SET_ITEMS:
                raise Unsupported(f"a set of more than {MAX_SET_ITEMS} elements")
            self._tagged(kind.__name__)
            self._items(value, depth)
            self.raw("]}")
        else:
            self._decimal(value, kind)

    def _tagged(self, tag: str) -> None:
        self.raw(f'{{"{MARK}":["{tag}",')

    def _items(self, values: Iterable[object], depth: int) -> None:
        self._check(depth)
        before = "["
        for value in values:
            self.raw(before)
            self.value(value, depth + 1)
            before = ","
        self.raw("]" if before == "," else "[]")

    def _members(self, members: dict[object, object], depth: int) -> None:
        self._check(depth)
        marked = MARK in members
        if marked:
            self._tagged("dict")
        before = "{"
        for key, value in members.items():
            if type(key) is not str:
                raise Unsupported(f"a dict with a key of type {type(key).__name__}")
            self.raw(before)
            self.raw(encode_basestring_ascii(key))
            self.raw(":")
            self.value(value, depth + 1)
            before = ","
        self.raw("}" if before == "," else "{}")
        if marked:
            self.raw("]}")

    def _check(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Unsupported(f"a value nested deeper than {MAX_DEPTH}")

    def _decimal(self, value: object, kind: type) -> None:
        decimal: Any = sys.modules.get("decimal")
        if decimal is None or kind is not decimal.Decimal:
            raise Unsupported(f"type {type.__repr__(kind)}")
        text = kind.__str__(value)
        if not usable_decimal(text):
            raise Unsupported("a decimal that is not finite or too long")
        self._tagged("decimal")
        self.raw(f'"{text}"]}}')


def usable_decimal(text: object) -> bool:
    """Whether this is the text of a finite decimal of moderate length."""
    return type(text) is str and len(text) <= MAX_DIGITS and set(text) <= set("0123456789+-.E")


def revived(tree: object) -> object:
    """The value of a parsed JSON tree.

    Raises:
        ValueError, TypeError, ArithmeticError: where the tree does not follow the format.
    """
    if type(tree) is list:
        return [revived(item) for item in tree]
    if type(tree) is not dict:
        return tree
    if MARK not in tree:
        return {key: revived(item) for key, item in tree.items()}
    [(tag, content)] = tree.values()
    if tag == "decimal":
        return revived_decimal(content)
    if tag == "dict" and type(content) is dict:
        return {key: revived(item) for key, item in content.items()}
    if type(content) is not list:
        raise ValueError("malformed value")
    items = [revived(item) for item in content]
    if tag == "tuple":
        return tuple(items)
    if len(items) > MAX_SET_ITEMS:
        raise ValueError(f"a set of more than {MAX_SET_ITEMS} elements")
    distinct = {"set": set, "frozenset": frozenset}[tag](items)
    if len(distinct) != len(items):
        raise ValueError("a set with an element twice")
    return distinct


def revived_decimal(text: object) -> object:
    """The decimal of this text.

    Raises:
        ValueError, ArithmeticError: where it is none, or one of a huge exponent.
    """
    from decimal import Decimal

    if not usable_decimal(text):
        raise ValueError("malformed decimal")
    value = Decimal(text)  # type: ignore[arg-type]
    if abs(value.adjusted()) > MAX_DIGITS:
        raise ValueError("a decimal of a huge exponent")
    return value


class Channel:
    """The pipe to the grader, taken away from the standard streams, which then hold and keep nothing."""

    def __init__(self) -> None:
        self._source, self._sink = os.dup(0), os.dup(1)
        self._read, self._write = os.read, os.write
        self._buffer = b""
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)

    def read_line(self) -> bytes:
        """The next line; the end of the pipe ends the process."""
        buffer = self._buffer
        while b"\n" not in buffer:
            chunk = self._read(self._source, READ_CHUNK_BYTES)
            if not chunk:
                leave_at_once(0)
            buffer += chunk
        line, _, self._buffer = buffer.partition(b"\n")
        return line

    def write_line(self, text: str) -> None:
        """Write one line; the text holds ASCII only."""
        data = (text + "\n").encode()
        written = self._write(self._sink, data)
        while written < len(data):
            written += self._write(self._sink, data[written:])


class RemoteSequence(Sequence):  # type: ignore[type-arg]
    """A sequence whose elements stay outside. Every read and every comparison of two elements is told to the grader.

    A read needs no answer: both sides number the reads, and a number means nothing outside before its read has arrived.
    """

    def __init__(self, channel: Channel, number: int, length: int) -> None:
        self._channel, self._number, self._length = channel, number, length
        self._lock = allocate_lock()
        self._unreported: list[int] = []
        self._reads = self._foreign = self._mutations = 0
        self._over = False

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._read(at) for at in range(*index.indices(self._length))]
        at = as_index(index)
        if not -self._length <= at < self._length:
            raise IndexError("sequence index out of range")
        return self._read(at % self._length)

    def __iter__(self) -> Iterator[object]:
        for at in range(self._length):
            yield self._read(at)

    def _read(self, at: int) -> Element:
        with self._lock:
            self._unreported.append(at)
            serial = self._reads
            self._reads += 1
            self._report_many()
            return Element(self, serial)

    def _report_many(self) -> None:
        if len(self._unreported) + self._foreign + self._mutations >= BATCH:
            self._report(REPORT, 0, 0)

    def _report(self, operation: int, left: int, right: int) -> None:
        if self._over:
            raise RuntimeError("the call that this sequence belongs to is over")
        reads = str(self._unreported)[1:-1]
        line = f"[{self._number},{operation},{left},{right},{self._foreign},{self._mutations}"
        self._foreign = self._mutations = 0
        self._unreported.clear()
        self._channel.write_line(f"{line},{reads}]" if reads else f"{line}]")

    def compare(self, operation: int, left: int, right: int) -> bool:
        """Ask the grader to compare the elements of two reads."""
        with self._lock:
            self._report(operation, left, right)
            return self._channel.read_line() == b"1"

    def count_foreign(self) -> None:
        """Count a comparison with something that is no element of this sequence."""
        with self._lock:
            self._foreign += 1
            self._report_many()

    def count_mutation(self) -> None:
        """Count an attempt to change the sequence."""
        with self._lock:
            self._mutations += 1
            self._report_many()

    def close(self) -> None:
        """Report the rest; threads that are left cannot use the channel from here on."""
        with self._lock:
            self._report(REPORT, 0, 0)
            self._over = True


class Element:
    """What a read of a remote sequence gives: it can be compared with other elements, and that is all."""

    __slots__ = ("sequence", "serial")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, sequence: RemoteSequence, serial: int) -> None:
        self.sequence, self.serial = sequence, serial

    def __repr__(self) -> str:
        return "<element>"


def comparison(operation: int) -> Callable[[Element, object], Any]:
    """One of the six comparisons of elements."""

    def compare(self: Element, other: object) -> Any:
        if type(other) is Element and other.sequence is self.sequence:
            return self.sequence.compare(operation, self.serial, other.serial)
        self.sequence.count_foreign()
        return NotImplemented

    return compare


def mutator(name: str) -> Callable[..., object]:
    """A method that would change the sequence: it is counted and refused."""

    def refuse(self: RemoteSequence, *_: object, **__: object) -> object:
        self.count_mutation()
        raise TypeError(f"the sequence cannot be changed: {name}")

    return refuse


for _operation, _name in enumerate(COMPARISONS):
    setattr(Element, _name, comparison(_operation))
for _name in MUTATORS:
    setattr(RemoteSequence, _name, mutator(_name))


def told(error: BaseException, stage: str) -> str:
    """The JSON text of an exception: stage, names of its type and its bases, message."""
    try:
        message = str.__getitem__(str(error), slice(MAX_MESSAGE_CHARS))
    except BaseException:
        message = "<no message>"
    text = Text()
    names = [type.__dict__["__name__"].__get__(kind) for kind in type.mro(type(error))[:MAX_BASES]]
    text.value([stage, names, message])
    return f'"exc":{text}'


class ScanContext:
    """What the JSON scanner asks of its context. Requests come from the grader and are not checked."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float

    def __init__(self) -> None:
        self.memo: dict[str, str] = {}


class Server:
    """Answers calls into one module, which is imported with the first of them."""

    def __init__(self, module: str, channel: Channel) -> None:
        self._name, self._channel = module, channel
        self._imported = False
        self._import_error: BaseException | None = None

    def serve(self) -> None:
        """Answer for ever."""
        scan: Any = make_scanner(ScanContext())  # type: ignore[arg-type]
        self._channel.write_line('{"ready":true}')
        while True:
            request, _ = scan(self._channel.read_line().decode(), 0)
            answer = self._answer(request["call"], request["args"], request["named"])
            self._channel.write_line(f'{{"t":"{request["t"]}",{answer}}}')

    def _answer(self, name: str, arguments: list[object], named: dict[str, object]) -> str:
        remotes: list[RemoteSequence] = []
        positional = [self._argument(argument, remotes) for argument in arguments]
        keywords: Any = revived(named)
        stage = "import"
        try:
            function = self._function(name)
            stage = "call"
            value = function(*positional, **keywords)
        except BaseException as error:
            return told(error, stage)
        finally:
            for remote in remotes:
                remote.close()
        text = Text()
        try:
            text.value(value)
        except BaseException as error:
            reason = str(error) if type(error) is Unsupported else "a value that changed while it was read"
            return f'"unsupported":{encode_basestring_ascii(reason)}'
        return f'"ok":{text}'

    def _argument(self, argument: Any, remotes: list[RemoteSequence]) -> object:
        if type(argument) is dict and MARK in argument and argument[MARK][0] == "remote":
            number, length = argument[MARK][1]
            remotes.append(RemoteSequence(self._channel, number, length))
            return remotes[-1]
        return revived(argument)

    def _function(self, name: str) -> Callable[..., object]:
        if not self._imported:
            self._imported = True
            try:
                __import__(self._name)
            except BaseException as error:
                self._import_error = error
        if self._import_error is not None:
            raise self._import_error
        function: object = getattr(sys.modules[self._name], name)
        if not callable(function):
            raise TypeError(f"{name} is no function")
        return function


def leave(code: object = None) -> None:
    """What ``exit`` and ``quit`` do; the interpreter starts without them here."""
    raise SystemExit(code)


def main(module: str) -> None:
    """Serve calls into ``module`` of the current directory until the pipe closes."""
    channel = Channel()
    vars(builtins).update(exit=leave, quit=leave)
    sys.dont_write_bytecode = True
    # Behind the standard library, so that no delivered file stands in for one of its modules.
    sys.path.append(os.getcwd())
    Server(module, channel).serve()


if __name__ == "__main__":
    main(sys.argv[1])
