"""A bank of one's own, test functions of one's own, and the hooks for others."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from pytest_llmbench.bank import bank_checksum, load_bank
from pytest_llmbench.harness.frozen import system_text

CONFTEST = """
import json, os
from pathlib import Path
from pytest_llmbench.runtimes.base import ModelCard, Reply, RuntimeFailure, Usage

HERE = Path(__file__).parent
REPLIES = {"capital": "Canberra", "thinks": "<think>Sydney? No.</think>Canberra", "odd": "\\x1b[31mCanberra"}


class Script:
    endpoint = None

    def __init__(self, ref, name, options):
        self.ref, self.name = ref, name

    def open(self):
        return ModelCard(ref=self.ref, runtime="script", context=32768)

    def count_tokens(self, messages):
        return None

    def close(self):
        return None

    def chat(self, request):
        with (HERE / "calls.txt").open("a") as file:
            call = [self.ref, os.environ.get("PYTEST_XDIST_WORKER", "main"), request.max_tokens, request.seed]
            file.write(json.dumps([*call, [[m.role, m.content] for m in request.messages]]) + "\\n")
        if self.name == "breaks" or (HERE / "broken").exists():
            raise RuntimeFailure("runtime_error", "the script server is gone; start it with `script serve`.")
        request.on_wire(b"a reply\\n")
        return Reply(content=REPLIES.get(self.name, self.name), usage=Usage(completion_tokens=3, prompt_tokens=40))


def pytest_llmbench_runtimes(config):
    return {"script": Script}
"""

MARK = "pytest.mark." + "llmbench"
"""Not written out, or this module would be one of those that a session without a path looks into."""
CAPITAL = """
import pytest

@MARK(points=3, rows={"capital": 2, "one_word": 1})
def test_capital(llm_runtime, record_points):
    reply = llm_runtime.ask("What is the capital of Australia? Answer with one word.")
    record_points("capital", 2 if "Canberra" in reply else 0, reply)
    record_points("one_word", 1 if len(reply.split()) == 1 else 0, reply)
"""
NODE = "test_geography.py::test_capital::Geography.capital-run1-script:capital"


class Own:
    """The user's folder with test functions of their own."""

    def __init__(self, bank: Any) -> None:
        self.bank = bank
        self.path = bank.path
        bank.pytester.makeconftest(CONFTEST)
        shutil.rmtree(bank.path / "items")
        self.functions(CAPITAL)

    def functions(self, text: str, name: str = "test_geography.py") -> None:
        """Write a module; ``MARK`` stands for the marker."""
        (self.path / name).write_text(text.replace("MARK", MARK))

    def body(self, *lines: str, marker: str = 'MARK(rows={"capital": 2, "one_word": 1})') -> None:
        """One function of these lines."""
        head = f"import pytest\n\n@{marker}\ndef test_capital(llm_runtime, record_points):\n"
        self.functions(head + "".join(f"    {line}\n" for line in lines))

    def run(self, model: str | None, *arguments: str, **how: Any) -> pytest.RunResult:
        return self.bank.run(model, *(arguments or ("test_geography.py",)), **how)

    def record(self) -> dict[str, Any]:
        [record] = self.bank.records().values()
        return record

    def transcript(self) -> dict[str, Any]:
        [path] = (self.bank.folder / "transcripts").glob("*.json")
        return json.loads(path.read_text())

    def calls(self) -> list[list[Any]]:
        """Model, worker, cap, seed and messages of every call; forgotten once asked for."""
        path = self.path / "calls.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]


@pytest.fixture
def own(bank: Any) -> Own:
    return Own(bank)


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


# --- a bank of one's own ---


@pytest.fixture
def elsewhere(bank: Any) -> Any:
    """The user's bank in a folder that is called ``mine``, with a version, and none in ``items``."""
    (bank.path / "items").rename(bank.path / "mine")
    (bank.path / "mine/bank.toml").write_text('version = "3.1.4"\n')
    return bank


def stamp(bank: Any) -> dict[str, str]:
    return json.loads((bank.folder / "manifest.json").read_text())["bank"]


@pytest.mark.parametrize("chosen", ["--llm-items=mine", "mine", "mine/level_a/t01", "mine/level_a/t01/item.toml"])
def test_a_bank_of_ones_own_is_measured_and_stamped_by_option_or_path(elsewhere: Any, chosen: str) -> None:
    assert elsewhere.run("script:golden", chosen).ret == 0
    assert stamp(elsewhere) == {"version": "3.1.4", "checksum": bank_checksum(load_bank(elsewhere.path / "mine"))}
    [record] = elsewhere.records().values()
    assert (record["item"], record["points"], record["bank_version"]) == ("T01", 3, "3.1.4")


