"""Grading of answers that are numbers."""

from __future__ import annotations

from decimal import Decimal

from pytest_llmbench.spec import Delivery, Instance, Verdict

SHOWN_CHARS = 80
"""Part of an answer that the evidence shows."""


def grade_answers(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """One verdict per answer key; the row of key ``k`` is ``q<k>`` in lower case. Equality is exact."""
    return [_verdict(key, expected, delivery) for key, expected in instance.answers.items()]


def _verdict(key: str, expected: int | Decimal, delivery: Delivery) -> Verdict:
    row = f"q{key.lower()}"
    answer = delivery.answers.get(key)
    if answer is None:
        return Verdict(row, False, f"no answer {key} was given; expected {expected}")
    if answer.value is None:
        return Verdict(
            row, False, f"{answer.raw[:SHOWN_CHARS]!r} is not a usable number ({answer.problem}); expected {expected}"
        )
    if answer.value != expected:
        return Verdict(row, False, f"answered {answer.raw[:SHOWN_CHARS]!r}; expected {expected}")
    return Verdict(row, True, f"answered {answer.raw[:SHOWN_CHARS]!r}")
