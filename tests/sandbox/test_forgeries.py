"""Wrong solutions that try to be scored as right: none earns its row, and none disturbs the grader."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from sandbox.confined import LIMITS, confined, fieldcase, stored

from pytest_llmbench.grading.counting import CountedSequence
from pytest_llmbench.grading.hidden_tests import Case, Outcome, judge, verdict
from pytest_llmbench.harness.reply import parse_reply, render_reply
from pytest_llmbench.sandbox.calls import Broken, Raised, Returned, open_worker
from pytest_llmbench.sandbox.jail import Profile

FORGERIES = stored(Path(__file__).parent / "forgeries")
CASES = [Case("add", (1, 2), "small", 3), Case("add", (40, -2), "mixed signs", 38), Case("add", (7, 7), "equal", 14)]
GOOD = "good.py"


def outcomes(
    files: dict[str, str], cases: Sequence[Case] = CASES, profile: Profile = "pure", module: str = "solution"
) -> list[Outcome]:
    with open_worker(confined(), files, module, profile=profile) as worker:
        return [judge(worker, [case], deadline_s=1.0)[0] for case in cases]


def passed(files: dict[str, str], cases: Sequence[Case] = CASES, profile: Profile = "pure") -> int:
    return sum(outcome.passed for outcome in outcomes(files, cases, profile))


@pytest.fixture(autouse=True)
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that nothing in the sandbox may make, named where a forgery looks for it."""
    path = tmp_path / "pwned"
    monkeypatch.setenv("SBX_PWN", str(path))
    yield path
    assert not path.exists()


@pytest.mark.parametrize("name", sorted(set(FORGERIES) - {GOOD}))
def test_a_forgery_earns_nothing(name: str) -> None:
    source = FORGERIES[name]
    if "CONFINED ONLY" in source and not confined().confined:
        pytest.skip("this machine cannot confine")
    found = outcomes({"solution.py": source})
    assert [outcome.passed for outcome in found] == [False] * len(CASES)
    judged = verdict("behaviour", found)
    assert judged.earned is False
    assert judged.evidence.isprintable()
    assert len(judged.evidence) < 400


def test_the_honest_solution_earns_its_row_after_every_forgery() -> None:
    found = outcomes({"solution.py": FORGERIES[GOOD]})
    assert verdict("behaviour", found).earned is True


def test_a_module_that_raises_at_import_does_not_pass_for_a_function_that_raises() -> None:
    case = Case("add", (1, "a"), "mixed types", raises="TypeError")
    for source in ("raise TypeError", "add = 5", ""):
        assert passed({"solution.py": source}, [case]) == 0
    assert passed({"solution.py": FORGERIES[GOOD]}, [case]) == 1


def test_one_hang_costs_its_own_case_and_no_other() -> None:
    source = "def add(a, b):\n    while a == 40: pass\n    return a + b\n"
    assert [outcome.passed for outcome in outcomes({"solution.py": source})] == [True, False, True]


# --- field cases -----------------------------------------------------------------------------------------------------


def cases_of(text: str) -> list[Case]:
    """The cases of a stored hidden test of ``add``, as values that stay outside."""
    found = re.findall(r"add\((-?\d+), (-?\d+)\)(?:,| ==) (-?\d+)", text)
    assert found
    return [Case("add", (int(a), int(b)), "a sum", int(total)) for a, b, total in found]


def hidden(number: str) -> list[Case]:
    return cases_of("".join(stored(fieldcase(number) / "hidden").values()))


def expected(number: str) -> dict[str, object]:
    document: dict[str, object] = json.loads((fieldcase(number) / "expected.json").read_text("utf-8"))
    return document


def test_fieldcase_64_leaving_with_exit_code_zero_passes_nothing() -> None:
    wanted, cases = expected("64"), hidden("64")
    files = stored(fieldcase("64") / "workdir")
    assert sorted(files) == wanted["each"]
    assert {passed({"solution.py": source}, cases) for source in files.values()} == {wanted["passed"]}
    assert len(cases) == wanted["of"]


@pytest.mark.parametrize("number", ["66", "67", "68"])
def test_fieldcases_66_to_68_files_beside_the_solution_never_move_the_score(number: str) -> None:
    wanted, cases = expected(number), hidden(number)
    files = stored(fieldcase(number) / "workdir")
    assert len(files) > 1
    assert passed(files, cases) == wanted["passed"]
    assert passed({"solution.py": files["solution.py"]}, cases) == wanted["passed"]
    assert len(cases) == wanted["of"]


def test_fieldcase_71_the_counter_is_out_of_reach_of_patched_code() -> None:
    values = CountedSequence([number % 7 for number in range(1000)])
    case = Case("smart_sort", (values,), "a long list", 999)
    assert passed(stored(fieldcase("71") / "workdir"), [case]) == expected("71")["passed"]
    assert values.reads == 1000
    assert values.comparisons >= 999


def test_fieldcase_72_a_grandchild_is_gone_and_holds_nothing_up() -> None:
    files = stored(fieldcase("72") / "workdir")
    assert passed(files, hidden("72"), profile="tool") == expected("72")["passed"]
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert [command for command in commands if "import time; time.sleep(30)" in command] == []


