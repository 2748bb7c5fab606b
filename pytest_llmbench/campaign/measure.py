"""The road of one node: instance → conversation → transcript → delivery → rows → record."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import BinaryIO

import psutil

from pytest_llmbench import grading, sandbox
from pytest_llmbench.bank import Item
from pytest_llmbench.campaign.agents import conversation_of, converse_again, messages_of, tester
from pytest_llmbench.campaign.models import Model
from pytest_llmbench.campaign.observe import Live, Observed, Observer
from pytest_llmbench.campaign.validate import deviation
from pytest_llmbench.campaign.vision import VISION, blindness, look
from pytest_llmbench.faults import Schedule
from pytest_llmbench.grading.grade import Graded, GraderError, delivery_of, grade
from pytest_llmbench.harness.agent import Chat
from pytest_llmbench.harness.assignment import ReplayError, deliver, live
from pytest_llmbench.harness.frozen import Profile, harness, signature
from pytest_llmbench.harness.references import conversation
from pytest_llmbench.harness.single import Spoilt, ask, opening, turn_of
from pytest_llmbench.records import (
    SCORED,
    Again,
    AgentRecord,
    CapUse,
    Conditions,
    Fingerprints,
    Left,
    Record,
    Row,
    Speed,
    Status,
    TokenUse,
    Transcript,
    Turn,
    now,
)
from pytest_llmbench.runtimes.base import Message, ModelCard, Runtime, RuntimeFailure, Scripted
from pytest_llmbench.sandbox.jail import Sandbox, Unconfinable
from pytest_llmbench.spec import Delivery, Instance, Unavailable
from pytest_llmbench.store.fingerprints import code_fingerprint, compare, fingerprint
from pytest_llmbench.store.folder import RunFolder, StoreError, node_stem, write_piece

GRADER = (Path(grading.__file__).parent, Path(sandbox.__file__).parent)


def grader() -> str:
    """Fingerprint of all code that turns a delivery into rows, but for the items' own."""
    return fingerprint([code_fingerprint(folder) for folder in GRADER])


ALL_THE_SAME = "--llm-allow-unconfined runs the delivered code all the same; such scores are stamped and never rank."


MADE_HERE = ("messages", "faults", "harness")
"""Parts of a request that come from the item and the harness, and not from the model or the session's options."""
AGAIN = "again/"
NO_FAULTS = Schedule()
DONE = ("stop", "finish")
"""Ends of a conversation that the model chose itself."""
LARGEST = ("elapsed_s", "ttft_s", "longest_gap_s", "reply_bytes")
"""Figures of a call whose largest value counts against its cap."""


