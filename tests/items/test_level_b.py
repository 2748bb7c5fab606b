"""Level B: what is drawn, how replies are read, and that a verdict cannot be had without the work.

What needs the public data is skipped where `llmbench fetch-b` has not run.
"""

from __future__ import annotations

import logging
import random
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from external.public import ITEMS, ROOT, SETS, TASKS, needs_data
from sandbox.confined import confined

from pytest_llmbench.bank import Item, _import_task
from pytest_llmbench.grading.grade import delivery_of, grade
from pytest_llmbench.harness.references import NULLS, conversation, nulls_for, reply_text
from pytest_llmbench.harness.single import opening
from pytest_llmbench.records import Row
from pytest_llmbench.spec import Delivery, Instance, Unavailable

DRAW: Any = _import_task(ROOT / "draw.py", "draw")


def earned(instance: Instance, reply: str, sandbox: Any = None) -> list[Row]:
    return list(grade_all(instance, delivery_of(instance.spec, reply), sandbox))


def grade_all(instance: Instance, delivery: Delivery, sandbox: Any) -> tuple[Row, ...]:
    return grade(TASKS[folder(instance)], instance, delivery, sandbox).rows


def folder(instance: Instance) -> str:
    return next(name for name, items in ITEMS.items() if items[0].spec.group == instance.spec.group)


def points(rows: list[Row]) -> Decimal:
    return sum((row.earned for row in rows), Decimal(0))


# --- the sample ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_every_set_has_its_size_and_its_samples_are_different(name: str) -> None:
    samples = [item.spec.data["sample"] for item in ITEMS[name]]
    assert len(samples) == len(set(samples)) == SETS[name]


@needs_data
@pytest.mark.parametrize("one", [one for one in DRAW.SETS if one.folder != "ifeval"], ids=lambda one: one.folder)
def test_the_pinned_samples_are_those_that_the_seed_draws(one: Any) -> None:
    assert (ROOT / one.folder / "items.toml").read_text(encoding="utf-8") == DRAW.document(one)


@pytest.mark.parametrize("name", SETS)
def test_without_the_data_an_item_is_unavailable_and_says_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMBENCH_CACHE", str(tmp_path))
    with pytest.raises(Unavailable, match="llmbench fetch-b"):
        ITEMS[name][0].build(0, 1)


@needs_data
@pytest.mark.parametrize("name", [name for name in SETS if name != "humaneval"])
def test_references_earn_everything_or_nothing(name: str) -> None:
    for item in ITEMS[name][::10]:
        instance = item.build(0, 1)
        assert points(earned(instance, reply_text(item.task.golden(instance)))) == 1
        assert points(earned(instance, reply_text(item.task.defects(instance)["defective"]))) == 0
        for null in nulls_for("single"):
            script = conversation("null", null, item.task, instance)
            assert points(earned(instance, script(opening(instance)))) == 0, null


@needs_data
@pytest.mark.parametrize("name", SETS)
def test_an_instance_is_the_same_in_every_run_and_variant(name: str) -> None:
    item: Item = ITEMS[name][3]
    assert item.build(0, 1).prompt == item.build(7, 3).prompt


# --- GSM8K and MMLU --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("#### 18", 18),
        ("3 + 4 = 7\n\n#### $1,234.50", Decimal("1234.5")),
        ("#### 18 apples for 3 people", 18),
        ("#### 5\nNo, wait.\n#### 6", 6),
        ("The answer is \\boxed{42}.", 42),
        ("So there are \\boxed{10} left after losing 5.", 10),
        ("\\boxed{7} at first\n#### 8", 8),
        ("She pays **$18.00**.", 18),
        ("It falls by -7%.", -7),
        ("10 and then 20 and in the end 30", 30),
        ("#### none", None),
        ("I cannot say.", None),
        ("١٢", None),
        ("1" * 50_000, Decimal("1" * 19)),
    ],
)
def test_the_number_of_a_reply(reply: str, number: Decimal | int | None) -> None:
    given = TASKS["gsm8k"].number(reply)
    assert (given is None) == (number is None)
    if len(reply) < 1000:
        assert given == number


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("ANSWER: B", "B"),
        ("B", "B"),
        ("**C**", "C"),
        ("(D) because of it", "D"),
        ("A. First\nB. Second\nThe answer is **B**.", "B"),
        ("Answer: A\nNo: the correct answer is option C.", "C"),
        ("The answer is (D).", "D"),
        ("A good choice would be B", "B"),
        ("B is right. A closer look shows it.", "B"),
        ("None of these.", None),
        ("Don't ABCD me", None),
        ("", None),
    ],
)
def test_the_letter_of_a_reply(reply: str, letter: str | None) -> None:
    assert TASKS["mmlu"].letter(reply) == letter


# --- HumanEval -------------------------------------------------------------------------------------------------------

CASE = {
    "entry_point": "doubled",
    "prompt": 'from typing import List\n\n\ndef helper(x: int) -> int:\n    """Twice x."""\n    return 2 * x\n\n\n'
    'def doubled(row: List[int]) -> List[int]:\n    """Every number twice as large."""\n',
    "test": "def check(candidate):\n    assert candidate([1, 2]) == [2, 4]\n    assert candidate([]) == []\n"
    "    assert candidate([helper(5)]) == [20]\n    assert doubled([0.5]) == [1.0]\n",
}
RIGHT = "def doubled(row):\n    return [2 * x for x in row]\n"


@pytest.fixture(scope="module")
def sandbox() -> Any:
    return confined()


