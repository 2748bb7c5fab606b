"""From what a node measured to what pytest reports: points are the score, the outcome is health."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmbench.campaign.measure import Measurement, Unmeasured
from pytest_llmbench.course import Spared
from pytest_llmbench.records import BROKEN, SCORED, Record
from pytest_llmbench.report.show import brief
from pytest_llmbench.store.folder import StoreError

if TYPE_CHECKING:
    from pytest_llmbench.collect import BenchNode
    from pytest_llmbench.session import Session

RECORD: pytest.StashKey[Mapping[str, Any]] = pytest.StashKey()
KEPT: pytest.StashKey[bool] = pytest.StashKey()
"""The record is an earlier session's."""
SHOWN = ("status", "points", "points_max")
"""Parts of a record that the words for a node are made of."""
TOLD: pytest.StashKey[dict[str, str]] = pytest.StashKey()
"""Node that first told a reason, by reason."""


class BelowShare(Exception):
    """A measured node earned less than ``--llm-fail-under`` asks for."""


def finish(node: BenchNode, runtest: Callable[[], None]) -> None:
    """Run a node and put its record on disk, whatever happened but the user's own interruption."""
    from pytest_llmbench.collect import COURSE, SESSION

    session = node.config.stash[SESSION]
    failure: Unmeasured | None = None
    try:
        kept = node.config.stash[COURSE].before(node)
        if kept is not None:
            node.stash[KEPT] = True
            tell(node, kept, session)
            return
        runtest()
        if node.twice and node.measurement is not None:
            node.measurement.ask_again()
    except Spared as error:
        raise pytest.skip.Exception(str(error)) from None
    except Unmeasured as error:
        failure = error
    except StoreError as error:
        node.session.shouldstop = str(error)
        raise Unmeasured("harness_error", str(error)) from error
    except Exception as error:
        failure = Unmeasured("harness_error", f"{type(error).__name__}: {error}")
        failure.__cause__ = error
    measurement = node.measurement
    if measurement is None:
        if failure is not None and failure.__cause__ is not None:
            raise failure.__cause__
        return
    try:
        measurement.clock_jump_s = node.config.stash[COURSE].jump(node)
        record = measurement.record(measurement.rows, failure)
        session.save_card(measurement.model)
    except StoreError as error:
        node.session.shouldstop = str(error)
        raise Unmeasured("harness_error", str(error)) from error
    tell(node, record, session)
    if failure is not None and failure.__cause__ is not None and not isinstance(failure.__cause__, Unmeasured):
        raise failure from failure.__cause__
    if failure is not None:
        raise failure


def tell(node: BenchNode, record: Record, session: Session) -> None:
    """Put a node's record where its report finds it.

    Raises:
        BelowShare: it earned less than ``--llm-fail-under`` asks for.
    """
    node.stash[RECORD] = record.model_dump(mode="json", by_alias=True)
    if record.status not in SCORED or record.points is None:
        return
    if node.measurement is not None:
        node.add_report_section("call", "llmbench", evidence(record, node.measurement, session.show_hidden))
    share = session.fail_under
    if share is not None and record.points < record.points_max * _exact(share):
        raise BelowShare(f"{record.points:.2f} of {record.points_max:g} points, below the asked-for share of {share:g}")


def _exact(share: float) -> Any:
    from decimal import Decimal

    return Decimal(str(share))


def evidence(record: Record, measurement: Measurement, show_hidden: bool = False) -> str:
    """What happened in a node, for people: its rows, what was noticed, where to read on. Safe to print."""
    hidden = measurement.graded.hidden if show_hidden and measurement.graded else {}
    lines = [f"{record.item} {record.title}: {score_word(record.model_dump(mode='json', by_alias=True))}"]
    if record.reason:
        lines.append(f"{record.status}: {record.reason}")
    for row in record.rows:
        sign = "+" if row.earned == row.points else "-"
        lines.append(f"  {sign} {row.id} {row.earned:g}/{row.points:g} {row.title}: {row.evidence}")
        if row.id in hidden:
            lines.append(f"      hidden: {hidden[row.id]}")
    for name, values in (("noticed", record.flags), ("repaired", record.repairs), ("near a cap", record.edge)):
        if values:
            lines.append(f"{name}: {', '.join(values)}")
    if record.confinement is not None:
        lines.append(f"the delivered code ran: {record.confinement}")
    if record.agent is not None and measurement.transcript is not None:
        lines += brief(measurement.transcript)
    elif record.stop_reason not in (None, "stop"):
        lines.append(f"the reply ended on: {record.stop_reason}")
    lines.append(f"transcript: transcripts/{measurement.stem}.json")
    return "\n".join(printable(line) for line in lines)


