"""HumanEval verdicts of this project beside those of EvalPlus, which is another grader by other people.

    python -m venv /tmp/evalplus && /tmp/evalplus/bin/pip install evalplus==0.3.1
    llmbench fetch-b
    python tests/performance/agreement.py /tmp/evalplus/bin/python [replies.json]

EvalPlus works offline here: its override file is written from the fetched tasks, with the calls that each public test
makes as inputs. Both graders get the same programs: the public solutions, the same with None for every result, the
same with one operator changed, and what a model made of the tasks (``{task: reply}``), where a file is given.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_llmbench.bank import _import_task, packaged_bank
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.sandbox.layers import choose

SWAPPED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq}
"""Operators that a mutant has exchanged."""
SECONDS = 1800


def main(python: str, replies: Mapping[str, str]) -> None:
    """Judge everything twice and print how often the verdicts are the same."""
    task = _import_task(packaged_bank() / "level_b" / "humaneval" / "task.py", "B_HUMANEVAL")
    cases, sandbox = task.cases(), choose(Profile().sandbox())
    programs = list(_programs(task, cases, replies))
    ours = [task.judge(cases[name], code, sandbox)[0] for name, _, code in programs]
    theirs = _evalplus(python, cases, programs)
    for kind in dict.fromkeys(kind for _, kind, _ in programs):
        here = [place for place, program in enumerate(programs) if program[1] == kind]
        same = sum(ours[place] == theirs[place] for place in here)
        right = f"right by ours {sum(ours[p] for p in here)}, by EvalPlus {sum(theirs[p] for p in here)}"
        print(f"{kind}: {len(here)} programs, {right}, judged alike {same}")
        for place in here:
            if ours[place] != theirs[place]:
                print(f"  {programs[place][0]}: ours {ours[place]}, EvalPlus {theirs[place]}")


def _programs(task: Any, cases: Mapping[str, Any], replies: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name, case in cases.items():
        solution = case["prompt"] + case["canonical_solution"]
        yield name, "public solutions", solution
        yield name, "None for every result", f"{case['prompt'].rstrip()}\n    return None\n"
        if (mutant := _mutant(solution, case["entry_point"])) is not None:
            yield name, "one operator changed", mutant
        if name in replies:
            yield name, "a model's replies", task.program(case, replies[name])


def _mutant(code: str, name: str) -> str | None:
    """The program with the first operator of the function exchanged."""
    tree = ast.parse(code)
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name):
        for node in ast.walk(function):
            if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in SWAPPED:
                node.op = SWAPPED[type(node.op)]()
                return ast.unparse(tree)
            if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
                node.ops[0] = SWAPPED[type(node.ops[0])]()
                return ast.unparse(tree)
    return None


def _inputs(case: Mapping[str, Any]) -> list[list[Any]]:
    """The arguments of every call that the public test makes."""
    space: dict[str, Any] = {}
    exec(case["prompt"] + case["canonical_solution"] + "\n" + case["test"], space)
    function, seen = space[case["entry_point"]], []

    def recorded(*arguments: Any) -> Any:
        seen.append(copy.deepcopy(list(arguments)))
        return function(*arguments)

    space["check"](recorded)
    return seen


def _evalplus(python: str, cases: Mapping[str, Any], programs: list[tuple[str, str, str]]) -> list[bool]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problems = [
            {**case, "contract": "", "base_input": _inputs(case), "plus_input": [], "atol": 1e-6}
            for case in cases.values()
        ]
        samples = [{"task_id": task, "solution": code} for task, _, code in programs]
        for file, entries in (("tasks.jsonl", problems), ("samples.jsonl", samples)):
            (folder / file).write_text("\n".join(map(json.dumps, entries)) + "\n", encoding="utf-8")
        environment = {
            **os.environ,
            "HUMANEVAL_OVERRIDE_PATH": str(folder / "tasks.jsonl"),
            "XDG_CACHE_HOME": name,
            "HOME": name,
            "EVALPLUS_MAX_MEMORY_BYTES": "-1",
        }
        command = [
            python,
            "-m",
            "evalplus.evaluate",
            "--dataset",
            "humaneval",
            "--samples",
            str(folder / "samples.jsonl"),
        ]
        subprocess.run([*command, "--base-only", "--parallel", "2"], env=environment, check=True, timeout=SECONDS)
        results = json.loads((folder / "samples_eval_results.json").read_text(encoding="utf-8"))["eval"]
    verdicts = {task: iter(found) for task, found in results.items()}
    return [next(verdicts[task])["base_status"] == "pass" for task, _, _ in programs]


if __name__ == "__main__":
    given = sys.argv[2:]
    main(sys.argv[1], json.loads(Path(given[0]).read_text(encoding="utf-8")) if given else {})
