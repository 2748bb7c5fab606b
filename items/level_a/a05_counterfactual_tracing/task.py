"""Counterfactual code tracing: what do eight programs print in a language that only looks like Python?

The answers come from a small interpreter in which each of the six rules can be switched off on its own. A program's
constants are drawn again until every rule that it uses decides its answer.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.answers import grade_answers
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

RULES = ("range", "division", "index", "less", "minus", "precedence")
"""The rules by name, in the order of the prompt."""

RULE_DEFECTS = {
    "python_ranges": "range",
    "python_division": "division",
    "zero_based": "index",
    "strict_less": "less",
    "python_minus": "minus",
    "python_precedence": "precedence",
}
"""The defective references that forget one rule each."""

LEAST, MOST = 100, 99_999
STEP_LIMIT = 5_000
LETTERS = "abcdefghjkmnpqrstuvwxyz"

Value = int | list[int]
Scope = dict[str, Value]


class TraceError(Exception):
    """A program cannot be run: it leaves the language, a list, the step limit or the non-negative operands."""


# --- the interpreter --------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\w+|//|[-+]=|[^\w\s]")
_OPERATORS = {"+", "-", "*", "//", "%"}
_BOUNDARIES = {",", ":", "=", "+=", "-=", "<", "if", "while", "for", "in", "def", "return"}


def left_to_right(text: str) -> str:
    """The same program with parentheses that make Python's parser group operators from left to right."""
    return "\n".join(_group_line(line) for line in text.splitlines())


def _group_line(line: str) -> str:
    parts: list[str] = []
    levels = [[0, 0]]  # per open bracket: where the running chain of operators starts, how many it has
    for token in _TOKEN.findall(line):
        if token in _OPERATORS:
            start, count = levels[-1]
            if count:
                parts.insert(start, "(")
                parts.append(")")
            levels[-1][1] = count + 1
        elif token in (")", "]"):
            levels.pop()
        parts.append(token)
        if token in ("(", "["):
            levels.append([len(parts), 0])
        elif token in _BOUNDARIES:
            levels[-1] = [len(parts), 0]
    return " " * (len(line) - len(line.lstrip())) + " ".join(parts)


@dataclass(frozen=True)
class Outcome:
    """What a program printed and how many statements it took."""

    printed: int
    steps: int


