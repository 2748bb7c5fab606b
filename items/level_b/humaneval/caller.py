"""Beside the delivered code, in its process: calls one function, with arguments and result written as literals."""

import ast
import math

import completion  # type: ignore[import-not-found]  # the delivered code, in the sandbox

BRACKETS = ((list, "[", "]"), (tuple, "(", ")"), (set, "{", "}"))


def written(value: object) -> str:
    """The value as a literal of built-in types; it may be of a class that is derived from one of them."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        if math.isnan(value):
            raise TypeError("not a number")
        return float.__repr__(value).replace("inf", "1e999")
    if isinstance(value, complex):
        return complex.__repr__(value)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, bytes):
        return bytes.__repr__(value)
    if isinstance(value, dict):
        return "{" + "".join(f"{written(key)}:{written(held)}," for key, held in value.items()) + "}"
    for kind, opening, closing in BRACKETS:
        if isinstance(value, kind):
            return f"{opening}{''.join(f'{written(part)},' for part in value)}{closing}" if value else repr(kind())
    raise TypeError("not a value of a built-in type")


def call(name: str, arguments: str) -> str:
    """What ``name(*arguments)`` returns, as a literal; ``arguments`` is one too."""
    return written(getattr(completion, name)(*ast.literal_eval(arguments)))
