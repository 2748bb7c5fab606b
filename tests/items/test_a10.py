"""A10, a quadratic function made linear: what earns its points, what does not, and that the count cannot be dodged."""

from __future__ import annotations

import random
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandbox.confined import confined

from pytest_llmbench.bank import Item, read_items
from pytest_llmbench.grading.counting import CountedSequence
from pytest_llmbench.grading.grade import delivery_of, grade
from pytest_llmbench.harness.references import NULLS, nulls_for, reply_text
from pytest_llmbench.harness.single import opening
from pytest_llmbench.records import Row
from pytest_llmbench.sandbox.calls import Returned, open_worker
from pytest_llmbench.spec import Delivery, Instance, Reference

FILE = "spans.py"
ROOT = Path(__file__).parents[2]
FOLDER = "items/level_a/a10_complexity_bound"
HIDDEN = "hidden_tests/a10"
ITEM = read_items(ROOT / FOLDER / "item.toml")[0]
TASK: Any = ITEM.task
INSTANCES = [ITEM.build(variant, run) for variant in range(30) for run in (1, 2, 3)]
FIRST = INSTANCES[0]
NAMES = sorted(ITEM.spec.references)
WITHIN = {"wrong_on_ties"}
"""References that earn the bound, so that they are called with 20,000 elements."""
FULL: tuple[Decimal, set[str]] = (Decimal(18), set())
INTERFACE_LOST = (Decimal(14), {"interface"})
SIZE = 200


def setting(instance: Instance) -> Any:
    return instance.data["setting"]


def one_of_each_kind(instances: Sequence[Instance]) -> list[Instance]:
    """The first instance for every strict side and every direction of the levels."""
    kinds: dict[tuple[bool, bool], Instance] = {}
    for instance in instances:
        kinds.setdefault((setting(instance).first_strict, setting(instance).higher), instance)
    assert set(kinds) == set(product((True, False), repeat=2))
    return list(kinds.values())


KINDS = one_of_each_kind(INSTANCES)


def rows_of(instance: Instance, reference: Reference) -> dict[str, Row]:
    delivery = delivery_of(instance.spec, reply_text(reference))
    return {row.id: row for row in grade(TASK, instance, delivery, confined()).rows}


def score(instance: Instance, reference: Reference) -> tuple[Decimal, set[str]]:
    """The score and the rows that are lost."""
    rows = rows_of(instance, reference)
    assert all(row.evidence and len(row.evidence) < 600 and row.evidence.isprintable() for row in rows.values())
    lost = {row.id for row in rows.values() if row.earned < row.points}
    return sum((row.earned for row in rows.values()), Decimal(0)), lost


def source(instance: Instance, name: str = "golden") -> str:
    reference = TASK.golden(instance) if name == "golden" else TASK.defects(instance)[name]
    text: str = reference.files[FILE]
    return text


def changed(instance: Instance, *changes: tuple[str, str], of: str = "golden") -> Reference:
    """A reference with some more changes; what is replaced stands there exactly once."""
    text = source(instance, of)
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return Reference(files={FILE: text})


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Item:
    """The item with the same hidden cases up to 500 elements."""
    root = tmp_path_factory.mktemp("bank")
    shutil.copytree(ROOT / FOLDER, root / FOLDER)
    shutil.copytree(ROOT / HIDDEN, root / HIDDEN)
    cases = (root / HIDDEN / "cases.toml").read_text(encoding="utf-8")
    lines = [line for line in cases.splitlines() if not re.search(r"size = \d{4}", line)]
    assert len(lines) == len(cases.splitlines()) - 4
    (root / HIDDEN / "cases.toml").write_text("\n".join(lines), encoding="utf-8")
    return read_items(root / FOLDER / "item.toml")[0]


def original(instance: Instance) -> Callable[..., list[int]]:
    """The function of the prompt, as it stands there."""
    lines = instance.prompt.split("\n")
    code = textwrap.dedent("\n".join(line for line in lines if line.startswith("    ")))
    module: dict[str, Any] = {}
    exec(code, module)
    function: Callable[..., list[int]] = module[setting(instance).name]
    return function


def test_the_rows_are_worth_eighteen_points() -> None:
    assert ITEM.spec.points == 18
    assert {row.id: int(row.points) for row in ITEM.spec.rows} == {
        "files": 1,
        "syntax": 1,
        "behaviour": 6,
        "bound": 6,
        "interface": 4,
    }


def test_the_golden_function_earns_every_point() -> None:
    assert score(FIRST, TASK.golden(FIRST)) == FULL


