"""The time guard of a campaign: no run is started that the deadline would cut, and a jump of the clock is noticed."""

from __future__ import annotations

import datetime as dates
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import durationpy

from pytest_llmbench.harness.frozen import Profile

FORMS = "a duration such as 10h, 1h30m or 90s, or a time of day such as 07:30"


class DeadlineError(ValueError):
    """A deadline that means nothing."""


def parse_deadline(text: str, now: datetime) -> datetime:
    """The moment that ``--llm-deadline`` names.

    Args:
        text: a duration from now (``10h``, ``1h30m``), or a time of day (``07:30``), the next one.
        now: with its offset to UTC; a time of day is one of that zone.

    Raises:
        DeadlineError: for anything else, and for no time at all.
    """
    text = text.strip()
    if ":" in text:
        try:
            of_day = dates.time.fromisoformat(text)
        except ValueError:
            raise DeadlineError(f"{text!r} is no time of day; give {FORMS}") from None
        if of_day.tzinfo is not None:
            raise DeadlineError(f"{text!r}: a time of day is local time, without an offset; give {FORMS}")
        moment = datetime.combine(now.date(), of_day, now.tzinfo)
        return moment if moment > now else moment + timedelta(days=1)
    try:
        length = durationpy.from_str(text)
    except (durationpy.DurationError, ValueError, OverflowError):
        raise DeadlineError(f"{text!r} is no duration; give {FORMS}") from None
    if length <= timedelta(0):
        raise DeadlineError(f"{text!r} leaves no time; give {FORMS}")
    return now + length


@dataclass
class Clock:
    """Notices a clock that jumped: on a machine that slept the time of day moves on, the steady clock does not."""

    tolerance_s: float
    """A smaller difference is how clocks drift and are set right."""
    wall: Callable[[], float] = lambda: time.time()
    steady: Callable[[], float] = lambda: time.monotonic()

    def __post_init__(self) -> None:
        self._offset = self.wall() - self.steady()

    def jump(self) -> float | None:
        """Seconds by which the time of day jumped since the last call, backwards negative; None where it did not."""
        before, self._offset = self._offset, self.wall() - self.steady()
        moved = self._offset - before
        return round(moved, 3) if abs(moved) > self.tolerance_s else None


@dataclass(frozen=True)
class Decision:
    """Whether a model's run may start, and what that was decided on."""

    starts: bool
    needed_s: float
    left_s: float
    basis: str
    """What the needed time was taken from, for people."""
    kind: Literal["no_deadline", "earlier_round", "estimate", "last_run"]


class Guard:
    """Holds the time left against what a model's run needs, before it starts.

    Needed is that model's own last measured run, scaled to the nodes of this one, plus ``guard_share``, plus
    ``guard_margin_s``; the first time ``guard_node_s`` a node plus the margin. Once a run of some model was not
    started, no model starts a later run, so that a cut leaves whole rounds.
    """

    def __init__(self, deadline: datetime | None, profile: Profile, now: Callable[[], datetime]) -> None:
        """
        Args:
            deadline: the moment; None allows everything.
            profile: whose limits hold.
            now: the time of day, with its offset.
        """
        self.deadline = deadline
        self._profile = profile
        self._now = now
        self._measured: dict[str, float] = {}
        """Seconds per node of a model's last run."""
        self._cut: int | None = None

    def measured(self, ref: str, seconds: float, nodes: int) -> None:
        """Take in how long a run of a model took, loading and grading included."""
        if nodes:
            self._measured[ref] = seconds / nodes

    def left_s(self) -> float | None:
        """Seconds to the deadline; None without one."""
        return (self.deadline - self._now()).total_seconds() if self.deadline else None

    def decide(self, ref: str, run: int, nodes: int) -> Decision:
        """Whether ``run`` of a model, of ``nodes`` nodes, may start now."""
        left = self.left_s()
        if left is None:
            return Decision(True, 0.0, 0.0, "no deadline", "no_deadline")
        if self._cut is not None and run > self._cut:
            why = f"run {self._cut} was not started for every model, and a cut leaves whole rounds"
            return Decision(False, 0.0, left, why, "earlier_round")
        needed, basis = self._needed(ref, nodes)
        decision = Decision(needed <= left, needed, left, basis, "last_run" if ref in self._measured else "estimate")
        self.follow(run, decision)
        return decision

    def follow(self, run: int, decision: Decision) -> None:
        """Take in a decision, this guard's own or one that another worker made."""
        if not decision.starts:
            self._cut = run if self._cut is None else min(run, self._cut)

    def _needed(self, ref: str, nodes: int) -> tuple[float, str]:
        margin = self._profile.limit("guard_margin_s")
        own = self._measured.get(ref)
        if own is None:
            each = self._profile.limit("guard_node_s")
            return nodes * each + margin, f"no run of it is measured yet: {nodes} x {each:g} s + {margin:g} s margin"
        share = self._profile.limit("guard_share")
        basis = f"its last run, {nodes * own:.0f} s, + {share:.0%} + {margin:g} s margin"
        return nodes * own * (1 + share) + margin, basis


def spoken(seconds: float) -> str:
    """A length of time as people read it, such as ``1 h 05 min`` or ``42 s``."""
    whole = round(seconds)
    minutes, rest = divmod(abs(whole), 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if whole < 0 else ""
    if hours:
        return f"{sign}{hours} h {minutes:02d} min"
    return f"{sign}{minutes} min {rest:02d} s" if minutes else f"{sign}{rest} s"
