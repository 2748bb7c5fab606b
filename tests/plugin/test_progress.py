"""While it runs: a status line on a terminal and nowhere else, and events in the run folder everywhere."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

import jsonschema
import pytest
from plugin.terminals import CTRL_C, Terminal, run_in_terminal

from pytest_llmbench.campaign.observe import Live
from pytest_llmbench.progress import Pace, StatusLine, fits, key_of, last_row, line, shortened
from pytest_llmbench.schemas import schema
from pytest_llmbench.store.events import events

SLOW = """
import pytest_llmbench.progress

pytest_llmbench.progress.REDRAW_S = 0.05


class Slow(Script):
    def open(self):
        time.sleep(0.2)
        return super().open()

    def chat(self, request):
        time.sleep(0.2)
        for number in range(8):
            if request.on_piece is not None:
                request.on_piece("so \\x1b[31m")
            time.sleep(0.03)
        return super().chat(request)


def pytest_llmbench_runtimes(config):
    return {"script": Script, "slow": Slow}
"""


@pytest.fixture
def slow(bank: Any) -> Any:
    """A runtime that takes its time, and a line that is drawn often."""
    conftest = bank.path / "conftest.py"
    conftest.write_text(conftest.read_text() + SLOW)
    return bank


def watch(bank: Any, *arguments: str, model: str = "slow:half", **options: Any) -> Terminal:
    fixed = ["-m", "pytest", "-p", "no:randomly", "-p", "no:hypothesispytest", "-p", "no:cacheprovider"]
    bank.again()
    asked = [f"--llm-model={model}", f"--llm-report-dir={bank.folder}"]
    return run_in_terminal([*fixed, *asked, *arguments], bank.path, **options)


STATUS = re.compile(r"^slow:half T0\d run \d( turn \d)? \| .* \| \d\d:\d\d \| \d/\d done \| left \S+$")


def test_a_terminal_shows_what_is_measured_and_keeps_nothing_of_it(slow: Any) -> None:
    slow.item("T02")
    terminal = watch(slow)
    assert terminal.code == 0
    shown = terminal.seen(" | ")
    assert all(STATUS.match(row) for row in shown), shown
    text = "\n".join(shown)
    assert "slow:half T01 run 1 | loading | " in text
    assert "slow:half T01 run 1 turn 1 | waiting 00:0" in text
    assert re.search(r"T02 run 1 turn 1 \| [1-9] tokens [\d.]+/s \| 00:0\d \| 1/2 done \| left 00:0\d", text)
    assert "T01 run 1 turn 1 | waiting 00:00 | 00:00 | 0/2 done | left ?" in re.sub(r"00:0\d", "00:00", text)
    assert not [row for row in terminal.last if " | " in row and "left" in row]
    assert [row for row in terminal.last if row.startswith("items/")] == [
        f"items/level_a/t01/item.toml .{'[ 50%]':>{120 - 30}}",
        f"items/level_a/t02/item.toml .{'[100%]':>{120 - 30}}",
    ]
    assert any(row.startswith("=") and "2 measured" in row for row in terminal.last)


def plain(terminal: Terminal) -> list[str]:
    """The final screen without what changes from one session to the next."""
    return [re.sub(r"\d+\.\d+s", "N s", row).replace("script:", "slow:") for row in terminal.last]


def test_the_final_screen_is_that_of_a_session_without_the_line(slow: Any) -> None:
    columns = len("items/level_a/t01/item.toml::T01-run1-slow:half ") - 4
    shown = watch(slow, "-v", columns=columns)
    hidden = watch(slow, "-v", columns=columns, environ={"CI": "true"})
    assert shown.seen(" | ")
    assert not hidden.seen(" | ")
    assert all(len(row) < columns for row in shown.seen(" | "))
    assert plain(shown) == plain(hidden)


@pytest.fixture
def tty() -> Iterator[TextIO]:
    """A file that is a terminal."""
    master, slave = os.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as output:
        yield output
    os.close(master)


@pytest.mark.parametrize(
    ("arguments", "environ", "has_place"),
    [
        ((), {}, True),
        (("-v",), {}, True),
        (("-q",), {}, False),
        (("-s",), {}, False),
        (("--co",), {}, False),
        ((), {"CI": "1"}, False),
        ((), {"BUILD_NUMBER": "7"}, False),
        ((), {"TERM": "dumb"}, False),
    ],
)
def test_the_line_has_its_place_on_a_terminal_that_is_looked_at(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    tty: TextIO,
    arguments: tuple[str, ...],
    environ: dict[str, str],
    has_place: bool,
) -> None:
    for name in ("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **environ}.items():
        monkeypatch.setenv(name, value)
    config = pytester.parseconfig(*arguments)
    assert not fits(config), "captured output is no terminal"
    monkeypatch.setattr(sys, "stdout", tty)
    assert fits(config) is has_place


def test_nothing_of_it_in_a_log(slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    result = slow.run("slow:half")
    assert " | left " not in result.stdout.str() + result.stderr.str()
    assert result.ret == 0


def test_ctrl_c_leaves_a_clean_line(slow: Any) -> None:
    terminal = watch(slow, answer=lambda screen: CTRL_C if " tokens" in screen else None)
    assert terminal.code == pytest.ExitCode.INTERRUPTED
    assert terminal.seen(" tokens")
    assert not [row for row in terminal.last if " | " in row and "left" in row]
    assert any("KeyboardInterrupt" in row for row in terminal.last)
    found, torn = events(slow.folder)
    assert ([event["event"] for event in found][-3:], torn) == (["interrupted", "model_closed", "session_finished"], 0)


def test_under_xdist_the_controller_shows_what_is_done_and_left(slow: Any) -> None:
    terminal = watch(slow, "-n1", "--llm-runs=2")
    assert terminal.code == 0
    shown = terminal.seen(" | ")
    assert all(re.match(r"^\d/2 done \| left (\?|\d\d:\d\d)$", row) for row in shown), shown
    assert "0/2 done | left ?" in shown
    assert not [row for row in terminal.last if " | " in row and "left" in row]


def test_a_session_tells_what_happened_in_order(slow: Any) -> None:
    slow.run("slow:half,script:breaks")
    found, torn = events(slow.folder)
    validator = jsonschema.Draft202012Validator(schema("events"))
    for event in found:
        validator.validate(event)
    assert torn == 0
    of_nodes = [event for event in found if "item" in event or event["event"].startswith("model")]
    assert [(event["event"], event["ref"]) for event in of_nodes] == [
        ("node_started", "slow:half"),
        ("model_loaded", "slow:half"),
        *((kind, "slow:half") for kind in ("request_sent", "first_token", "reply", "node_finished", "model_closed")),
        ("node_started", "script:breaks"),
        ("model_loaded", "script:breaks"),
        *((kind, "script:breaks") for kind in ("request_sent", "reply", "node_finished", "model_closed")),
    ]
    assert (found[0]["event"], found[-1]["event"]) == ("session_started", "session_finished")
    finished = [event for event in found if event["event"] == "node_finished"]
    assert [(event["status"], event["points"]) for event in finished] == [("measured", 1.0), ("runtime_error", None)]
    assert [event["at"] for event in found] == sorted(event["at"] for event in found)
    text = (slow.folder / "events.jsonl").read_text()
    assert "ANSWER" not in text
    assert str(Path.home()) not in text
    assert str(slow.path) not in text


# The estimate.


def test_an_estimate_needs_a_measured_node_and_says_where_a_model_has_none() -> None:
    pace = Pace()
    pace.plan((item, run, ref) for item in ("A04", "A05") for run in (1, 2) for ref in ("a", "b"))
    assert pace.left() == (None, False)
    pace.took(("A04", 1, "a"), 10.0, "measured")
    pace.finished(("A04", 1, "a"))
    assert pace.left() == (30.0, False)
    pace.took(("A04", 1, "b"), 100.0, "not_converged")
    pace.finished(("A04", 1, "b"))
    assert pace.left() == (330.0, True)
    assert pace.left(("A05", 1, "a"), 4.0) == (326.0, True)
    assert pace.left(("A05", 1, "a"), 40.0) == (320.0, True)
    assert pace.left_at_rate(60.0) == 180.0


def test_what_broke_at_once_promises_nothing_and_what_cannot_be_measured_takes_no_time() -> None:
    pace = Pace()
    pace.plan(("A04", run, "a") for run in (1, 2))
    pace.took(("A04", 1, "a"), 0.1, "runtime_error")
    assert pace.left() == (None, False)
    assert pace.left_at_rate(60.0) is None
    pace.took(("A04", 1, "a"), 0.1, "unsupported")
    pace.finished(("A04", 1, "a"))
    assert pace.left() == (0.1, True)
    pace.finished(("A04", 2, "a"))
    assert pace.left() == (0.0, True)


def test_keys_of_nodes() -> None:
    assert key_of("items/a05/item.toml::A05-run2-hf.co/x/y:Q4::1") is None
    assert key_of("items/a05/item.toml::A05-run2-hf.co/x/y:Q4") == ("A05", 2, "hf.co/x/y:Q4")
    assert key_of("tests/test_stats.py::test_means") is None


# The line.


def replying(**fields: Any) -> Live:
    now = time.monotonic()
    about = {"item": "A05", "run": 2, "ref": "qwen3:4b", "since": now - 100, "call": 3, "first": now - 10}
    return Live(doing="replying", **{**about, "earlier": 300, "pieces": 101, **fields})


def said(live: Live, columns: int = 120, **fields: Any) -> str:
    text = line(live, **{"done": 37, "planned": 99, "left": "1:12:00", "deadline": None, **fields}, columns=columns)
    assert len(text) <= columns
    return text


def test_the_line_shortens_its_words_then_the_model_then_itself() -> None:
    live = replying()
    assert said(live) == "qwen3:4b A05 run 2 turn 3 | 401 tokens 10.0/s | 01:40 | 37/99 done | left 1:12:00"
    assert said(live, 75) == "qwen3:4b A05 r2 t3 | 401 tok 10.0/s | 01:40 | 37/99 | left 1:12:00"
    named = replying(ref="hf.co/someone/a-model-of-a-long-name:Q4_K_M")
    assert said(named, 75).startswith("hf.co/so..")
    assert said(named, 75).endswith("| 37/99 | left 1:12:00")
    assert said(named, 30) == "hf...K_M A05 r2 t3 | 401 tok 10.0"[:30]


def test_the_line_tells_the_time_to_the_deadline() -> None:
    soon = datetime.now(UTC) + timedelta(hours=8, minutes=30, seconds=0.9)
    assert said(replying(), deadline=soon).endswith(" | left 1:12:00 | deadline in 8:30:00")
    assert said(replying(), deadline=soon - timedelta(hours=9)).endswith(" | deadline passed")
    assert said(replying(), deadline=soon, node=False) == "37/99 done | left 1:12:00 | deadline in 8:30:00"


def test_names_are_shortened_in_their_middle() -> None:
    assert [shortened("abcdefghijkl", room) for room in (12, 8, 7)] == ["abcdefghijkl", "abc..jkl", "abc..kl"]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("", ""),
        ("12345", "12345"),
        ("1234567890", "1234567890"),
        ("12345678901", "1"),
        ("\x1b[32m12345678\x1b[0m9012", "\x1b[32m\x1b[0m12"),
    ],
)
def test_what_stands_in_the_last_row_of_a_long_line(text: str, row: str) -> None:
    assert last_row(text, 10) == row


def everything(descriptor: int) -> Iterator[bytes]:
    """What a terminal that was closed on the other side still holds."""
    with contextlib.suppress(OSError):
        while piece := os.read(descriptor, 4096):
            yield piece
    os.close(descriptor)


def test_what_pytest_writes_comes_through_unchanged_and_in_order() -> None:
    master, slave = os.openpty()
    written = io.StringIO()

    class Output(io.TextIOWrapper):
        def write(self, text: str) -> int:
            written.write(text)
            return super().write(text)

    with Output(os.fdopen(slave, "wb", buffering=0), encoding="ascii", write_through=True) as output:
        status = StatusLine(output)
        for text in ("items/x ", ".", "\x1b]9;4;1;50\x1b\\", ".\n", "next"):
            status.write(text)
            status.show("busy ü")
        status.close()
        assert (output.isatty(), status.encoding) == (True, "ascii")
    shown = b"".join(everything(master))
    assert written.getvalue() == "items/x .\x1b]9;4;1;50\x1b\\.\nnext"
    assert shown.count(b"\x1b]9;4") == 1, "a command to the terminal is given once"
    assert b"busy ?" in shown