def test_fieldcase_74_reading_standard_input_ends_at_once() -> None:
    with open_worker(confined(), stored(fieldcase("74") / "workdir"), "solution") as worker:
        result = worker.call("add", 2, 3)
    assert isinstance(result, Raised)
    assert (result.type, result.importing) == (expected("74")["classify"], True)
    assert passed(stored(fieldcase("74") / "workdir"), hidden("74")) == expected("74")["passed"]


SEARCH = """
import gc, os, sys

def everything(*arguments):
    seen = [repr(arguments), repr(sys.argv), repr(dict(os.environ))]
    frame = sys._getframe()
    while frame:
        seen += [repr(frame.f_globals), repr(frame.f_locals)]
        frame = frame.f_back
    seen += [repr(o) for o in gc.get_objects() if type(o) in (dict, list, tuple, set)]
    for folder, _, names in os.walk("."):
        for name in names:
            with open(os.path.join(folder, name), errors="replace") as file:
                seen.append(file.read())
    return any("%s-%s" % arguments in text for text in seen)

def read(path):
    with open(path) as file:
        return file.read()
"""


def test_fieldcase_75_nothing_hidden_is_part_of_what_the_code_can_reach() -> None:
    canary = (fieldcase("75") / "canary.txt").read_text("utf-8").strip()
    first, second = canary.split("-")
    with open_worker(confined(), {"solution.py": SEARCH}, "solution") as worker:
        case = Case("everything", (first, second), f"about {canary}", expected=canary)
        [outcome] = judge(worker, [case])
        assert "returned False" in outcome.hidden
    with open_worker(confined(), {"solution.py": SEARCH, "notes.txt": canary}, "solution") as worker:
        assert worker.call("everything", first, second) == Returned(True)


def test_fieldcase_75_a_file_of_hidden_tests_cannot_be_read(tmp_path: Path) -> None:
    if not confined().confined:
        pytest.skip("this machine cannot confine")
    planted = tmp_path / "hidden_tests" / "cases.toml"
    planted.parent.mkdir()
    planted.write_bytes((fieldcase("75") / "canary.txt").read_bytes())
    with open_worker(confined(), {"solution.py": SEARCH}, "solution") as worker:
        assert isinstance(worker.call("read", str(planted)), Raised)
        assert isinstance(worker.call("read", __file__), Raised)


def test_fieldcase_76_tests_edited_by_the_model_do_not_count() -> None:
    files = stored(fieldcase("76") / "workdir")
    cases = cases_of(stored(fieldcase("76") / "original")["test_visible.py"])
    delivery = parse_reply(render_reply({}, files), "", files=["solution.py"], answers=())
    assert delivery.unknown_files == ("test_visible.py",)
    assert passed(dict(delivery.files), cases) == expected("76")["passed"]
    assert passed(files, cases) == expected("76")["passed"]
    assert len(cases) == expected("76")["of"]


AGAIN = """
import sys
from pytest_llmbench.grading.hidden_tests import Case, judge
from pytest_llmbench.sandbox.calls import open_worker
from sandbox.confined import confined

sources = {"as_stored": sys.argv[1], "known_bad": sys.argv[1].replace("text.split()", "text").replace("s.split()", "s")}
cases = [Case("tags", ("a b c d",), "four words", {"a", "b", "c", "d"}), Case("tags", ("",), "no word", set())]
for name, source in sources.items():
    for _ in range(5):
        with open_worker(confined(), {"solution.py": source}, "solution") as worker:
            order = worker.call("ordered", "a b c d e f").value
            print(name, [outcome.passed for outcome in judge(worker, cases)], order)
"""


def test_fieldcase_83_verdicts_are_the_same_twenty_times_under_any_zone_and_hash_seed() -> None:
    source = stored(fieldcase("83") / "workdir")["solution.py"] + textwrap.dedent(
        """
        def ordered(s):
            import time
            return [*set(s.split()), time.tzname[0], __import__('os').environ.get('LANG')]
        """
    )
    printed: list[str] = []
    for zone, seed in (
        ("UTC", "0"),
        ("Pacific/Kiritimati", "1"),
        ("America/St_Johns", "77"),
        ("Asia/Tehran", "random"),
    ):
        environment = {**os.environ, "TZ": zone, "PYTHONHASHSEED": seed, "LANG": "de_DE.UTF-8"}
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parents[1])])
        run = [sys.executable, "-c", AGAIN, source]
        printed += subprocess.check_output(run, text=True, env=environment).splitlines()
    assert len(printed) == 40
    assert len(set(printed)) == 2
    assert any(line.startswith("as_stored [True, True]") for line in printed)
    assert any(line.startswith("known_bad [False, True]") for line in printed)


def test_a_broken_worker_names_the_limit_that_ended_it() -> None:
    limits = replace(LIMITS, cpu_s=1)
    spinning = {"solution.py": "def spin():\n    while True: pass\n"}
    with open_worker(confined(), spinning, "solution", limits=limits) as worker:
        result = worker.call("spin", deadline_s=LIMITS.wall_s)
    assert isinstance(result, Broken)
    assert result.limit == "cpu_s"
