"""Runs a public test in a process of its own; the function that it tests lives elsewhere and is asked for by pipe.

One line of JSON for each call goes out and one comes back. The last line that goes out is the verdict. No delivered
code runs here, and what comes back is read as a literal.
"""

import ast
import json
import os
import random
import sys
from typing import Any

SEED = 0
TESTED = "tested.py"
DIGITS = 4000


class NoValue(Exception):
    """The function gave no value."""


def main(name: str) -> None:
    source = os.fdopen(os.dup(0), encoding="ascii")
    sink = os.fdopen(os.dup(1), "w", encoding="ascii")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)

    def tell(**said: object) -> None:
        sink.write(json.dumps(said) + "\n")
        sink.flush()

    def candidate(*arguments: object) -> object:
        tell(call=repr(arguments))
        answer = json.loads(source.readline())
        if "value" not in answer:
            raise NoValue(answer["failed"])
        try:
            return ast.literal_eval(answer["value"])
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise NoValue("it returned something that cannot be compared") from None

    random.seed(SEED)
    sys.set_int_max_str_digits(DIGITS)
    space: dict[str, Any] = {"__name__": "tested"}
    try:
        with open(TESTED, encoding="utf-8") as file:
            exec(compile(file.read(), TESTED, "exec"), space)
        space[name] = candidate
        tell(ready=True)
        space["check"](candidate)
    except NoValue as error:
        tell(passed=False, why=str(error))
    except AssertionError:
        tell(passed=False, why="a value is not the expected one")
    except Exception as error:
        tell(passed=False, why=f"the test ended in {type(error).__name__}")
    else:
        tell(passed=True, why="all of the public test passed")


main(sys.argv[1])