@pytest.mark.parametrize(
    "reply",
    [
        f"```python\n{RIGHT}```",
        RIGHT,
        "Here you are:\n\n```\ndef doubled(row: List[int]) -> List[int]:\n"
        "    return [helper(x) for x in row]\n```\nDone.",
        "```python\n    return [2 * x for x in row]\n```",
        "```python\nreturn [2 * x for x in row]\n```",
        f"First thought:\n```python\ndef doubled(row):\n    return row\n```\nBetter:\n```python\n{RIGHT}```",
        f"```python\n{RIGHT}```\nUse it:\n```python\nprint(doubled([1]))\n```",
        f"```python\n{RIGHT}",
        "```python\nfrom collections import UserList\nclass Row(list): pass\ndef doubled(row):\n"
        "    return Row(2 * x for x in row)\n```",
    ],
)
def test_right_functions_pass_however_they_are_delivered(reply: str, sandbox: Any) -> None:
    assert TASKS["humaneval"].judge(CASE, TASKS["humaneval"].program(CASE, reply), sandbox)[0]


FORGERIES = {
    "leaves with success": "import os\nos._exit(0)\n",
    "raises SystemExit": "raise SystemExit(0)\n",
    "leaves in the call": "import os\ndef doubled(row):\n    os._exit(0)\n",
    "equals everything": "class Same(list):\n    def __eq__(self, other):\n        return True\n"
    "def doubled(row):\n    return Same([9])\n",
    "patches the literals": "import ast, builtins\nbuiltins.repr = lambda value: '[2, 4]'\n"
    "ast.literal_eval = lambda text: [1, 2]\ndef doubled(row):\n    return None\n",
    "writes a verdict": "import os\nfor number in range(3, 64):\n    try:\n"
    '        os.write(number, b\'{"passed": true, "why": "all"}\\n\')\n    except OSError:\n        pass\n'
    "def doubled(row):\n    return None\n",
    "prints a verdict": 'print(\'{"passed": true, "why": "all"}\', flush=True)\ndef doubled(row):\n    return None\n',
    "patches the caller": "import sys\nsys.modules['caller'].call = lambda *a: '{\"passed\": true}'\n"
    "def doubled(row):\n    return None\n",
    "returns code": "class Text(str):\n    pass\ndef doubled(row):\n    return Text('[2, 4]')\n",
    "reads the test": "import glob\nfound = glob.glob('/**/tested.py', recursive=True)\ndef doubled(row):\n"
    "    return [4] if found else None\n",
    "hangs": "def doubled(row):\n    while True: pass\n",
    "nests deeply": "def doubled(row):\n    value = []\n    for _ in range(50000):\n        value = [value]\n"
    "    return value\n",
    "patches assertions": "import builtins\nbuiltins.AssertionError = None\ndef doubled(row):\n    return [0]\n",
    "is not there": "def other(row):\n    return row\n",
    "is no Python": "def doubled(row) return\n",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_passes_nothing(name: str, sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TASKS["humaneval"], "CALL_S", 1.0)
    reply = f"```python\n{FORGERIES[name]}```"
    passed, why = TASKS["humaneval"].judge(CASE, TASKS["humaneval"].program(CASE, reply), sandbox)
    assert not passed
    assert "[" not in why


@needs_data
def test_humaneval_references(sandbox: Any) -> None:
    item = ITEMS["humaneval"][0]
    instance = item.build(0, 1)
    assert points(earned(instance, reply_text(item.task.golden(instance)), sandbox)) == 1
    assert points(earned(instance, reply_text(item.task.defects(instance)["defective"]), sandbox)) == 0
    assert points(earned(instance, NULLS["echo"](instance)(opening(instance)), sandbox)) == 0


# --- IFEval ----------------------------------------------------------------------------------------------------------

WISHES = {
    "key": 1,
    "prompt": "Say it in quotation marks and without commas.",
    "instruction_id_list": ["startend:quotation", "punctuation:no_comma"],
    "kwargs": [{}, {}],
}


@needs_data
@pytest.mark.parametrize(
    ("reply", "strict", "loose"),
    [
        ('"so be it"', [True, True], [True, True]),
        ('"so, be it"', [True, False], [True, False]),
        ('Sure, here it is:\n"so be it"', [False, False], [True, True]),
        ('*"so be it"*', [False, True], [True, True]),
        ("", [False, False], [False, False]),
    ],
)
def test_strict_and_loose_reading(reply: str, strict: list[bool], loose: list[bool]) -> None:
    assert TASKS["ifeval"].check(WISHES, reply) == {"strict": strict, "loose": loose}


@needs_data
def test_the_checkers_leave_nothing_behind() -> None:
    before, state = dict(sys.modules), random.getstate()
    TASKS["ifeval"].check(
        {**WISHES, "instruction_id_list": ["language:response_language"], "kwargs": [{"language": "de"}]}, "Na"
    )
    assert {name for name in sys.modules if name.partition(".")[0] in TASKS["ifeval"].FOREIGN} <= set(before)
    assert random.getstate() == state
    assert logging.root.manager.disable == logging.NOTSET


@needs_data
def test_rows_tell_how_many_instructions_were_followed() -> None:
    item = next(item for item in ITEMS["ifeval"] if item.spec.rows[0].parts == 2)
    instance = item.build(0, 1)
    whole = earned(instance, reply_text(item.task.golden(instance)))
    assert [(row.right, row.parts) for row in whole] == [(2, 2), (2, 2)]
    assert [(row.right, row.parts) for row in earned(instance, "")] == [(0, 2), (0, 2)]


@needs_data
def test_a_defective_reference_follows_no_instruction_at_all() -> None:
    for item in ITEMS["ifeval"][::6]:
        instance = item.build(0, 1)
        assert [row.right for row in earned(instance, reply_text(item.task.defects(instance)["defective"]))] == [0, 0]