def test_the_golden_function_earns_every_point_on_either_side_and_in_either_direction(small: Item) -> None:
    for instance in KINDS[1:]:
        again = small.build(instance.variant, instance.run)
        assert score(again, small.task.golden(again)) == FULL, setting(again)


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_defect_loses_exactly_its_rows(name: str, small: Item) -> None:
    declared = ITEM.spec.references[name]
    known = declared.points, set(declared.loses)
    assert score(FIRST, TASK.defects(FIRST)[name]) == known
    for instance in KINDS[1:]:
        item = small if name in WITHIN else ITEM
        again = item.build(instance.variant, instance.run)
        assert set(item.task.defects(again)) == set(NAMES)
        assert score(again, item.task.defects(again)[name]) == known, setting(again)


def test_nothing_can_be_had_for_nothing() -> None:
    for instance in KINDS:
        for conversation in map(NULLS.__getitem__, nulls_for("single")):
            delivery = delivery_of(instance.spec, conversation(instance)(opening(instance)))
            rows = grade(TASK, instance, delivery, confined()).rows
            assert sum(row.earned for row in rows) == 0


levels = st.lists(st.integers(-3, 3), max_size=12) | st.lists(st.integers(-50, 50), max_size=40)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(INSTANCES), levels, st.none() | st.integers(1, 15))
def test_expected_results_are_those_of_the_function_in_the_prompt(
    instance: Instance, values: list[int], limit: int | None
) -> None:
    wanted = original(instance)(values, **{setting(instance).limit: limit})
    assert TASK.expected(setting(instance), values, limit) == wanted


@pytest.mark.parametrize("shape", sorted(TASK.SHAPES))
def test_expected_results_are_those_of_the_original_for_every_shape(shape: str) -> None:
    for instance in KINDS:
        for size in (0, 1, 2, 3, 7, 60):
            values = TASK.SHAPES[shape](size, random.Random(size))
            assert len(values) == size
            assert TASK.expected(setting(instance), values) == original(instance)(values)


def test_only_the_shapes_said_to_have_equal_elements_have_them() -> None:
    for name, shape in TASK.SHAPES.items():
        assert (len(set(shape(SIZE, random.Random(1)))) < SIZE) == (name in TASK.TIED)


def counts(instance: Instance, text: str) -> Mapping[str, tuple[float, float]]:
    """Reads and comparisons per element by shape; every result is right."""
    found = {}
    with open_worker(confined(), {FILE: text}, "spans") as worker:
        for name, shape in TASK.SHAPES.items():
            values = shape(SIZE, random.Random(name))
            counted = CountedSequence(values)
            result = worker.call(setting(instance).name, counted)
            assert result == Returned(TASK.expected(setting(instance), values)), name
            assert counted.mutations == 0
            found[name] = counted.reads / SIZE, counted.comparisons / SIZE
    return found


def test_the_golden_function_makes_three_reads_and_three_comparisons_per_element_at_most() -> None:
    for instance in KINDS:
        made = counts(instance, source(instance))
        assert max(reads for reads, _ in made.values()) <= 3
        assert max(comparisons for _, comparisons in made.values()) <= 3 < 0.75 * TASK.COMPARISONS
        assert max(reads for reads, _ in made.values()) > 2.8


TWO_PASSES = """
def {name}({levels}, *, {limit}=None):
    if {limit} is not None and {limit} < 1:
        raise ValueError("{limit} must be at least 1")
    row = [level for level in {levels}]
    near, twins, steps = walk(row, {up}, True)
    far, _, _ = walk(row, {down}, False)
    left, right = {sides}
    result = []
    for place, (before, after) in enumerate(zip(left, right)):
        before = place + 1 if before is None else place - before
        after = len(row) - place if after is None else after - place
        if {limit} is not None:
            before, after = min(before, {limit}), min(after, {limit})
        result.append({score})
    return result


def walk(row, order, strict):
    nearest, twins, steps = [None] * len(row), [0] * len(row), [0] * len(row)
    stack = []
    for place in order:
        while stack:
            top = stack[-1]
            if row[top] {below} row[place]:
                stack.pop()
            elif strict and row[top] == row[place]:
                twins[place] = twins[top] + 1
                stack.pop()
            else:
                break
        if stack:
            nearest[place] = stack[-1]
        steps[place] = len(stack)
        stack.append(place)
    return nearest, twins, steps
"""


