"""Grading of answers that are numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

SHOWN_CHARS = 80
"""Part of an answer that the evidence shows."""


def beside_prompt(instance: Instance, delivery: Delivery) -> str:
    """What a reply says beside the prompt, which some models repeat before they answer, or instead of answering."""
    return delivery.text.replace(instance.prompt.strip(), "\n").strip()


def grade_answers(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """One verdict per answer key; the row of key ``k`` is ``q<k>`` in lower case. Equality is exact."""
    return [_verdict(key, expected, delivery) for key, expected in instance.answers.items()]


def right_answers(instance: Instance) -> Reference:
    """The reference that gives every expected answer, whole numbers as such."""
    return Reference(answers={key: int(value) for key, value in instance.answers.items()})


def matched(row: str, given: object, expected: object, missing: str) -> Verdict:
    """The verdict on one thing that was read from a reply; its evidence tells only what was answered.

    Args:
        row: to judge.
        given: what was read; None where there was nothing to read.
        expected: what is right.
        missing: the evidence where nothing was read.
    """
    if given is None:
        return Verdict(row, False, missing)
    right = given == expected
    return Verdict(row, right, f"answered {given}, which is {'right' if right else 'wrong'}")


def grade_together(instance: Instance, delivery: Delivery, rows: Mapping[str, Sequence[str]]) -> list[Verdict]:
    """One verdict per row, by the answer keys that must all be right for it; so guessing one of them earns nothing."""
    return [
        _together(row, [_verdict(key, instance.answers[key], delivery) for key in keys]) for row, keys in rows.items()
    ]


def _together(row: str, verdicts: Sequence[Verdict]) -> Verdict:
    evidence = "; ".join(f"{verdict.row.removeprefix('q')}: {verdict.evidence}" for verdict in verdicts)
    right = sum(bool(verdict.earned) for verdict in verdicts)
    return Verdict(row, right == len(verdicts), evidence, right=right if len(verdicts) > 1 else 0)


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
