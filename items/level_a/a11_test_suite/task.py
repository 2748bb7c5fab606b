"""A11: a unittest suite that tells a correct module from eight faulty ones."""

from __future__ import annotations

import ast
import hashlib
import json
import random
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import count, product
from string import Template
from typing import Any, cast

from pytest_llmbench.bank import Item
from pytest_llmbench.grading.hygiene import MAX_SOURCE_CHARS
from pytest_llmbench.grading.mutation import Assessment, Mutant, Subject, assess, named, shown
from pytest_llmbench.grading.repair import parse
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

FILE = "test_invoice.py"
SUITE = "test_invoice"
MODULE = "invoice"
HOLDS = "TestCase"
ROWS = ("valid", "mutants", "independent")
EACH = Decimal("1.5")
FUNCTIONS = ("percent", "months", "rental", "discount", "delivery", "invoice")
KEYS = ("k_rentals", "k_discount", "k_goods", "k_delivery", "k_tax", "k_deposit", "k_total")
APART = "\n\n\n"
"""What stands between the functions of the module."""
EXTENDED = ("one_wrong_assertion", "depends_on_order", "leaves_state")
"""References that are the golden suite with something added."""

SHORT = ((2023, 4, 6), (2023, 4, 20))
LONG = ((2023, 4, 6), (2024, 4, 6))
WINTER = ((2023, 11, 20), (2024, 2, 3))
"""Hires of one month, of more than are charged in full, and across a year's end with the last day below the first."""
HUGE = range(10**18 + 1, 10**18 + 10, 2)
"""Prices whose percentages floating point cannot hold."""

Functions = Mapping[str, Callable[..., Any]]
Order = tuple[list[tuple[int, tuple[int, int, int], tuple[int, int, int]]], int, bool]


