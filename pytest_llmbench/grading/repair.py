"""The closed list of repairs: standard-library imports that the code already uses, and empty ``__init__.py`` files.

Nothing here changes what code does: a name that resolves is never touched, a syntax error is never repaired.
"""

from __future__ import annotations

import ast
import importlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cache

from pyflakes.checker import Checker
from pyflakes.messages import ImportStarUsage, UndefinedName

MODULES = (
    *("abc", "array", "bisect", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal"),
    *("enum", "fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "operator", "os"),
    *("pathlib", "random", "re", "sqlite3", "statistics", "string", "sys", "tempfile", "textwrap", "threading"),
    *("time", "types", "typing", "unittest", "uuid"),
)
"""Modules whose missing ``import m`` is repaired."""
CLASSES_OF = (
    "abc",
    "collections",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "io",
    "pathlib",
    "typing",
)
FUNCTIONS_OF = (
    *("abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "functools", "heapq", "itertools", "math"),
)
"""Modules whose missing ``from m import name`` is repaired: capitalised names, and functions."""
SECOND_CHOICE = "typing"
"""Its aliases of names that another module has are deprecated; the other module is meant."""
INIT = "__init__.py"

Use = tuple[ast.Name, ast.AST]


def parse(source: str) -> ast.Module | str:
    """The syntax tree of a Python source, or why there is none. Any text at all is answered."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            compile(tree, "<delivered>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return tree


def add_missing_imports(source: str, tree: ast.Module) -> tuple[str, tuple[str, ...]]:
    """``source`` with the standard-library imports it uses and lacks, and these imports as they were added.

    Unresolved names are found by pyflakes. A name is imported only where every use of it fits what would be imported: a
    module is only asked for attributes it has, a function or class is only called, subclassed, subscripted, used as
    decorator or in an annotation. An ambiguous name is left alone.
    """
    names = [name for name in _undefined(tree) if name in MODULES or name in _exports()]
    uses = _uses(tree) if names else {}
    bound = _bound(tree) if names else set()
    lines = [_import_of(name, uses.get(name, [])) for name in names if name not in bound]
    added = tuple(sorted(line for line in lines if line is not None))
    return (_insert(source, tree, added) if added else source), added


def missing_inits(requested: Sequence[str], delivered: Mapping[str, str]) -> list[str]:
    """Requested ``__init__.py`` files that were not delivered, although another file of their package was."""
    return [
        name
        for name in requested
        if name not in delivered
        and name.rpartition("/")[2] == INIT
        and any(other.startswith(name.removesuffix(INIT)) for other in delivered)
    ]


def _undefined(tree: ast.Module) -> list[str]:
    try:
        messages = Checker(tree).messages
    except (RecursionError, MemoryError):
        return []
    if any(isinstance(message, ImportStarUsage) for message in messages):
        return []
    return sorted({str(message.message_args[0]) for message in messages if isinstance(message, UndefinedName)})


def _import_of(name: str, uses: Sequence[Use]) -> str | None:
    if any(not isinstance(node.ctx, ast.Load) for node, _ in uses):
        return None
    attributes = [parent.attr for node, parent in uses if isinstance(parent, ast.Attribute)]
    if name in MODULES and attributes and len(attributes) == len(uses):
        module = importlib.import_module(name)
        if all(hasattr(module, attribute) for attribute in attributes):
            return f"import {name}"
    home = _exports().get(name)
    if home is None:
        return None
    value = getattr(importlib.import_module(home), name)
    if not all(hasattr(value, attribute) for attribute in attributes):
        return None
    if name[0].islower() and not (uses and all(_calls(node, parent) for node, parent in uses)):
        return None
    return f"from {home} import {name}"


def _uses(tree: ast.Module) -> Mapping[str, list[Use]]:
    """Every use of every name, with the node that it is a part of."""
    found: dict[str, list[Use]] = {}
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.Name):
                found.setdefault(child.id, []).append((child, parent))
    return found


def _bound(tree: ast.Module) -> set[str]:
    """Names that the source itself gives to a function, a class or a parameter."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    return {node.name for node in nodes} | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _calls(node: ast.Name, parent: ast.AST) -> bool:
    """Whether ``node`` is called, used as a decorator, or a class of which something is asked or annotated."""
    match parent:
        case ast.Call(func=used):
            return used is node
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node in parent.decorator_list or node in getattr(parent, "bases", ())
        case ast.Attribute() | ast.AnnAssign() | ast.arg() | ast.Subscript():
            return True
        case _:
            return False


@cache
def _exports() -> Mapping[str, str]:
    """Module per public name that can be told apart: classes and constants by their capital, functions by theirs."""
    found: dict[str, set[str]] = {}
    for name in sorted({*CLASSES_OF, *FUNCTIONS_OF}):
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", None) or [key for key in vars(module) if not key.startswith("_")]:
            if name in (CLASSES_OF if public[0].isupper() or name == "datetime" else FUNCTIONS_OF):
                found.setdefault(public, set()).add(name)
    choices = {public: homes - {SECOND_CHOICE} or homes for public, homes in found.items()}
    return {public: next(iter(homes)) for public, homes in choices.items() if len(homes) == 1} | {
        "TestCase": "unittest"
    }


def _insert(source: str, tree: ast.Module, imports: Sequence[str]) -> str:
    """``source`` with imports before its first statement that is neither a docstring nor a ``__future__`` import."""
    place = next(number for number, node in enumerate(tree.body) if not _opens(number, node))
    first = tree.body[place]
    decorators = getattr(first, "decorator_list", [])
    line = min([first.lineno, *(node.lineno for node in decorators)])
    lines = source.splitlines(keepends=True)
    if first.col_offset:
        head = lines[line - 1].encode()
        joined = "; ".join(imports) + "; "
        lines[line - 1] = (head[: first.col_offset] + joined.encode() + head[first.col_offset :]).decode()
    else:
        lines.insert(line - 1, "".join(f"{text}\n" for text in imports))
    wanted = ast.Module(
        [*tree.body[:place], *ast.parse("\n".join(imports)).body, *tree.body[place:]], tree.type_ignores
    )
    edited = "".join(lines)
    done = parse(edited)
    if isinstance(done, ast.Module) and ast.dump(done) == ast.dump(wanted):
        return edited
    return ast.unparse(ast.fix_missing_locations(wanted))


def _opens(number: int, node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return (
        number == 0
        and isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