def test_a_single_item_anywhere_is_a_bank_without_a_version(bank: Any) -> None:
    (bank.path / "items/level_a/t01").rename(bank.path / "alone")
    assert bank.run("golden", "alone").ret == 0
    assert stamp(bank) == {"version": "0.0.0", "checksum": bank_checksum(load_bank(bank.path / "alone"))}


def test_an_item_of_ones_own_may_be_of_the_level_own(bank: Any) -> None:
    bank.edit("item.toml", 'level = "A"', 'level = "own"')
    assert bank.run("golden,script:half", "-m", "levelown", "--strict-markers").ret == 0
    levels = bank.report()["levels"]
    assert levels["A"] is None
    assert levels["own"]["models"]["script:half"]["points_mean"] == 1
    assert levels["own"]["analysis"]["ranking"] is None


@pytest.mark.parametrize(("named", "said"), [("gone", "there is no such folder"), ("empty", "no item.toml")])
def test_a_bank_that_is_none_is_an_error_that_says_so(bank: Any, named: str, said: str) -> None:
    (bank.path / "empty").mkdir()
    result = bank.run("golden", f"--llm-items={named}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--llm-items={named}: *{said}*"])


# --- a test function of one's own ---


def test_a_marked_function_is_an_item_with_rows_evidence_and_a_record(own: Own) -> None:
    result = own.run("script:capital", "-v", "test_geography.py", "-rA")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"{NODE} 3.00/3 *", "*+ capital 2/2 capital: Canberra*"])
    record = own.record()
    assert (record["item"], record["level"], record["points"]) == ("Geography.capital", "own", 3)
    assert [(row["id"], row["earned"], row["evidence"]) for row in record["rows"]] == [
        ("capital", 2, "Canberra"),
        ("one_word", 1, "Canberra"),
    ]
    assert own.bank.report()["levels"]["own"]["models"]["script:capital"]["points_mean"] == 3
    assert {level for level, content in own.bank.report()["levels"].items() if content} == {"own"}


def test_a_function_goes_the_road_of_every_item(own: Own) -> None:
    own.run("script:capital")
    [[_, _, cap, seed, messages]] = own.calls()
    assert messages[0] == ["system", system_text()]
    turns = own.transcript()["turns"]
    assert [[turn["role"], turn["content"]] for turn in turns] == [*messages, ["assistant", "Canberra"]]
    assert (own.transcript()["max_tokens"], own.transcript()["seed"]) == (cap, seed)
    assert own.record()["usage"]["completion_tokens"] == 3
    [wire] = (own.bank.folder / "transcripts").glob("*.wire")
    assert wire.read_bytes() == b"a reply\n"
    events = [json.loads(line)["event"] for line in (own.bank.folder / "events.jsonl").read_text().splitlines()]
    assert {"node_started", "request_sent", "reply", "node_finished"} <= set(events)
    assert stamp(own.bank)["version"] == "none"


def test_run_1_of_every_model_comes_first_and_bank_and_functions_share_a_plan(own: Own) -> None:
    own.bank.item("T01")
    result = own.run("script:a,script:b", "--co", "-q", "--llm-runs=2", "test_geography.py", "items")
    names = [line.rpartition("::")[2] for line in collected(result)]
    assert [name.partition("-")[2] for name in names] == [
        f"run{run}-script:{model}" for run in (1, 2) for model in "ab" for _ in range(2)
    ]
    assert {name.partition("-")[0] for name in names} == {"T01", "Geography.capital"}


@pytest.mark.parametrize(
    "chosen",
    [("test_geography.py::test_capital",), (".", "-k", "test_capital"), (NODE,), (".", "-m", "levelown"), (".",)],
    ids=["function", "keyword", "node id", "level", "folder"],
)
def test_a_function_is_chosen_as_any_test_is(own: Own, chosen: tuple[str, ...]) -> None:
    own.functions(CAPITAL + "\ndef test_other():\n    pass\n")
    found = collected(own.run("script:capital", "--co", "-q", *chosen))
    assert [line for line in found if "capital" in line] == [NODE]


