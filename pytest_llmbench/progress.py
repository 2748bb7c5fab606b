"""The status line on a terminal: what is measured now, how fast, how much is left; apart from pytest's output."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from pytest_llmbench.campaign.observe import Live
from pytest_llmbench.records import BROKEN, SCORED, now
from pytest_llmbench.session import NODE_NAME, Session

if TYPE_CHECKING:
    from tqdm import tqdm

Key = tuple[str, int, str]
"""Item, run and model of a node."""
REDRAW_S = 0.5
"""Seconds between two states of the line."""
DEFAULT_COLUMNS = 80
"""Width of a terminal that does not tell its own."""
SHORTEST_REF = 8
"""Characters of a model's name that stay, however narrow the terminal."""
CI_VARIABLES = ("CI", "BUILD_NUMBER")
"""Environment variables by which pytest knows a CI service."""
ESCAPES = re.compile(r"(\x1b\[[0-9;]*m)")
"""Colours, which take no place."""
COMMANDS = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""What terminals take as commands, such as pytest's own progress for the task bar; to be given once."""


def fits(config: pytest.Config) -> bool:
    """Whether there is a terminal that a status line has a place on: nothing of it in logs, on workers, under ``-q``
    and where output is not captured."""
    return (
        not hasattr(config, "workerinput")
        and getattr(config.option, "verbose", -1) >= 0
        and config.option.capture != "no"
        and not config.option.collectonly
        and os.environ.get("TERM") not in ("", "dumb")
        and not any(map(os.environ.get, CI_VARIABLES))
        and sys.stdout.isatty()
    )


def key_of(nodeid: str) -> Key | None:
    """The key of a node by its id; None for what is no node of the bank."""
    match = NODE_NAME.fullmatch(nodeid.rpartition("::")[2])
    return (match["item"], int(match["run"]), match["ref"]) if match else None


class Pace:
    """Which nodes are done, how long they took and how long the others will take."""

    def __init__(self) -> None:
        self.planned: set[Key] = set()
        self.done: set[Key] = set()
        self._of_item: dict[tuple[str, str], float] = {}
        self._of_model: dict[str, list[float]] = {}

    def plan(self, keys: Iterable[Key]) -> None:
        self.planned |= set(keys)

    def took(self, key: Key, seconds: float, status: str) -> None:
        """A node took so long in this session. What broke tells nothing about the next one."""
        item, _, ref = key
        if status not in BROKEN:
            self._of_item[ref, item] = seconds
        if status in SCORED:
            self._of_model.setdefault(ref, []).append(seconds)

    def finished(self, key: Key) -> None:
        self.done.add(key)

    def _expected(self, key: Key) -> float | None:
        item, _, ref = key
        known = self._of_model.get(ref)
        return self._of_item.get((ref, item), sum(known) / len(known) if known else None)

    def left(self, current: Key | None = None, elapsed: float = 0.0) -> tuple[float | None, bool]:
        """Seconds until all nodes are done, one after the other, from the durations of this session.

        Args:
            current: the node that runs.
            elapsed: seconds that it has run.

        Returns:
            The seconds, None before any is known; and whether they are known of every model.
        """
        expected = {key: self._expected(key) for key in self.planned - self.done}
        known = {key: seconds for key, seconds in expected.items() if seconds is not None}
        if expected and not known:
            return None, False
        if current in known:
            known[current] = max(0.0, known[current] - elapsed)
        return sum(known.values()), len(known) == len(expected)

    def left_at_rate(self, passed: float) -> float | None:
        """Seconds until all nodes are done at the rate of this session so far; None before any was measured."""
        measured = sum(map(len, self._of_model.values()))
        return passed / measured * len(self.planned - self.done) if measured else None


def interval(seconds: float) -> str:
    """``01:42`` or ``1:12:00``."""
    from tqdm import tqdm

    return tqdm.format_interval(max(0.0, seconds))


