"""What the README shows is run as it is printed, in an empty folder; nothing but the model's name is another one."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import pytest_llmbench.active
import pytest_llmbench.report.analysis
import pytest_llmbench.xdist  # noqa: F401  # sessions in this process share the modules

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(section: str) -> list[tuple[str, str]]:
    """Language and text of the code blocks of a section."""
    [text] = re.findall(rf"^## {section}\n(.*?)(?=^## )", README, re.DOTALL | re.MULTILINE)
    return BLOCK.findall(text)


class Reader:
    """Someone who copies from the README."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def write(self, section: str) -> None:
        """Write every block that begins with the name of a file."""
        for language, text in blocks(section):
            if language != "sh":
                path = self.pytester.path / text.splitlines()[0].removeprefix("# ")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")

    def run(self, section: str, model: str | None = None) -> pytest.RunResult:
        """Run the section's command, with another model where one is named."""
        [command] = [text for language, text in blocks(section) if language == "sh"]
        program, *arguments = shlex.split(command)
        assert program == "pytest"
        named = [argument for argument in arguments if argument.startswith("--llm-model=")]
        assert len(named) == 1
        if model is not None:
            arguments[arguments.index(named[0])] = f"--llm-model={model}"
        return self.pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:hypothesispytest", "-v", *arguments)

    def report(self) -> dict[str, object]:
        [path] = self.pytester.path.glob("reports/*/report.json")
        return json.loads(path.read_text())


@pytest.fixture
def reader(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Reader:
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return Reader(pytester)


@pytest.mark.parametrize("model", ["golden", "parrot:polly"])
def test_your_own_bank(reader: Reader, model: str) -> None:
    reader.write("Your own bank")
    reader.write("Hooks")
    result = reader.run("Your own bank", model)
    assert result.ret == 0
    points = "1.00" if model == "golden" else "0.00"
    result.stdout.fnmatch_lines([f"mine/sum/item.toml::S01-run{run}-{model} {points}/1 *" for run in (1, 2, 3)])


def test_your_own_test_function(reader: Reader) -> None:
    reader.write("Your own test function")
    reader.write("Hooks")
    result = reader.run("Your own test function", "parrot:polly,parrot:jack")
    assert result.ret == 0
    nodes = [f"Geography.capital-run{run}-parrot:{bird}" for run in (1, 2, 3) for bird in ("polly", "jack")]
    result.stdout.fnmatch_lines([f"test_geography.py::test_capital::{node} 0.00/3 *" for node in nodes])


def test_hooks(reader: Reader) -> None:
    reader.write("Your own test function")
    reader.write("Hooks")
    result = reader.run("Hooks")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*Geography.capital 0.0*"])
    assert reader.report()["extra"] == {"room": {"temperature_c": 21.5}}


def test_the_option_table_has_every_option() -> None:
    from pytest_llmbench import options

    known = set(re.findall(r'"(--llm-[a-z-]+)"', Path(options.__file__).read_text(encoding="utf-8")))
    shown = set(re.findall(r"^\| `(--llm-[a-z-]+)", README, re.MULTILINE))
    assert known == shown