def two_passes(instance: Instance) -> str:
    """An honest function of another kind: a copy, a pass for either side, two comparisons to a step."""
    wanted = setting(instance)
    forth, back = "range(len(row))", "reversed(range(len(row)))"
    return TWO_PASSES.format(
        name=wanted.name,
        levels=wanted.levels,
        limit=wanted.limit,
        up=forth if wanted.first_strict else back,
        down=back if wanted.first_strict else forth,
        sides="near, far" if wanted.first_strict else "far, near",
        below="<" if wanted.higher else ">",
        score=wanted.score("[place]"),
    )


def test_an_honest_function_of_another_kind_stays_within_the_bound() -> None:
    for instance in KINDS:
        for reads, comparisons in counts(instance, two_passes(instance)).values():
            assert reads <= TASK.READS
            assert comparisons <= 0.8 * TASK.COMPARISONS


def test_an_honest_function_of_another_kind_earns_every_point(small: Item) -> None:
    instance = small.build(0, 1)
    assert score(instance, Reference(files={FILE: two_passes(instance)})) == FULL


INTERFACE = {
    "a tuple": ("    return result\n", "    return tuple(result)\n"),
    "floats": ("    return result\n", "    return [float(number) for number in result]\n"),
    "no error": ('raise ValueError("', 'return list("'),
    "another error": ('raise ValueError("', 'raise TypeError("'),
    "no effect of the limit": ("before, after = min(before, {limit}), min(after, {limit})", "pass"),
    "changes the list": (
        "    return result\n",
        "    if type({levels}) is list:\n        {levels}.sort()\n    return result\n",
    ),
    "wants a list": ("    size = len", "    if type({levels}) is tuple:\n        raise TypeError\n    size = len"),
    "another keyword": ("*, {limit}=None):\n", "*, most=None):\n    {limit} = most\n"),
}


@pytest.mark.parametrize("what", sorted(INTERFACE))
def test_a_wrong_interface_costs_the_interface_only(what: str, small: Item) -> None:
    instance = small.build(0, 1)
    names = {"limit": setting(instance).limit, "levels": setting(instance).levels}
    old, new = (text.format(**names) for text in INTERFACE[what])
    assert score(instance, changed(instance, (old, new))) == INTERFACE_LOST


def test_a_function_of_another_name_earns_nothing_but_syntax() -> None:
    for instance in KINDS:
        name = setting(instance).name
        assert score(instance, changed(instance, (f"def {name}(", f"def {name}_of("))) == (
            Decimal(0),
            {"files", "syntax", "behaviour", "bound", "interface"},
        )


DODGES = {
    "max of every window": "[max({levels}[: end + 1]) for end in range(size)]",
    "index on a copy": "row = list({levels}); [row.index(level) for level in row[::-1]]",
    "count on a copy": "row = list({levels}); [row.count(level) for level in row]",
    "in on the sequence": "[level in {levels} for level in {levels}]",
    "slices": "[{levels}[:end] for end in range(size)]",
    "a heap": "import heapq; heap = list({levels}); heapq.heapify(heap); [heapq.heappop(heap) for _ in range(size)]",
    "sorting a copy": "sorted({levels})",
    "a key": "import functools; sorted(range(size), key=lambda place: {levels}[place])",
    "comparing lists": "row = list({levels}); [[level] * 2 < [other] * 2 for level in row for other in row]",
    "a set of equal elements": "row = list({levels}); [other for level in row for other in row if other == level]",
    "map and operator": "from operator import eq; row = [*{levels}]; [list(map(eq, row, row[k:])) for k in range(99)]",
    "another thread": (
        "import threading; work = lambda: [sorted({levels}) for _ in range(3)]; "
        "thread = threading.Thread(target=work); thread.start(); thread.join()"
    ),
}


@pytest.mark.parametrize("what", sorted(DODGES))
def test_work_on_elements_is_counted_however_it_is_done(what: str) -> None:
    work = DODGES[what].format(levels=setting(FIRST).levels)
    dodge = changed(FIRST, ("    waiting = []", f"    {work}\n    waiting = []"))
    assert score(FIRST, dodge) == (Decimal(12), {"bound"})


def test_a_refused_read_cannot_be_caught() -> None:
    greedy = """
    for level in {levels}:
        try:
            list({levels})
        except BaseException:
            pass
    waiting = []""".format(levels=setting(FIRST).levels)
    assert score(FIRST, changed(FIRST, ("    waiting = []", greedy))) == (Decimal(12), {"bound"})


def test_what_comes_back_too_quickly_to_be_right_earns_no_bound() -> None:
    wrong = changed(FIRST, ("result.append(", "result.append(1 + "))
    assert score(FIRST, wrong) == (Decimal(2), {"behaviour", "bound", "interface"})