class _Return(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


class _Machine:
    """One run of one program. Loop heads count one step for each test or iteration."""

    def __init__(self, rules: frozenset[str], strict: bool) -> None:
        self.inclusive = "range" in rules
        self.upwards = "division" in rules
        self.first = 1 if "index" in rules else 0
        self.or_equal = "less" in rules
        self.reversed_minus = "minus" in rules
        self.strict = strict
        self.steps = 0
        self.printed: list[int] = []
        self.globals: Scope = {}
        self.functions: dict[str, ast.FunctionDef] = {}

    def step(self) -> None:
        self.steps += 1
        if self.steps > STEP_LIMIT:
            raise TraceError("too many steps")

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.statement(statement, scope)

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        if isinstance(node, ast.For):
            self.loop(node, scope)
            return
        self.step()
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self.store(node.targets[0], self.value(node.value, scope), scope)
        elif isinstance(node, ast.AugAssign):
            self.augment(node, scope)
        elif isinstance(node, ast.If):
            self.block(node.body if self.holds(node.test, scope) else node.orelse, scope)
        elif isinstance(node, ast.While):
            while self.holds(node.test, scope):
                self.block(node.body, scope)
                self.step()
        elif isinstance(node, ast.FunctionDef):
            self.functions[node.name] = node
        elif isinstance(node, ast.Return) and node.value is not None:
            raise _Return(self.number(node.value, scope))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            arguments = self.arguments(node.value, "print", 1, scope)
            self.printed.append(arguments[0])
        else:
            raise TraceError(f"line {node.lineno}: {type(node).__name__} is not in the language")

    def loop(self, node: ast.For, scope: Scope) -> None:
        if not isinstance(node.iter, ast.Call) or not isinstance(node.target, ast.Name):
            raise TraceError(f"line {node.lineno}: a loop needs a name and a range")
        low, high = self.arguments(node.iter, "range", 2, scope)
        for number in range(low, high + 1 if self.inclusive else high):
            self.step()
            scope[node.target.id] = number
            self.block(node.body, scope)

    def augment(self, node: ast.AugAssign, scope: Scope) -> None:
        amount = self.number(node.value, scope)
        old = self.number(node.target, scope)
        if isinstance(node.op, ast.Add):
            new = old + amount
        elif isinstance(node.op, ast.Sub):
            new = amount - old if self.reversed_minus else old - amount
        else:
            raise TraceError(f"line {node.lineno}: unknown assignment")
        self.store(node.target, new, scope)

    def store(self, target: ast.expr, value: Value, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Subscript) and isinstance(value, int):
            items, position = self.element(target, scope)
            items[position] = value
        else:
            raise TraceError(f"line {target.lineno}: nothing can be stored here")

    def element(self, node: ast.Subscript, scope: Scope) -> tuple[list[int], int]:
        items = self.value(node.value, scope)
        position = self.number(node.slice, scope) - self.first
        if not isinstance(items, list) or not 0 <= position < len(items):
            raise TraceError(f"line {node.lineno}: no such element")
        return items, position

    def arguments(self, call: ast.Call, name: str, count: int, scope: Scope) -> list[int]:
        if not isinstance(call.func, ast.Name) or call.func.id != name or len(call.args) != count or call.keywords:
            raise TraceError(f"line {call.lineno}: expected {name} with {count} arguments")
        return [self.number(argument, scope) for argument in call.args]

    def holds(self, node: ast.expr, scope: Scope) -> bool:
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Lt):
            raise TraceError(f"line {node.lineno}: unknown condition")
        left, right = self.number(node.left, scope), self.number(node.comparators[0], scope)
        return left <= right if self.or_equal else left < right

    def number(self, node: ast.expr, scope: Scope) -> int:
        value = self.value(node, scope)
        if not isinstance(value, int):
            raise TraceError(f"line {node.lineno}: a list is no number")
        return value

    def value(self, node: ast.expr, scope: Scope) -> Value:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name):
            found = scope.get(node.id, self.globals.get(node.id))
            if found is None:
                raise TraceError(f"line {node.lineno}: {node.id} has no value")
            return found
        if isinstance(node, ast.Subscript):
            items, position = self.element(node, scope)
            return items[position]
        if isinstance(node, ast.BinOp):
            return self.arithmetic(node.op, self.number(node.left, scope), self.number(node.right, scope))
        if isinstance(node, ast.List):
            return [self.number(element, scope) for element in node.elts]
        if isinstance(node, ast.Call):
            return self.call(node, scope)
        raise TraceError(f"line {node.lineno}: {type(node).__name__} is not in the language")

    def arithmetic(self, operator: ast.operator, left: int, right: int) -> int:
        if isinstance(operator, ast.Add):
            return left + right
        if isinstance(operator, ast.Sub):
            return left - right
        if isinstance(operator, ast.Mult):
            return left * right
        if right < 1 or (self.strict and left < 0):
            raise TraceError(f"division of {left} by {right}")
        if isinstance(operator, ast.FloorDiv):
            return -(-left // right) if self.upwards else left // right
        if isinstance(operator, ast.Mod):
            return left % right
        raise TraceError(f"{type(operator).__name__} is not in the language")

    def call(self, node: ast.Call, scope: Scope) -> int:
        function = self.functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if function is None:
            raise TraceError(f"line {node.lineno}: unknown function")
        names = [argument.arg for argument in function.args.args]
        local: Scope = dict(zip(names, self.arguments(node, function.name, len(names), scope), strict=True))
        try:
            self.block(function.body, local)
        except _Return as result:
            return result.value
        raise TraceError(f"{function.name} returns nothing")


def trace(text: str, rules: Sequence[str] | frozenset[str] = RULES, *, strict: bool = False) -> Outcome:
    """Run a program under ``rules``; where a rule is left out, Python's own takes its place.

    Args:
        text: The program.
        rules: Names from RULES.
        strict: Refuse to divide a negative number, which the prompt says nothing about.

    Raises:
        TraceError: where the program fails or does not print exactly one number.
    """
    machine = _Machine(frozenset(rules), strict)
    try:
        tree = ast.parse(left_to_right(text) if "precedence" in rules else text)
    except SyntaxError as error:
        raise TraceError(f"line {error.lineno}: {error.msg}") from None
    machine.block(tree.body, machine.globals)
    if len(machine.printed) != 1:
        raise TraceError(f"{len(machine.printed)} numbers were printed")
    return Outcome(machine.printed[0], machine.steps)


# --- the programs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Skeleton:
    """A program with gaps: lower case for names, upper case for drawn numbers and lists."""

    text: str
    uses: tuple[str, ...]
    """Every rule that decides the answer."""
    numbers: Mapping[str, tuple[int, int]]
    """Smallest and greatest value of a constant; both have the same number of digits."""
    lists: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """Length, smallest and greatest element of a list."""
    free: tuple[int, int] = (0, 0)
    """First and last + 1 of neighbouring lines that may stand in any order."""
    least_steps: int = 0

    def draw(self, seed: random.Random) -> str:
        """The program with every gap filled in."""
        names = sorted(set(re.findall(r"\{([a-z])\}", self.text)))
        gaps: dict[str, object] = dict(zip(names, seed.sample(LETTERS, len(names)), strict=True))
        gaps.update((gap, seed.randint(low, high)) for gap, (low, high) in self.numbers.items())
        for gap, (length, low, high) in self.lists.items():
            gaps[gap] = ", ".join(map(str, seed.sample(range(low, high + 1), length)))
        lines = self.text.strip().format_map(gaps).splitlines()
        start, end = self.free
        lines[start:end] = seed.sample(lines[start:end], end - start)
        return "\n".join(lines)


SKELETONS = (
    Skeleton(
        """
{a} = {A}
{b} = {a} + {B} * {C}
print({b} // {D} + {E})
""",
        uses=("division", "precedence"),
        numbers={"A": (21, 89), "B": (2, 9), "C": (12, 49), "D": (3, 9), "E": (101, 899)},
    ),
    Skeleton(
        """
{t} = {A}
for {i} in range({B}, {C}):
 {t} = {t} + {i} * {D}
print({t})
""",
        uses=("range", "precedence"),
        numbers={"A": (12, 98), "B": (2, 3), "C": (5, 6), "D": (2, 3)},
    ),
    Skeleton(
        """
{s} = [{S}]
{n} = {s}[{A}] * {B}
{n} -= {s}[{C}] * {D}
{n} -= {E}
print({n} + {s}[{F}])
""",
        uses=("index", "minus"),
        numbers={"A": (1, 4), "B": (3, 9), "C": (1, 4), "D": (11, 29), "E": (1050, 4950), "F": (1, 4)},
        lists={"S": (5, 12, 98)},
    ),
    Skeleton(
        """
{x} = {A}
for {i} in range({B}, {C}):
 if {i} < {D}:
  {x} += {i} * {E}
 {x} -= {F}
print({x})
""",
        uses=("range", "less", "minus"),
        numbers={"A": (31, 98), "B": (2, 3), "C": (6, 8), "D": (4, 7), "E": (21, 98), "F": (510, 990)},
    ),
    Skeleton(
        """
{s} = [{S}]
{t} = {A}
for {i} in range(1, 5):
 {v} = {s}[{i}]
 if {v} < {s}[{B}]:
  {v} = {v} // {C}
 else:
  {v} = {v} * {i}
 {t} += {v}
print({t} * {D})
""",
        uses=("range", "division", "index", "less"),
        numbers={"A": (11, 98), "B": (2, 4), "C": (3, 9), "D": (3, 9)},
        lists={"S": (6, 12, 98)},
        free=(0, 2),
    ),
    Skeleton(
        """
def {f}({n}, {k}):
 {r} = {n} + {k} * {A}
 for {j} in range(1, {k}):
  {r} -= {B} + {j} * {C}
 return {r}

{t} = {D}
for {i} in range({E}, {F}):
 {t} += {f}({i} + {G}, {i}) // {H}
 if {t} % 4 < {I}:
  {t} += {J}
print({t} * {K})
""",
        uses=("range", "division", "less", "minus", "precedence"),
        numbers={
            "A": (2, 3),
            "B": (151, 349),
            "C": (3, 5),
            "D": (11, 98),
            "E": (2, 3),
            "F": (5, 6),
            "G": (11, 29),
            "H": (6, 9),
            "I": (1, 2),
            "J": (11, 98),
            "K": (3, 9),
        },
    ),
    Skeleton(
        """
def {g}({x}):
 if {x} < {A}:
  return {x} + {B} * {C}
 return {x} // {D}

{s} = [{S}]
{t} = {E}
for {i} in range(1, 4):
 for {j} in range({i}, 6):
  if {s}[{j} + 1] // 10 < {s}[{j}] // 10:
   {w} = {s}[{j}]
   {s}[{j}] = {s}[{j} + 1]
   {s}[{j} + 1] = {w} + {F}
   {t} += {i} * {j}
  else:
   {s}[{j}] -= {G}
 {t} -= {s}[{i}] + {i} * {H}
for {j} in range({I}, 5):
 {t} += {g}({s}[{j}]) * {K}
print({t})
""",
        uses=RULES,
        numbers={
            "A": (31, 69),
            "B": (2, 9),
            "C": (2, 5),
            "D": (3, 9),
            "E": (11, 98),
            "F": (2, 9),
            "G": (101, 129),
            "H": (21, 89),
            "I": (1, 2),
            "K": (11, 49),
        },
        lists={"S": (8, 12, 89)},
        free=(5, 7),
    ),
    Skeleton(
        """
def {h}({a}, {b}):
 {r} = {a}
 for {c} in range(2, {b}):
  if {r} < {A}:
   {r} = {r} + {c} * 2
  else:
   {r} -= {B}
 return {r}

{q} = [{Q}]
{m} = [{M}]
{t} = {C}
{k} = 2
for {i} in range(1, 7):
 for {j} in range(2, 6):
  {p} = ({q}[{j}] + {i} * {D}) % 7 + 1
  {v} = {h}({m}[{p}], {j})
  if {v} % 5 < {k}:
   {q}[{j}] = {v} // {E} + {F}
   {k} = {k} % 3 + 1
  else:
   {q}[{j} + 1] -= {v} + {G}
   {t} += {v}
  if {q}[{j}] < {m}[{i}]:
   {m}[{i}] -= {H}
 {t} -= {q}[{i} + 1] * {I} + {m}[{p}]
while {k} < 6:
 {t} += {q}[{k}] + {k} * {J}
 {k} += 1
for {j} in range(1, 5):
 {n} = {m}[{j}] // {K}
 if {n} % 3 < 1:
  {q}[{j}] -= {L}
 {t} += {q}[{j}] * {n}
print({t})
""",
        uses=RULES,
        numbers={
            "A": (41, 59),
            "B": (131, 149),
            "C": (11, 98),
            "D": (3, 5),
            "E": (3, 7),
            "F": (3, 9),
            "G": (61, 98),
            "H": (110, 150),
            "I": (21, 49),
            "J": (11, 29),
            "K": (3, 7),
            "L": (160, 240),
        },
        lists={"Q": (9, 12, 60), "M": (9, 12, 89)},
        free=(9, 13),
        least_steps=600,
    ),
)


@dataclass(frozen=True)
class Program:
    """A drawn program with its answer and the answers of those who get its rules wrong."""

    text: str
    answer: int
    steps: int
    python: int
    """What ordinary Python prints."""
    without: Mapping[str, int]
    """What is printed where one rule alone is forgotten."""


def _settle(skeleton: Skeleton, text: str) -> Program | None:
    """The program with its answers; None unless each rule that it uses, and no other, decides the answer."""
    try:
        right = trace(text, strict=True)
        if not LEAST <= right.printed <= MOST or right.steps < skeleton.least_steps:
            return None
        without: dict[str, int] = {}
        for rule in RULES:
            without[rule] = trace(text, [other for other in RULES if other != rule]).printed
            if (without[rule] != right.printed) != (rule in skeleton.uses):
                return None
        python = trace(text, ()).printed
    except TraceError:
        return None
    if python == right.printed:
        return None
    return Program(text, right.printed, right.steps, python, without)


def _draw(skeleton: Skeleton, seed: random.Random) -> Program:
    while True:
        program = _settle(skeleton, skeleton.draw(seed))
        if program is not None:
            return program


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Draw eight programs whose answers are far apart and stand nowhere in the prompt."""
    while True:
        programs = [_draw(skeleton, seed) for skeleton in SKELETONS]
        prompt = item.render(**{f"p{number}": program.text for number, program in enumerate(programs, 1)})
        answers = [program.answer for program in programs]
        shown = {int(number) for number in re.findall(r"\d+", prompt)}
        if len(set(answers)) == len(answers) and not shown & set(answers) and max(answers) >= 10 * min(answers):
            break
    return Instance(
        spec=item.spec,
        variant=variant,
        run=run,
        prompt=prompt,
        answers=_by_key(answers),
        data={"programs": tuple(programs)},
    )


def _by_key(answers: Sequence[int]) -> dict[str, int]:
    return {str(number): answer for number, answer in enumerate(answers, 1)}


def grade(instance: Instance, delivery: Delivery) -> Sequence[Verdict]:
    """One row per program."""
    return grade_answers(instance, delivery)


def golden(instance: Instance) -> Reference:
    """What the interpreter computed."""
    return Reference(answers={key: int(value) for key, value in instance.answers.items()})


def defects(instance: Instance) -> Mapping[str, Reference]:
    """Ordinary Python, each rule forgotten on its own, and two careless deliveries."""
    programs: Sequence[Program] = instance.data["programs"]
    right = [program.answer for program in programs]
    found = {"defective": _by_key([program.python for program in programs])}
    for name, rule in RULE_DEFECTS.items():
        found[name] = _by_key([program.without[rule] for program in programs])
    found["stops_early"] = _by_key(right[:5])
    found["swapped_answers"] = _by_key([*right[:6], right[7], right[6]])
    return {name: Reference(answers=answers) for name, answers in found.items()}