def test_every_call_is_kept_and_each_is_a_conversation_of_its_own(own: Own) -> None:
    own.body(
        "one = llm_runtime.ask('first', max_tokens=7)",
        "history = [{'role': 'user', 'content': 'second'}, ('assistant', one), ('user', 'third')]",
        "record_points('capital', True, llm_runtime.chat(history))",
    )
    assert own.run("script:capital").ret == 0
    calls = own.calls()
    assert calls[0][2] == 7
    assert calls[1][4] == [["user", "second"], ["assistant", "Canberra"], ["user", "third"]]
    said = [turn["content"] for turn in own.transcript()["turns"]]
    assert said == [system_text(), "first", "Canberra", "second", "Canberra", "third", "Canberra"]
    [wire] = (own.bank.folder / "transcripts").glob("*.wire")
    assert wire.read_bytes() == b"a reply\n" * 2
    assert [(row["id"], row["earned"], row["evidence"]) for row in own.record()["rows"]] == [
        ("capital", 2, "Canberra"),
        ("one_word", 0, "not recorded"),
    ]


def test_runs_differ_where_the_function_makes_them_differ(own: Own) -> None:
    own.body("record_points('capital', True, llm_runtime.ask(f'{llm_runtime.run} of {llm_runtime.ref}'))")
    own.run("script:capital", "--llm-runs=2", "test_geography.py")
    assert [call[4][-1][1] for call in own.calls()] == ["1 of script:capital", "2 of script:capital"]


def test_thinking_is_no_part_of_the_reply_and_stays_in_the_transcript(own: Own) -> None:
    own.run("script:thinks")
    assert own.record()["points"] == 3
    assert "<think>" in own.transcript()["turns"][-1]["content"]


def test_nothing_a_model_writes_steers_the_terminal_through_evidence_or_assertion(own: Own) -> None:
    own.body("reply = llm_runtime.ask('x')", "record_points('capital', 0, reply)", "assert reply == ''")
    result = own.run("script:odd", "-rA", "-vv", "--color=no", "test_geography.py")
    assert "\x1b" not in result.stdout.str()
    assert own.record()["status"] == "harness_error"


def test_points_alone_are_one_row(own: Own) -> None:
    own.body("record_points('points', 1.5, llm_runtime.ask('x'))", marker="MARK(points=2)")
    own.run("script:capital")
    assert [(row["id"], row["earned"], row["points"]) for row in own.record()["rows"]] == [("points", 1.5, 2)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "record_points('city', 1)",
            "there is no such row; the rows of Geography.capital are capital (2), one_word (1)",
        ),
        ("record_points('capital', 3)", "a row earns a number from 0 to its points"),
        ("record_points('capital', -1)", "a row earns a number from 0 to its points"),
        ("record_points('capital', float('nan'))", "a row earns a number from 0 to its points"),
        ("record_points('capital', None)", "a row earns a number from 0 to its points"),
        ("record_points('capital', 1); record_points('capital', 1)", "recorded twice"),
        ("assert 1 == 2", "AssertionError: assert 1 == 2"),
        ("pytest.fail('so not')", "the function failed: so not"),
        ("llm_runtime.chat([])", "the last message must be one of the user"),
        ("llm_runtime.ask(None)", "a message has a role"),
    ],
)
def test_a_function_that_breaks_is_unmeasured_and_says_why(own: Own, line: str, said: str) -> None:
    own.body("llm_runtime.ask('x')", line)
    result = own.run("script:capital")
    assert result.ret == 1
    record = own.record()
    assert (record["status"], record["points"], record["rows"]) == ("harness_error", None, [])
    assert said in record["reason"]
    result.stdout.fnmatch_lines(["harness_error: *"])


def test_a_function_that_never_asks_measures_nothing(own: Own) -> None:
    own.body("record_points('capital', 2)")
    assert own.run("script:capital").ret == 1
    assert "never asked the model" in own.record()["reason"]


@pytest.mark.parametrize("swallows", [False, True], ids=["plain", "swallowed"])
def test_a_dead_server_is_no_zero_even_where_the_function_swallows_it(own: Own, swallows: bool) -> None:
    if swallows:
        own.body("try:", "    llm_runtime.ask('x')", "except Exception:", "    record_points('capital', 0)")
    assert own.run("script:breaks").ret == 1
    assert (own.record()["status"], own.record()["points"]) == ("runtime_error", None)
    assert "script serve" in own.record()["reason"]


