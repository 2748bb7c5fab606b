"""A counted sequence: every read, comparison and attempted change is counted outside, however it was made."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandbox.confined import confined

from pytest_llmbench.grading.counting import CountedSequence
from pytest_llmbench.sandbox.calls import Broken, Raised, Result, Returned, Worker, open_worker

SOURCE = """
import bisect, collections.abc, copy, gc, heapq, os, sys, threading, time, zlib

def run(xs, body):
    names = dict(globals(), xs=xs)
    exec(body, names)
    return names.get("result")

def nearest_greater(xs):
    found, stack = [], []
    for at in range(len(xs)):
        value = xs[at]
        while stack and xs[stack[-1]] <= value:
            stack.pop()
        found.append(stack[-1] if stack else -1)
        stack.append(at)
    return found

def raw(xs, lines):
    channel = next(o for o in gc.get_objects() if type(o).__name__ == "Channel")
    os.write(channel._sink, bytes.fromhex(lines))
    time.sleep(30)
"""
VALUES = [5, 3, 8, 3, 9]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with open_worker(confined(), {"delivered.py": SOURCE}, "delivered") as opened:
        yield opened


def counts(sequence: CountedSequence) -> tuple[int, int, int]:
    return sequence.reads, sequence.comparisons, sequence.mutations


COUNTED: dict[str, tuple[object, tuple[int, int, int]]] = {
    "result = len(xs), bool(xs)": ((5, True), (0, 0, 0)),
    "xs[0]; xs[-1]; xs[True]": (None, (3, 0, 0)),
    "for x in xs: pass": (None, (5, 0, 0)),
    "for x in xs: break": (None, (1, 0, 0)),
    "for x in reversed(xs): pass": (None, (5, 0, 0)),
    "i = iter(xs); next(i); next(i)": (None, (2, 0, 0)),
    "result = len(xs[1:3])": (2, (2, 0, 0)),
    "result = len(xs[::-2])": (3, (3, 0, 0)),
    "result = len(xs[9:]), len(xs[:])": ((0, 5), (5, 0, 0)),
    "list(xs); tuple(xs); [*xs]": (None, (15, 0, 0)),
    "a, b, *c = xs": (None, (5, 0, 0)),
    "result = xs[0] < xs[1], xs[0] > xs[1]": ((False, True), (4, 2, 0)),
    "result = xs[1] == xs[3], xs[1] != xs[3], xs[1] <= xs[3], xs[1] >= xs[3]": ((True, False, True, True), (8, 4, 0)),
    "a = xs[2]; result = [a < a, a <= a, a == a]": ([False, True, True], (1, 3, 0)),
    "result = [x < y for x, y in zip(xs, xs[1:])]": ([False, True, False, True], (9, 4, 0)),
    "result = xs[3] in xs": (True, (3, 2, 0)),
    "result = xs.index(xs[3]), xs.count(xs[3])": ((1, 2), (9, 7, 0)),
    "result = 3 in xs": (False, (5, 5, 0)),
    "result = xs[0] == 5, 5 == xs[0], xs[0] != None": ((False, False, True), (3, 3, 0)),
    "ys = list(xs); result = [sum(y < z for z in ys) for y in ys]": ([2, 3, 1, 3, 0], (5, 25, 0)),
    "result = len(sorted(xs[:2]))": (2, (2, 1, 0)),
    "max(xs)": (None, (5, 4, 0)),
    "heapq.nlargest(1, xs)": (None, (5, 4, 0)),
    "result = bisect.bisect_left(xs, xs[0], 0, 1)": (0, (2, 1, 0)),
    "copy.copy(xs[0]) < xs[1]": (None, (2, 1, 0)),
    "result = isinstance(xs, collections.abc.Sequence), isinstance(xs, list)": ((True, False), (0, 0, 0)),
}


@pytest.mark.parametrize("body", COUNTED)
def test_work_is_counted_where_it_happens(worker: Worker, body: str) -> None:
    sequence = CountedSequence(VALUES)
    result = worker.call("run", sequence, body)
    assert (result, counts(sequence)) == (Returned(COUNTED[body][0]), COUNTED[body][1])


REFUSED = {
    "xs[0] = 1": 1,
    "del xs[0]": 1,
    "xs += [1]": 1,
    "xs *= 2": 1,
    "xs.append(1)": 1,
    "xs.clear()": 1,
    "xs.extend([1])": 1,
    "xs.insert(0, 1)": 1,
    "xs.pop()": 1,
    "xs.remove(1)": 1,
    "xs.reverse()": 1,
    "xs.sort(key=len)": 1,
    "hash(xs[0])": 0,
    "{xs[0]}": 0,
    "{xs[0]: 1}": 0,
    "int(xs[0])": 0,
    "xs[0] + xs[1]": 0,
    "xs[0] < 3": 0,
    "3 < xs[0]": 0,
    "[1][xs[0]]": 0,
    "range(xs[0])": 0,
    "-xs[0]": 0,
    "float(xs[0])": 0,
    "sum(xs)": 0,
    "xs['a']": 0,
}


@pytest.mark.parametrize("body", REFUSED)
def test_changes_are_refused_and_counted_and_elements_are_no_numbers(worker: Worker, body: str) -> None:
    sequence = CountedSequence(VALUES)
    result = worker.call("run", sequence, body)
    assert isinstance(result, Raised)
    assert result.type == "TypeError"
    assert sequence.mutations == REFUSED[body]


def test_a_refused_change_that_the_code_hides_is_counted_too(worker: Worker) -> None:
    sequence = CountedSequence(VALUES)
    body = "for change in (xs.sort, xs.reverse, xs.clear):\n    try: change()\n    except TypeError: pass"
    assert worker.call("run", sequence, body) == Returned(None)
    assert counts(sequence) == (0, 0, 3)


@pytest.mark.parametrize("body", ["xs[5]", "xs[-6]", "xs.index(xs[0], 1)"])
def test_what_is_not_there_raises_as_in_a_list(worker: Worker, body: str) -> None:
    result = worker.call("run", CountedSequence(VALUES), body)
    assert isinstance(result, Raised)
    assert result.type in ("IndexError", "ValueError")


def test_elements_cannot_be_returned_and_show_nothing(worker: Worker) -> None:
    assert isinstance(worker.call("run", CountedSequence(VALUES), "result = xs[0]"), Broken)
    assert isinstance(worker.call("run", CountedSequence(VALUES), "result = xs"), Broken)
    assert worker.call("run", CountedSequence(VALUES), "result = str(xs[0]), repr(xs[1])") == Returned(
        ("<element>", "<element>")
    )


def test_no_value_enters_the_sandbox(worker: Worker) -> None:
    secret = [7_777_013, 7_777_001, 7_777_007]
    body = """
