"""Calls into delivered code: values keep their exact types, and nothing that a worker says can harm the grader."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandbox.confined import LIMITS, confined

from pytest_llmbench.grading.hidden_tests import same
from pytest_llmbench.sandbox.calls import (
    CALL_DEADLINE,
    DEFAULT_CALL_DEADLINE_S,
    MAX_RESTARTS,
    Broken,
    Raised,
    Result,
    Returned,
    Worker,
    open_worker,
)
from pytest_llmbench.sandbox.worker import MAX_DEPTH, MAX_DIGITS, MAX_LINE_BYTES, MAX_MESSAGE_CHARS

SOURCE = r'''
import gc, os, sys, threading, time, zlib
from decimal import Decimal, InvalidOperation

calls = []

def echo(value): return value
def named(first, *, second=0): return [first, second]
def counted():
    calls.append(1)
    return len(calls)
def fail(message): raise UnicodeError(message)
def spin():
    while True: pass
def end(code): os._exit(code)
def end_later(delay):
    threading.Timer(delay, os._exit, [0]).start()
    return "later"
def work(cpu_s):
    stop = time.process_time() + cpu_s
    while time.process_time() < stop: pass
    return "worked"
def leave(): raise SystemExit(3)
def read(): return [sys.stdin.read(), os.read(0, 10).decode()]
def chat():
    for _ in range(3000):
        print("x" * 100); print("y" * 100, file=sys.stderr)
    return "done"
def evaluate(text): return eval(text)
def nested(depth):
    value = []
    for _ in range(depth - 1): value = [value]
    return value
def channel(): return next(o for o in gc.get_objects() if type(o).__name__ == "Channel")
def token(): return sys._getframe(4).f_locals["request"]["t"]
def write(data):
    """Write these bytes in place of an answer; @ stands for the token of the call."""
    raw = memoryview(zlib.decompress(bytes.fromhex(data)).replace(b"@", token().encode()))
    while raw: raw = raw[os.write(channel()._sink, raw):]
def say(data):
    write(data)
    os._exit(0)
def say_and_stay(data):
    write(data)
    time.sleep(60)
def then_say(value, data):
    """Answer, and write these bytes behind the answer."""
    raw = zlib.decompress(bytes.fromhex(data))
    say_later = lambda: (time.sleep(0.05), os.write(channel()._sink, raw))
    threading.Thread(target=say_later, daemon=True).start()
    return value
'''
FILES = {"delivered.py": SOURCE}
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 1]).map(lambda sign: sign * (10**MAX_DIGITS - 1)),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.sampled_from(["\ud800", "\udfff x", "~", "\x00\x1f\x7f\u2028", '"\\/']),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9),
)
HASHABLE: st.SearchStrategy[Any] = st.deferred(
    lambda: SCALARS | st.lists(HASHABLE, max_size=3).map(tuple) | st.frozensets(HASHABLE, max_size=3)
)
KEYS = st.text(max_size=5) | st.just("~")
VALUES: st.SearchStrategy[Any] = st.deferred(
    lambda: st.one_of(
        HASHABLE,
        st.lists(VALUES, max_size=4),
        st.lists(VALUES, max_size=3).map(tuple),
        st.dictionaries(KEYS, VALUES, max_size=4),
        st.sets(HASHABLE, max_size=3),
    )
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with open_worker(confined(), FILES, "delivered") as opened:
        yield opened


def call(name: str, *arguments: object, deadline_s: float | None = None) -> Result:
    """One call in a worker of its own."""
    with open_worker(confined(), FILES, "delivered") as opened:
        return opened.call(name, *arguments, deadline_s=deadline_s)


def said(data: bytes, name: str = "say", deadline_s: float | None = None) -> Result:
    """What the grader makes of these bytes in place of an answer."""
    return call(name, packed(data), deadline_s=deadline_s)


def packed(data: bytes) -> str:
    """Bytes as the delivered code of these tests takes them."""
    return zlib.compress(data).hex()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
def test_any_value_comes_back_with_its_exact_types(worker: Worker, value: Any) -> None:
    result = worker.call("echo", value)
    assert isinstance(result, Returned)
    assert same(result.value, value)
    assert repr_of(result.value) == repr_of(value)


def repr_of(value: object) -> str:
    """A text that tells -0.0 from 0.0 and 1.50 from 1.5, without the order of sets."""
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}{sorted(map(repr_of, value))}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}{[repr_of(item) for item in value]}"
    if isinstance(value, dict):
        return f"dict{[(key, repr_of(item)) for key, item in value.items()]}"
    return repr(value)


def test_long_values_pass_in_both_directions(worker: Worker) -> None:
    for value in (list(range(20_000)), "ä" * 300_000, {str(n): n / 7 for n in range(5_000)}):
        assert worker.call("echo", value) == Returned(value)


@pytest.mark.parametrize(
    "text",
    [
        *("object()", "iter([])", "(x for x in [])", "range(3)", "b'x'", "bytearray(2)", "1j", "echo", "int", "sys"),
        *("{1: 2}", "{(): 1}", "type('I', (int,), {})(3)", "type('S', (str,), {})('a')", "type('L', (list,), {})()"),
        *("type('D', (dict,), {})()", "__import__('collections').OrderedDict(a=1)", "type('B', (bytes,), {})()"),
        *(
            "float('nan')",
            "float('-inf')",
            "Decimal('NaN')",
            "Decimal('sNaN')",
            "Decimal('-Infinity')",
            "[{'a': {1j}}]",
        ),
        *("10 ** 400", "-10 ** 400", "Decimal('1.' + '0' * 400)", "'x' * 5_000_000", "list(range(3_000_000))"),
        *(
            "type('D', (Decimal,), {})(1)",
            "[frozenset(range(1001))]",
            "Ellipsis",
            "NotImplemented",
            "memoryview(b'x')",
            "nested(65)",
        ),
    ],
)
def test_other_values_are_unsupported_and_cost_the_next_call_nothing(worker: Worker, text: str) -> None:
    result = worker.call("evaluate", text)
    assert isinstance(result, Broken)
    assert result.reason.startswith("unsupported")
    assert result.limit is None
    assert result.detail
    assert worker.call("echo", 1) == Returned(1)


@pytest.mark.parametrize("text", ["10 ** 400 - 1", "1 - 10 ** 400", "nested(64)", "Decimal('1E+400')", "True", "'~'"])
def test_values_at_the_edge_are_supported(worker: Worker, text: str) -> None:
    assert isinstance(worker.call("evaluate", text), Returned)


@pytest.mark.parametrize("argument", [object(), math.nan, 10**MAX_DIGITS, {1: 2}, b"x", Decimal("NaN"), [{"a": {1j}}]])
def test_an_argument_that_cannot_be_sent_is_an_error_of_the_grader(worker: Worker, argument: object) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        worker.call("echo", argument)


def test_an_exception_comes_back_with_its_bases_and_a_cut_message(worker: Worker) -> None:
    assert worker.call("fail", "é") == Raised(
        "UnicodeError", "é", ("ValueError", "Exception", "BaseException", "object")
    )
    result = worker.call("fail", "x" * 100_000)
    assert isinstance(result, Raised)
    assert len(result.message) == MAX_MESSAGE_CHARS


def test_every_exit_that_is_an_exception_is_one(worker: Worker) -> None:
    expected = {"SystemExit": "leave()", "NameError": "nothing", "InvalidOperation": "Decimal('x')"}
    expected |= {"KeyboardInterrupt": "(_ for _ in ()).throw(KeyboardInterrupt)", "GeneratorExit": "fail_with()"}
    for name, text in expected.items():
        result = worker.call("evaluate", text.replace("fail_with()", "(_ for _ in ()).throw(GeneratorExit)"))
        assert isinstance(result, Raised)
        assert result.type == name
        assert not result.importing
    for text in ("exit()", "quit(2)"):
        assert worker.call("evaluate", text) == Raised("SystemExit", text[5:-1] or "None", ("BaseException", "object"))


def test_standard_streams_lead_nowhere_and_never_block(worker: Worker) -> None:
    assert worker.call("read") == Returned(["", ""])
    assert worker.call("chat") == Returned("done")


def test_keyword_arguments_arrive(worker: Worker) -> None:
    assert worker.call("named", 1, named={"second": (2,)}) == Returned([1, (2,)])


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def f(:", "SyntaxError"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("raise KeyError(1)", "KeyError"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("f = 1", "TypeError"),
        ("", "AttributeError"),
        ("\ud800", "SyntaxError"),
        ("x = 1\x00", "SyntaxError"),
        ("input()", "EOFError"),
    ],
)
def test_a_module_that_cannot_be_used_says_so_on_every_call(source: str, error: str) -> None:
    with open_worker(confined(), {"delivered.py": source}, "delivered") as opened:
        for _ in range(2):
            result = opened.call("f")
            assert isinstance(result, Raised)
            assert result.importing
            assert error in (result.type, *result.bases)


def test_a_module_imports_its_siblings_but_none_instead_of_the_standard_library() -> None:
    files = {
        "delivered.py": "import json, rates\nfrom parts import deep\ndef f(): return [rates.R, json.dumps(1), deep.D]",
        "rates.py": "R = 7",
        "json.py": "def dumps(value): return 'mine'",
        "parts/__init__.py": "",
        "parts/deep.py": "D = 'below'",
    }
    with open_worker(confined(), files, "delivered") as opened:
        assert opened.call("f") == Returned([7, "1", "below"])
    with open_worker(confined(), files, "parts.deep") as opened:
        assert opened.call("__doc__") == Raised(
            "TypeError", "__doc__ is no function", ("Exception", "BaseException", "object"), importing=True
        )
    with pytest.raises(ValueError, match="standard library"), open_worker(confined(), files, "json"):
        pass


def test_one_worker_serves_all_calls_as_long_as_none_breaks_it(worker: Worker) -> None:
    with open_worker(confined(), FILES, "delivered") as opened:
        assert [opened.call("counted") for _ in range(3)] == [Returned(1), Returned(2), Returned(3)]
        assert opened.call("end", 0) == Broken("the process ended with exit code 0 during the call")
        assert opened.call("counted") == Returned(1)


def test_a_worker_that_ends_between_two_calls_is_replaced_without_a_word() -> None:
    with open_worker(confined(), FILES, "delivered") as opened:
        assert opened.call("end_later", 0.02) == Returned("later")
        time.sleep(0.2)
        assert opened.call("counted") == Returned(1)


def test_an_old_worker_is_replaced_so_that_calls_do_not_share_a_cpu_limit() -> None:
    limits = replace(LIMITS, cpu_s=1)
    with open_worker(confined(), FILES, "delivered", limits=limits) as opened:
        for _ in range(4):
            assert opened.call("work", 0.6) == Returned("worked")


def test_a_hang_is_broken_by_the_deadline_and_named() -> None:
    result = call("spin", deadline_s=0.2)
    assert isinstance(result, Broken)
    assert result.limit == CALL_DEADLINE
    assert DEFAULT_CALL_DEADLINE_S > 1


def test_so_many_workers_are_ended_and_no_more() -> None:
    with open_worker(confined(), FILES, "delivered") as opened:
        for code in range(MAX_RESTARTS + 1):
            assert isinstance(opened.call("end", code), Broken)
        result = opened.call("echo", 1)
    assert isinstance(result, Broken)
    assert result.reason.startswith("not called")


def test_arguments_that_nobody_reads_do_not_stop_the_grader() -> None:
    limits = replace(LIMITS, cpu_s=0.5, wall_s=2)
    with open_worker(confined(), FILES, "delivered", limits=limits) as opened:
        assert opened.call("say_and_stay", packed(b'{"t":"@","ok":1}\n')) == Returned(1)
        long = "x" * 1_000_000
        assert opened.call("echo", long) == Returned(long)


# --- what a worker may say -------------------------------------------------------------------------------------------

NOTHING_OF_USE = {
    "nothing": b"",
    "half a line": b'{"t":"@","ok":1}',
    "an empty line": b"\n",
    "no JSON": b"OK\n",
    "no UTF-8": b'{"t":"@","ok":"\xff"}\n',
    "UTF-8 that is not escaped": '{"t":"@","ok":"é"}\n'.encode(),
    "a byte order mark": b'\xef\xbb\xbf{"t":"@","ok":1}\n',
    "a wrong token": b'{"t":"%s","ok":1}\n' % (b"0" * 64),
    "no token": b'{"ok":1}\n',
    "a token that is no text": b'{"t":true,"ok":1}\n',
    "a value and an exception": b'{"t":"@","ok":1,"exc":["call",["ValueError"],""]}\n',
    "more than an answer": b'{"t":"@","ok":1,"passed":true}\n',
    "a key twice": b'{"t":"@","ok":0,"ok":1}\n',
    "a key twice inside": b'{"t":"@","ok":{"a":0,"a":1}}\n',
    "NaN": b'{"t":"@","ok":NaN}\n',
    "minus infinity": b'{"t":"@","ok":-Infinity}\n',
    "an infinite float": b'{"t":"@","ok":1e999}\n',
    "a surplus byte": b'{"t":"@","ok":1} x\n',
    "two answers": b'{"t":"@","ok":1}\n{"t":"@","ok":2}\n',
    "two answers in a line": b'{"t":"@","ok":1}{"t":"@","ok":2}\n',
    "a deep list": b'{"t":"@","ok":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
    "a deep object": b'{"t":"@","ok":' + b'{"a":' * 65 + b"1" + b"}" * 65 + b"}\n",
    "a list one level too deep": b'{"t":"@","ok":' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}\n",
    "brackets that never close": b"[" * 500_000 + b"\n",
    "a number of 401 digits": b'{"t":"@","ok":' + b"9" * (MAX_DIGITS + 1) + b"}\n",
    "a number of a million digits": b'{"t":"@","ok":-' + b"9" * 1_000_000 + b"}\n",
    "quotes without end": b'{"t":"@","ok":"' + b'\\"' * 500_000 + b"\n",
    "quotes in great number": b'"' * 1_000_001 + b"\n",
    "a line that is too long": b'{"t":"@","ok":"' + b"x" * MAX_LINE_BYTES + b'"}\n',
    "a list without an end": b'{"t":"@","ok":[' + b"1," * (MAX_LINE_BYTES // 2),
    "an unknown tag": b'{"t":"@","ok":{"~":["bytes","x"]}}\n',
    "a tag without a value": b'{"t":"@","ok":{"~":["tuple"]}}\n',
    "a tag beside a key": b'{"t":"@","ok":{"~":["tuple",[]],"a":1}}\n',
    "a tag that is no text": b'{"t":"@","ok":{"~":[[],[]]}}\n',
    "a tag that is a number": b'{"t":"@","ok":{"~":1}}\n',
    "a tuple of no list": b'{"t":"@","ok":{"~":["tuple","ab"]}}\n',
    "a set of lists": b'{"t":"@","ok":{"~":["set",[[]]]}}\n',
    "a set of equal hashes": b'{"t":"@","ok":{"~":["set",[%s]]}}\n'
    % b",".join(b"%d" % (n * (2**61 - 1)) for n in range(100_000)),
    "numbers of 400 digits": b'{"t":"@","ok":[' + b"9" * MAX_DIGITS + (b"," + b"9" * MAX_DIGITS) * 9_999 + b"}\n",
    "a set with an element twice": b'{"t":"@","ok":{"~":["set",[1,1]]}}\n',
    "a decimal that is a number": b'{"t":"@","ok":{"~":["decimal",1]}}\n',
    "a decimal that is none": b'{"t":"@","ok":{"~":["decimal","1-"]}}\n',
    "an infinite decimal": b'{"t":"@","ok":{"~":["decimal","Infinity"]}}\n',
    "a decimal of a huge exponent": b'{"t":"@","ok":{"~":["decimal","1E+999999"]}}\n',
    "a decimal of a tiny exponent": b'{"t":"@","ok":{"~":["decimal","1E-999999"]}}\n',
    "an exception without a name": b'{"t":"@","exc":["call",[],""]}\n',
    "an exception of numbers": b'{"t":"@","exc":["call",[1],""]}\n',
    "a base that is a list": b'{"t":"@","exc":["call",["A",["B"]],""]}\n',
    "a malformed operation": b"[0,1]\n",
    "an operation on nothing": b"[0,0,0,0,0,0]\n",
    "an operation of letters": b"[0,0,0,0,0,x]\n",
    "an operation of huge numbers": b"[0,0,0,0,0," + b"9" * 100_000 + b"]\n",
    "a pickle": b"\x80\x04cos\nsystem\n(S'echo'\ntR.\n",
}


@pytest.mark.parametrize("name", NOTHING_OF_USE)
def test_an_answer_out_of_form_is_no_answer(name: str) -> None:
    result = said(NOTHING_OF_USE[name])
    assert isinstance(result, Broken)
    assert len(result.reason) < 200
    assert result.reason.isprintable()


def test_a_delivery_of_more_bytes_than_the_disk_holds_is_broken_and_names_the_limit() -> None:
    limits = replace(LIMITS, disk_bytes=100_000)
    if not confined().confined:
        pytest.skip("this machine cannot confine")
    files = {"delivered.py": "import time\ntime.sleep(5)\ndef f(): return 1\n#" + "x" * 1_000_000}
    with open_worker(confined(), files, "delivered", limits=limits) as opened:
        result = opened.call("f")
    assert isinstance(result, Broken)
    assert result.limit == "disk_bytes"


def test_a_flood_is_stopped() -> None:
    result = said(b"x" * (MAX_LINE_BYTES + 1_000), "say_and_stay", deadline_s=10)
    assert isinstance(result, Broken)
    assert result.limit == "output_bytes"


def test_garbage_behind_an_answer_breaks_the_next_call_and_not_the_one_after() -> None:
    with open_worker(confined(), FILES, "delivered") as opened:
        assert opened.call("then_say", 5, packed(b'{"ok":1}\n')) == Returned(5)
        assert isinstance(opened.call("evaluate", "time.sleep(0.2)"), Broken)
        assert opened.call("echo", 1) == Returned(1)


JSONISH = st.lists(
    st.sampled_from(
        [
            *(
                b"{",
                b"}",
                b"[",
                b"]",
                b",",
                b":",
                b'"',
                b"\\",
                b"\n",
                b"@",
                b"0",
                b"1",
                b"9" * 30,
                b"-",
                b".",
                b"e",
                b"~",
            ),
            *(b"null", b"true", b"NaN", b'{"t":"@","ok":', b'"exc":', b'"~"', b"\xff", b"\x00", b"[0,6,0,0,0,0]\n"),
        ]
    ),
    max_size=30,
).map(b"".join)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200) | JSONISH)
def test_no_bytes_at_all_harm_the_grader(data: bytes) -> None:
    result = said(data)
    assert isinstance(result, (Returned, Raised, Broken))


def test_the_private_builtins_of_the_worker_outlive_a_patch() -> None:
    source = "import builtins\nnames = vars(builtins)\n"
    source += "def f():\n    for name in list(names): del names[name]\n    return (1, {'a': [2.5]})\n"
    with open_worker(confined(), {"delivered.py": source}, "delivered") as opened:
        assert opened.call("f") == Returned((1, {"a": [2.5]}))
