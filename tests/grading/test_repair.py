"""The closed list of repairs: what is added, where, and what is left alone."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmbench.grading.repair import MODULES, add_missing_imports, missing_inits, parse


def repaired(source: str) -> tuple[str, tuple[str, ...]]:
    tree = parse(source)
    assert isinstance(tree, ast.Module), tree
    return add_missing_imports(source, tree)


@pytest.mark.parametrize(
    ("source", "added"),
    [
        ("def f(x: Optional[int]) -> None: ...\n", ["from typing import Optional"]),
        ("x: List[Dict[str, int]] = []\n", ["from typing import Dict", "from typing import List"]),
        ('def f(x: "Optional[int]") -> None: ...\n', ["from typing import Optional"]),
        ("x = math.floor(2.5)\n", ["import math"]),
        ("x = Decimal('1').quantize(Decimal(1), rounding=ROUND_HALF_UP)\n", ["from decimal import Decimal",
                                                                          "from decimal import ROUND_HALF_UP"]),
        ("def f(x):\n    return isinstance(x, Decimal)\n", ["from decimal import Decimal"]),
        ("@dataclass\nclass A:\n    x: list = field(default_factory=list)\n", ["from dataclasses import dataclass",
                                                                             "from dataclasses import field"]),
        ("class T(TestCase): ...\n", ["from unittest import TestCase"]),
        ("class T(unittest.TestCase): ...\n", ["import unittest"]),
        ("@functools.lru_cache\ndef f(): ...\n", ["import functools"]),
        ("x = datetime.now()\n", ["from datetime import datetime"]),
        ("x = datetime.datetime.now()\n", ["import datetime"]),
        ("x = defaultdict(list)\ny = Counter('a')\n", ["from collections import Counter",
                                                      "from collections import defaultdict"]),
        ("try:\n    pass\nexcept InvalidOperation:\n    pass\n", ["from decimal import InvalidOperation"]),
    ],
)  # fmt: skip
def test_an_import_that_the_code_already_uses_is_added(source: str, added: list[str]) -> None:
    result, imports = repaired(source)
    assert list(imports) == added
    assert repaired(result) == (result, ())


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def f():\n    return total\n", "no module exports it"),
        ("def f(n):\n    return count + n\n", "a function's name used as a variable is a slip of another kind"),
        ("def f():\n    return reduce\n", "a function that is not called"),
        ("x = json.dunk()\n", "the module has no such attribute"),
        ("x = numpy.array([1])\n", "not in the standard library"),
        ("def f():\n    product(1)\n    product = 2\n", "the code binds the name itself"),
        ("def g():\n    class Path: ...\ndef f():\n    return Path('a')\n", "the code has a class of that name"),
        ("from os import *\nx = Decimal(1)\n", "a star import may bring the name"),
        ("import decimal\nx = decimal.Decimal(1)\n", "nothing is missing"),
        ("x = sleep(1)\n", "not on the list"),
        ("x = antigravity.fly()\n", "not on the list"),
    ],
)
def test_anything_else_is_left_alone(source: str, why: str) -> None:
    assert repaired(source) == (source, ()), why


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Doc."""\nx = math.pi\n', '"""Doc."""\nimport math\nx = math.pi\n'),
        ('"""Doc."""; x = math.pi\n', '"""Doc."""; import math; x = math.pi\n'),
        (
            "from __future__ import annotations\n\n@functools.cache\ndef f(): ...\n",
            "from __future__ import annotations\n\nimport functools\n@functools.cache\ndef f(): ...\n",
        ),
        ("#!/usr/bin/python\n# é\nx = math.pi\n", "#!/usr/bin/python\n# é\nimport math\nx = math.pi\n"),
        ("'é'; x = math.pi\r\n", "'é'; import math; x = math.pi\r\n"),
    ],
)
def test_the_import_stands_after_docstring_and_future_imports(source: str, expected: str) -> None:
    assert repaired(source)[0] == expected


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                '"""text\nover lines"""',
                "from __future__ import annotations",
                "import os",
                "x = 1; y = math.pi",
                "@functools.cache\ndef f(a: Optional[int] = None) -> List[int]:\n    return [json.loads('1')]",
                "class A(Enum):\n    B = 1",
                "if True:\n    z = Decimal('1')",
                "# nothing",
                "w = (\n  math.pi,\n)",
                "s = '''\nimport math\n'''",
                "\f",
            ]
        ),
        max_size=6,
    ),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_the_rest_of_the_code_stays_as_it_was(parts: list[str], newline: str) -> None:
    source = newline.join(parts) + newline
    tree = parse(source)
    if not isinstance(tree, ast.Module):
        return
    edited, imports = add_missing_imports(source, tree)
    done = ast.parse(edited)
    added = {ast.dump(node) for line in imports for node in ast.parse(line).body}
    rest = [ast.dump(node) for node in done.body]
    for node in added:
        rest.remove(node)
    assert rest == [ast.dump(node) for node in tree.body]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    tree = parse(text)
    if isinstance(tree, ast.Module):
        add_missing_imports(text, tree)
    else:
        assert tree


HOSTILE = {
    "brackets": "(" * 100_000,
    "minus": "-" * 100_000 + "1",
    "attributes": "a" + ".a" * 50_000,
    "calls": "a" + "()" * 50_000,
    "nested calls": "f(" * 90 + ")" * 90,
    "power": "x = 9**9**9**9",
    "sums": "x = " + "+".join(["1"] * 50_000),
    "elif": "if a: pass\n" + "elif a: pass\n" * 5_000,
    "blocks": "".join("  " * depth + "if a:\n" for depth in range(90)) + "  " * 90 + "pass\n",
    "null byte": "x = 1\0",
    "surrogate": "x = '\ud800'",
    "digits": "x = " + "9" * 100_000,
    "unknown names": "\n".join(f"x{n} = y{n}" for n in range(3_000)),
    "return outside": "return 1",
    "warning": 'x = "\\d" is "1"',
    "lambda": "lambda: " * 3_000 + "1",
    "f-string": "f'" + "{x:" * 100 + "}" * 100 + "'",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("error")
def test_hostile_sources_are_parsed_or_refused(name: str) -> None:
    tree = parse(HOSTILE[name])
    if isinstance(tree, ast.Module):
        source, added = add_missing_imports(HOSTILE[name], tree)
        assert (source, added) == (HOSTILE[name], ())


def test_the_modules_of_the_list_are_in_the_standard_library_and_harmless_to_import() -> None:
    import sys

    assert set(MODULES) <= sys.stdlib_module_names
    assert not {"antigravity", "this", "idlelib", "turtle"} & set(MODULES)


def test_only_an_init_of_a_delivered_package_is_created() -> None:
    wanted = ["shop/__init__.py", "shop/cart.py", "other/__init__.py", "other/x.py"]
    assert missing_inits(wanted, {"shop/cart.py": ""}) == ["shop/__init__.py"]
    assert missing_inits(wanted, {}) == []
    assert missing_inits(["cart.py"], {}) == []