class Unmeasured(Exception):
    """A node that measured nothing; carries the status and the reason."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason = reason


@dataclass
class Measurement:
    """One item, one model, one run."""

    item: Item
    model: Model
    run: int
    variant: int
    profile: Profile
    folder: RunFolder
    bank: Mapping[str, str]
    """Version and checksum of the bank."""
    confine: Callable[[], Sandbox]
    """The sandbox of the session; raises ``Unconfinable`` where this machine offers none."""
    rows: list[Row] = field(default_factory=list)
    graded: Graded | None = None
    agent: AgentRecord | None = None
    schedule: Schedule = NO_FAULTS
    delivery: Delivery = field(default_factory=Delivery)
    transcript: Transcript | None = None
    started: str = field(default_factory=now)
    live: Live = field(default_factory=Live)
    """Where others can see what goes on."""
    place: str = ""
    """Sub-folder of its files in the run folder; ``again/`` for a second asking."""
    behind: Left = field(default_factory=Left)
    """What an earlier session left of this node."""
    again: Again | None = None
    clock_jump_s: float | None = None
    """Seconds by which the clock jumped meanwhile."""

    @cached_property
    def observer(self) -> Observer:
        """What tells the events of this node."""
        return Observer(self.folder, self.item.spec.id, self.run, self.model.spec.ref, self.live)

    @property
    def stem(self) -> str:
        return self.place + node_stem(self.item.spec.id, self.variant, self.run, self.model.spec.ref)

    @cached_property
    def instance(self) -> Instance:
        """The instance of this node, built once.

        Raises:
            Unmeasured: ``harness_error`` where the item's code fails.
        """
        try:
            return self.item.build(self.variant, self.run)
        except Unavailable as error:
            raise Unmeasured("unsupported", str(error)) from None
        except Exception as error:
            raise Unmeasured(
                "harness_error", f"building {self.item.spec.id} failed: {type(error).__name__}: {error}"
            ) from error

    @cached_property
    def sandbox(self) -> Sandbox | None:
        """Where the item's grader runs what was delivered; None for an item that runs nothing.

        Raises:
            Unmeasured: ``unsupported`` where this machine cannot confine.
        """
        if not self.item.spec.needs_sandbox:
            return None
        try:
            return self.confine()
        except Unconfinable as error:
            raise Unmeasured("unsupported", f"{error} {ALL_THE_SAME}") from None

    def perform(self, schedule: Schedule = NO_FAULTS) -> Delivery:
        """Have the conversation, or take it from a saved transcript, and take apart what came of it.

        Args:
            schedule: the faults that an agent's tools have.

        Raises:
            Unmeasured: where nothing was measured.
        """
        self.observer.begin()
        instance = self.instance
        self.schedule = schedule
        self.sandbox  # noqa: B018  # what cannot be graded is not asked for
        agent = instance.spec.mode == "agent"
        if self.behind.transcript is not None:
            self.transcript = self.behind.transcript
        elif self.model.spec.source is not None:
            self.transcript = self._saved(self._messages())
            self.folder.write(self._transcript_name, self.transcript)
        else:
            self.transcript = self._converse(instance, self._messages())
            self.folder.write(self._transcript_name, self.transcript)
        if self.transcript.failure is not None:
            raise Unmeasured(_status(self.transcript.failure["status"]), self.transcript.failure["reason"])
        self.delivery = self._work_again(self.transcript) if agent else take_apart(instance, self.transcript)
        self.folder.write_delivery(self.stem, self.delivery)
        return self.delivery

    def _messages(self) -> list[Message]:
        """What the conversation opens with."""
        agent = self.instance.spec.mode == "agent"
        return messages_of(self.instance, self.profile) if agent else opening(self.instance)

    def look_back(self, schedule: Schedule, card: ModelCard | None = None, *, twice: bool = False) -> Left:
        """What an earlier session left of this node in its run folder, held against what would be asked now.

        Args:
            schedule: the faults that an agent's tools have now.
            card: of the model that answers now; None holds everything but the model against it.
            twice: the node is to be asked a second time, too.

        Raises:
            Unmeasured: ``harness_error`` where the instance cannot be built.
        """
        self.schedule = schedule
        try:
            saved = self.folder.transcript(self.stem)
            second = self.folder.transcript(AGAIN + self.stem) if twice else None
        except StoreError:
            return Left(why="its transcript is torn")
        if saved is None:
            return Left(why="not measured yet")
        if saved.failure is not None:
            return Left(why=saved.failure["status"])
        if (saved.end is None and self.item.spec.mode == "agent") or (twice and second is None):
            return Left(why="cut in its conversation")
        differs = self._differs(saved, self._messages(), card)
        if differs:
            return Left(why=f"{', '.join(differs)} changed")
        return Left(saved, self._kept(saved))

    def _kept(self, saved: Transcript) -> Record | None:
        """The record of a saved transcript, where today's code would grade it the same way."""
        try:
            record = self.folder.record(self.stem)
        except StoreError:
            return None
        if record is None or record.status not in SCORED:
            return None
        return record if record.fingerprints == replace(self, transcript=saved).fingerprints() else None

    def ask_again(self) -> None:
        """Ask the same instance a second time with the same seed, and hold both answers against each other."""
        saved = self.folder.transcript(AGAIN + self.stem) if self.behind.transcript else None
        second = replace(self, place=AGAIN, rows=[], graded=None, agent=None, transcript=None, behind=Left(saved))
        first, points = self.transcript, sum((row.earned for row in self.rows), Decimal(0))
        try:
            rows = second.grade(second.perform(self.schedule))
            points_again, reason = sum((row.earned for row in rows), Decimal(0)), None
        except Unmeasured as error:
            points_again, reason = None, redacted(f"{error.status}: {error.reason}")
        said, said_again = _replies(first), _replies(second.transcript)
        self.again = Again(
            equal_text=_texts(said) == _texts(said_again) if reason is None else None,
            tokens=_usage(said).completion_tokens,
            tokens_again=_usage(said_again).completion_tokens,
            points=points,
            points_again=points_again,
            reason=reason,
        )

    @property
    def _transcript_name(self) -> str:
        return f"transcripts/{self.stem}.json"

    def _work_again(self, transcript: Transcript) -> Delivery:
        """What a saved conversation of an agent leaves behind; nothing but the saved replies is used."""
        try:
            done = converse_again(self.item, self.instance, self.schedule, self.profile, transcript)
        except ReplayError as error:
            raise Unmeasured("harness_error", str(error)) from error
        self.agent = done.record()
        return deliver(self.instance, done)

    def grade(self, delivery: Delivery) -> Sequence[Row]:
        """The rows of a delivery. A reference is held to its declared score.

        Raises:
            Unmeasured: ``harness_error`` where the grader broke or a reference earned another score than declared.
        """
        instance = self.instance
        try:
            self.graded = grade(self.item.task, instance, delivery, self.sandbox)
        except GraderError as error:
            raise Unmeasured("harness_error", str(error)) from error
        if (wrong := deviation(self.model.spec, self.item, self.graded.rows)) is not None:
            raise Unmeasured("harness_error", wrong)
        return self.graded.rows

    def record(self, rows: Sequence[Row], failure: Unmeasured | None = None) -> Record:
        """The record of this node, written to disk."""
        spec, transcript = self.item.spec, self.transcript
        replies = _replies(transcript)
        last = replies[-1] if replies else None
        status: Status = failure.status if failure else "measured"
        reason = redacted(failure.reason) if failure else self.delivery.no_answer
        stop = (transcript.end if transcript and transcript.end else None) or (last.stop_reason if last else None)
        if failure is None and reason is not None and last is not None and stop not in DONE:
            status = "not_converged"
        scored = failure is None
        usage = _usage(replies)
        caps = self._caps(replies, usage)
        record = Record(
            item=spec.id,
            title=spec.title,
            item_version=spec.version,
            level=spec.level,
            mode=spec.mode,
            variant=self.variant,
            run=self.run,
            ref=self.model.spec.ref,
            status=status,
            reason=reason,
            points=sum((row.earned for row in rows), Decimal(0)) if scored else None,
            points_max=spec.points,
            rows=list(rows) if scored else [],
            flags=[*self.delivery.flags, *(last.flags if last else ())],
            repairs=list(self.graded.repairs if self.graded else self.delivery.repairs),
            confinement=self.sandbox.layer if scored and self.sandbox else None,
            agent=self.agent,
            stop_reason=stop,
            usage=usage,
            speed=self._speed(replies),
            caps=caps,
            edge=[name for name, use in caps.items() if use.share >= self.profile.limit("edge_share")],
            again=self.again,
            clock_jump_s=self.clock_jump_s,
            concurrency=self.concurrency,
            conditions=conditions(),
            profile=self.profile.name,
            sampling=self.profile.sampling,
            think=self.profile.think,
            fingerprints=self.fingerprints(),
            harness_version=harness().version,
            bank_version=self.bank["version"],
            started=transcript.started if transcript else self.started,
            finished=transcript.finished if transcript else now(),
        )
        self.folder.write_record(record)
        self.observer.finish(record)
        return record

    def fingerprints(self) -> Fingerprints:
        parts = dict(self.transcript.fingerprints) if self.transcript else {}
        return Fingerprints(
            request=fingerprint(parts),
            parts=parts,
            item=self.item.checksum,
            grader=fingerprint([grader(), self.item.checksum]),
            harness=signature(),
            bank=self.bank["checksum"],
        )

    @property
    def concurrency(self) -> int:
        """Requests that the endpoint was allowed to get at a time when the node was, or is, measured."""
        parts = self.transcript.fingerprints if self.transcript else {}
        return int(parts.get("concurrency", self.model.concurrency))

    def _parts(self, messages: Sequence[Message], card: ModelCard | None) -> dict[str, str]:
        return {
            "messages": fingerprint([_sent(message) for message in messages]),
            "model": (card.digest or card.ref) if card else self.model.spec.ref,
            "quantisation": (card.quantisation or "") if card else "",
            "num_ctx": str(card.context) if card else "",
            "max_tokens": str(self.profile.max_tokens(self.item.spec)),
            "sampling": self.profile.sampling,
            "think": self.profile.think or "",
            "seed": str(self.profile.seed(self.run)),
            "run": str(self.run),
            "variant": str(self.variant),
            "profile": self.profile.name,
            "harness": harness().version,
            **({"faults": fingerprint(list(map(repr, self.schedule.faults)))} if self.schedule.faults else {}),
            **({"concurrency": str(self.model.concurrency)} if self.model.concurrency > 1 else {}),
        }

    def _converse(self, instance: Instance, messages: list[Message], cap: int | None = None) -> Transcript:
        cap = self.profile.max_tokens(self.item.spec) if cap is None else cap
        seed, more = self.profile.seed(self.run), self.transcript is not None
        turns = [turn_of(message) for message in messages]
        failure: RuntimeFailure | None = None
        card: ModelCard | None = None
        end: str | None = None
        started = now()
        try:
            fresh = self.model.runtime is None or self.model.card is None
            self.observer.opens()
            runtime, card = self.model.open()
            self.observer.opened(card, fresh=fresh)
            card = self._check_needs(runtime, card)
            runtime = Observed(runtime, self.observer)
            if self.model.spec.is_reference:
                self._script(instance)
            started = now()
            with self.model.exclusive(), self.folder.wire(self.stem, more=more) as wire:
                if instance.spec.mode == "agent":
                    chat = live(runtime, card, self.profile, seed, keep_wire(wire))
                    end = self._work(chat, turns, lambda: self._transcript(turns, None, None, card, messages, started))
                else:
                    turns.append(ask(messages, cap, seed, runtime, card, self.profile, keep_wire(wire)))
        except RuntimeFailure as error:
            failure = error
            self.model.broke(error)
            if isinstance(error, Spoilt):
                turns.append(error.turn)
        return self._transcript(turns, failure, end, card, messages, started)

    def _check_needs(self, runtime: Runtime, card: ModelCard) -> ModelCard:
        """The card, for an item with pictures with what was found out about the model's sight.

        Raises:
            RuntimeFailure: ``unsupported`` where the model cannot take what the item needs.
        """
        if VISION not in self.item.spec.needs or self.model.spec.is_reference:
            return card
        if card.sight.shown is None and card.sight.claimed is not False:
            since = time.monotonic()
            with self.model.exclusive():
                card = self.model.card = look(runtime, card, self.profile)
            self.observer.looked(card, since)
        if (why := blindness(card.ref, card.sight)) is not None:
            raise RuntimeFailure("unsupported", why)
        return card

    def _work(self, chat: Chat, turns: list[Turn], so_far: Callable[[], Transcript]) -> str | None:
        """Have the conversation of an agent, saved after every step; gives what ended it."""
        folder, name = self.folder, self._transcript_name

        def save(said: Sequence[Turn]) -> None:
            turns[:] = said
            folder.write_compact(name, so_far())
            self.observer.steps(said)

        run_tests = tester(self.sandbox)
        work = conversation_of(self.item, self.instance, self.schedule, self.profile, chat, run_tests, save)
        try:
            work.work()
        finally:
            turns[:] = work.turns or turns
        self.observer.ended(work.end)
        return work.end

    def _transcript(
        self,
        turns: Sequence[Turn],
        failure: RuntimeFailure | None,
        end: str | None,
        card: ModelCard | None,
        messages: Sequence[Message],
        started: str,
    ) -> Transcript:
        return Transcript(
            item=self.item.spec.id,
            variant=self.variant,
            run=self.run,
            ref=self.model.spec.ref,
            turns=list(turns),
            failure={"status": failure.status, "reason": redacted(failure.reason)} if failure else None,
            end=end,
            max_tokens=self.profile.max_tokens(self.item.spec),
            context=card.context if card else None,
            seed=self.profile.seed(self.run),
            fingerprints=self._parts(messages, card),
            started=started,
            finished=now(),
        )

    def _script(self, instance: Instance) -> None:
        runtime = self.model.runtime
        spec = self.model.spec
        try:
            script = conversation(spec.kind, spec.name, self.item.task, instance)
        except Exception as error:
            raise Unmeasured("harness_error", f"reference {spec.ref} of {self.item.spec.id}: {error!r}") from error
        if runtime is not None:
            scripted: Scripted = runtime  # type: ignore[assignment]
            scripted.converse(script)

    def _saved(self, messages: Sequence[Message]) -> Transcript:
        source = self.model.spec.source
        assert source is not None
        try:
            saved = RunFolder(source).transcript(self.stem)
        except StoreError as error:
            raise Unmeasured("harness_error", str(error)) from error
        if saved is None:
            raise Unmeasured("unsupported", f"no transcript of this node is saved in {source.name}")
        differs = self._differs(saved, messages, None)
        if differs:
            raise Unmeasured(
                "unsupported",
                f"the saved reply answers another request: {', '.join(differs)} differ. "
                "It can only be graded by the version of the bank and harness that it was made with.",
            )
        return saved

    def _differs(self, saved: Transcript, messages: Sequence[Message], card: ModelCard | None) -> Sequence[str]:
        """Parts of the request that a saved transcript answers which differ now; without a card only those that the
        item and the harness make."""
        now_sent = self._parts(messages, card)
        if card is None:
            own = {name: now_sent.get(name) for name in MADE_HERE}
            return compare(saved.fingerprints, {**saved.fingerprints, **own}, "", "").differs
        return compare(saved.fingerprints, now_sent, "", "").differs

    def _caps(self, replies: Sequence[Turn], usage: TokenUse) -> dict[str, CapUse]:
        if not replies or self.model.spec.is_reference or self.transcript is None:
            return {}
        last = replies[-1].usage or {}
        calls = [turn.usage or {} for turn in replies]
        call = {name: max((c[name] for c in calls if c.get(name) is not None), default=None) for name in LARGEST}
        used: dict[str, tuple[float | None, float]] = {
            "max_tokens": (usage.completion_tokens, self.transcript.max_tokens),
            "call_timeout_s": (call.get("elapsed_s"), self.profile.limit("call_timeout_s")),
            "first_token_s": (call.get("ttft_s"), self.profile.limit("first_token_s")),
            "stall_s": (call.get("longest_gap_s"), self.profile.limit("stall_s")),
            "reply_bytes": (call.get("reply_bytes"), self.profile.limit("reply_bytes")),
        }
        if self.transcript.context is not None and last.get("prompt_tokens") is not None:
            length = last["prompt_tokens"] + (last.get("completion_tokens") or 0)
            used["context"] = (length, self.transcript.context)
        if self.agent is not None:
            used["agent_max_turns"] = (self.agent.turns, self.profile.limit("agent_max_turns"))
        return {
            name: CapUse(used=round(value, 3), cap=cap, share=round(value / cap, 4))
            for name, (value, cap) in used.items()
            if value is not None
        }

    def _speed(self, replies: Sequence[Turn]) -> Speed:
        call = (replies[0].usage or {}) if replies else {}
        return (
            speed(call, cold_load_s=self.profile.limit("cold_load_s"), cache_share=self.profile.limit("cache_share"))
            if call and not self.model.spec.is_reference
            else Speed()
        )


