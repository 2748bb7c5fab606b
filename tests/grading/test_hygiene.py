"""Hygiene: its two rows, the repaired copy, and that each error is charged once."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pytest_llmbench.grading.grade import Graded, grade
from pytest_llmbench.grading.hygiene import check
from pytest_llmbench.spec import Delivery, Instance, ItemSpec, RowSpec, Verdict

PRICES = """from typing import Optional

def price(name: str) -> Optional[int]:
    return {'tea': 3}.get(name)
"""
ORDERS = """from shop.prices import price

def order(name: str, n: int) -> int:
    return (price(name) or 0) * n
"""
REPORT = """from shop.orders import order

def line(name: str) -> str:
    return f'{name}: {order(name, 2)}'
"""
PACKAGE = {
    "shop/__init__.py": "",
    "shop/prices.py": PRICES,
    "shop/stock.py": "def stock(name: str) -> int:\n    return 7\n",
    "shop/orders.py": ORDERS,
    "shop/report.py": REPORT,
}
CHECKS = ("price", "missing", "stock", "order", "line", "empty", "total")


def item(files: Sequence[str], checks: Sequence[str] = CHECKS) -> ItemSpec:
    hygiene = [RowSpec(id=row, title=row, points=Decimal(1), kind="hygiene") for row in ("files", "syntax")]
    rows = [*hygiene, *(RowSpec(id=row, title=row, points=Decimal(1)) for row in checks)]
    return ItemSpec(
        id="X01",
        title="A shop",
        version="1.0.0",
        level="A",
        mode="single",
        points=Decimal(len(rows)),
        rows=tuple(rows),
        files=tuple(files),
        runs_code=True,
    )


class ShopTask:
    """A grader that needs every file of the package to import: one failure would take all rows with it."""

    def grade(self, instance: Instance, delivery: Delivery, *sandbox: Any) -> list[Verdict]:
        works = all(names_resolve(text) for text in delivery.files.values()) and set(PACKAGE) <= set(delivery.files)
        return [Verdict(row, works, "called") for row in CHECKS]


def names_resolve(source: str) -> bool:
    names = {"Optional"} & {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    return not names or "from typing import Optional" in source


def instance(files: Sequence[str], holds: Mapping[str, str] | None = None) -> Instance:
    return Instance(item(files), 0, 1, "", holds=holds or {})


def graded(files: Mapping[str, str]) -> Graded:
    return grade(ShopTask(), instance(list(PACKAGE)), Delivery(files=files))  # type: ignore[arg-type]


def lost(result: Graded) -> list[str]:
    return [row.id for row in result.rows if row.earned < row.points]


def test_a_whole_package_earns_every_row() -> None:
    result = graded(PACKAGE)
    assert (lost(result), result.repairs) == ([], ())


def test_one_missing_import_in_one_of_five_files_costs_its_hygiene_row_and_nothing_else() -> None:
    spoilt = {**PACKAGE, "shop/prices.py": PACKAGE["shop/prices.py"].replace("from typing import Optional\n", "")}
    result = graded(spoilt)
    assert lost(result) == ["syntax"]
    assert result.repairs == ("shop/prices.py: added `from typing import Optional`",)


def test_a_missing_init_is_created_and_costs_its_hygiene_row() -> None:
    result = graded({name: text for name, text in PACKAGE.items() if name != "shop/__init__.py"})
    assert lost(result) == ["files"]
    assert result.repairs == ("shop/__init__.py: created empty",)


def test_a_syntax_error_is_not_repaired() -> None:
    result = check(instance(["a.py"]), Delivery(files={"a.py": "def f(:\n"}))
    assert [verdict.earned for verdict in result.verdicts] == [True, False]
    assert "line 1" in result.verdicts[1].evidence
    assert (result.delivery.files, result.delivery.repairs) == ({"a.py": "def f(:\n"}, ())


def test_the_delivery_itself_is_left_as_it_was() -> None:
    delivery = Delivery(files={"a.py": "x = math.pi\n"})
    assert check(instance(["a.py"]), delivery).delivery.files == {"a.py": "import math\nx = math.pi\n"}
    assert delivery.files == {"a.py": "x = math.pi\n"}


@pytest.mark.parametrize(
    ("files", "rows"),
    [
        ({"a.py": "def settle(x):\n    return x\n", "b.txt": "CONFLICT 1 2\n"}, (True, True)),
        ({"a.py": "def settle(x):\n    return x\n"}, (False, True)),
        ({"a.py": "def  settle(x):\n    return x\n", "b.txt": "CONFLICT 1 2\n"}, (True, True)),
        ({"a.py": "42\n", "b.txt": "42\n"}, (False, False)),
        ({"a.py": "", "b.txt": " \n"}, (False, False)),
        ({}, (False, False)),
        ({"a.py": "42\n", "b.txt": "CONFLICT"}, (False, True)),
    ],
)
def test_a_file_counts_where_it_holds_what_it_must_hold(files: dict[str, str], rows: tuple[bool, bool]) -> None:
    asked = instance(["a.py", "b.txt"], {"a.py": "def settle", "b.txt": "CONFLICT"})
    assert tuple(verdict.earned for verdict in check(asked, Delivery(files=files)).verdicts) == rows


def test_json_and_toml_files_must_be_valid_too() -> None:
    asked = instance(["a.json", "b.toml", "c.txt"])
    good = {"a.json": '{"a": 1}', "b.toml": "a = 1", "c.txt": "{"}
    assert check(asked, Delivery(files=good)).verdicts[1].earned is True
    for name, text in (("a.json", "{"), ("b.toml", "a ="), ("a.json", "[" * 100_000)):
        assert check(asked, Delivery(files={**good, name: text})).verdicts[1].earned is False


def test_a_file_of_megabytes_is_not_taken_apart() -> None:
    [_, syntax] = check(instance(["a.py"]), Delivery(files={"a.py": "x = 1\n" * 100_000})).verdicts
    assert syntax.earned is False


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["a.py", "b.json", "c.toml", "p/__init__.py", "p/m.py"]), st.text(max_size=200)))
def test_any_delivery_is_judged(files: dict[str, str]) -> None:
    wanted = ["a.py", "b.json", "c.toml", "p/__init__.py", "p/m.py"]
    result = check(instance(wanted), Delivery(files=files))
    assert [verdict.row for verdict in result.verdicts] == ["files", "syntax"]
    assert set(result.delivery.files) - set(files) <= {"p/__init__.py"}


def test_an_item_that_runs_code_has_the_two_hygiene_rows_and_files() -> None:
    rows = ({"id": "a", "title": "a", "points": 1},)
    fields = {"id": "X01", "title": "x", "version": "1.0.0", "level": "A", "mode": "single", "points": 1}
    with pytest.raises(ValidationError, match="runs_code asks for files and has the hygiene rows"):
        ItemSpec.model_validate({**fields, "rows": rows, "files": ["a.py"], "runs_code": True})


def test_an_item_may_have_one_hygiene_row_for_both() -> None:
    rows = ({"id": "files", "title": "a", "points": 2, "kind": "hygiene"}, {"id": "a", "title": "a", "points": 1})
    fields = {"id": "X01", "title": "x", "version": "1.0.0", "level": "A", "mode": "single", "points": 3}
    spec = ItemSpec.model_validate({**fields, "rows": rows, "files": ["a.py"], "runs_code": True})
    for source, earned in (("x = 1\n", True), ("x = math.pi\n", False), ("x =\n", False), ("", False)):
        [verdict] = check(Instance(spec, 0, 1, ""), Delivery(files={"a.py": source})).verdicts
        assert (verdict.row, verdict.earned) == ("files", earned), source
