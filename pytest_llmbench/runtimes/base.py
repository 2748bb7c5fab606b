"""What the harness says to a runtime and what it gets back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Role = Literal["system", "user", "assistant"]
Think = Literal["on", "off", "low", "medium", "high"]
Failure = Literal["runtime_error", "not_installed", "unsupported", "prompt_truncated", "harness_error"]
StopReason = Literal["stop", "max_tokens", "context_full", "call_timeout", "stall", "repetition", "reply_bytes"]


class RuntimeFailure(Exception):
    """A call that measured nothing: ``status`` says which unmeasured status the node gets, ``reason`` is one
    paragraph that names the thing and the way out. ``fatal``: no further call to this model can succeed."""

    def __init__(self, status: Failure, reason: str, *, fatal: bool = False) -> None:
        super().__init__(reason)
        self.status: Failure = status
        self.reason = reason
        self.fatal = fatal


@dataclass(frozen=True)
class Message:
    """One message of a history."""

    role: Role
    content: str
    images: tuple[bytes, ...] = ()
    """PNG files that go with it, in order."""


@dataclass(frozen=True)
class Deadlines:
    """Seconds after which a call is given up, each naming its own limit."""

    connect_s: float
    first_token_s: float
    stall_s: float
    call_s: float


@dataclass(frozen=True)
class Settings:
    """What a session asks of every call to a model; the same for all models."""

    context: int
    """Window asked for, in tokens."""
    think: Think | None
    """None: nothing is sent."""
    temperature: float | None
    """None: the model's own sampling settings; only the seed is sent."""
    deadlines: Deadlines
    reply_bytes: int
    """A reply that grows beyond this many bytes is cut (``stop_reason`` ``reply_bytes``)."""
    repetition_tail: int
    """Characters looked at when judging whether a reply runs in a circle."""
    repetition_period: int
    """Longest period, in characters, that counts as running in a circle."""
    cold_load_s: float
    """A load time above this many seconds means that the model was not loaded before the call."""
    probe_tokens: int
    """Reply cap of the warm-up and probe call."""
    attempts: int
    """So many failed calls in a row and the runtime is taken as dead."""


@dataclass(frozen=True)
class Request:
    """One call: an alternating history, its caps and its seed."""

    messages: Sequence[Message]
    max_tokens: int
    seed: int
    on_wire: Callable[[bytes], None] | None = None
    """Gets every piece of the response body as it came, before it is decoded."""
    on_piece: Callable[[str], None] | None = None
    """Gets every piece of the answer or the thinking as it comes; not every runtime hands them on."""


@dataclass(frozen=True)
class Usage:
    """Tokens and times of one call; None where the server did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    load_s: float | None = None
    prompt_s: float | None = None
    generation_s: float | None = None
    ttft_s: float | None = None
    """Seconds to the first token of any channel."""
    ttfa_s: float | None = None
    """Seconds to the first token of the answer itself."""
    longest_gap_s: float | None = None
    elapsed_s: float = 0.0
    reply_bytes: int = 0
    prompt_shared: float | None = None
    """Share of the prompt, 0 to 1, that the previous call to this model began with as well."""


@dataclass(frozen=True)
class Reply:
    """What one call gave. ``content`` is verbatim; thinking that came in a field of its own is kept apart."""

    content: str
    thinking: str = ""
    thinking_field: str | None = None
    """Name of the field the thinking came in: ``thinking``, ``reasoning`` or ``reasoning_content``."""
    stop_reason: StopReason = "stop"
    server_stop: str | None = None
    """The server's own word for why it stopped."""
    served_model: str | None = None
    usage: Usage = field(default_factory=Usage)
    flags: tuple[str, ...] = ()
    """Such as ``tool_calls_in_response``."""


@dataclass(frozen=True)
class Sight:
    """Whether a model takes pictures: what its runtime says, and what came of showing it some."""

    claimed: bool | None = None
    """None where the runtime does not say."""
    shown: int | None = None
    """Pictures of random codes that it was shown; None where it was shown none."""
    read: int | None = None
    """How many of them it read."""
    refusal: str | None = None
    """Why a picture could not be sent or answered."""

    @property
    def proven(self) -> bool:
        """Whether it read at least one of the pictures."""
        return bool(self.read)


@dataclass(frozen=True)
class ModelCard:
    """What is known about the model that answers. None where the runtime does not say."""

    ref: str
    runtime: str
    """``ollama``, ``openai``, ``embedded``, ``reference`` or ``replay``."""
    runtime_version: str | None = None
    server: str | None = None
    """What answers behind the OpenAI protocol: ``llama-server``, ``lm-studio``, ``vllm``, ``ollama`` or ``unknown``."""
    digest: str | None = None
    quantisation: str | None = None
    family: str | None = None
    parameters: str | None = None
    context: int | None = None
    """Window that one request really gets, in tokens."""
    context_trained: int | None = None
    capabilities: tuple[str, ...] = ()
    """What it takes and does. ``vision`` is the runtime's word until a picture was shown, and then what came of it."""
    sight: Sight = Sight()
    template: bool | None = None
    """Whether the model has a chat template with roles; None where the runtime does not say."""
    think: Think | None = None
    system_role: Literal["own", "merged"] | None = None
    """Whether the template takes a system message, or it stands at the head of the first user message."""
    names_checked: bool | None = None
    """Whether the server refuses a model name it does not know."""
    slots: int | None = None
    load_s: float | None = None
    probe_tokens_per_s: float | None = None
    endpoint: str | None = None
    """``loopback:PORT`` or ``remote``; never a host name."""
    notes: tuple[str, ...] = ()


class Runtime(Protocol):
    """One model behind one endpoint. Calls come one at a time.

    No system prompt of its own, no repair, no silent retry, no longer deadline than the one it was given.
    """

    ref: str
    endpoint: str | None
    """Key of the thing that must never get two requests at a time, such as a base URL; None where nothing is shared."""

    def open(self) -> ModelCard:
        """Find out what answers, check its identity and warm it up. Called once, before the first call.

        Raises:
            RuntimeFailure: where the model cannot be measured; always fatal.
        """

    def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """Exact length of the prompt in tokens, its pictures left out, where the runtime can tell without generating;
        else None."""

    def chat(self, request: Request) -> Reply:
        """One call.

        Raises:
            RuntimeFailure: where nothing was measured.
        """

    def close(self) -> float | None:
        """Probe the speed once more (tokens per second, None where not known), unload the model, free everything."""


Conversation = Callable[[Sequence[Message]], str]
"""A reference's side of a conversation: the history in, its next message out."""


class Scripted(Protocol):
    """A runtime that is no model: the harness hands it the conversation of the instance at hand."""

    ref: str

    def converse(self, conversation: Conversation) -> None:
        """Answer the next calls by this conversation."""


@dataclass(frozen=True)
class RuntimeOptions:
    """What a runtime factory gets besides the name of the model."""

    settings: Settings
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    environ: Mapping[str, str] = field(default_factory=dict)
    declared_context: int | None = None


RuntimeFactory = Callable[[str, str, RuntimeOptions], Runtime]
"""(ref, name behind the prefix, options) → runtime. Called when the first node of the model runs."""