@pytest.mark.parametrize("way", ["in the function", "by a marker"])
def test_a_function_that_skips_is_a_skipped_node_with_a_record(own: Own, way: str) -> None:
    if way == "by a marker":
        own.functions(CAPITAL.replace("@MARK", "@pytest.mark.skip(reason='not today')\n@MARK"))
    else:
        own.body("pytest.skip('not today')")
    result = own.run("script:capital")
    assert result.ret == 0
    assert result.parseoutcomes() == {"skipped": 1}
    assert own.record()["status"] == "unsupported"
    assert "not today" in own.record()["reason"]
    assert own.bank.report()["status"] == "complete"


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("MARK", "needs points, or rows"),
        ("MARK(3)", "by name, not 3"),
        ("MARK(point=3)", "by name, not point"),
        ("MARK(points=4, rows={'a': 3})", "the rows sum to 3 points, the item declares 4"),
        ("MARK(rows={'A b': 3})", "rows.0.id"),
        ("MARK(points='many')", "points"),
        ("MARK(points=1, id='lower')", "id: String should match"),
    ],
)
def test_a_marker_that_makes_no_item_is_a_collection_error(own: Own, marker: str, said: str) -> None:
    own.body("pass", marker=marker)
    result = own.run("script:capital")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert said in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_two_functions_of_one_id_are_an_error_that_names_both(own: Own) -> None:
    own.functions(CAPITAL.replace("points=3,", 'id="C1", points=3,'), "test_more.py")
    own.functions(CAPITAL.replace("points=3,", 'id="C1", points=3,'))
    result = own.run("script:capital", ".")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "item id C1 is already used" in result.stdout.str()


def test_cases_and_methods_are_items_of_their_own(own: Own) -> None:
    own.functions(
        "import pytest\n\n@pytest.fixture\ndef word():\n    return 'Canberra'\n\n"
        "class TestPlaces:\n    asked = None\n\n"
        "    @MARK(points=1)\n"
        "    @pytest.mark.parametrize('country', ['Australia', 'New Zealand'])\n"
        "    def test_capital(self, country, word, llm_runtime, record_points):\n"
        "        assert self.asked is None, 'every case has a fresh instance'\n"
        "        self.asked = country\n"
        "        record_points('points', word in llm_runtime.ask(f'The capital of {country}?'))\n"
    )
    assert own.run("script:capital", "--llm-runs=2", "test_geography.py").ret == 0
    items = {record["item"] for record in own.bank.records().values()}
    assert items == {f"Geography.TestPlaces.capital.{case}" for case in ("Australia", "New_Zealand")}
    assert len(own.bank.records()) == 4
    assert {record["points"] for record in own.bank.records().values()} == {1}


# --- without a model, with references, beside other tests ---


def test_without_a_model_a_marked_function_is_skipped_and_says_how_to_run_it(own: Own) -> None:
    result = own.run(None, "--strict-markers", "-rs")
    assert result.ret == 0
    assert result.parseoutcomes() == {"skipped": 1}
    result.stdout.fnmatch_lines(["*pytest test_geography.py --llm-model=*"])


def test_references_have_no_answer_to_a_function_and_say_so(own: Own) -> None:
    result = own.run("golden,null", "-rs", "test_geography.py")
    assert result.ret == 0
    assert result.parseoutcomes() == {"skipped": 1}
    result.stdout.fnmatch_lines(["*references answer items of a bank*"])
    assert own.run("golden,script:capital", f"--llm-report-dir={own.path / 'two'}", "test_geography.py").ret == 0
    assert [record["ref"] for record in own.bank.records(own.path / "two").values()] == ["script:capital"]


def test_where_no_path_is_given_the_marked_functions_of_testpaths_are_measured_beside_the_bank(own: Own) -> None:
    own.bank.item("T01")
    (own.path / "tests").mkdir()
    (own.path / "tests/conftest.py").write_text("")
    own.functions(CAPITAL + "\ndef test_of_the_user():\n    pass\n", "tests/test_geography.py")
    (own.path / "tests/test_heavy.py").write_text("raise SystemExit(9)\n")
    own.bank.pytester.makeini("[pytest]\ntestpaths = tests\n")
    (own.path / "test_geography.py").unlink()
    names = [line.rpartition("::")[2] for line in collected(own.run("script:capital", "--co", "-q"))]
    assert sorted(names) == ["Geography.capital-run1-script:capital", "T01-run1-script:capital"]


def test_a_test_that_is_not_marked_is_told_how_to_be(own: Own) -> None:
    own.functions("def test_plain(llm_runtime):\n    pass\n")
    result = own.run("script:capital")
    assert result.ret == 1
    assert "are marked with @" in result.stdout.str()


# --- together with replay, resume, --lf and xdist ---


def replayed(own: Own) -> tuple[pytest.RunResult, dict[str, Any]]:
    own.calls()
    folder = own.path / "again"
    result = own.run(f"replay:{own.bank.folder}", f"--llm-report-dir={folder}", "test_geography.py")
    assert not own.calls(), "no model is asked"
    [record] = own.bank.records(folder).values()
    return result, record


def test_saved_replies_give_the_same_rows_again(own: Own) -> None:
    own.run("script:capital")
    result, record = replayed(own)
    assert result.ret == 0
    old = own.record()
    assert {**record, "conditions": None} == {**old, "conditions": None}


