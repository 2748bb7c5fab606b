"""A user's folder: a small bank and a runtime of their own that answers as its name says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytest_llmbench.active
import pytest_llmbench.report.analysis
import pytest_llmbench.runtimes.ollama
import pytest_llmbench.xdist  # noqa: F401  # sessions in this process share the modules; without this each imports anew

CONFTEST = r"""
import json, os, re, time
from pathlib import Path
from pytest_llmbench.runtimes.base import ModelCard, Reply, RuntimeFailure

HERE = Path(__file__).parent


class Script:
    endpoint = None

    def __init__(self, ref, name, options):
        self.ref, self.name = ref, name

    def open(self):
        if self.name == "missing":
            raise RuntimeFailure("not_installed", "script:missing is not installed; run `script pull`.", fatal=True)
        return ModelCard(ref=self.ref, runtime="script", context=100 if self.name == "small" else 32768)

    def count_tokens(self, messages):
        return None

    def close(self):
        return None

    def chat(self, request):
        if (HERE / "reply.txt").exists():
            return Reply(content=(HERE / "reply.txt").read_text())
        item, a, b = re.search(r"Task (\w+): .* of (\d+) and (\d+)", request.messages[-1].content).groups()
        with (HERE / "calls.txt").open("a") as file:
            file.write(f"{self.ref} {item} {os.environ.get('PYTEST_XDIST_WORKER', 'main')}\n")
        plans = HERE / "script.json"
        plan = json.loads(plans.read_text()) if plans.exists() else {}
        does = plan.get(item, self.name.split("/")[0])
        first, second = int(a) + int(b), int(a) * int(b)
        if does == "breaks":
            raise RuntimeFailure("runtime_error", "the script server is gone; start it with `script serve`.")
        if does == "homesick":
            raise RuntimeFailure("runtime_error", f"cannot read {Path.home() / 'model.bin'}")
        if does == "dies":
            os._exit(3)
        if does == "interrupts":
            raise KeyboardInterrupt
        if does in ("naps", "sleeps"):
            time.sleep(1.3 if does == "naps" else 30)
        if does == "silent":
            return Reply(content="")
        if does == "wrong":
            first = second = 1
        if does == "half":
            second = 1
        text = f"ANSWER 1: {first}\nANSWER 2: {second}\n"
        before = {"half_a_character": "\ud835\n", "chatty": "so it goes. " * 25000 + "\n"}.get(does, "")
        return Reply(content="ANSWER 1: \x1b[2J\x07\x9b31m" if does == "hostile" else before + text)


def pytest_llmbench_runtimes(config):
    return {"script": Script}
"""

ITEM = """id = "{name}"
title = "Sum and product"
version = "1.0.0"
level = "{level}"
mode = "single"
points = {points}

[[rows]]
id = "q1"
title = "The sum"
points = 1

[[rows]]
id = "q2"
title = "The product"
points = {rest}

[answers]
keys = ["1", "2"]

[references.defective]
why = "answers 1 throughout"
points = 0
loses = ["q1", "q2"]

[references.adds_only]
why = "answers 1 for the product"
points = 1
loses = ["q2"]
"""

TASK = """from pytest_llmbench.grading.answers import grade_answers
from pytest_llmbench.spec import Instance, Reference


def build(item, variant, run, seed):
    a, b = seed.randrange(1000, 9999), seed.randrange(1000, 9999)
    prompt = item.render(name=item.spec.id, a=a, b=b)
    return Instance(item.spec, variant, run, prompt, answers={"1": a + b, "2": a * b})


def grade(instance, delivery):
    return grade_answers(instance, delivery)


def golden(instance):
    return Reference(answers=instance.answers)


def defects(instance):
    adds_only = {**instance.answers, "2": 1}
    return {"defective": Reference(answers={"1": 1, "2": 1}), "adds_only": Reference(answers=adds_only)}
"""

CODE_ITEM = """id = "X01"
title = "A sum in code"
version = "1.0.0"
level = "A"
mode = "single"
points = 4
files = ["sums.py"]
runs_code = true
rows = [
  { id = "files", title = "sums.py is there", points = 1, kind = "hygiene" },
  { id = "syntax", title = "sums.py is valid", points = 1, kind = "hygiene" },
  { id = "adds", title = "It adds", points = 2 },
]

