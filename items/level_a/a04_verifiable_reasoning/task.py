"""Six original reasoning problems of rising difficulty; every answer is found by exhaustive search or simulation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Any, Protocol

from pytest_llmbench.grading.answers import grade_answers
from pytest_llmbench.spec import Delivery, Instance, Reference, Seed, Verdict

SMALLEST, LARGEST = 100, 99_999
PUZZLE_DRAWS = 400
SET_DRAWS = 50

Point = tuple[int, int]


@dataclass(frozen=True)
class Outcome:
    """What a problem comes to: the right answer and, by the name of the mistake, the wrong ones."""

    answer: int
    slips: Mapping[str, int]

    @property
    def usable(self) -> bool:
        """Whether the answer is hard to guess and every modelled mistake turns it into another positive number."""
        wrong = self.slips.values()
        return SMALLEST <= self.answer <= LARGEST and self.answer not in wrong and min(wrong) > 0


class Puzzle(Protocol):
    """A problem with its parameters drawn."""

    @property
    def text(self) -> str:
        """The problem in words."""

    def outcome(self) -> Outcome:
        """Solve the problem, and solve it with each modelled mistake."""


@dataclass(frozen=True)
class Shelves:
    """Problem 1: an arithmetic sequence from which every ``step``-th member is removed."""

    shelves: int
    base: int
    growth: int
    step: int

    @classmethod
    def draw(cls, seed: Seed) -> Shelves:
        """Draw the parameters."""
        return cls(seed.randint(31, 69), seed.randint(25, 95), seed.randint(3, 9), seed.randint(4, 9))

    @property
    def text(self) -> str:
        """The problem in words."""
        return (
            f"A store has {self.shelves} shelves, numbered from 1 to {self.shelves}. Shelf k holds "
            f"{self.base} + {self.growth}k jars. Every shelf whose number is a multiple of {self.step} is emptied. "
            "How many jars remain on the shelves?"
        )

    def outcome(self) -> Outcome:
        """Add up the jars shelf by shelf."""
        jars = {shelf: self.base + self.growth * shelf for shelf in range(1, self.shelves + 1)}
        remaining = sum(count for shelf, count in jars.items() if shelf % self.step)
        return Outcome(remaining, {"keeps_emptied_shelves": sum(jars.values())})


@dataclass(frozen=True)
class Badges:
    """Problem 2: numbers that are a multiple of exactly two of three divisors."""

    badges: int
    divisors: tuple[int, int, int]

    @classmethod
    def draw(cls, seed: Seed) -> Badges:
        """Draw the parameters."""
        red, blue, green = sorted(seed.sample(range(4, 10), 3))
        return cls(seed.randint(3001, 9999), (red, blue, green))

    @property
    def text(self) -> str:
        """The problem in words."""
        red, blue, green = self.divisors
        return (
            f"Badges are numbered from 1 to {self.badges}. A badge gets a red dot if its number is a multiple of "
            f"{red}, a blue dot if it is a multiple of {blue}, and a green dot if it is a multiple of {green}. "
            "How many badges have exactly two dots?"
        )

    def outcome(self) -> Outcome:
        """Count the dots badge by badge."""
        red, blue, green = self.divisors
        tally = [0, 0, 0, 0]
        for badge in range(1, self.badges + 1):
            tally[(badge % red == 0) + (badge % blue == 0) + (badge % green == 0)] += 1
        return Outcome(tally[2], {"counts_three_dots": tally[2] + tally[3]})


@dataclass(frozen=True)
class Depot:
    """Problem 3: a store that fills and empties by fixed rules, day by day."""

    days: int
    factor: int
    modulus: int
    base: int
    lorry: int
    rail: int

    @classmethod
    def draw(cls, seed: Seed) -> Depot:
        """Draw the parameters; the lorry takes a little less than arrives on average."""
        days, factor, modulus = seed.randint(13, 17), seed.randint(11, 29), seed.randint(31, 59)
        base = seed.randint(31, 59)
        return cls(days, factor, modulus, base, base + modulus // 2 - seed.randint(2, 9), seed.randint(3, 5))

    @property
    def text(self) -> str:
        """The problem in words."""
        return (
            f"A depot is empty at first. On each day d = 1, 2, ..., {self.days} three things happen in this order. "
            f"First, r + {self.base} parcels arrive, where r is the remainder when {self.factor}d is divided by "
            f"{self.modulus}. Next, a lorry takes away {self.lorry} parcels, or all of them if there are fewer. "
            f"Last, only if d is a multiple of {self.rail}, half of the parcels still there, rounded down, leave by "
            f"rail. Let w(d) be the number of parcels in the depot at the end of day d. "
            f"What is w(1) + w(2) + ... + w({self.days})?"
        )

    def outcome(self) -> Outcome:
        """Follow the depot through all days."""
        waiting, evenings = 0, list[int]()
        for day in range(1, self.days + 1):
            waiting += self.factor * day % self.modulus + self.base
            waiting -= min(waiting, self.lorry)
            if day % self.rail == 0:
                waiting -= waiting // 2
            evenings.append(waiting)
        return Outcome(sum(evenings), {"off_by_one_day": sum(evenings[:-1])})


def count_paths(goal: Point, forbidden: Sequence[Point], stretch: int) -> int:
    """Monotone unit-step paths from (0, 0) to ``goal`` with fewer than ``stretch`` equal moves in a row."""
    ways: dict[tuple[int, int, int, int], int] = {(0, 0, 0, 0): 1}
    for _ in range(sum(goal)):
        following: dict[tuple[int, int, int, int], int] = {}
        for (x, y, last, run), count in ways.items():
            for direction, point in ((1, (x + 1, y)), (2, (x, y + 1))):
                length = run + 1 if direction == last else 1
                if length < stretch and point[0] <= goal[0] and point[1] <= goal[1] and point not in forbidden:
                    state = (*point, direction, length)
                    following[state] = following.get(state, 0) + count
        ways = following
    return sum(ways.values())


@dataclass(frozen=True)
class Robot:
    """Problem 4: lattice paths that avoid three points and have no long straight stretch."""

    goal: Point
    forbidden: tuple[Point, ...]
    stretch: int

    @classmethod
    def draw(cls, seed: Seed) -> Robot:
        """Draw the goal and three points, none of them in a corner region of the grid."""
        width, height = seed.randint(7, 9), seed.randint(7, 8)
        inner = [(x, y) for x in range(1, width) for y in range(1, height) if abs(x - y) <= 3]
        return cls((width, height), tuple(sorted(seed.sample(inner, 3))), 4)

    @property
    def text(self) -> str:
        """The problem in words."""
        first, second, third = self.forbidden
        return (
            f"A robot goes from the point (0, 0) to the point {self.goal}. Each move adds 1 to exactly one of its two "
            f"coordinates. It never stands on {first}, {second} or {third}. It never makes {self.stretch} consecutive "
            "moves that all change the same coordinate. How many different sequences of moves are possible?"
        )

    def outcome(self) -> Outcome:
        """Count the paths, with the rules and with each of the two mistakes."""
        free = count_paths(self.goal, (), self.stretch)
        through = sum(free - count_paths(self.goal, (point,), self.stretch) for point in self.forbidden)
        return Outcome(
            count_paths(self.goal, self.forbidden, self.stretch),
            {
                "ignores_straight_limit": count_paths(self.goal, self.forbidden, sum(self.goal) + 1),
                "subtracts_overlaps_twice": free - through,
            },
        )


@dataclass(frozen=True)
class Queue:
    """Problem 5: orders of eight people under rules on order, distance, place and sum of places."""

    between: int
    barred: Point
    least_sum: int
    most: int

    @classmethod
    def draw(cls, seed: Seed) -> Queue:
        """Draw the parameters."""
        low, high = sorted(seed.sample(range(1, 9), 2))
        return cls(seed.randint(1, 3), (low, high), seed.randint(6, 9), seed.randint(4, 6))

    @property
    def text(self) -> str:
        """The problem in words."""
        return (
            "Eight people A, B, C, D, E, F, G and H stand in a line, one at each of the positions 1 to 8. The "
            f"position of A is at most {self.most} and is smaller than the position of B. The positions of C and D "
            f"differ by more than {self.between}. E stands neither at position {self.barred[0]} nor at position "
            f"{self.barred[1]}. "
            f"The positions of F and G add up to at least {self.least_sum}. A and H do not stand at neighbouring "
            "positions. In how many ways can the eight people stand?"
        )

    def outcome(self) -> Outcome:
        """Try all orders."""
        with_last = without_last = 0
        for a, b, c, d, e, f, g, h in permutations(range(1, 9)):
            placed = a < b and a <= self.most and e not in self.barred
            if placed and abs(c - d) > self.between and f + g >= self.least_sum:
                without_last += 1
                with_last += abs(a - h) > 1
        return Outcome(with_last, {"forgets_last_rule": without_last})


@dataclass(frozen=True)
class Rota:
    """Problem 6: assignments of four keepers to nights under seven rules that reach across the whole rota."""

    nights: int
    exactly: int
    pause: int
    barred: Point
    linked: Point

    @classmethod
    def draw(cls, seed: Seed) -> Rota:
        """Draw the parameters; the linked nights lie outside of the barred ones."""
        low, high = sorted(seed.sample(range(10, 14), 2))
        linked = seed.randint(1, 3), seed.randint(14, 16)
        return cls(seed.randint(16, 17), seed.randint(4, 6), 2, (low, high), linked)

    @property
    def text(self) -> str:
        """The problem in words."""
        return (
            f"Keepers P, Q, R and S share the nights 1 to {self.nights}: exactly one of them works each night, and a "
            "keeper may have no night at all. No keeper works on two consecutive nights. P works on exactly "
            f"{self.exactly} nights. Between any two nights of Q there are at least {self.pause} nights of other "
            f"keepers. R works neither on night {self.barred[0]} nor on night {self.barred[1]}. S never works on the "
            f"night directly after a night of P. The same keeper works on night {self.linked[0]} and on night "
            f"{self.linked[1]}. Q works on more nights than R. In how many ways can the keepers be assigned to the "
            "nights?"
        )

    def outcome(self) -> Outcome:
        """Count the rotas night by night, apart for each lead of Q over R."""

        @cache
        def leads(night: int, last: str, rest: int, left: int, early: str) -> Mapping[int, int]:
            """Ways to fill the nights from ``night`` on, by lead. ``rest``: nights until Q may work; ``left``: nights
            P still has to work; ``early``: the linked keeper."""
            if night > self.nights:
                return {} if left else {0: 1}
            found: Counter[int] = Counter()
            for keeper in early if night == self.linked[1] else "PQRS":
                if keeper == last or (keeper == "S" and last == "P") or (keeper == "R" and night in self.barred):
                    continue
                if (keeper == "P" and not left) or (keeper == "Q" and rest):
                    continue
                pause = self.pause if keeper == "Q" else max(rest - 1, 0)
                linked = keeper if night == self.linked[0] else early
                for lead, ways in leads(night + 1, keeper, pause, left - (keeper == "P"), linked).items():
                    found[lead + (keeper == "Q") - (keeper == "R")] += ways
            return found

        ways = leads(1, "", 0, self.exactly, "")
        more, equal = sum(count for lead, count in ways.items() if lead > 0), ways.get(0, 0)
        return Outcome(more, {"forgets_comparison": sum(ways.values()), "relaxes_comparison": more + equal})


PUZZLES = (Shelves, Badges, Depot, Robot, Queue, Rota)


def _draw(kind: type[Shelves | Badges | Depot | Robot | Queue | Rota], seed: Seed) -> tuple[Puzzle, Outcome]:
    for _ in range(PUZZLE_DRAWS):
        puzzle = kind.draw(seed)
        outcome = puzzle.outcome()
        if outcome.usable:
            return puzzle, outcome
    raise RuntimeError(f"{kind.__name__}: no usable parameters in {PUZZLE_DRAWS} draws")


def build(item: Any, variant: int, run: int, seed: Seed) -> Instance:
    """Draw the six problems until their answers differ from each other and from every number in the prompt."""
    for _ in range(SET_DRAWS):
        drawn = {str(number): _draw(kind, seed) for number, kind in enumerate(PUZZLES, 1)}
        prompt: str = item.render(**{f"p{key}": puzzle.text for key, (puzzle, _) in drawn.items()})
        answers = {key: outcome.answer for key, (_, outcome) in drawn.items()}
        printed = {int(number) for number in re.findall(r"\d+", prompt)}
        if len(set(answers.values())) == len(answers) and not printed & set(answers.values()):
            slips = {name: (key, wrong) for key, (_, o) in drawn.items() for name, wrong in o.slips.items()}
            return Instance(item.spec, variant, run, prompt, answers, {"slips": slips})
    raise RuntimeError(f"no usable set of problems in {SET_DRAWS} draws")


def grade(instance: Instance, delivery: Delivery) -> Sequence[Verdict]:
    """One row per answer, by exact equality."""
    return grade_answers(instance, delivery)


def golden(instance: Instance) -> Reference:
    """All six answers as computed."""
    return Reference(answers=dict(instance.answers))


def defects(instance: Instance) -> Mapping[str, Reference]:
    """One delivery per declared mistake."""
    right = dict(instance.answers)
    references = {
        "defective": Reference(answers={key: value + 11 * int(key) for key, value in right.items()}),
        "mixes_up_last_two": Reference(answers={**right, "5": right["6"], "6": right["5"]}),
        "stops_halfway": Reference(answers={key: right[key] for key in ("1", "2", "3")}),
    }
    for name, (key, wrong) in instance.data["slips"].items():
        references[name] = Reference(answers={**right, key: wrong})
    return references
