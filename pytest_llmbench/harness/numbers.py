"""Reading one number out of an answer: one declared rule, the same on every machine and in every locale.

The rule: look-alike characters are translated by an explicit table; a text must hold exactly one number; a number is
groups of ASCII digits with separators between them; where two readings of the separators differ, the form that the
item declares decides, and if it cannot, the answer is ambiguous. Nothing is guessed silently.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, Literal

from pytest_llmbench.spec import Answer

MAX_NUMBER_CHARS: Final = 40
"""A number written with more characters than this is refused as ``too_long``."""
MAX_EXPONENT_DIGITS: Final = 4
"""An exponent with more digits than this is refused as ``too_long``."""
GROUP_DIGITS: Final = 3
"""Digits between two thousands separators."""
MAX_PLACEHOLDER_CHARS: Final = 80
"""A bracketed text longer than this is prose, not the placeholder of the answer form."""

Form = Literal["integer", "decimal"]

_MINUS: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u02d7\ufe58\ufe63\uff0d"
_SPACES: Final = "\t\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_SINGLE_QUOTES: Final = "\u2018\u2019\u201a\u201b\u2032\u02bc\u2039\u203a\uff07"
_DOUBLE_QUOTES: Final = "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\uff02"
_INVISIBLE: Final = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad"
_FULL_WIDTH: Final = {"\uff0b": "+", "\uff0c": ",", "\uff0e": ".", "\uff25": "E", "\uff45": "e", "\uff3f": "_"}
_FULL_WIDTH_DIGITS: Final = "\uff10\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19"

TRANSLATION: Final[dict[int, str]] = {
    **{ord(char): "-" for char in _MINUS},
    **{ord(char): " " for char in _SPACES},
    **{ord(char): "'" for char in _SINGLE_QUOTES},
    **{ord(char): '"' for char in _DOUBLE_QUOTES},
    **{ord(char): "" for char in _INVISIBLE},
    **{ord(char): plain for char, plain in _FULL_WIDTH.items()},
    **{ord(char): str(digit) for digit, char in enumerate(_FULL_WIDTH_DIGITS)},
}
"""Every character that is read as another one. What is not in this table is never folded."""

_SEPARATOR: Final = r"(?:\{\\?,\}|\\[,;: ]|[ ,.'_])"
_NUMBER: Final = re.compile(
    rf"(?P<digits>(?<![.\w])\.[0-9]+|[0-9]+(?:{_SEPARATOR}[0-9]+)*)(?:[eE](?P<exponent>[+-]?[0-9]+))?"
)
_SPLIT: Final = re.compile(rf"({_SEPARATOR})")
_NOT_FINITE: Final = re.compile(r"(?<![a-z])(?:nan|inf|infinity)(?![a-z])|\\infty|\u221e", re.IGNORECASE)
_POWER: Final = re.compile(r"[0-9})] ?\^|[0-9]\*\*-?[0-9]")
_EXPRESSION: Final = re.compile(r"\\(?:sqrt|pi|ln|log|exp)(?![a-zA-Z])|[\u221a\u03c0]")
_NUMBER_WORD: Final = re.compile(
    r"(?<![a-z])(?:minus|negative|hundred|thousand|million|billion|trillion|dozen)(?![a-z])", re.IGNORECASE
)
_SIGN_MAY_FOLLOW: Final = frozenset(" \n\r\f\v=:;,([{<|~\u2248$*_`\"'")
_MARKUP: Final = " \t\n\r*_`\"'$."
_PLACEHOLDER_WORDS: Final = frozenset(
    ("integer", "number", "decimal", "value", "an integer", "a number", "your answer", "your number", "the number")
)
_BRACKETS: Final = {"<": ">", "[": "]", "{": "}", "(": ")"}


def is_placeholder(text: str) -> bool:
    """Take the value part of an answer line; say whether it only repeats the answer form (``<number>``, ``...``)."""
    plain = text.translate(TRANSLATION).strip(_MARKUP + "\u2026?")
    if not plain:
        return True
    if len(plain) > MAX_PLACEHOLDER_CHARS or any(char.isdigit() for char in plain):
        return False
    if _BRACKETS.get(plain[0]) == plain[-1]:
        return True
    return plain.casefold() in _PLACEHOLDER_WORDS


def parse_number(text: str, form: Form) -> Answer:
    """Take an answer's text and the form its item declares; give its value, or None and the problem.

    Problems: ``placeholder``, ``no_number``, ``several_numbers``, ``ambiguous_number``, ``superscript``,
    ``other_digits``, ``underscore``, ``not_finite``, ``expression``, ``too_long``. No text raises.
    """
    plain = text.translate(TRANSLATION)
    problem = _refusal(plain)
    if problem is not None:
        return Answer(text, None, problem)
    matches = list(_NUMBER.finditer(plain))
    if not matches:
        return Answer(text, None, "placeholder" if is_placeholder(text) else "no_number")
    if len(matches) > 1:
        return Answer(text, None, "several_numbers")
    value = _value(plain, matches[0], form)
    return Answer(text, None, value) if isinstance(value, str) else Answer(text, value)


def _refusal(plain: str) -> str | None:
    for char in plain:
        if not char.isascii() and (problem := _refused_character(char)):
            return problem
    if _POWER.search(plain):
        return "superscript"
    if _NOT_FINITE.search(plain):
        return "not_finite"
    if _EXPRESSION.search(plain):
        return "expression"
    return None


def _refused_character(char: str) -> str | None:
    if unicodedata.decomposition(char).startswith(("<super>", "<sub>")):
        return "superscript" if not char.isalpha() else None
    return "other_digits" if unicodedata.category(char) in ("Nd", "No", "Nl") else None


def _value(plain: str, match: re.Match[str], form: Form) -> Decimal | str:
    if match.end() - match.start() > MAX_NUMBER_CHARS:
        return "too_long"
    exponent = match["exponent"] or "0"
    if len(exponent.lstrip("+-")) > MAX_EXPONENT_DIGITS:
        return "too_long"
    sign = _sign(plain, match.start())
    number = _digits(match["digits"], form)
    if number is None:
        return "several_numbers"
    if number in ("underscore", "ambiguous_number"):
        return number
    if sign is None or _NUMBER_WORD.search(plain):
        return "ambiguous_number"
    return Decimal(f"{sign}{number}e{exponent}")


def _sign(plain: str, start: int) -> str | None:
    """Give the sign of the number at ``start`` ("-" or ""), or None where it could be read both ways."""
    before = plain[start - 1] if start else ""
    if before == "\u00b1":
        return None
    if before in ("-", "+"):
        if start > 1 and plain[start - 2] not in _SIGN_MAY_FOLLOW:
            return None
        return "-" if before == "-" else ""
    return None if _detached_minus(plain, start) else ""


def _detached_minus(plain: str, start: int) -> bool:
    """Whether only a dash and blanks stand before the number: a minus or a list bullet, nobody knows."""
    lead = plain[:start].strip(" *_`\"'$\n\r({[\\")
    return lead in ("-", "\u00b1")


def _digits(written: str, form: Form) -> str | None:
    """Give plain digits with a point, or ``underscore``/``ambiguous_number``; None where this is no single number."""
    if written.startswith("."):
        return "0" + written
    parts = _SPLIT.split(written)
    groups, kinds = parts[::2], [_kind(separator) for separator in parts[1::2]]
    if "_" in kinds:
        return "underscore"
    whole, fraction = _as_whole(groups, kinds), _as_fraction(groups, kinds)
    if whole is None or fraction is None:
        return whole or fraction
    return whole if form == "integer" else "ambiguous_number"


def _kind(separator: str) -> str:
    if separator in ("{,}", ","):
        return ","
    return " " if separator.startswith(("\\", "{")) else separator


def _are_thousands(groups: Sequence[str]) -> bool:
    first = groups[0]
    return len(first) <= GROUP_DIGITS and first[0] != "0" and all(len(group) == GROUP_DIGITS for group in groups[1:])


def _as_whole(groups: Sequence[str], kinds: Sequence[str]) -> str | None:
    """Read every separator as a thousands separator. A single point never is one: the form states the point."""
    if not kinds:
        return groups[0]
    if len(set(kinds)) > 1 or list(kinds) == ["."] or not _are_thousands(groups):
        return None
    return "".join(groups)


def _as_fraction(groups: Sequence[str], kinds: Sequence[str]) -> str | None:
    """Read the last separator as the decimal sign and every one before it as a thousands separator."""
    if not kinds or kinds[-1] not in (".", ",") or kinds[-1] in kinds[:-1]:
        return None
    whole = _as_whole(groups[:-1], kinds[:-1]) if kinds[:-1] != ["."] else _european(groups[:-1])
    return None if whole is None else f"{whole}.{groups[-1]}"


def _european(groups: Sequence[str]) -> str | None:
    return "".join(groups) if _are_thousands(groups) else None
