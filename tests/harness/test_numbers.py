"""Numbers are read by one declared rule."""

from __future__ import annotations

import json
import locale
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmbench.harness.numbers import MAX_EXPONENT_DIGITS, MAX_NUMBER_CHARS, Form, is_placeholder, parse_number

CASES = Path(__file__).resolve().parent.parent / "fieldcases"
NARROW, NO_BREAK, THIN = "\u202f", "\u00a0", "\u2009"


def value(text: str, form: Form = "integer") -> Decimal | None:
    return parse_number(text, form).value


def problem(text: str, form: Form = "integer") -> str | None:
    return parse_number(text, form).problem


def field_lines(name: str) -> list[tuple[str, Any]]:
    folder = next(CASES.glob(name))
    lines = (folder / "answers.txt").read_text(encoding="utf-8").splitlines()
    return list(zip(lines, json.loads((folder / "expected.json").read_text(encoding="utf-8"))["lines"], strict=True))


@pytest.mark.parametrize(("text", "expected"), field_lines("21-*"))
def test_fieldcase_21_lookalike_characters(text: str, expected: dict[str, Any]) -> None:
    assert text == expected["raw"]
    assert value(text) == (None if expected["value"] is None else Decimal(str(expected["value"])))


@pytest.mark.parametrize(("text", "expected"), field_lines("22-*"))
def test_fieldcase_22_thousands_separators(text: str, expected: int) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(("text", "expected"), field_lines("23-*"))
def test_fieldcase_23_decimal_comma(text: str, expected: dict[str, Any]) -> None:
    if "value" in expected:
        assert value(text, "decimal") == Decimal(str(expected["value"]))
    else:
        assert problem(text, "decimal") == expected["outcome"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("14", "14"),
        ("+14", "14"),
        ("14.", "14"),
        ("14.0", "14"),
        ("**14**", "14"),
        ("`14`", "14"),
        ("__14__", "14"),
        ("$14$", "14"),
        ("\\(14\\)", "14"),
        ("$\\boxed{-14}$", "-14"),
        ("\\boxed{\\text{14}}", "14"),
        ("\u2013 ".strip() + "14", "-14"),
        ("\uff0d\uff11\uff14", "-14"),
        ("\uff0b\uff11\uff0c\uff12\uff15\uff10", "1250"),
        ("\u00ab42\u00bb", "42"),
        ("'42'", "42"),
        ("14 kites", "14"),
        ("It is 14, I think.", "14"),
        ("= 14", "14"),
        ("14 %", "14"),
        ("1,234,567", "1234567"),
        (f"1{NARROW}234{NARROW}567", "1234567"),
        (f"1{NO_BREAK}234", "1234"),
        (f"1{THIN}234", "1234"),
        ("1\u2019234\u2019567", "1234567"),
        ("1{,}234{,}567", "1234567"),
        ("1\\,234", "1234"),
        ("1,234.5", "1234.5"),
        ("1.234", "1.234"),
        ("1.234.567", "1234567"),
        (".5", "0.5"),
        ("...14", "14"),
        ("1e3", "1000"),
        ("-1.5E-2", "-0.015"),
        ("\u200b14\ufeff", "14"),
        ("007", "7"),
    ],
)
def test_one_number_is_read(text: str, expected: str) -> None:
    assert value(text) == Decimal(expected)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10\u00b2", "superscript"),
        ("10\u207b\u00b3", "superscript"),
        ("x\u2081 = 3", "superscript"),
        ("10^3", "superscript"),
        ("10**3", "superscript"),
        ("\u0967\u096a", "other_digits"),
        ("1\u0664", "other_digits"),
        ("\u00bd", "other_digits"),
        ("\u2460", "other_digits"),
        ("\U0001d7cf\U0001d7d2", "other_digits"),
        ("NaN", "not_finite"),
        ("-inf", "not_finite"),
        ("Infinity", "not_finite"),
        ("\u221e", "not_finite"),
        ("1_000", "underscore"),
        ("\\sqrt{2}", "expression"),
        ("2\u03c0", "expression"),
        ("3-5", "several_numbers"),
        ("3\u20135", "several_numbers"),
        ("1/2", "several_numbers"),
        ("14 or 15", "several_numbers"),
        ("14, 15", "several_numbers"),
        ("1,2,3", "several_numbers"),
        ("12,34,567", "several_numbers"),
        ("1 25", "several_numbers"),
        ("1.2.3", "several_numbers"),
        ("10:30", "several_numbers"),
        ("0x1F", "several_numbers"),
        ("none", "no_number"),
        ("- 5", "ambiguous_number"),
        ("\u00b15", "ambiguous_number"),
        ("x-5", "ambiguous_number"),
        ("minus 5", "ambiguous_number"),
        ("2 million", "ambiguous_number"),
        ("<number>", "placeholder"),
        ("", "placeholder"),
        ("9" * (MAX_NUMBER_CHARS + 1), "too_long"),
        ("1e" + "9" * (MAX_EXPONENT_DIGITS + 1), "too_long"),
        ("9" * 10_000, "too_long"),
    ],
)
def test_what_is_not_exactly_one_number_is_refused(text: str, why: str) -> None:
    assert parse_number(text, "integer").value is None
    assert problem(text) == why


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,500", "0.5"),
        ("0,125", "0.125"),
        ("12,3456", "12.3456"),
        ("1234,567", "1234.567"),
        ("3.142", "3.142"),
        ("1 234,5", "1234.5"),
        ("1'234.5", "1234.5"),
        ("1,234.567", "1234.567"),
        ("1.234.567,8", "1234567.8"),
        ("\u22121,5", "-1.5"),
        ("1,234,567", "1234567"),
    ],
)
def test_the_only_reading_of_a_decimal_is_taken(text: str, expected: str) -> None:
    assert value(text, "decimal") == Decimal(expected)