def speech(live: Live, short: bool) -> str:
    """What the model is doing: its tokens so far and their speed, or what it is waited for."""
    if live.doing == "loading":
        return "loading"
    tokens = f"{live.tokens} {'tok' if short else 'tokens'}"
    if live.doing == "waiting":
        waits = f"waiting {interval(time.monotonic() - live.asked)}"
        return f"{tokens}, {waits}" if live.tokens else waits
    rate = live.tokens_per_s()
    return tokens if rate is None else f"{tokens} {rate:.1f}/s"


def line(
    live: Live, *, done: int, planned: int, left: str, deadline: datetime | None, columns: int, node: bool = True
) -> str:
    """The status line, as long as fits.

    Args:
        live: what is measured.
        done: nodes that are done.
        planned: all nodes of the session.
        left: estimate of the time left.
        deadline: when the session has to be over; with a time zone.
        columns: characters that there is room for.
        node: whether this process measures itself.
    """
    text = ""
    for short in (False, True):
        parts = _parts(live, short, done, planned, left, deadline, node)
        text = " | ".join(parts)
        if node and short and len(text) > columns:
            room = max(SHORTEST_REF, len(live.ref) - (len(text) - columns))
            text = text.replace(live.ref, shortened(live.ref, room), 1)
        if len(text) <= columns:
            break
    return text[: max(0, columns)]


def _parts(
    live: Live, short: bool, done: int, planned: int, left: str, deadline: datetime | None, node: bool
) -> Sequence[str]:
    parts = []
    if node:
        run, turn = (f"r{live.run}", f" t{live.call}") if short else (f"run {live.run}", f" turn {live.call}")
        about = f"{live.ref} {live.item} {run}{turn if live.call else ''}"
        parts += [about, speech(live, short), interval(time.monotonic() - live.since)]
    parts += [f"{done}/{planned}" if short else f"{done}/{planned} done", f"left {left}"]
    if deadline is not None:
        seconds = (deadline - datetime.now(deadline.tzinfo)).total_seconds()
        name = "dl" if short else "deadline in"
        parts.append(f"{name} {interval(seconds)}" if seconds > 0 else "deadline passed")
    return parts


def shortened(name: str, room: int) -> str:
    """A name with dots for its middle where it is longer than ``room``."""
    if len(name) <= room:
        return name
    half = (room - len("..")) // 2
    return f"{name[: room - len('..') - half]}..{name[len(name) - half :]}"


class StatusLine:
    """One line below everything that pytest has written, and out of the way whenever it writes more.

    pytest's output goes through ``write``; the line goes to a descriptor of its own, because pytest takes the
    terminal's away while a test runs.
    """

    def __init__(self, output: TextIO) -> None:
        from tqdm import tqdm

        class Bar(tqdm):  # type: ignore[type-arg]
            monitor_interval = 0

        Bar.set_lock(threading.RLock())
        self._output = output
        self._terminal = open(  # noqa: SIM115  # closed with the session
            os.dup(output.fileno()), "w", encoding=output.encoding, errors="replace", newline=""
        )
        self._bar: tqdm[Any] = Bar(file=self._terminal, position=1, leave=False, delay=float("inf"))
        self._lock = threading.RLock()
        self._above = ""
        """What pytest has written of the line that is not ended yet."""
        self._shown = False

    @property
    def columns(self) -> int:
        try:
            return os.get_terminal_size(self._terminal.fileno()).columns or DEFAULT_COLUMNS
        except OSError:
            return DEFAULT_COLUMNS

    def write(self, text: str) -> int:
        """Take up pytest's output."""
        with self._lock:
            self.hide()
            length = self._output.write(text)
            self._output.flush()
            self._above = COMMANDS.sub("", re.split(r"[\r\n]", self._above + text)[-1])
            return length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)

    def show(self, text: str) -> None:
        """Show the line, or its new state."""
        with self._lock:
            width = self.columns - 1
            self._shown = True
            self._bar.display(text[:width].ljust(width))
            self._back()

    def hide(self) -> None:
        """Take the line away; nothing of it remains."""
        with self._lock:
            if self._shown:
                self._bar.clear()
                self._back()
                self._shown = False

    def _back(self) -> None:
        """Put the cursor where pytest left it, by writing again what stands before it."""
        self._terminal.write(f"\r{last_row(self._above, self.columns)}")
        self._terminal.flush()

    def close(self) -> None:
        """Take the line away for good."""
        with self._lock:
            self.hide()
            self._bar.close()
            self._terminal.close()