def keep_wire(wire: BinaryIO) -> Callable[[bytes], None]:
    """What takes the bytes of a reply to disk as they come; a disk that refuses them ends the session."""
    return partial(write_piece, wire)


def _status(name: str) -> Status:
    return name  # type: ignore[return-value]


def take_apart(instance: Instance, transcript: Transcript) -> Delivery:
    """The delivery of a transcript's last reply."""
    spec = instance.spec
    reply = next((turn for turn in reversed(transcript.turns) if turn.role == "assistant"), None)
    if reply is None:
        return Delivery(no_answer="empty_reply")
    usage = reply.usage or {}
    exhausted = reply.stop_reason == "max_tokens" or (usage.get("completion_tokens") or 0) >= transcript.max_tokens
    return delivery_of(spec, reply.content, reply.thinking, exhausted=exhausted)


def speed(call: Mapping[str, float | None], *, cold_load_s: float, cache_share: float) -> Speed:
    """Speeds of one call from its usage: generation from the time spent generating, a prompt speed only where the
    prompt was processed and not taken from the cache."""
    prompt_tokens, prompt_s = call.get("prompt_tokens"), call.get("prompt_s")
    completion, generation_s = call.get("completion_tokens"), call.get("generation_s")
    cached, shared, load_s = call.get("cached_tokens"), call.get("prompt_shared"), call.get("load_s")
    if cached is not None and prompt_tokens:
        assisted: bool | None = cached / prompt_tokens > cache_share
    else:
        assisted = shared > cache_share if shared is not None else None
    kind = "unknown" if prompt_tokens is None or prompt_s is None else "cache_assisted" if assisted else "cold"
    return Speed(
        load_s=load_s,
        cold=load_s > cold_load_s if load_s is not None else None,
        ttft_s=call.get("ttft_s"),
        ttfa_s=call.get("ttfa_s"),
        prompt_speed=kind,  # type: ignore[arg-type]
        prompt_tokens_per_s=round(prompt_tokens / prompt_s, 1)
        if kind == "cold" and prompt_tokens and prompt_s
        else None,
        generation_tokens_per_s=round(completion / generation_s, 2) if completion and generation_s else None,
    )