def lost_rows(record: Mapping[str, Any]) -> list[str]:
    """The rows that were not earned in full, each with its evidence."""
    return [
        printable(f"  - {row['id']} {row['earned']:g}/{row['points']:g} {row['title']}: {row['evidence']}")
        for row in record["rows"]
        if row["earned"] < row["points"]
    ]


def failure_text(node: BenchNode, error: BaseException) -> str:
    """Why a node failed, in a paragraph."""
    record = node.stash.get(RECORD, None)
    if isinstance(error, BelowShare) and record is not None:
        return "\n".join([str(error), *lost_rows(record)])
    status = error.status if isinstance(error, Unmeasured) else "harness_error"
    cause, where = error.__cause__, ""
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    if cause is not None and not isinstance(cause, (StoreError, Unmeasured)) and cause.__traceback__ is not None:
        trace = cause.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        where = f"\n(raised at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
    return printable(f"{status}: {told_once(node, str(error))}") + where


def told_once(node: BenchNode, reason: str) -> str:
    """A reason in full the first time, then only where it was told."""
    first = node.config.stash.setdefault(TOLD, {}).setdefault(reason, node.name)
    return reason if first == node.name else f"the same as for {first}"


def score_word(record: Mapping[str, Any]) -> str:
    """The word for a node in ``-v``: its points, or its status where there are none."""
    if record["status"] in SCORED:
        word = f"{record['points']:.2f}/{record['points_max']:g}"
        return word if record["status"] == "measured" else f"{word} {record['status']}"
    return str(record["status"]).upper()


def printable(text: str) -> str:
    """``text`` without control characters, so that nothing a model wrote can steer a terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


def complete_report(node: BenchNode, report: pytest.TestReport) -> None:
    """Put the record on the test report; what is unmeasured without being broken is skipped, not failed."""
    record = node.stash.get(RECORD, None)
    if report.when != "call" or record is None:
        return
    report.llmbench = dict(record)  # type: ignore[attr-defined]
    report.llmbench_kept = node.stash.get(KEPT, False)  # type: ignore[attr-defined]
    if record["status"] in SCORED:
        report.user_properties.append(("llmbench_points", f"{record['points']:.4f}/{record['points_max']:g}"))
        return
    if record["status"] not in BROKEN and node.config.getoption("llm_fail_under") is None:
        report.outcome = "skipped"
        report.longrepr = (str(node.path), 0, printable(f"{record['status']}: {record['reason']}"))


def shorten(report: pytest.TestReport) -> None:
    """Leave of the record on a report what the words for it are made of."""
    record = getattr(report, "llmbench", None)
    if record is not None:
        report.llmbench = {name: record[name] for name in SHOWN}  # type: ignore[attr-defined]


def words(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Category, letter and word of a node's report."""
    record = getattr(report, "llmbench", None)
    if record is None or report.when != "call":
        return None
    if report.passed:
        kept = getattr(report, "llmbench_kept", False)
        return ("kept", "k", f"{score_word(record)} kept") if kept else ("measured", ".", score_word(record))
    return ("skipped", "s", score_word(record)) if report.skipped else ("failed", "F", score_word(record))


def sections(reports: Sequence[pytest.TestReport]) -> list[tuple[str, str]]:
    """Node and evidence of measured nodes, for ``-rA`` and ``-rP``."""
    return [(report.nodeid, text) for report in reports for title, text in report.sections if "llmbench" in title]
