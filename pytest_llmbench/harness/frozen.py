"""The frozen harness: its texts, policies and registered limits, and the signature over all of it."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Literal

from pydantic import Field

from pytest_llmbench.runtimes.base import Deadlines, Settings, Think
from pytest_llmbench.sandbox.jail import Limits
from pytest_llmbench.spec import ItemSpec, Strict

HERE = Path(__file__).resolve().parent
FROZEN = HERE / "frozen.toml"
SIGNATURES = HERE / "signatures.toml"

ProfileName = Literal["standard", "smoke"]
Sampling = Literal["greedy", "model"]
PROFILES: tuple[ProfileName, ...] = ("standard", "smoke")


class Limit(Strict):
    """One number that can limit a measurement."""

    value: int | float
    smoke: int | float | None = None
    unit: str
    state: Literal["measured", "uncalibrated", "decided"]
    why: str = Field(min_length=1)

    def under(self, profile: ProfileName) -> int | float:
        """The value in force under a profile."""
        return self.smoke if profile == "smoke" and self.smoke is not None else self.value


class ToolText(Strict):
    """One tool of agent items, in the words that the model gets."""

    description: str
    arguments: Mapping[str, str] = Field(default_factory=dict)
    optional: tuple[str, ...] = ()
    block: str | None = None
    """Its last argument, which may have several lines."""


class Harness(Strict):
    """``frozen.toml``."""

    version: str
    tool_protocol: Literal["text"]
    texts: Mapping[str, str]
    sampling: Mapping[Sampling, str]
    policies: Mapping[str, str]
    tools: Mapping[str, ToolText]
    limits: Mapping[str, Limit]


@cache
def harness() -> Harness:
    """The frozen harness of this installation."""
    return Harness.model_validate(tomllib.loads(FROZEN.read_text(encoding="utf-8")))


@cache
def signature() -> str:
    """SHA-256 over every file of the harness package but the list of signatures itself."""
    digest = hashlib.sha256()
    for path in sorted(p for p in HERE.rglob("*") if p.suffix in {".py", ".toml"} and p != SIGNATURES):
        digest.update(path.relative_to(HERE).as_posix().encode() + b"\0")
        digest.update(path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def signed_versions() -> Mapping[str, str]:
    """Signature per released harness version."""
    return tomllib.loads(SIGNATURES.read_text(encoding="utf-8"))["signatures"] if SIGNATURES.is_file() else {}


@dataclass(frozen=True)
class Profile:
    """The harness as it runs in one session: every cap, the sampling and the thinking state."""

    name: ProfileName = "standard"
    sampling: Sampling = "greedy"
    think: Think | None = None

    def limit(self, name: str) -> float:
        """A registered limit under this profile.

        Raises:
            KeyError: for a number that is not in the register.
        """
        return harness().limits[name].under(self.name)

    def count(self, name: str) -> int:
        """A registered limit that counts something."""
        return int(self.limit(name))

    def max_tokens(self, spec: ItemSpec) -> int:
        """Reply cap of an item: the profile's, or the item's own where that is lower."""
        cap = self.count("max_tokens")
        return min(cap, spec.caps.max_tokens) if spec.caps.max_tokens is not None else cap

    def seed(self, run: int) -> int:
        """Sampling seed of a run: registered for runs 1 to 3, derived from the run's number after that."""
        registered = harness().limits.get(f"seed_run_{run}")
        if registered is not None:
            return int(registered.value)
        return int.from_bytes(hashlib.sha256(f"run {run}".encode()).digest()[:2], "big")

    def sandbox(self) -> Limits:
        """What one confined program may use."""
        return Limits(
            cpu_s=self.limit("sandbox_cpu_s"),
            wall_s=self.limit("sandbox_wall_s"),
            memory_bytes=self.count("sandbox_memory_bytes"),
            processes=self.count("sandbox_processes"),
            open_files=self.count("sandbox_open_files"),
            file_bytes=self.count("sandbox_file_bytes"),
            disk_bytes=self.count("sandbox_disk_bytes"),
            files=self.count("sandbox_files"),
            output_bytes=self.count("sandbox_output_bytes"),
        )

    def settings(self) -> Settings:
        """What every call of the session is made under."""
        return Settings(
            context=self.count("context"),
            think=self.think,
            temperature=self.limit("temperature") if self.sampling == "greedy" else None,
            deadlines=Deadlines(
                connect_s=self.limit("connect_s"),
                first_token_s=self.limit("first_token_s"),
                stall_s=self.limit("stall_s"),
                call_s=self.limit("call_timeout_s"),
            ),
            reply_bytes=self.count("reply_bytes"),
            repetition_tail=self.count("repetition_tail"),
            repetition_period=self.count("repetition_period"),
            cold_load_s=self.limit("cold_load_s"),
            probe_tokens=self.count("probe_tokens"),
            attempts=self.count("runtime_attempts"),
        )


@dataclass(frozen=True)
class Rules:
    """What a conversation may use; a field's name is that of its limit."""

    agent_max_turns: int
    max_turns_without_tool: int
    same_calls: int
    max_tokens: int
    """Of all replies together."""
    agent_turn_tokens: int
    result_chars: int
    fault_timeout_s: int
    characters_per_token: int

    @classmethod
    def under(cls, profile: Profile, spec: ItemSpec) -> Rules:
        """The rules for an item under a profile."""
        counts = {name: profile.count(name) for name in cls.__dataclass_fields__}
        return cls(**{**counts, "max_tokens": profile.max_tokens(spec)})


def system_text() -> str:
    """The system message of every conversation."""
    return harness().texts["system"].strip()


def delivery_form(spec: ItemSpec) -> str:
    """How the reply has to be delivered, in the frozen words; the only place where the form is stated."""
    texts, parts = harness().texts, []
    if spec.answers is not None:
        line = Template(texts["answer_line"])
        lines = "\n".join(line.substitute(key=key) for key in spec.answers.keys)
        many = "s" if len(spec.answers.keys) > 1 else ""
        parts.append(Template(texts[f"answer{many}_{spec.answers.format}"]).substitute(lines=lines).strip())
    if spec.files:
        parts.append(Template(texts["files"]).substitute(names=", ".join(spec.files)).strip())
    return "\n\n".join(parts)