def _sent(message: Message) -> list[object]:
    images = [hashlib.sha256(image).hexdigest() for image in message.images]
    return [message.role, message.content, *([images] if images else [])]


def _replies(transcript: Transcript | None) -> list[Turn]:
    return [turn for turn in transcript.turns if turn.role == "assistant"] if transcript else []


def _texts(replies: Sequence[Turn]) -> list[tuple[str, str]]:
    return [(turn.content, turn.thinking) for turn in replies]


def _usage(replies: Sequence[Turn]) -> TokenUse:
    calls = [turn.usage or {} for turn in replies]

    def total(name: str) -> int | None:
        known = [call[name] for call in calls if call.get(name) is not None]
        return sum(known) if known and len(known) == len(calls) else None

    return TokenUse(
        calls=len(calls),
        prompt_tokens=total("prompt_tokens"),
        completion_tokens=total("completion_tokens"),
        cached_tokens=total("cached_tokens"),
        elapsed_s=round(sum(call.get("elapsed_s") or 0.0 for call in calls), 3),
    )


def conditions() -> Conditions:
    """State of the machine now."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return Conditions(
        swap_used_mb=round(psutil.swap_memory().used / 2**20, 1),
        memory_available_mb=round(psutil.virtual_memory().available / 2**20, 1),
        load_1min=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        on_battery=not battery.power_plugged if battery is not None else None,
    )


URL_HOST = re.compile(r"(https?://)([^\s/:\[\]]+|\[[^\s\]]*\])")
UNSAID = "<host>"
"""What stands for a host name that is not said."""
LOOPBACK = frozenset({"localhost", "[::1]"})


def redacted(text: str) -> str:
    """``text`` on one line, without the user's home folder and without host names other than loopback."""
    home = str(Path.home())
    short = " ".join(text.replace(home, "~").split()) if len(home) > 1 else " ".join(text.split())
    return URL_HOST.sub(
        lambda url: url[0] if url[2] in LOOPBACK or url[2].startswith("127.") else f"{url[1]}{UNSAID}", short
    )