[references.defective]
why = "subtracts"
points = 2
loses = ["adds"]
"""

CODE_TASK = """from pytest_llmbench.grading.hidden_tests import Case, judge, verdict
from pytest_llmbench.sandbox.calls import open_worker
from pytest_llmbench.spec import Instance, Reference

CODE = "def add(a, b):\\n    return a {} b\\n"


def build(item, variant, run, seed):
    return Instance(item.spec, variant, run, item.render(), holds={"sums.py": "def add"})


def grade(instance, delivery, sandbox):
    with open_worker(sandbox, delivery.files, "sums") as worker:
        return [verdict("adds", judge(worker, [Case("add", (40, 12345), "two numbers", 12385)]))]


def golden(instance):
    return Reference(files={"sums.py": CODE.format("+")})


def defects(instance):
    return {"defective": Reference(files={"sums.py": CODE.format("-")})}
"""

PROMPT = "Task $name: what are the sum and the product of $a and $b?\n"


class Bank:
    """The bank in the user's folder, and how the user measures with it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.folder = self.path / "run"
        pytester.makeconftest(CONFTEST)
        self.item("T01")

    def item(self, name: str, level: str = "A", points: int = 3) -> Path:
        """Add one item; gives its folder."""
        folder = self.path / "items" / f"level_{level.lower()}" / name.lower()
        folder.mkdir(parents=True)
        (folder / "item.toml").write_text(ITEM.format(name=name, level=level, points=points, rest=points - 1))
        (folder / "task.py").write_text(TASK)
        (folder / "prompt.md").write_text(PROMPT)
        return folder

    def code_item(self) -> Path:
        """Add X01, which runs what is delivered; gives its folder."""
        folder = self.path / "items/level_a/x01"
        folder.mkdir(parents=True)
        (folder / "item.toml").write_text(CODE_ITEM)
        (folder / "task.py").write_text(CODE_TASK)
        (folder / "prompt.md").write_text("Write add(a, b), which gives the sum.\n")
        return folder

    def delivers(self, name: str, source: str) -> None:
        """Have every model reply with one file."""
        (self.path / "reply.txt").write_text(f"{name}\n````\n{source}````\n")

    def edit(self, name: str, old: str, new: str, item: str = "t01") -> None:
        """Change a text in a file of an item."""
        [path] = self.path.glob(f"items/*/{item}/{name}")
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def script(self, **behaviour: str) -> None:
        """Have single items answered in another way than the model's name says."""
        (self.path / "script.json").write_text(json.dumps(behaviour))

    def run(self, model: str | None, *arguments: str, apart: bool = False, fixed: bool = True) -> pytest.RunResult:
        """``pytest --llm-model=MODEL``; ``apart`` in a process of its own, ``fixed`` without pytest-randomly."""
        start = self.pytester.runpytest_subprocess if apart else self.pytester.runpytest_inprocess
        chosen = [] if model is None else [f"--llm-model={model}"]
        order = ["-p", "no:hypothesispytest", *(["-p", "no:randomly"] if fixed else [])]
        if not any(argument.startswith(("--llm-report-dir", "--llm-resume")) for argument in arguments):
            chosen.append(f"--llm-report-dir={self.folder}")
        return start(*order, *chosen, *arguments)

    def report(self, folder: Path | None = None) -> dict[str, Any]:
        return json.loads(((folder or self.folder) / "report.json").read_text())

    def records(self, folder: Path | None = None) -> dict[str, dict[str, Any]]:
        """Every record, by file name."""
        paths = sorted(((folder or self.folder) / "records").glob("*.json"))
        return {path.name: json.loads(path.read_text()) for path in paths}

    def calls(self) -> list[list[str]]:
        """Model, item and worker of every call, in order; forgotten once asked for."""
        path = self.path / "calls.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line.split() for line in lines]

    def again(self) -> None:
        """Remove the run folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def bank(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Bank:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return Bank(pytester)


@pytest.fixture
def fieldcase() -> Callable[[str, str], Any]:
    """A file of ``tests/fieldcases`` by number and name."""

    def read(number: str, name: str) -> Any:
        [path] = (Path(__file__).parents[1] / "fieldcases").glob(f"{number}-*/{name}")
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]

    return read
