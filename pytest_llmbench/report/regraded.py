"""What re-grading a run did, as text."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tabulate import tabulate

from pytest_llmbench.campaign.moves import THE_SAME_CODE, Move, MovedRow, Moves
from pytest_llmbench.campaign.regrade import Regrading, regrade
from pytest_llmbench.harness.tools import plain
from pytest_llmbench.report.build import Report, build_report, write_report
from pytest_llmbench.report.page import write_page
from pytest_llmbench.report.tables import points
from pytest_llmbench.store.folder import REPORT, RunFolder, StoreError, read_json
from pytest_llmbench.store.gradings import GRADINGS, MOVES, PAGE

LAYER = "LLMBENCH_SANDBOX"
"""Environment variable that allows one layer of confinement only, as for a session."""
SHOWN_MOVES = 20
"""Rows that moved that the terminal shows before it only counts them."""
SHOWN_NODES = 10
"""Nodes of one kind that a sentence names."""
WIDTH = 60
"""Characters of a cause in the table."""


def regrade_and_tell(path: Path, bank: Path) -> int:
    """Grade a run folder again and print what moved.

    Args:
        path: the run folder.
        bank: folder of the items.

    Returns:
        The exit code: 1 where a grader contradicts itself, a transcript is torn or the user stopped it.

    Raises:
        StoreError, BankError, Unconfinable: as ``regrade`` does, and where a session writes the folder.
    """
    layer = os.environ.get(LAYER)
    run = RunFolder.reopen(path)
    try:
        done = regrade(run, bank, layers=[layer] if layer else None, put_in_place=_write_reports, notice=_progress)
        print("\n".join(regraded_lines(done)))
    except KeyboardInterrupt:
        print("\nllmbench: stopped. Nothing is lost; calling it again does the rest.", file=sys.stderr)
        return 1
    finally:
        run.release()
    return 1 if done.unexplained or done.torn else 0


def _write_reports(run: RunFolder) -> None:
    """What is made from the records; the page only where there was one."""
    try:
        interrupted = read_json(run.path / REPORT).get("status") == "interrupted"
    except StoreError:
        interrupted = False
    write_report(run, interrupted=interrupted)
    if (run.path / PAGE).exists():
        write_page(run)


def _progress(done: int, of: int) -> None:
    """One line that counts up, where somebody looks at it."""
    if sys.stderr.isatty():
        print(f"\r{done} of {of} nodes graded", end="\n" if done == of else "", file=sys.stderr, flush=True)


def regraded_lines(done: Regrading) -> Iterator[str]:
    """What re-grading did: what moved and why, the totals of every model before and after, what was left as it is."""
    if done.resumed is not None:
        yield f"A grading that was cut off was finished first; the one before it lies in {GRADINGS}/{done.resumed}."
    if done.moves is None or done.kept_in is None:
        graded = sum(node.fate == "same" for node in done.nodes)
        yield f"Nothing changed: {graded} nodes graded again, to the same bytes. Nothing was written."
    else:
        yield from _moved(done.moves, f"{GRADINGS}/{done.kept_in.name}")
        yield ""
        yield from _totals(build_report(RunFolder(done.kept_in)), build_report(done.run))
    yield from _left(done)
    yield from _defects(done)


def _moved(moves: Moves, kept_in: str) -> Iterator[str]:
    scores = [move for move in moves.moves if move.scores]
    if scores:
        yield f"Rows that moved: {len(scores)}"
        yield tabulate(
            [_line(move) for move in scores[:SHOWN_MOVES]],
            headers=["node", "row", "before", "after", "why"],
            disable_numparse=True,
            colalign=["left", "left", "right", "right", "left"],
        )
        if len(scores) > SHOWN_MOVES:
            yield f"and {len(scores) - SHOWN_MOVES} more: {kept_in}/{MOVES}"
    else:
        yield "No row moved."
    if others := len(moves.moves) - len(scores):
        yield f"{others} rows kept their points and have other evidence."
    yield f"{len(moves.nodes)} records were written anew; the old grading lies in {kept_in}."
    yield f"Grader {moves.before.grader} → {moves.after.grader}"
    for name in ("harness", "bank"):
        before, after = getattr(moves.before, name), getattr(moves.after, name)
        if before != after:
            yield f"{name} {', '.join(before.values())} → {', '.join(after.values())}"


def _line(move: Move) -> list[str]:
    why = "; ".join(move.why)
    short = why if len(why) <= WIDTH else f"{why[: WIDTH - 1]}…"
    return [plain(move.node), move.row, _figure(move.before), _figure(move.after), plain(short)]


def _figure(row: MovedRow | None) -> str:
    return "-" if row is None else f"{points(float(row.earned))}/{float(row.points):g}"


def _totals(before: Report, after: Report) -> Iterator[str]:
    """Points of every model before and after, each level for itself."""
    for level, content in after.levels.items():
        if content is None:
            continue
        old = before.levels[level]
        rows = [
            [
                plain(ref),
                _mean(old.models[ref].points_mean if old and ref in old.models else None),
                _mean(model.points_mean),
            ]
            for ref, model in content.models.items()
        ]
        yield tabulate(
            rows,
            headers=[f"level {level}: points (mean over runs)", "before", "after"],
            disable_numparse=True,
            colalign=["left", "right", "right"],
        )
        yield ""


def _mean(value: float | None) -> str:
    return "-" if value is None else points(value)


def _left(done: Regrading) -> Iterator[str]:
    """What was not graded, and why."""
    reasons = Counter(node.note for node in done.nodes if node.note is not None)
    for reason, count in sorted(reasons.items()):
        yield f"{count} nodes left as they are: {reason}."
    if done.torn:
        yield f"Torn transcripts: {_named(done.torn)}. Their old records stay."
    if foreign := [node for node in done.nodes if node.foreign]:
        yield f"{len(foreign)} nodes answer another request than the bank asks now; their records say so."


def _defects(done: Regrading) -> Iterator[str]:
    if done.unexplained:
        names = [node.moved.node for node in done.unexplained if node.moved is not None]
        yield (
            f"DEFECT: {THE_SAME_CODE} graded {len(names)} nodes in another way than before: {_named(names)}. "
            "A grader must give the same rows for ever; do not trust these."
        )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NODES} more" if len(names) > SHOWN_NODES else ""
    return plain(", ".join(names[:SHOWN_NODES]) + more)