xs[0] < xs[1]
seen = [repr(o) for o in gc.get_objects() if type(o) in (dict, list, tuple, set)] + [repr(vars(xs)), repr(dir(xs[0]))]
result = any("".join(["77770", "13"]) in text for text in seen)
"""
    assert worker.call("run", CountedSequence(secret), body) == Returned(False)


def test_threads_share_one_count(worker: Worker) -> None:
    sequence = CountedSequence(list(range(40)))
    body = """
def work():
    for x in xs:
        x < first
first = xs[0]
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    assert worker.call("run", sequence, body) == Returned(None)
    assert counts(sequence) == (161, 160, 0)


def test_a_thread_that_is_left_behind_asks_nothing_more(worker: Worker) -> None:
    sequence = CountedSequence(list(range(10)))
    body = """
def work():
    while True: xs[0] < xs[1]
threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
"""
    assert worker.call("run", sequence, body) == Returned(None)
    before = counts(sequence)
    assert worker.call("run", CountedSequence(VALUES), "result = xs[0] < xs[1]") == Returned(False)
    assert counts(sequence) == before


def test_two_sequences_are_counted_apart_and_their_elements_do_not_compare(worker: Worker) -> None:
    left, right = CountedSequence([1, 2]), CountedSequence([3])
    result = worker.call("run", left, right)
    assert isinstance(result, Raised)
    source = "def f(a, b): return [a[0] == b[0], a[0] < a[1], len(b)]\ndef g(a, b): return a[0] < b[0]"
    with open_worker(confined(), {"pair.py": source}, "pair") as opened:
        assert opened.call("f", left, right) == Returned([False, True, 1])
        assert counts(left) == (3, 2, 0)
        assert counts(right) == (1, 1, 0)
        assert isinstance(opened.call("g", left, right), Raised)