def last_row(text: str, columns: int) -> str:
    """What of a long line stands in the terminal's last row of it, with all colours."""
    from tqdm.utils import disp_len

    parts = ESCAPES.split(text)
    skip = max(0, sum(disp_len(part) for part in parts[::2]) - 1) // columns * columns
    for number in range(0, len(parts), 2):
        part = parts[number]
        parts[number], skip = part[skip:], max(0, skip - len(part))
    return "".join(parts)


class Progress:
    """Hooks that keep the status line; registered where there is a terminal for it."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self.config = config
        self.session = session
        self.pace = Pace()
        self.since = now()
        self.started: float | None = None
        """Monotonic time at which the first node began."""
        self._node: Key | None = None
        self._begun = 0.0
        self._writer: Any = None
        self._status: StatusLine | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="llmbench-progress", daemon=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """From here on pytest's output goes through the status line."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None:
            return
        self._writer = reporter._tw
        self._status = StatusLine(self._writer._file)
        self._writer._file = self._status

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """What there is to do."""
        self._plan(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """What there is to do, on the controller; every worker collects the same."""
        self._plan(ids)

    def _plan(self, ids: Iterable[str]) -> None:
        self.pace.plan(key for key in map(key_of, ids) if key is not None)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A node begins, here or on a worker."""
        self._node, self._begun = key_of(nodeid), time.monotonic()
        if self.started is None and self._node is not None and self._status is not None:
            self.started = self._begun
            self._thread.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """How long a node took that was measured now, not in the session that is resumed."""
        record: Mapping[str, Any] | None = getattr(report, "llmbench", None)
        key = key_of(report.nodeid)
        if key is None:
            return
        if report.when not in ("setup", "call", "teardown"):
            self.pace.finished(key)
        if record is not None and report.when == "call":
            now_measured = record["finished"] >= self.since or self.session.source is not None
            if now_measured:
                self.pace.took(key, report.duration, record["status"])

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A node is done."""
        key = key_of(nodeid)
        if key is not None:
            self.pace.finished(key)
        self._node = None

    def _redraw(self) -> None:
        while not self._stop.wait(REDRAW_S):
            status = self._status
            if status is None or (self._node is None and not self._distributed):
                continue
            try:
                status.show(self._line(status.columns - 1))
            except (OSError, ValueError):  # the terminal is gone, or the session just ended
                return

    @property
    def _distributed(self) -> bool:
        return self.config.pluginmanager.hasplugin("dsession")

    def _line(self, columns: int) -> str:
        pace, node = self.pace, self._node
        own = node is not None and not self._distributed
        seconds, whole = (
            pace.left(node, time.monotonic() - self._begun)
            if own
            else (pace.left_at_rate(time.monotonic() - (self.started or 0.0)), True)
        )
        left = "?" if seconds is None else f"{'' if whole else '>'}{interval(seconds)}"
        return line(
            self.session.live,
            done=len(pace.done),
            planned=len(pace.planned),
            left=left,
            deadline=getattr(self.session, "deadline", None),
            columns=columns,
            node=own,
        )

    def pytest_enter_pdb(self) -> None:
        """A debugger has the terminal for itself."""
        self._end()

    def pytest_keyboard_interrupt(self) -> None:
        """Ctrl-C leaves a clean line."""
        self._end()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Nothing is measured any more."""
        self._end()

    def pytest_unconfigure(self) -> None:
        """The terminal is pytest's own again, however the session ended."""
        self._end()

    def _end(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._status is not None:
            self._writer._file = self._status._output
            self._status.close()
            self._status = None
