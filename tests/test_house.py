"""The house rules, held by programs: floors, quiet imports, registered numbers, signed harness, locked bank."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_llmbench.bank import load_bank, packaged_bank
from pytest_llmbench.harness.frozen import FROZEN, harness, signature, signed_versions
from pytest_llmbench.locks import unreleased

PACKAGE = Path(__file__).parents[1] / "pytest_llmbench"
FLOORS = (
    ("", "spec", "records", "faults", "stats", "bank", "drawing"),
    ("runtimes", "sandbox", "store", "locks", "external"),
    ("harness", "grading", "campaign", "report", "schemas"),
    (
        "options",
        "terms",
        "environment",
        "collect",
        "course",
        "validation",
        "fixtures",
        "outcome",
        "plain",
        "active",
        "session",
        "endpoints",
        "progress",
        "xdist",
        "hookspecs",
    ),
    ("plugin", "cli", "doctor"),
)
FLOOR = {part: number for number, parts in enumerate(FLOORS) for part in parts}
PYTEST_FLOOR = 3
HARMLESS = {-1, 0, 1, 2}
NO_LIMITS = {
    *("SECONDS_PER_NS", "SECONDS_PER_MS", "MS_PER_S", "KIB", "SAME_TIME_S", "MARK_RANGE", "DEFAULT_PORT"),
    *("FAILED_CODE", "FIRST_FREE", "LAST_DESCRIPTOR", "STANDARD_STREAMS", "OWNER_ONLY", "OUTSIDE_MODE"),
    *("FIRST_USER", "USERS", "FIRST_USER_NARROW", "USERS_NARROW"),
}
"""Units, addresses, modes of files and ids: numbers that cannot limit anything."""
FILES = sorted(PACKAGE.rglob("*.py"))
COUNTED = ("grading", "harness", "runtimes", "sandbox")
NO_NUMBERS = {"kernel.py", "syscalls.py"}
"""Modules that speak to the kernel: numbers of calls, bits and offsets."""
NUMBERED = sorted(p for name in COUNTED for p in (PACKAGE / name).glob("*.py") if p.name not in NO_NUMBERS)


def part_of(path: Path) -> str:
    """The part of the package that a file belongs to: its top folder or module."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0].replace("__init__", "")


def imported(path: Path) -> Iterator[str]:
    """Every module or name that a file imports anywhere in it, in full."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own(name: str) -> str | None:
    """The part of the package that an imported name belongs to; None for other packages."""
    package, _, rest = name.partition(".")
    part = rest.split(".")[0]
    return None if package != PACKAGE.name else part if part in FLOOR else ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_go_down_and_never_up(path: Path) -> None:
    here = FLOOR[part_of(path)]
    upwards = [name for name in imported(path) if (part := own(name)) is not None and FLOOR[part] > here]
    assert not upwards


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_only_the_upper_floors_know_pytest(path: Path) -> None:
    knows = any(re.match(r"_?pytest(\.|$)", name) for name in imported(path))
    assert not knows or (FLOOR[part_of(path)] >= PYTEST_FLOOR and path.name != "cli.py")


def test_the_idle_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, pytest, pytest_llmbench.plugin, pytest_llmbench.options, pytest_llmbench.hookspecs\n"
        "heavy = {'httpx', 'pydantic', 'markdown_it', 'tabulate', 'psutil', 'filelock', 'hypothesis', 'xllamacpp'}\n"
        "heavy |= {'numpy', 'scipy', 'jinja2'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Module-level constants in upper case, with their values."""
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and target.id == target.id.upper():
                    yield target.id, node.value


def limit_of(path: Path, name: str) -> str:
    """The limit that a constant is registered as: by its name, on the code-running side with its module before it."""
    known = name.lower().strip("_")
    return f"{path.stem}_{known}" if path.parent.name in ("grading", "sandbox") else known


def numbers(tree: ast.AST) -> list[ast.Constant]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, (int, float))
        and not isinstance(node.value, bool)
        and node.value not in HARMLESS
    ]


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_number_that_can_move_a_score_is_registered(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    limits = harness().limits
    named = {name: numbers(value) for name, value in constants(tree)}
    unregistered = sorted(
        name for name, found in named.items() if found and name not in NO_LIMITS and limit_of(path, name) not in limits
    )
    at_home = {id(number) for found in named.values() for number in found}
    loose = [f"{path.name}:{number.lineno}: {number.value}" for number in numbers(tree) if id(number) not in at_home]
    assert (unregistered, loose) == ([], [])


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_registered_constant_has_its_registered_value(path: Path) -> None:
    limits = harness().limits
    for name, value in constants(ast.parse(path.read_text(encoding="utf-8"))):
        limit = limits.get(limit_of(path, name))
        if limit is not None and numbers(value):
            assert limit.value == eval(ast.unparse(value)), name


def strings(document: object) -> Iterator[str]:
    """Every text in a TOML document."""
    if isinstance(document, dict):
        for value in document.values():
            yield from strings(value)
    elif isinstance(document, str):
        yield document


def test_every_number_in_the_frozen_texts_stands_in_the_register() -> None:
    document = tomllib.loads(FROZEN.read_text(encoding="utf-8"))
    limits = document.pop("limits")
    version = document.pop("version")
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    known = {float(limit[key]) for limit in limits.values() for key in ("value", "smoke") if key in limit}
    loose = [
        (text, figure)
        for text in strings(document)
        for figure in re.findall(r"\d[\d,.]*\d|\d", text)
        if float(figure.replace(",", "")) not in known | HARMLESS
    ]
    assert not loose
    assert not [key for key, value in document.items() if isinstance(value, (int, float))]


def test_every_limit_says_what_it_is_and_why() -> None:
    for name, limit in harness().limits.items():
        assert limit.unit, name
        assert len(limit.why) > 10 or name.startswith(("seed", "temperature")), name
        assert limit.smoke is None or limit.smoke <= limit.value, name


def test_the_harness_is_the_signed_one() -> None:
    assert signed_versions().get(harness().version) == signature()


def test_the_bank_is_the_released_one() -> None:
    assert unreleased(packaged_bank(), load_bank(packaged_bank())) == []
