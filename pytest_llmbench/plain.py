"""The plain way: an ordinary test function with ``@pytest.mark.llmbench(points=…)`` is an item of one's own."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pytest_llmbench.bank import BankError, Item, spec_of
from pytest_llmbench.campaign.measure import Measurement, Unmeasured, take_apart
from pytest_llmbench.collect import SESSION, BenchNode
from pytest_llmbench.faults import Schedule
from pytest_llmbench.harness.frozen import system_text
from pytest_llmbench.harness.single import turn_of
from pytest_llmbench.options import MARKER
from pytest_llmbench.outcome import finish
from pytest_llmbench.records import Left, Row, Transcript, Turn
from pytest_llmbench.runtimes.base import Message, ModelCard
from pytest_llmbench.session import Session, node_name
from pytest_llmbench.spec import Delivery, Instance, RowSpec
from pytest_llmbench.store.folder import escaped

MARK = f"mark.{MARKER}".encode()
"""What stands in every module that marks functions."""
MARKER_KEYS = ("points", "rows", "id", "version")
UNVERSIONED = "0.0.0"
ID_CHARS = 40
"""Longest id of an item."""
DIGEST_CHARS = 8
"""Part of a checksum that keeps a shortened id unique."""
EVIDENCE_CHARS = 500
"""Longest evidence of a row; the transcript has everything."""
NOT_RECORDED = "not recorded"
ROLES = ("system", "user", "assistant")


class PointsError(Exception):
    """``record_points`` was called in a way that gives no row: the message names the rows and the way out."""


@dataclass(frozen=True, eq=False)
class PlainItem(Item):
    """A marked test function as an item. What is asked stands in its source code."""

    origin: str = ""
    """Node id of the function."""
    digest: str = ""
    """SHA-256 of its source code, its parameters and its marker."""

    @cached_property
    def checksum(self) -> str:
        return self.digest

    @property
    def has_references(self) -> bool:
        return False

    def build(self, variant: int, run: int) -> Instance:
        """An instance whose prompt stands for the source code, because what it asks is known only when it runs."""
        return Instance(self.spec, variant, run, self.digest)


@dataclass
class PlainMeasurement(Measurement):
    """One marked function, one model, one run: its calls are the conversation, its rows are what it records."""

    heard: int = 0
    """Turns of a saved transcript that were given again."""
    failure: Unmeasured | None = None
    """Why a call measured nothing, kept in case that the function swallows it."""

    @cached_property
    def saved(self) -> Transcript | None:
        """The transcript that answers in the model's place.

        Raises:
            Unmeasured: ``unsupported`` where none of this node is saved, or it was made with another harness.
        """
        if self.behind.transcript is None and self.model.spec.source is None:
            return None
        self.transcript = self.behind.transcript
        if self.transcript is None:
            self.transcript = self._saved(self._messages())
            self.folder.write(self._transcript_name, self.transcript)
        return self.transcript

    def say(self, messages: Sequence[Message], max_tokens: int | None = None) -> str:
        """One call: a history goes out, the text of the reply comes back, without its thinking.

        Args:
            messages: the whole history.
            max_tokens: reply cap, where that is below the profile's.

        Raises:
            Unmeasured: where the call measured nothing; every later call raises it again.
        """
        if self.failure is not None:
            raise self.failure
        try:
            part = self._call(messages, max_tokens) if self.saved is None else self._heard(self.saved, messages)
            if part.failure is not None:
                raise Unmeasured(part.failure["status"], part.failure["reason"])  # type: ignore[arg-type]
        except Unmeasured as failure:
            self.failure = failure
            raise
        found = take_apart(self.instance, part)
        noticed = [*self.delivery.flags, *found.flags, *([found.no_answer] if found.no_answer else [])]
        self.delivery = Delivery(text=found.text, flags=tuple(dict.fromkeys(noticed)))
        return found.text

    def _call(self, messages: Sequence[Message], max_tokens: int | None) -> Transcript:
        cap = self.profile.max_tokens(self.item.spec)
        part = self._converse(self.instance, list(messages), cap if max_tokens is None else min(cap, max_tokens))
        before = self.transcript
        own = self._parts(self._messages(), None)["messages"]
        self.transcript = part.model_copy(
            update={
                "turns": [*(before.turns if before else ()), *part.turns],
                "fingerprints": {**part.fingerprints, "messages": own},
                "started": before.started if before else part.started,
            }
        )
        self.folder.write(self._transcript_name, self.transcript)
        return part

    def _heard(self, saved: Transcript, messages: Sequence[Message]) -> Transcript:
        asked = [turn_of(message) for message in messages]
        end = self.heard + len(asked)
        if [_said(turn) for turn in saved.turns[self.heard : end]] != [_said(turn) for turn in asked]:
            raise Unmeasured(
                "unsupported",
                "the saved replies answer other prompts, so the function cannot be graded again with them; "
                "measure it anew with the model.",
            )
        turns = [*asked, *(turn for turn in saved.turns[end : end + 1] if turn.role == "assistant")]
        self.heard += len(turns)
        failure = saved.failure if self.heard == len(saved.turns) else None
        return saved.model_copy(update={"turns": turns, "failure": failure})

    def take(self, row: str, earned: float | Decimal, evidence: object = "") -> None:
        """Record one row.

        Args:
            row: its id.
            earned: points, or True for all of them and False for none.
            evidence: what shows it.

        Raises:
            PointsError: for a row that is unknown or recorded already, and for points that it cannot give.
        """
        known = {one.id: one for one in self.item.spec.rows}
        named = ", ".join(f"{one.id} ({one.points:g})" for one in known.values())
        if row not in known:
            raise PointsError(
                f"record_points({row!r}): there is no such row; the rows of {self.item.spec.id} are {named}. "
                'Name rows in the marker: @pytest.mark.llmbench(rows={"name": points}).'
            )
        if any(one.id == row for one in self.rows):
            raise PointsError(f"record_points({row!r}): recorded twice; record each row once, of {named}.")
        self.rows.append(_row(known[row], _exact(row, earned, known[row].points, named), str(evidence)))

    def complete(self) -> None:
        """The function returned: rows that it did not record earn nothing, and the transcript has its end.

        Raises:
            Unmeasured: where a call failed, none was made, or fewer than the saved replies answer.
        """
        if self.failure is not None:
            raise self.failure
        if self.transcript is None:
            raise Unmeasured(
                "harness_error",
                f"{self.item.spec.id} never asked the model: call llm_runtime.ask(prompt) in the function.",
            )
        if self.heard not in (0, len(self.transcript.turns)):
            raise Unmeasured(
                "unsupported", "the function asks less than the saved replies answer; measure it anew with the model."
            )
        recorded = {row.id: row for row in self.rows}
        self.rows[:] = [recorded.get(row.id) or _row(row, Decimal(0), NOT_RECORDED) for row in self.item.spec.rows]
        if self.saved is None:
            end = self.transcript.turns[-1].stop_reason or "stop"
            self.transcript = self.transcript.model_copy(update={"end": end})
            self.folder.write(self._transcript_name, self.transcript)

    def look_back(self, schedule: Schedule, card: ModelCard | None = None, *, twice: bool = False) -> Left:
        left = super().look_back(schedule, card, twice=twice)
        if left.transcript is not None and left.transcript.end is None:
            return Left(why="cut in its conversation")
        return left

    def _differs(self, saved: Transcript, messages: Sequence[Message], card: ModelCard | None) -> Sequence[str]:
        """What a replay asks is held against the saved prompts one by one, so that other rows can be had from them."""
        found = super()._differs(saved, messages, card)
        return found if self.model.spec.source is None else tuple(name for name in found if name != "messages")


class Asking:
    """What ``llm_runtime`` is for a marked function: the model, with every call kept in the node's transcript."""

    def __init__(self, measurement: PlainMeasurement) -> None:
        self._measurement = measurement

    @property
    def ref(self) -> str:
        """The model as ``--llm-model`` names it."""
        return self._measurement.model.spec.ref

    @property
    def run(self) -> int:
        """Number of the run, from 1: what a function asks can be made from it, so that runs differ."""
        return self._measurement.run

    def ask(self, prompt: str, *, max_tokens: int | None = None) -> str:
        """Begin a fresh conversation, with the system message of the bank's; gives the reply without its thinking."""
        return self.chat([("system", system_text()), ("user", prompt)], max_tokens=max_tokens)

    def chat(self, messages: Sequence[Mapping[str, str] | tuple[str, str]], *, max_tokens: int | None = None) -> str:
        """Send a whole history, and no other message; gives the reply without its thinking.

        Args:
            messages: ``{"role": …, "content": …}`` or ``(role, content)``, the last one of the user.
            max_tokens: reply cap, where that is below the profile's.

        Raises:
            TypeError, ValueError: for something else than that.
        """
        history = [_message(message) for message in messages]
        if not history or history[-1].role != "user":
            raise ValueError("llm_runtime.chat(messages): the last message must be one of the user")
        if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < 1):
            raise ValueError(f"max_tokens={max_tokens!r} is no whole number from 1")
        return self._measurement.say(history, max_tokens)