def test_each_call_counts_from_zero(worker: Worker) -> None:
    sequence = CountedSequence(VALUES)
    for _ in range(2):
        worker.call("run", sequence, "list(xs); xs[0] < xs[1]; xs.append\ntry: xs.append(1)\nexcept TypeError: pass")
        assert counts(sequence) == (7, 1, 1)


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ("for x in xs:\n    for y in xs: pass", "reads"),
        ("while True: xs[:]", "reads"),
        ("ys = list(xs)\nfor x in ys:\n    for y in ys: x < y", "comparisons"),
        ("ys = list(xs)\nwhile True: ys[0] == 1", "comparisons"),
        ("xs[0]\nwhile True: 1 in xs", "comparisons"),
    ],
)
def test_a_cap_ends_the_call_and_is_named(body: str, limit: str) -> None:
    sequence = CountedSequence(
        list(range(600)), reads_cap=None if limit == "comparisons" else 1200, comparisons_cap=900
    )
    with open_worker(confined(), {"delivered.py": SOURCE}, "delivered") as opened:
        result = opened.call("run", sequence, body)
        assert isinstance(result, Broken)
        assert result.limit == limit
        assert limit in result.reason
        assert opened.call("run", CountedSequence(VALUES), "result = 1") == Returned(1)


def test_exactly_the_cap_is_allowed(worker: Worker) -> None:
    sequence = CountedSequence(VALUES, reads_cap=5, comparisons_cap=1)
    assert worker.call("run", sequence, "ys = list(xs); result = ys[0] < ys[1]") == Returned(False)
    one_more = worker.call("run", sequence, "ys = list(xs); xs[0]")
    assert isinstance(one_more, Broken)
    assert one_more.limit == "reads"


@pytest.mark.parametrize(
    "line",
    [
        b"[0,0,0,1,0,0]",
        b"[0,0,0,5,0,0,0]",
        b"[0,6,0,0,0,0,5]",
        b"[0,7,0,0,0,0]",
        b"[1,6,0,0,0,0]",
        b"[0,0,0,0,0,-1]",
        b"[0,6,0,0,0,0,00000000000000000001]",
        b"[]",
        b"[[0]]",
        b"[0,6,0,0,0,0" + b",0" * 100_000,
    ],
)
def test_an_operation_that_no_honest_stand_in_would_send_ends_the_call(line: bytes) -> None:
    sequence = CountedSequence(VALUES)
    with open_worker(confined(), {"delivered.py": SOURCE}, "delivered") as opened:
        result: Result = opened.call("raw", sequence, (line + b"\n").hex(), deadline_s=10)
    assert isinstance(result, Broken)
    assert result.limit is None


def test_a_forged_comparison_is_answered_and_charged_like_any_other() -> None:
    sequence = CountedSequence(VALUES, comparisons_cap=3)
    with open_worker(confined(), {"delivered.py": SOURCE}, "delivered") as opened:
        lines = b"[0,0,0,1,0,0,0,1]\n" + b"[0,0,0,1,0,0]\n" * 20
        result = opened.call("raw", sequence, lines.hex(), deadline_s=10)
    assert isinstance(result, Broken)
    assert result.limit == "comparisons"


class Instrumented(int):
    """An integer that counts comparisons where it is; the yardstick."""

    compared = 0

    def __le__(self, other: int) -> bool:
        Instrumented.compared += 1
        return int.__le__(self, other)


class ReadCounting(list[int]):
    """A list that counts reads where it is; the yardstick."""

    read = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        self.read += 1
        return list.__getitem__(self, index)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-5, 5), max_size=30))
def test_results_and_counts_are_those_of_instrumented_numbers_in_one_process(worker: Worker, values: list[int]) -> None:
    names: dict[str, object] = {}
    exec(compile(SOURCE, "delivered", "exec"), names)
    Instrumented.compared = 0
    yardstick = ReadCounting(map(Instrumented, values))
    expected = names["nearest_greater"](yardstick)  # type: ignore[operator]
    sequence = CountedSequence(values)
    assert worker.call("nearest_greater", sequence) == Returned(expected)
    assert counts(sequence) == (yardstick.read, Instrumented.compared, 0)


def test_twenty_thousand_elements_are_counted_to_the_last() -> None:
    chance = random.Random(10)
    values = [chance.randrange(1_000) for _ in range(20_000)]
    sequence = CountedSequence(values, reads_cap=60_000, comparisons_cap=40_000)
    with open_worker(confined(), {"delivered.py": SOURCE}, "delivered") as opened:
        result = opened.call("nearest_greater", sequence, deadline_s=60)
    assert isinstance(result, Returned)
    assert len(result.value) == 20_000
    assert sequence.reads <= 60_000
    assert 20_000 <= sequence.comparisons <= 40_000


def test_a_counted_sequence_shows_its_values_to_the_grader_only() -> None:
    assert repr(CountedSequence(VALUES)) == "CountedSequence([5, 3, 8, 3, 9])"