@pytest.mark.parametrize("text", ["25,000", "1,234", "-999,999", "1{,}250", "\uff11\uff0c\uff12\uff15\uff10"])
def test_two_readings_of_a_decimal_are_ambiguous(text: str) -> None:
    assert problem(text, "decimal") == "ambiguous_number"


def test_the_locale_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locale, "localeconv", lambda: {"decimal_point": ",", "thousands_sep": "."})
    assert value("1.234", "decimal") == Decimal("1.234")


@pytest.mark.parametrize(
    "text", ["<number>", "[integer]", "...", "\u2026", "", "  ", "integer", "`<your answer>`", "?"]
)
def test_the_answer_form_repeated_is_a_placeholder(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.parametrize("text", ["14", "<14>", "[14]", "none"])
def test_an_answer_is_no_placeholder(text: str) -> None:
    assert not is_placeholder(text)


@given(st.text(), st.sampled_from(["integer", "decimal"]))
def test_any_text_is_read_without_exception(text: str, form: Form) -> None:
    answer = parse_number(text, form)
    assert answer.raw == text
    assert (answer.value is None) == (answer.problem is not None)


@given(
    st.text(alphabet="0123456789.,'_ -+eE{}\\^$*\u2212\u202f\u00b2\u0663", max_size=60),
    st.sampled_from(["integer", "decimal"]),
)
def test_any_numberish_text_is_read_as_a_finite_number_or_refused(text: str, form: Form) -> None:
    answer = parse_number(text, form)
    assert answer.value is None or answer.value.is_finite()


FULL_WIDTH = {ord(str(digit)): chr(0xFF10 + digit) for digit in range(10)}
STYLES: dict[str, Callable[[int], str]] = {
    "plain": str,
    "comma": lambda n: f"{n:,}",
    "latex": lambda n: f"{n:,}".replace(",", "{,}"),
    "latex thin": lambda n: f"{n:,}".replace(",", "\\,"),
    "blank": lambda n: f"{n:,}".replace(",", " "),
    "no-break": lambda n: f"{n:,}".replace(",", NO_BREAK),
    "narrow": lambda n: f"{n:,}".replace(",", NARROW),
    "apostrophe": lambda n: f"{n:,}".replace(",", "'"),
    "typographic": lambda n: f"{n:,}".replace(",", "\u2019"),
    "minus": lambda n: str(n).replace("-", "\u2212"),
    "full width": lambda n: str(n).translate(FULL_WIDTH),
    "bold": lambda n: f"**{n}**",
    "code": lambda n: f"`{n}`",
    "quoted": lambda n: f"\u201c{n}\u201d",
    "boxed": lambda n: f"$\\boxed{{{n:,}}}$",
    "sentence": lambda n: f"The total is {n:,} kites.",
    "full stop": lambda n: f"{n}.",
    "point": lambda n: f"{n}.0",
}


@given(st.integers(-(10**18), 10**18), st.sampled_from(sorted(STYLES)))
def test_every_integer_comes_back_from_every_accepted_style(number: int, style: str) -> None:
    assert value(STYLES[style](number)) == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9))
def test_every_plain_decimal_comes_back(number: Decimal) -> None:
    assert value(f"{number:f}", "decimal") == number
    assert value(f"{number:f}".replace(".", ","), "decimal") == number