class PlainTest(pytest.Collector):
    """A marked test function; below it one node per case, model and run."""

    def __init__(self, name: str, parent: pytest.Collector, functions: Sequence[pytest.Function]) -> None:
        super().__init__(name, parent)
        self.functions = functions

    def collect(self) -> Iterator[pytest.Item]:
        session = self.config.stash[SESSION]
        for function in self.functions:
            try:
                item = plain_item(function)
                _take_up(session, item)
            except BankError as error:
                raise self.CollectError(str(error)) from None
            pairs = [(run, spec) for run, spec in session.nodes(item) if not spec.is_reference]
            for run, spec in pairs:
                name = node_name(item.spec.id, run, spec.ref)
                node: PlainNode = PlainNode.from_parent(self, name=name, function=function)
                node.take(item, run, spec)
                yield node
            if not pairs:
                function.add_marker(pytest.mark.skip(reason=_why_not(session)))
                yield function


class PlainNode(BenchNode):
    """One marked function, one model, one run."""

    measures = PlainMeasurement

    def __init__(self, name: str, parent: pytest.Collector, function: pytest.Function, **others: Any) -> None:
        self.origin = function
        super().__init__(name, parent, fixtureinfo=function._fixtureinfo, **others)
        if hasattr(function, "callspec"):
            self.callspec = function.callspec
            self.own_markers.extend(function.callspec.marks)
        self.extra_keyword_matches.update(function.listextrakeywords(), (function.name, function.originalname))

    def _getobj(self) -> Any:
        home: Any = self.origin.parent
        self._instance = home.newinstance() if self.origin.cls is not None else None
        return getattr(home.obj if self._instance is None else self._instance, self.origin.originalname)

    @property
    def twice(self) -> bool:
        """Whether it is asked a second time: what a function asks is its own matter."""
        return False

    def plain(self) -> PlainMeasurement:
        """The measurement of this node, begun on first use."""
        if self.measurement is None:
            self.measurement = self.prepare()
        assert isinstance(self.measurement, PlainMeasurement)
        return self.measurement

    def runtest(self) -> None:
        self.plain()
        call = super(BenchNode, self).runtest
        finish(self, lambda: self._measure(call))

    def _measure(self, call: Callable[[], None]) -> None:
        measurement = self.plain()
        measurement.observer.begin()
        try:
            call()
        except pytest.skip.Exception as skipped:
            raise Unmeasured("unsupported", f"the function skipped: {skipped.msg}") from None
        except pytest.fail.Exception as failed:
            raise measurement.failure or Unmeasured("harness_error", f"the function failed: {failed.msg}") from failed
        except Exception:
            if measurement.failure is not None:
                raise measurement.failure from None
            raise
        measurement.complete()

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self.origin.reportinfo()[1], super().reportinfo()[2]

    def leave_out(self, reason: str) -> None:
        """Write the record of a node that pytest skipped before it ran."""
        self.plain().record([], Unmeasured("unsupported", f"skipped: {reason}"))