def test_the_evidence_names_the_counts_and_the_limits() -> None:
    rows = rows_of(FIRST, TASK.defects(FIRST)["unchanged_quadratic"])
    assert "more reads than allowed" in rows["bound"].evidence
    assert "within 256 reads and 512 comparisons" in rows["bound"].evidence
    assert f"{setting(FIRST).name}(…), a counted sequence of 64" in rows["bound"].evidence
    rows = rows_of(FIRST, TASK.defects(FIRST)["returns_tuple"])
    assert "it returned a tuple of length 1; expected a list of length 1" in rows["interface"].evidence
    rows = rows_of(FIRST, TASK.defects(FIRST)["mutates_input"])
    assert "it returned a list of length 0; expected a list of length 1" in rows["interface"].evidence


def test_the_evidence_gives_no_hidden_case_away() -> None:
    delivery = Delivery(files=TASK.defects(FIRST)["defective"].files)
    verdicts = {verdict.row: verdict for verdict in TASK.grade(FIRST, delivery, confined())}
    assert set(verdicts) == {"behaviour", "bound", "interface"}
    for verdict in verdicts.values():
        assert verdict.earned is False
        assert "[" not in verdict.evidence
        assert "[" in verdict.hidden
    assert "expected [" in verdicts["behaviour"].hidden


HOSTILE = [
    "",
    "\x00",
    "\ud800",
    "'\ud800'",
    "import sys\nsys.exit(0)",
    "import os\nos._exit(0)",
    "raise BaseException",
    "def {name}(*args, **named):\n    return args[0]",
    "def {name}(*args, **named):\n    return [[]] * 10**9",
    "def {name}(*args, **named):\n    return type('x', (int,), {{}})(3)",
    "def {name}(*args, **named):\n    yield 1",
    "def {name}(*args, **named):\n    import os\n    os._exit(0)",
    "{name} = 3",
    "(" * 100_000,
    "# " + "x" * 2**20,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:40]))
def test_a_hostile_file_is_graded_and_earns_no_check(text: str) -> None:
    files = {FILE: text.replace("{name}", setting(FIRST).name).replace("{{}}", "{}")}
    verdicts = TASK.grade(FIRST, Delivery(files=files), confined())
    assert {verdict.row for verdict in verdicts} == {"behaviour", "bound", "interface"}
    assert [verdict.row for verdict in verdicts if verdict.earned] == []


@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(), max_size=200), st.integers(0, 600))
def test_any_text_at_all_is_graded(noise: str, at: int) -> None:
    text = source(FIRST, "unchanged_quadratic")
    delivery = Delivery(files={FILE: text[:at] + noise + text[at:]})
    assert sum((row.earned for row in grade(TASK, FIRST, delivery, confined()).rows), Decimal(0)) <= 12


def test_without_the_file_no_check_is_earned() -> None:
    verdicts = TASK.grade(FIRST, Delivery(), confined())
    assert [(verdict.row, verdict.earned) for verdict in verdicts] == [
        ("behaviour", False),
        ("bound", False),
        ("interface", False),
    ]


def test_every_variant_has_a_prompt_of_the_same_length_with_its_own_names() -> None:
    for instance in INSTANCES:
        assert abs(len(instance.prompt) - len(FIRST.prompt)) <= 0.05 * len(FIRST.prompt)
        assert "$" not in instance.prompt
        assert "```" not in instance.prompt
        assert f"def {setting(instance).name}({setting(instance).levels}, *, {setting(instance).limit}=None):" in (
            instance.prompt
        )
    assert len({instance.prompt for instance in INSTANCES}) == len(INSTANCES)
    for field, names in (("name", "names"), ("levels", "levels"), ("limit", "limits")):
        assert {getattr(setting(instance), field) for instance in INSTANCES} == set(ITEM.spec.data[names])


def test_the_prompt_states_the_bound_that_is_judged() -> None:
    assert f"at most {TASK.READS}*n reads and at most {TASK.COMPARISONS}*n comparisons" in FIRST.prompt
    assert "up to 20,000 elements" in FIRST.prompt


def test_each_of_the_four_quantities_has_a_weight_of_its_own() -> None:
    for instance in INSTANCES:
        weights = setting(instance).weights
        assert set(weights) == {"before", "after", "twins", "steps"}
        assert len({abs(weight) for weight in weights.values()}) == 4
        assert [weight < 0 for weight in weights.values()] == [False, False, False, True]


def test_the_same_variant_and_run_give_the_same_instance() -> None:
    for instance in INSTANCES[:20]:
        again = ITEM.build(instance.variant, instance.run)
        assert again.prompt == instance.prompt
        assert setting(again) == setting(instance)
        assert again.data["cases_seed"] == instance.data["cases_seed"]