@dataclass(frozen=True)
class World:
    """One variant and run: names and numbers, the module and its mutants."""

    item: Item
    values: Mapping[str, int | str]
    source: str
    mutants: tuple[Mutant, ...]

    def load(self, source: str) -> Functions:
        """The functions of a version of the module, by their place in it. It is our own code."""
        space: dict[str, Any] = {}
        exec(compile(source, MODULE, "exec", dont_inherit=True), space)
        return {place: space[str(self.values[place])] for place in FUNCTIONS}

    @cached_property
    def correct(self) -> Functions:
        """The functions of the correct module."""
        return self.load(self.source)

    @cached_property
    def faulty(self) -> Mapping[str, str]:
        """The source of every mutant, by its name."""
        return {mutant.name: mutant.apply(self.source) for mutant in self.mutants}

    @cached_property
    def faulty_invoices(self) -> Mapping[str, Callable[..., Any]]:
        """The function that makes an invoice, of every mutant."""
        return {name: self.load(source)["invoice"] for name, source in self.faulty.items()}

    def found_by(self, order: Order) -> set[str]:
        """The mutants whose invoice for ``order`` is another than the correct one."""
        right = self.correct["invoice"](*order)
        return {name for name, invoice in self.faulty_invoices.items() if invoice(*order) != right}

    def orders(self) -> Iterator[Order]:
        """Orders around the constants of this world, ordinary ones first."""
        numbers = {name: value for name, value in self.values.items() if isinstance(value, int)}
        low, high, free = numbers["low_sum"], numbers["high_sum"], numbers["free_from"]
        prices = [*range(4000, 8000, 203), free, high, low, 30 * high, *HUGE, *range(4001, 4101)]
        hires = ([SHORT], [LONG], [WINTER], [SHORT, LONG])
        distances = (numbers["near"], numbers["near"] + 2)
        for price, spans, member, distance in product(prices, hires, (False, True), distances):
            yield [(price, start, end) for start, end in spans], distance, member

    def order(self, name: str) -> Order:
        """The first order whose invoice finds the mutant ``name`` and no other."""
        return next(order for order in self.orders() if self.found_by(order) == {name})

    def order_for(self, name: str) -> Order:
        """The first order whose invoice finds the mutant ``name``."""
        right, wrong = self.correct["invoice"], self.faulty_invoices[name]
        return next(order for order in self.orders() if wrong(*order) != right(*order))


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Draw names and numbers, and fill in the module and its mutants."""
    values = _values(item, seed)
    text = item.read("invoice.py.tmpl", **values).strip()
    head, *rest = text.split(APART)
    functions = [block for block in rest if block.startswith("def ")]
    others = [block for block in rest if block not in functions]
    source = APART.join([head, *others, *seed.sample(functions, len(functions))]) + "\n"
    path = item.side("mutants") / "mutants.toml"
    entries = tomllib.loads(Template(path.read_text(encoding="utf-8")).substitute(values))["mutants"]
    world = World(item, values, source, tuple(Mutant(**entry) for entry in entries))
    prompt = item.render(module=source.rstrip())
    return Instance(item.spec, variant, run, prompt, data={"world": world}, holds={FILE: HOLDS})


def _values(item: Item, seed: random.Random) -> dict[str, int | str]:
    names: Mapping[str, list[str]] = item.spec.data["names"]
    low_sum = seed.randrange(12_000, 18_001, 500)
    high_sum = seed.randrange(50_000, 70_001, 1000)
    low_rate = seed.choice((4, 5, 6))
    high_rate = low_rate + seed.choice((3, 4, 5))
    base_fee = seed.randrange(440, 941, 50)
    return {
        **{place: seed.choice(choices) for place, choices in names.items()},
        "thing": seed.choice(item.spec.data["things"]),
        "full_months": seed.choice((3, 4, 5)),
        "later_rate": seed.choice((70, 75, 80, 85)),
        "low_sum": low_sum,
        "low_rate": low_rate,
        "high_sum": high_sum,
        "high_rate": high_rate,
        "member_rate": seed.choice((2, 3)),
        "most_discount": high_sum * (high_rate + 3) // 100 + seed.randrange(1000, 2001, 50),
        "free_from": seed.randrange(24_000, 40_001, 500),
        "base_fee": base_fee,
        "near": seed.choice((8, 10, 12, 15)),
        "step": seed.choice((4, 5, 6)),
        "step_fee": seed.randrange(110, 191, 20),
        "tax_rate": seed.choice((17, 19, 21, 23)),
        "deposit_rate": seed.choice((10, 15, 20)),
    }


def grade(instance: Instance, delivery: Delivery, sandbox: Sandbox) -> list[Verdict]:
    """Run the suite on the correct module and on its mutants, and judge what it finds."""
    world = cast("World", instance.data["world"])
    text = delivery.files.get(FILE)
    problem = f"{FILE} was not delivered" if text is None else _unusable(text)
    if text is None or problem:
        return [Verdict(row, False, problem or "") for row in ROWS]
    subject = Subject(MODULE, world.source, world.faulty)
    seed = f"{instance.spec.id}/{instance.variant}/{instance.run}"
    assessment = assess(sandbox, SUITE, text, subject, seed)
    return [_valid(assessment), _mutants(assessment, world), _independent(assessment)]


def _unusable(text: str) -> str:
    if len(text) > MAX_SOURCE_CHARS:
        return f"{FILE} is too long to be run"
    return "" if isinstance(parse(text), ast.Module) else f"{FILE} is no valid Python"


def _valid(assessment: Assessment) -> Verdict:
    count = len(assessment.valid)
    if assessment.problem:
        evidence = assessment.problem
    elif assessment.invalid:
        evidence = f"on the correct module {len(assessment.invalid)} do not pass: {named(assessment.invalid)}"
    elif not count:
        evidence = f"no test method passes on the correct module; {len(assessment.skipped)} skip themselves"
    else:
        return Verdict("valid", True, f"{count} test methods pass on the correct module every time")
    return Verdict("valid", False, evidence)


def _mutants(assessment: Assessment, world: World) -> Verdict:
    if not assessment.valid:
        return Verdict("mutants", False, "no test method is valid, so nothing is found")
    numbers = {mutant.name: number for number, mutant in enumerate(world.mutants, 1)}
    fates = assessment.trials
    found = ", ".join(f"{numbers[name]} by {_short(fates[name].by[0])}" for name in assessment.killed)
    missed = [name for name in numbers if name not in assessment.killed]
    words = ", ".join(f"{numbers[name]} ({fates[name].fate})" for name in missed)
    evidence = f"found: {found or 'none'}; not found: {words or 'none'}"
    hidden = "; ".join(_secret(world, mutant) for mutant in world.mutants if mutant.name in missed)
    earned = len(assessment.killed) * EACH if missed else True
    return Verdict("mutants", earned, evidence, hidden)


def _short(method: str) -> str:
    return shown(method.removeprefix(f"{SUITE}."))


def _secret(world: World, mutant: Mutant) -> str:
    order = world.order_for(mutant.name)
    right, wrong = world.correct["invoice"](*order), world.faulty_invoices[mutant.name](*order)
    return f"{mutant.name}: {mutant.about}; {world.values['invoice']}{order} gives {wrong}, correct is {right}"


def _independent(assessment: Assessment) -> Verdict:
    if not assessment.killed:
        return Verdict("independent", False, "not examined: the suite finds no faulty version")
    if assessment.dependent:
        return Verdict("independent", False, assessment.dependent)
    return Verdict("independent", True, "the valid methods pass in every order and part, and leave nothing behind")


def golden(instance: Instance) -> Reference:
    """A suite with a test for every sentence of the docstrings."""
    return _reference(_golden(instance.data["world"]))


def defects(instance: Instance) -> Mapping[str, Reference]:
    """The suites beside the item and the golden one with small changes."""
    world = cast("World", instance.data["world"])
    suite = _golden(world)
    made = {
        "syntax_error": suite.replace("):\n", ":\n", 1),
        "missing_import": suite.replace("import unittest\n", "", 1),
        **{name: f"{suite}{APART}{_filled(world, f'references/{name}.py.tmpl')}" for name in EXTENDED},
    }
    others = {name for name in instance.spec.references if name not in made}
    made |= {name: _filled(world, f"references/{name}.py.tmpl") for name in others}
    return {name: _reference(text) for name, text in made.items()}


def _reference(suite: str) -> Reference:
    return Reference(files={FILE: suite})


def _golden(world: World) -> str:
    return _filled(world, "golden/test_invoice.py.tmpl")


def _filled(world: World, name: str) -> str:
    """A suite with names, numbers and expected values filled in."""
    correct, values = world.correct, world.values
    free, high, low = (int(values[name]) for name in ("free_from", "high_sum", "low_sum"))
    near, step = int(values["near"]), int(values["step"])
    price = next(price for price in count(4030) if 25 <= price * int(values["later_rate"]) % 100 < 50)
    orders = {
        "usual": world.order("step"),
        "odd": world.order("later_sum"),
        "edge": ([(free, (2024, 12, 3), (2025, 1, 3))], near, True),
        "long": ([(price, (2023, 4, 6), (2024, 6, 1)), (low, (2024, 2, 28), (2024, 3, 5))], near + step + 1, False),
        "same_start": ([(price, *SHORT), (price, *LONG), (price, *SHORT)], near, False),
        "same_end": ([(price, *LONG), (price, LONG[1], LONG[1])], near, True),
        "same_dates": ([(price, *LONG), (price + 1, *LONG), (price, *LONG)], near, True),
        "huge": world.order_for("float_tax"),
    }
    discounts = {
        "below_low": (low - 1, False),
        "at_low": (low, False),
        "at_low_member": (low, True),
        "middle": ((low + high) // 2000 * 1000, False),
        "below_high": (high - 1, False),
        "at_high": (high, False),
        "small_member": (low // 2000 * 1000, True),
        "large_member": (high, True),
        "large": (100 * high, False),
    }
    fees = {"near": near, "further": near + 1, "step": near + step, "beyond": near + step + 1}
    months = int(values["full_months"])
    expected: dict[str, object] = {
        **{f"order_{name}": f"{lines}, {distance}, {member}" for name, (lines, distance, member) in orders.items()},
        **{f"invoice_{name}": json.dumps(correct["invoice"](*order)) for name, order in orders.items()},
        **{f"total_{name}": correct["invoice"](*order)[values["k_total"]] for name, order in orders.items()},
        **{f"case_{name}": f"{amount}, {member}" for name, (amount, member) in discounts.items()},
        **{f"discount_{name}": correct["discount"](*case) for name, case in discounts.items()},
        **{f"distance_{name}": distance for name, distance in fees.items()},
        **{f"fee_{name}": correct["delivery"](free - 1, distance) for name, distance in fees.items()},
        "price": price,
        "later": months + 2,
        "price_full": correct["rental"](price, months),
        "price_later": correct["rental"](price, months + 2),
        "digest": hashlib.sha256(world.source.encode()).hexdigest(),
        "copy": repr(world.source),
        "functions": repr([str(values[place]) for place in FUNCTIONS]),
        "keys": repr({str(values[key]) for key in KEYS}),
    }
    return world.item.read(name, **values, **expected)