def marked_modules(config: pytest.Config) -> list[Path]:
    """The modules below ``testpaths`` that mark functions, found without importing anything."""
    if config.args_source != pytest.Config.ArgsSource.TESTPATHS:
        return []
    places = [Path(config.rootpath, place) for place in config.args]
    found = [path for place in places for path in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    return [path for path in found if _is_test(config, path) and MARK in path.read_bytes()]


def _is_test(config: pytest.Config, path: Path) -> bool:
    folders = path.relative_to(config.rootpath).parts[:-1] if path.is_relative_to(config.rootpath) else ()
    passed_over = any(fnmatch(part, pattern) for part in folders for pattern in config.getini("norecursedirs"))
    return not passed_over and any(fnmatch(path.name, pattern) for pattern in config.getini("python_files"))


def with_marked(made: object, collector: pytest.Collector, name: str, *, marked_only: bool) -> object:
    """What pytest makes of a name in a module or class, with a marked function as ``PlainTest``.

    Args:
        made: pytest's own result.
        collector: the module or class.
        name: of the function.
        marked_only: leave other functions out.
    """
    if not isinstance(made, list) or not all(isinstance(one, pytest.Function) for one in made):
        return made
    marked = [one for one in made if one.get_closest_marker(MARKER) is not None]
    if marked:
        return [PlainTest.from_parent(collector, name=name, functions=marked)]
    return [] if marked_only else made


def plain_item(function: pytest.Function) -> PlainItem:
    """The item that a marked function is.

    Raises:
        BankError: for a marker that makes no item, and for a function whose source cannot be read.
    """
    marker = function.get_closest_marker(MARKER)
    assert marker is not None
    where = f"{function.path}: {function.originalname}"
    form = '@pytest.mark.llmbench(points=3, rows={"capital": 2, "one_word": 1})'
    if marker.args or set(marker.kwargs) - set(MARKER_KEYS):
        wrong = ", ".join([*map(repr, marker.args), *sorted(set(marker.kwargs) - set(MARKER_KEYS))])
        raise BankError(
            f"{where}: the marker llmbench takes {', '.join(MARKER_KEYS)} by name, not {wrong}; write {form}"
        )
    points, rows = marker.kwargs.get("points"), marker.kwargs.get("rows")
    if rows is None and points is not None:
        rows = {"points": points}
    if not isinstance(rows, Mapping) or not rows:
        raise BankError(f"{where}: the marker llmbench needs points, or rows with their points; write {form}")
    entry = {
        "id": _item_id(function, marker.kwargs.get("id")),
        "title": _title(function),
        "version": marker.kwargs.get("version", UNVERSIONED),
        "level": "own",
        "mode": "single",
        "rows": [{"id": row, "title": str(row).replace("_", " "), "points": str(value)} for row, value in rows.items()],
    }
    entry["points"] = _total(rows.values()) if points is None else str(points)
    spec = spec_of(Path(where), entry)
    case = function.callspec.id if hasattr(function, "callspec") else ""
    try:
        source = inspect.getsource(function.function)
    except OSError as error:
        raise BankError(f"{where}: its source, by which results are told apart, cannot be read: {error}") from None
    whole = json.dumps([source, case, spec.model_dump(mode="json")], sort_keys=True)
    digest = hashlib.sha256(whole.encode("utf-8", "backslashreplace")).hexdigest()
    return PlainItem(spec, function.path, origin=function.nodeid, digest=digest)


def items_below(collector: pytest.Collector) -> None:
    """Have the marked functions of a module taken up by the session, where their nodes run in other processes."""
    for child in collector.collect():
        if isinstance(child, pytest.Collector):
            items_below(child)


def _take_up(session: Session, item: PlainItem) -> None:
    known = session.items.get(item.spec.id)
    if isinstance(known, PlainItem) and known.path == item.path and known.origin != item.origin:
        raise BankError(
            f"{item.origin}: item id {item.spec.id} is already used by {known.origin}; "
            "give one of them another with @pytest.mark.llmbench(id=…)"
        )
    session.take_up(item)


def _why_not(session: Session) -> str:
    if session.source is not None:
        return f"no node of it is saved in {session.source.name}"
    if session.before is not None:
        return "it is not in the plan of the run that is gone on with"
    return "golden, defective and null references answer items of a bank; a test function needs a model that is asked"


def _item_id(function: pytest.Function, given: object) -> str:
    case = [function.callspec.id] if hasattr(function, "callspec") else []
    if given is not None:
        return ".".join([str(given), *map(_slug, case)])
    module = re.sub(r"^test_|_test$", "", function.path.stem)
    classes = [node.name for node in function.listchain() if isinstance(node, pytest.Class)]
    parts = [module, *classes, function.originalname.removeprefix("test_"), *case]
    name = ".".join(filter(None, map(_slug, parts)))
    name = name[:1].upper() + name[1:] if name[:1].isalpha() and name.isascii() else f"T{name}"
    if len(name) > ID_CHARS:
        digest = hashlib.sha256(name.encode()).hexdigest()[:DIGEST_CHARS]
        name = f"{name[: ID_CHARS - DIGEST_CHARS - 1]}_{digest}"
    return name


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")


def _title(function: pytest.Function) -> str:
    lines = (inspect.getdoc(function.function) or "").strip().splitlines()
    return lines[0] if lines else function.name


def _total(values: Sequence[object] | Any) -> str:
    try:
        return str(sum((Decimal(str(value)) for value in values), Decimal(0)))
    except ArithmeticError:
        return "0"


def _exact(row: str, earned: object, points: Decimal, named: str) -> Decimal:
    if isinstance(earned, bool):
        return points if earned else Decimal(0)
    usable = isinstance(earned, (int, float, Decimal)) and math.isfinite(earned)
    value = Decimal(str(earned)) if usable else None
    if value is None or not 0 <= value <= points:
        raise PointsError(
            f"record_points({row!r}, {earned!r}): a row earns a number from 0 to its points, or True or False; "
            f"the rows are {named}."
        )
    return value


def _row(spec: RowSpec, earned: Decimal, evidence: str) -> Row:
    text = escaped(evidence)
    if len(text) > EVIDENCE_CHARS:
        text = f"{text[:EVIDENCE_CHARS]} … ({len(text) - EVIDENCE_CHARS} characters more)"
    return Row(id=spec.id, title=spec.title, points=spec.points, earned=earned, kind=spec.kind, evidence=text)


def _said(turn: Turn) -> tuple[str, str]:
    return turn.role, turn.content


def _message(message: Mapping[str, str] | tuple[str, str]) -> Message:
    role, content = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else message
    if role not in ROLES or not isinstance(content, str):
        raise TypeError(f"a message has a role of {', '.join(ROLES)} and a text, not {role!r} and {content!r}")
    return Message(role, content)  # type: ignore[arg-type]