def test_other_rows_are_had_from_the_saved_replies_where_the_prompts_are_the_same(own: Own) -> None:
    own.run("script:capital")
    own.functions(CAPITAL.replace("2 if", "1 if"))
    result, record = replayed(own)
    assert result.ret == 0
    assert record["points"] == 2
    assert record["fingerprints"]["item"] != own.record()["fingerprints"]["item"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Answer with one word.", "Say it.", "answer other prompts"),
        ('    record_points("capital"', '    llm_runtime.ask("More?")\n    record_points("capital"', "other prompts"),
    ],
    ids=["another prompt", "one more"],
)
def test_saved_replies_to_other_prompts_are_refused(own: Own, old: str, new: str, said: str) -> None:
    own.run("script:capital")
    own.functions(CAPITAL.replace(old, new, 1))
    result, record = replayed(own)
    assert result.parseoutcomes() == {"skipped": 1}
    assert (record["status"], record["points"]) == ("unsupported", None)
    assert said in record["reason"]


def test_a_failure_is_replayed_as_what_it_was(own: Own) -> None:
    own.run("script:breaks")
    result, record = replayed(own)
    assert result.ret == 1
    assert record["status"] == "runtime_error"


def test_a_session_that_goes_on_keeps_what_is_measured_and_measures_the_rest(own: Own) -> None:
    own.run("script:capital,script:breaks")
    own.calls()
    result = own.bank.pytester.runpytest_inprocess("-v", f"--llm-resume={own.bank.folder}", "test_geography.py")
    result.stdout.fnmatch_lines([f"{NODE} 3.00/3 kept *"])
    assert [call[0] for call in own.calls()] == ["script:breaks"]
    own.functions(CAPITAL.replace("2 if", "1 if"))
    own.bank.pytester.runpytest_inprocess(f"--llm-resume={own.bank.folder}", "test_geography.py")
    assert {call[0] for call in own.calls()} == {"script:capital", "script:breaks"}, "another item is measured"


def test_a_record_that_is_gone_comes_back_from_the_transcript(own: Own) -> None:
    own.run("script:capital")
    old = own.record()
    own.calls()
    [path] = (own.bank.folder / "records").glob("*.json")
    path.unlink()
    own.bank.pytester.runpytest_inprocess(f"--llm-resume={own.bank.folder}", "test_geography.py")
    assert not own.calls()
    assert {**own.record(), "conditions": None} == {**old, "conditions": None}


def test_last_failed_measures_again_what_broke(own: Own) -> None:
    own.functions(CAPITAL.replace("capital", "city"), "test_other.py")
    assert own.run("script:capital,script:breaks", ".").ret == 1
    own.calls()
    own.bank.again()
    own.run("script:capital,script:breaks", ".", "--lf")
    assert [call[0] for call in own.calls()] == ["script:breaks", "script:breaks"]


def test_two_workers_measure_what_one_process_does(own: Own) -> None:
    pytest.importorskip("xdist")
    own.functions(CAPITAL.replace("capital", "city"), "test_other.py")
    assert own.run("script:capital,script:thinks", "-n2", ".", apart=True).ret == 0
    spread = own.bank.report()
    assert len({call[1] for call in own.calls()}) == 1, "the nodes of one runtime stay on one worker"
    own.bank.again()
    assert own.run("script:capital,script:thinks", ".").ret == 0
    assert spread["status"] == "complete"
    assert spread["levels"] == own.bank.report()["levels"]


# --- hooks ---


def test_what_a_hook_adds_to_the_report_stands_under_extra_and_lasts(own: Own) -> None:
    with (own.path / "conftest.py").open("a") as file:
        file.write(
            "\ndef pytest_llmbench_update_report(config, report):\n"
            "    report['extra']['points'] = report['levels']['own']['points_max']\n"
            "    report['levels'] = {}\n"
        )
    assert own.run("script:capital").ret == 0
    report = own.bank.report()
    assert report["extra"] == {"points": 3}
    assert report["levels"]["own"]["points_max"] == 3
    from pytest_llmbench.cli import main

    assert main(["report", str(own.bank.folder)]) == 0
    assert own.bank.report()["extra"] == {"points": 3}


def test_what_is_no_json_cannot_be_added_and_the_report_stands(own: Own) -> None:
    with (own.path / "conftest.py").open("a") as file:
        file.write("\ndef pytest_llmbench_update_report(config, report):\n    report['extra']['x'] = object()\n")
    result = own.run("script:capital")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*report?'extra'? cannot be written as JSON*"])
    assert own.bank.report()["extra"] == {}
    assert own.bank.report()["status"] == "complete"
