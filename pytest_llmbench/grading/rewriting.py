"""Other texts of a module that behave the same, so that its text and its code objects tell nothing about it."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping
from itertools import groupby

FORMS = ("d", "#x", "#o", "#b")
"""How ``format`` writes a whole number that ``int`` is to read."""
MARK_RANGE = 10_000
"""Numbers that are thrown in stand below this."""
MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}
PURE = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp),
    *(ast.operator, ast.unaryop, ast.expr_context),
)
"""Nodes of an expression that only reads and computes."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def rewritten(source: str, chance: random.Random) -> str:
    """A module with the same public names and the same behaviour, and with another text.

    Constants with a private name are written where they are used, whole numbers as calls of ``int``, private functions
    and local variables get other names, comparisons are mirrored, branches swapped, docstrings dropped, functions
    moved, comments and useless assignments added: each by chance, the first two and the last one always.

    Args:
        source: the module. Reading a name, an attribute or an element in it must have no side effect, ``int`` must be
            the builtin, and nothing in it may ask for its own source or names.
        chance: source of every decision.

    Raises:
        SyntaxError: where ``source`` is no Python module.
    """
    tree = ast.parse(source)
    names = _fresh_names(tree, chance)
    _inline(tree)
    _rename_locals(tree, names, chance)
    _rename_private(tree, names)
    tree = _Rewriter(names, chance).visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            _plain(node, names, chance)
    tree.body = [node for group in _groups(tree) for node in _moved(group, chance)]
    blocks = [ast.unparse(ast.fix_missing_locations(node)) for node in tree.body]
    place = max((number for number, node in enumerate(tree.body, 1) if _is_head(number - 1, node)), default=0)
    blocks.insert(chance.randrange(place, len(blocks) + 1), f"# {next(names)}")
    return ("\n" * chance.choice((1, 2))).join(blocks) + "\n"


def _fresh_names(tree: ast.Module, chance: random.Random) -> Iterator[str]:
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    number = chance.randrange(MARK_RANGE)
    while True:
        number += chance.randrange(1, MARK_RANGE)
        if f"part_{number}" not in taken:
            yield f"part_{number}"


def _is_head(number: int, node: ast.stmt) -> bool:
    future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
    return future or (number == 0 and _is_docstring(node))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _names(tree: ast.AST) -> Iterator[ast.Name]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Name))


def _inline(tree: ast.Module) -> None:
    """Write the value of a private constant, assigned once and for all, where the constant stands."""
    stored = [node.id for node in _names(tree) if isinstance(node.ctx, ast.Store)]
    taken = _arguments(tree) | _global_names(tree)
    values: dict[str, ast.Constant] = {}
    for statement in list(tree.body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() as value) if _private(name):
                if stored.count(name) == 1 and name not in taken:
                    values[name] = value
                    tree.body.remove(statement)
    _Inliner(values).visit(tree)


class _Inliner(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.Constant]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._values.get(node.id)
        return ast.Constant(value.value) if value else node


def _arguments(tree: ast.AST) -> set[str]:
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _global_names(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}


def _top_names(tree: ast.Module) -> set[str]:
    defined = {node.name for node in tree.body if isinstance(node, Function | ast.ClassDef)}
    bound = {name.id for node in tree.body if not isinstance(node, Function | ast.ClassDef) for name in _names(node)}
    return defined | bound


def _rename_locals(tree: ast.Module, names: Iterator[str], chance: random.Random) -> None:
    """Give the local variables of every function without inner scopes other names."""
    top = _top_names(tree)
    for function in [node for node in ast.walk(tree) if isinstance(node, Function)]:
        inner = [node for node in ast.walk(function) if isinstance(node, Function | ast.Lambda | ast.ClassDef)]
        stored = {node.id for node in _names(function) if isinstance(node.ctx, ast.Store)}
        mine = sorted(stored - top - _arguments(function) - _global_names(function) - _bound_as_text(function))
        if inner == [function]:
            _rename(function, {name: next(names) for name in mine if chance.random() < 1 / 2})


def _bound_as_text(function: Function) -> set[str]:
    """Names that the tree holds as plain text: of caught exceptions, of patterns, of imports."""
    found: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.add(asname or name)
    return found


def _rename_private(tree: ast.Module, names: Iterator[str]) -> None:
    """Give what is private and defined at the top of the module other names."""
    stored = {node.id for function in ast.walk(tree) if isinstance(function, Function) for node in _stores(function)}
    free = _top_names(tree) - _arguments(tree) - _global_names(tree) - stored
    new = {name: next(names) for name in sorted(free) if _private(name)}
    _rename(tree, new)
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            node.name = new.get(node.name, node.name)


def _stores(tree: ast.AST) -> Iterator[ast.Name]:
    return (node for node in _names(tree) if isinstance(node.ctx, ast.Store))


def _rename(tree: ast.AST, new: Mapping[str, str]) -> None:
    for node in _names(tree):
        node.id = new.get(node.id, node.id)


class _Rewriter(ast.NodeTransformer):
    """Changes expressions and branches that mean the same the other way round."""

    def __init__(self, names: Iterator[str], chance: random.Random) -> None:
        self._names, self._chance = names, chance

    def _coin(self) -> bool:
        return self._chance.random() < 1 / 2

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is not int or node.value in (0, 1):
            return node
        digits = ast.Constant(format(node.value, self._chance.choice(FORMS)))
        return ast.Call(ast.Name("int", ast.Load()), [digits, ast.Constant(0)], [])

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return node

    def visit_Match(self, node: ast.Match) -> ast.stmt:
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        mirrored = MIRRORED.get(type(node.ops[0]))
        if len(node.ops) > 1 or mirrored is None or not _pure(node) or self._coin():
            return node
        return ast.Compare(node.comparators[0], [mirrored()], [node.left])

    def visit_If(self, node: ast.If) -> ast.stmt:
        self.generic_visit(node)
        if not node.orelse or self._coin():
            return node
        return ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return node if self._coin() else ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if node.value is None or self._coin():
            return node
        name = next(self._names)
        return [
            ast.Assign([ast.Name(name, ast.Store())], node.value),
            ast.Return(ast.Name(name, ast.Load())),
        ]


def _pure(node: ast.Compare) -> bool:
    """Whether the order in which both sides are worked out cannot be noticed."""
    parts = [part for side in (node.left, node.comparators[0]) for part in ast.walk(side)]
    return all(isinstance(part, PURE) or _is_int_call(part) for part in parts)


def _is_int_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int"


def _plain(node: ast.Module | ast.ClassDef | Function, names: Iterator[str], chance: random.Random) -> None:
    """Drop the docstring by chance; start a function with an assignment that nothing uses."""
    if _is_docstring(node.body[0]) and chance.random() < 1 / 2:
        node.body = node.body[1:] or [ast.Pass()]
    if isinstance(node, Function):
        mark = ast.Assign([ast.Name(next(names), ast.Store())], ast.Constant(chance.randrange(MARK_RANGE)))
        node.body.insert(int(_is_docstring(node.body[0])), mark)


def _groups(tree: ast.Module) -> list[list[ast.stmt]]:
    return [list(group) for _, group in groupby(tree.body, _is_movable)]


def _is_movable(node: ast.stmt) -> bool:
    if not isinstance(node, Function) or node.decorator_list:
        return False
    defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default)]
    return all(isinstance(default, ast.Constant) for default in defaults)


def _moved(group: list[ast.stmt], chance: random.Random) -> list[ast.stmt]:
    return chance.sample(group, len(group)) if _is_movable(group[0]) else group
