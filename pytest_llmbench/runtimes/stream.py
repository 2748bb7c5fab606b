"""What both HTTP runtimes share: one streamed call with its deadlines, decoding, accounting and failures."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import math
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx

from pytest_llmbench.runtimes.base import (
    Deadlines,
    Message,
    ModelCard,
    Reply,
    Request,
    RuntimeFailure,
    RuntimeOptions,
    Settings,
    StopReason,
    Usage,
)

REPETITION_STEP: Final = 256
"""New characters between two looks at whether a reply runs in a circle."""
BODY_BYTES: Final = 16 * 1024 * 1024
"""Longest body of a plain answer, and longest single line of a stream; more is a fault of the server."""
QUEUE_CHUNKS: Final = 1024
"""Chunks that the reader thread may be ahead of the calling thread."""
JOIN_S: Final = 2.0
"""Seconds that an aborted reader thread gets to end; it is a daemon, so that nothing hangs on it."""
POLL_S: Final = 0.05
"""Seconds between two looks at something that has no notification."""
TICK_S: Final = 0.2
"""Longest uninterrupted wait: Ctrl-C is noticed after it even where another thread got the signal."""
ERROR_CHARS: Final = 500
"""Characters of a server's error text that are repeated in a reason."""
SECRET_CHARS: Final = 8
"""An API key shorter than this is a placeholder such as ``none``; it is not cut out of replies."""
CHARACTERS_PER_TOKEN: Final = 4
"""Estimate of a prompt's length in tokens where the server does not say."""
SECONDS_PER_NS: Final = 1e-9
SECONDS_PER_MS: Final = 1e-3
UNREADABLE: Final = "(no URL)"
REDACTED: Final = "[API key]"
THINKING_FIELDS: Final = ("thinking", "reasoning", "reasoning_content")
TEMPLATE_WORDS: Final = ("jinja", "template", "roles must alternate")
SYSTEM_WORDS: Final = (*TEMPLATE_WORDS, "system", "role")
PICTURE_WORDS: Final = ("image input", "image_url", "multimodal", "multi-modal")
"""Words with which servers say that a model, or they themselves, take no pictures."""
PROBE_SYSTEM: Final = "You are a helpful assistant."
PROBE_USER: Final = "Count from one to twenty in words."
SURROGATES: Final = ("\ud800", "\udfff")

Limit = Literal["first_token", "stall", "call"]
Clock = Callable[[], float]


# Reading what a server sent: everything may be missing or of another type.


def as_dict(value: object) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str | None:
    """The value if it is a non-empty string, else None."""
    return value if isinstance(value, str) and value else None


def as_number(value: object) -> float | None:
    """The value if it is a finite number of at least 0, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if number >= 0 and math.isfinite(number) else None


def as_count(value: object) -> int | None:
    """The value if it is a whole number of at least 0, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def scaled(value: object, unit: float) -> float | None:
    """A duration given in ``unit`` seconds, in seconds."""
    number = as_number(value)
    return None if number is None else number * unit


def parse_json(text: str) -> Any:
    """JSON text → value; None where it is no JSON (or deeper than Python reads)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def error_text(body: object) -> str:
    """The server's own words for an error, out of any of the usual shapes, at most `ERROR_CHARS` characters."""
    data = as_dict(body)
    error = data.get("error", data.get("detail", data.get("message", body)))
    if isinstance(error, dict):
        error = error.get("message", error)
    text = error if isinstance(error, str) else "" if error is None else json.dumps(error, ensure_ascii=False)
    return " ".join(text[:ERROR_CHARS].split())


def thinking_of(message: Mapping[str, Any]) -> tuple[str | None, str]:
    """(name of the field, text) of the first thinking field that is not empty; (None, "") without one."""
    for name in THINKING_FIELDS:
        text = as_text(message.get(name))
        if text is not None:
            return name, text
    return None, ""


def content_of(message: Mapping[str, Any]) -> str:
    """The text of a message; null is "" and a list of parts gives the text of its parts.

    Raises:
        RuntimeFailure: ``runtime_error`` where it is anything else.
    """
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, list):
        content = "".join(as_text(as_dict(part).get("text")) or "" for part in content)
    if not isinstance(content, str):
        raise RuntimeFailure("runtime_error", f"the server sent a message whose content is a {type(content).__name__}")
    return content


def mentions(text: str, words: Sequence[str]) -> bool:
    """Whether the text has one of the (lower-case) words, in any case."""
    lowered = text.lower()
    return any(word in lowered for word in words)


def encoded(image: bytes) -> str:
    """A picture in base64, on one line."""
    return base64.b64encode(image).decode("ascii")


def same_model(one: str, other: str) -> bool:
    """Whether two names mean the same model: case and the tag ``:latest`` make no difference."""
    return one.lower().removesuffix(":latest") == other.lower().removesuffix(":latest")


def alternate(messages: Sequence[Message], merge_system: bool) -> list[Message]:
    """A history as strict chat templates want it: no two neighbours of the same role.

    Neighbours of the same role become one message with the pictures of all, a blank line between their texts. With
    ``merge_system`` no system message is left: its text stands at the head of the first user message.
    """
    merged: list[Message] = []
    for message in messages:
        role = "user" if merge_system and message.role == "system" else message.role
        if merged and merged[-1].role == role:
            parts = [part for part in (merged[-1].content, message.content) if part]
            merged[-1] = Message(role, "\n\n".join(parts), merged[-1].images + message.images)
        else:
            merged.append(Message(role, message.content, message.images))
    return merged


def shared_start(prompt: str, previous: str) -> float:
    """Share of the prompt's characters, 0 to 1, that the previous prompt began with as well."""
    pairs = enumerate(zip(prompt, previous, strict=False))
    common = next((index for index, (one, other) in pairs if one != other), min(len(prompt), len(previous)))
    return common / len(prompt) if prompt else 0.0


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shown(url: str) -> str:
    """A URL without user, password, query and fragment, for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return UNREADABLE
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[-1]}{parts.path}"


def place(url: str) -> str:
    """``loopback:PORT`` or ``remote``."""
    parts = urlsplit(url)
    default = "443" if parts.scheme == "https" else "80"
    return f"loopback:{parts.port or default}" if is_loopback(parts.hostname or "") else "remote"


# Pure decisions of a call.


class CallClock:
    """Decides when a call is given up, and keeps its times. All times in seconds of one monotonic clock.

    Bytes that are no tokens, such as keep-alive comments, move nothing.
    """

    def __init__(self, deadlines: Deadlines, clock: Clock = time.monotonic) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self.start = clock()
        self.first: float | None = None
        self.first_answer: float | None = None
        self.last: float | None = None
        self.longest_gap: float | None = None

    def token(self, at: float, answer: bool) -> None:
        """A token of any channel came; ``answer`` where it belongs to the answer itself."""
        if self.last is not None:
            self.longest_gap = max(self.longest_gap or 0.0, at - self.last)
        if self.first is None:
            self.first = at
        if answer and self.first_answer is None:
            self.first_answer = at
        self.last = at

    def deadline(self) -> tuple[float, Limit]:
        """The moment at which the call is given up if nothing comes, and the limit that says so."""
        whole: tuple[float, Limit] = (self.start + self._deadlines.call_s, "call")
        if self.last is None:
            return min((self.start + self._deadlines.first_token_s, "first_token"), whole, key=lambda pair: pair[0])
        return min((self.last + self._deadlines.stall_s, "stall"), whole, key=lambda pair: pair[0])

    def expired(self, now: float | None = None) -> Limit | None:
        """The limit that has run out, None while there is time."""
        at, limit = self.deadline()
        return limit if (self._clock() if now is None else now) >= at else None

    def remaining(self) -> float:
        """Seconds until the next deadline, at least 0."""
        return max(0.0, self.deadline()[0] - self._clock())

    def since_start(self, at: float | None) -> float | None:
        """Seconds from the start of the call to ``at``."""
        return None if at is None else at - self.start


def smallest_period(text: str) -> int:
    """Length of the shortest block whose repetition (the last one may be cut) gives the text; linear time."""
    border = [0] * len(text)
    length = 0
    for index in range(1, len(text)):
        while length and text[index] != text[length]:
            length = border[length - 1]
        if text[index] == text[length]:
            length += 1
        border[index] = length
    return len(text) - border[-1] if text else 0


class RepetitionGuard:
    """Judges while a text grows whether its last ``tail`` characters are one block of at most ``period`` characters
    over and over, or nothing but white space."""

    def __init__(self, tail: int, period: int) -> None:
        self._size = tail
        self._period = period
        self._tail = ""
        self._unseen = 0

    def feed(self, text: str) -> bool:
        """More text came. True where the text now runs in a circle."""
        self._tail = (self._tail + text)[-self._size :]
        self._unseen += len(text)
        if self._unseen < REPETITION_STEP or len(self._tail) < self._size:
            return False
        self._unseen = 0
        period = smallest_period(self._tail)
        return self._tail.isspace() or (period <= self._period and 2 * period <= len(self._tail))


class Lines:
    """Bytes as they come → whole lines, decoded as UTF-8 only when they are whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that this chunk ends, without their line end.

        Raises:
            RuntimeFailure: ``runtime_error`` where one line grows beyond `BODY_BYTES`.
        """
        searched = len(self._buffer)
        self._buffer += chunk
        if self._buffer.find(b"\n", searched) < 0:
            if len(self._buffer) > BODY_BYTES:
                raise RuntimeFailure("runtime_error", f"the server sent a line of more than {BODY_BYTES} bytes")
            return []
        *whole, rest = self._buffer.split(b"\n")
        self._buffer = rest
        return [self._decode(line) for line in whole]

    def flush(self) -> list[str]:
        """The last line where it had no line end."""
        rest, self._buffer = self._buffer, bytearray()
        return [self._decode(rest)] if rest else []

    @staticmethod
    def _decode(line: bytearray) -> str:
        return line.decode("utf-8", errors="replace").removesuffix("\r")


class Redactor:
    """Cuts a secret out of a stream of bytes, also where a chunk border lies inside it."""

    def __init__(self, secret: str | None) -> None:
        self._secret = secret.encode() if secret and len(secret) >= SECRET_CHARS else b""
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """The chunk without the secret; what may be the beginning of one is held back until the next chunk."""
        if not self._secret:
            return chunk
        text = (self._held + chunk).replace(self._secret, REDACTED.encode())
        keep = min(len(text), len(self._secret) - 1)
        while keep and not self._secret.startswith(text[-keep:]):
            keep -= 1
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> bytes:
        """What was held back."""
        rest, self._held = self._held, b""
        return rest


# The network.


@dataclass(frozen=True)
class Answer:
    """A whole answer: ``body`` is its JSON value (None where it is no JSON), ``text`` its text."""

    status: int
    text: str
    body: Any

    @property
    def ok(self) -> bool:
        return self.status == httpx.codes.OK

    @property
    def error(self) -> str:
        return error_text(self.body if self.body is not None else self.text)


class UnreachableError(Exception):
    """The connection failed: the text says how, without any secret."""


@dataclass(frozen=True)
class _Head:
    status: int


@dataclass(frozen=True)
class _End:
    error: UnreachableError | None = None


class Exchange:
    """One HTTP request whose answer a thread of its own reads, so that the caller can give up at any moment.

    Use as a context manager: leaving it shuts the socket down.
    """

    def __init__(self, wire: Wire, method: str, path: str, body: object) -> None:
        self._wire = wire
        self._items: queue.Queue[tuple[float, _Head | bytes | _End]] = queue.Queue(QUEUE_CHUNKS)
        self._given_up = threading.Event()
        self._socket: socket.socket | None = None
        content = None if body is None else json.dumps(body).encode()
        self._thread = threading.Thread(target=self._read, args=(method, path, content), daemon=True)

    def __enter__(self) -> Exchange:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._given_up.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it may be closed already
                self._socket.shutdown(socket.SHUT_RDWR)
        until = time.monotonic() + JOIN_S
        while self._thread.is_alive() and time.monotonic() < until:
            while not self._items.empty():
                self._items.get_nowait()
            self._thread.join(POLL_S)

    def next(self, timeout: float) -> tuple[float, _Head | bytes | _End] | None:
        """The next piece and the moment it came: head, chunks, end. None where nothing comes for ``timeout`` s."""
        until = time.monotonic() + timeout
        while True:
            try:
                return self._items.get(timeout=min(TICK_S, max(0.0, until - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= until:
                    return None

    def _put(self, item: _Head | bytes | _End) -> None:
        at = time.monotonic()
        while not self._given_up.is_set():
            try:
                return self._items.put((at, item), timeout=POLL_S)
            except queue.Full:
                continue

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._given_up.is_set():
                raise httpx.ReadError("given up")

    def _read(self, method: str, path: str, content: bytes | None) -> None:
        try:
            with self._wire.client.stream(method, path, content=content, extensions={"trace": self._trace}) as response:
                self._put(_Head(response.status_code))
                for chunk in response.iter_bytes():
                    if self._given_up.is_set():
                        return
                    self._put(chunk)
            self._put(_End())
        except httpx.LocalProtocolError as error:
            self._put(_End(UnreachableError(type(error).__name__)))  # its text may show a header
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            self._put(_End(UnreachableError(self._wire.clean(f"{type(error).__name__}: {error}"))))
        except Exception as error:
            self._put(_End(UnreachableError(type(error).__name__)))


class Wire:
    """A server under one base URL. One connection per request; redirects are never followed; proxies are asked only
    for hosts other than this machine. The API key goes into the header and into no text."""

    def __init__(self, url: str, deadlines: Deadlines, api_key: str | None = None) -> None:
        host = ""
        try:
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") and parts.port != 0:
                host = parts.hostname or ""
        except ValueError:
            pass  # a port that is no number, or a broken IPv6 address
        if not host:
            raise RuntimeFailure("runtime_error", f"{shown(url)!r} is no http:// or https:// URL", fatal=True)
        self.url = shown(url).rstrip("/")
        self._key = (api_key or "").strip()
        if not self._key.isascii() or (self._key and not self._key.isprintable()):
            reason = "the API key holds characters that no HTTP header can carry: set it again, ASCII only"
            raise RuntimeFailure("runtime_error", reason, fatal=True)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self.client = httpx.Client(
            base_url=url.rstrip("/"),
            headers=headers,
            trust_env=not is_loopback(host),
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=deadlines.connect_s),
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def clean(self, text: str) -> str:
        """The text without the API key."""
        return text.replace(self._key, REDACTED) if self._key else text

    def redactor(self) -> Redactor:
        """Cuts the API key out of one stream."""
        return Redactor(self._key)

    def ask(self, method: str, path: str, body: object = None, *, limit_s: float) -> Answer:
        """One request with a plain answer, whole within ``limit_s`` seconds.

        Raises:
            UnreachableError: the connection failed, or the time ran out (`TimedOutError`).
            RuntimeFailure: ``runtime_error``, the answer is longer than `BODY_BYTES`.
        """
        until = time.monotonic() + limit_s
        status = 0
        data = bytearray()
        with Exchange(self, method, path, body) as exchange:
            while True:
                piece = exchange.next(max(0.0, until - time.monotonic()))
                if piece is None or piece[0] > until:
                    raise TimedOutError(f"no whole answer within {limit_s:g} s")
                item = piece[1]
                if isinstance(item, _Head):
                    status = item.status
                elif isinstance(item, bytes):
                    data += item
                    if len(data) > BODY_BYTES:
                        reason = f"{self.url}{path} answers with more than {BODY_BYTES} bytes"
                        raise RuntimeFailure("runtime_error", reason)
                elif item.error is not None:
                    raise item.error
                else:
                    break
        text = self.clean(data.decode("utf-8", errors="replace"))
        return Answer(status, text, parse_json(text))

    def close(self) -> None:
        self.client.close()


class TimedOutError(UnreachableError):
    """The server holds the connection and does not answer."""


# The call.


@dataclass(frozen=True)
class Event:
    """What one line of a stream says."""

    content: str = ""
    thinking: str = ""
    thinking_field: str | None = None
    tool_calls: bool = False
    finish: str | None = None
    """The server's word for why it stopped."""
    model: str | None = None
    done: bool = False
    """The line that ends a whole stream."""
    usage: Usage | None = None


@dataclass
class Said:
    """What a call has given so far."""

    clock: CallClock
    on_piece: Callable[[str], None] | None = None
    """Gets every piece as it is taken up."""
    content: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    thinking_field: str | None = None
    tool_calls: bool = False
    finish: str | None = None
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    bytes: int = 0
    last_event: float | None = None
    ended: float | None = None
    done: bool = False
    stopped: StopReason | None = None

    def take(self, event: Event, at: float) -> None:
        """Add one event that came at ``at``."""
        if event.content or event.thinking or event.tool_calls:
            self.clock.token(at, bool(event.content))
        self.last_event = at
        self.content.append(event.content)
        self.thinking.append(event.thinking)
        self.thinking_field = self.thinking_field or event.thinking_field
        self.tool_calls = self.tool_calls or event.tool_calls
        self.finish = event.finish or self.finish
        self.model = event.model or self.model
        self.usage = event.usage or self.usage
        self.bytes += size_of(event.content) + size_of(event.thinking)
        self.done = self.done or event.done
        if self.on_piece is not None and (event.content or event.thinking):
            self.on_piece(event.thinking + event.content)

    def full_usage(self, prompt_shared: float | None) -> Usage:
        """The server's numbers together with those of the clock."""
        clock = self.clock
        generation_s = self.usage.generation_s
        if generation_s is None and clock.first is not None and self.last_event is not None:
            generation_s = (self.last_event - clock.first) or None
        return replace(
            self.usage,
            generation_s=generation_s,
            ttft_s=clock.since_start(clock.first),
            ttfa_s=clock.since_start(clock.first_answer),
            longest_gap_s=clock.longest_gap,
            elapsed_s=clock.since_start(self.ended) or 0.0,
            reply_bytes=self.bytes,
            prompt_shared=prompt_shared,
        )


def size_of(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def cut(text: str, room: int) -> str:
    """The text, or as many whole characters of its beginning as fit into ``room`` bytes."""
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= room else data[: max(0, room)].decode("utf-8", "ignore")


def whole_text(parts: Sequence[str]) -> str:
    """The pieces as one text; halves of a surrogate pair that came in two pieces are one character again."""
    text = "".join(parts)
    if any(SURROGATES[0] <= char <= SURROGATES[1] for char in text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


class InStreamError(Exception):
    """The stream holds an error instead of a reply; ``body`` is the JSON line."""

    def __init__(self, body: object) -> None:
        super().__init__(error_text(body))
        self.body = body


class HttpRuntime:
    """Base of the runtimes that talk HTTP: one call, its limits, what counts as dead. Subclasses know the protocol.

    A fatal failure is remembered: every later call raises it again without touching the network.
    """

    chat_path: str
    alive_path: str
    way_out: str
    """What to do where nothing answers."""

    def __init__(self, ref: str, name: str, options: RuntimeOptions, url: str) -> None:
        self.ref = ref
        self.name = name
        self.settings: Settings = options.settings
        self.url = url
        self.endpoint: str | None = shown(url)
        self._api_key = options.api_key
        self._wire: Wire | None = None
        self._fatal: RuntimeFailure | None = None
        self._dead = False
        self._failures = 0
        self._previous: str | None = None
        self._merge_system = False
        self._opened = False

    # What a subclass says.

    def _body(self, messages: Sequence[Message], max_tokens: int, seed: int, temperature: float | None) -> object:
        raise NotImplementedError

    def _event(self, line: str) -> Event | None:
        raise NotImplementedError

    def _refused(self, status: int, body: object, prompt_chars: int) -> RuntimeFailure:
        """What an answer other than 200, or an error in the stream (status 200), means."""
        raise NotImplementedError

    def _check_served(self, model: str) -> None:
        """Raises: RuntimeFailure, fatal, where another model answered."""
        raise NotImplementedError

    def _find(self) -> ModelCard:
        raise NotImplementedError

    def _after_abort(self) -> None:
        """A call was given up: wait until the server is idle."""

    def _unload(self) -> None:
        """Free what `_find` loaded."""

    # The protocol of `Runtime`.

    def open(self) -> ModelCard:
        """Find out what answers, check its identity and warm it up.

        Raises:
            RuntimeFailure: always fatal.
        """
        self._raise_fatal()
        try:
            card = self._find()
        except RuntimeFailure as failure:
            self._fatal = RuntimeFailure(failure.status, failure.reason, fatal=True)
            raise self._fatal from None
        self._opened = True
        return card

    def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """Exact prompt length in tokens where the server tells without generating, else None."""
        return None

    def chat(self, request: Request) -> Reply:
        """One call, never repeated.

        Raises:
            RuntimeFailure: nothing was measured. After ``settings.attempts`` failed calls in a row it is fatal.
        """
        self._raise_fatal()
        messages = alternate(request.messages, self._merge_system)
        try:
            reply = self._call(
                messages,
                request.max_tokens,
                request.seed,
                self.settings.temperature,
                on_wire=request.on_wire,
                on_piece=request.on_piece,
            )
        except RuntimeFailure as failure:
            raise self._count(failure) from None
        if reply.stop_reason not in ("stall", "call_timeout"):
            self._failures = 0
        return reply

    def close(self) -> float | None:
        """Probe the speed once more, unload the model, free everything. Never raises.

        Returns: tokens per second, None where not known.
        """
        speed: float | None = None
        try:
            if self._opened and self._fatal is None:
                speed = self._probe()
        except RuntimeFailure:
            pass  # the session's results stand without it
        try:
            if self._wire is not None and not self._dead:
                self._unload()
        except (RuntimeFailure, UnreachableError):
            pass
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        return speed

    # Shared work.

    @property
    def wire(self) -> Wire:
        """The connection, made on first use.

        Raises:
            RuntimeFailure: fatal, the URL or the key cannot be used.
        """
        if self._wire is None:
            self._wire = Wire(self.url, self.settings.deadlines, self._api_key)
        return self._wire

    def _raise_fatal(self) -> None:
        if self._fatal is not None:
            raise RuntimeFailure(self._fatal.status, self._fatal.reason, fatal=True)

    def _count(self, failure: RuntimeFailure) -> RuntimeFailure:
        """The failure of a measured call, fatal where it was one too many."""
        if failure.status == "runtime_error":
            self._failures += 1
            if not failure.fatal and self._failures >= self.settings.attempts:
                reason = f"{failure.reason} ({self._failures} calls in a row failed: given up on {self.name})"
                failure = RuntimeFailure(failure.status, reason, fatal=True)
        if failure.fatal:
            self._fatal = failure
        return failure

    def _ask(self, method: str, path: str, body: object = None, *, limit_s: float | None = None) -> Answer:
        """One plain request; within ``connect_s`` seconds unless ``limit_s`` says otherwise.

        Raises:
            RuntimeFailure: fatal where nothing answers.
        """
        try:
            return self.wire.ask(method, path, body, limit_s=limit_s or self.settings.deadlines.connect_s)
        except UnreachableError as error:
            raise self._lost(error) from None

    def _lost(self, error: UnreachableError, said: str = "") -> RuntimeFailure:
        """What a failed connection means, after one look at whether anything answers at all."""
        try:
            self.wire.ask("GET", self.alive_path, limit_s=self.settings.deadlines.connect_s)
        except (UnreachableError, RuntimeFailure):
            self._dead = True
            reason = f"{self.wire.url} does not answer ({error}){said}; {self.way_out}"
            return RuntimeFailure("runtime_error", reason, fatal=True)
        return RuntimeFailure("runtime_error", f"{self.wire.url} is up, but this call failed ({error}){said}")

    def _call(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        seed: int,
        temperature: float | None,
        on_wire: Callable[[bytes], None] | None = None,
        on_piece: Callable[[str], None] | None = None,
        measured: bool = True,
    ) -> Reply:
        prompt = "\n\n".join(message.content for message in messages)
        shared: float | None = None
        if measured:
            shared = None if self._previous is None else shared_start(prompt, self._previous)
            self._previous = prompt
        body = self._body(messages, max_tokens, seed, temperature)
        said = self._stream(body, len(prompt), on_wire, on_piece)
        if said.model is not None:
            self._check_served(said.model)
        usage = said.full_usage(shared)
        return Reply(
            content=self._clean_text(said.content),
            thinking=self._clean_text(said.thinking),
            thinking_field=said.thinking_field,
            stop_reason=said.stopped or stop_reason(said.finish, usage.completion_tokens, max_tokens),
            server_stop=said.finish,
            served_model=said.model,
            usage=usage,
            flags=("tool_calls_in_response",) if said.tool_calls else (),
        )

    def _clean_text(self, parts: Sequence[str]) -> str:
        redactor = self.wire.redactor()
        text = whole_text(parts).encode("utf-8", "surrogatepass")
        return (redactor.feed(text) + redactor.flush()).decode("utf-8", "surrogatepass")

    def _stream(
        self,
        body: object,
        prompt_chars: int,
        on_wire: Callable[[bytes], None] | None,
        on_piece: Callable[[str], None] | None,
    ) -> Said:
        """One streamed call: everything it said until its end or until a limit cut it.

        Raises:
            RuntimeFailure: the call measured nothing.
        """
        clock = CallClock(self.settings.deadlines)
        said = Said(clock, on_piece)
        limit: Limit | None = None
        try:
            with Exchange(self.wire, "POST", self.chat_path, body) as exchange:
                limit = self._drain(exchange, said, prompt_chars, on_wire)
                said.ended = time.monotonic()
        except UnreachableError as error:
            raise self._lost(error, so_far(said)) from None
        except InStreamError as error:
            failure = self._refused(httpx.codes.OK, error.body, prompt_chars)
            raise RuntimeFailure(failure.status, failure.reason + so_far(said), fatal=failure.fatal) from None
        if said.stopped is None and limit is not None:
            said.stopped = "stall" if limit == "stall" else "call_timeout"
            if clock.first is None:
                seconds = getattr(self.settings.deadlines, f"{limit}_s")
                self._after_abort()
                reason = f"{self.wire.url} gave no token within {seconds:g} s ({limit}_s)"
                raise RuntimeFailure("runtime_error", f"{reason}: is the server busy or the model too large?")
        if said.stopped is not None:
            self._after_abort()
        elif not said.done:
            reason = f"the stream of {self.wire.url} ended without its end marker{so_far(said)}"
            raise RuntimeFailure("runtime_error", reason)
        return said

    def _drain(
        self, exchange: Exchange, said: Said, prompt_chars: int, on_wire: Callable[[bytes], None] | None
    ) -> Limit | None:
        """Read until the end (None) or until a limit runs out."""
        lines, redactor = Lines(), self.wire.redactor()
        guard = RepetitionGuard(self.settings.repetition_tail, self.settings.repetition_period)
        status: int = httpx.codes.OK
        refusal = bytearray()
        while True:
            piece = exchange.next(said.clock.remaining())
            if piece is None:
                limit = said.clock.expired()
                if limit is not None:
                    return limit
                continue
            at, item = piece
            limit = said.clock.expired(at)
            if limit is not None:
                return limit
            if isinstance(item, _Head):
                status = item.status
                continue
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                chunk = redactor.flush()
                new = lines.feed(chunk) + lines.flush()
            else:
                chunk = redactor.feed(item)
                new = [] if status != httpx.codes.OK else lines.feed(chunk)
            if on_wire is not None and chunk:
                on_wire(chunk)
            if status != httpx.codes.OK:
                refusal += chunk
                if isinstance(item, _End) or len(refusal) > BODY_BYTES:
                    raise self._refusal(status, refusal, prompt_chars)
                continue
            for line in new:
                if self._take(line, said, guard, at):
                    return None
            if isinstance(item, _End):
                return None

    def _take(self, line: str, said: Said, guard: RepetitionGuard, at: float) -> bool:
        """One line of a stream. True where nothing more is wanted."""
        event = self._event(line)
        if event is None:
            return False
        room = self.settings.reply_bytes - said.bytes
        thinking = cut(event.thinking, room)
        content = cut(event.content, room - size_of(thinking))
        if (thinking, content) != (event.thinking, event.content):
            said.stopped = "reply_bytes"
            event = replace(event, thinking=thinking, content=content)
        said.take(event, at)
        if event.done or said.stopped is not None:
            return True
        if guard.feed(event.thinking + event.content) and said.finish is None:
            said.stopped = "repetition"
        return said.stopped is not None

    def _refusal(self, status: int, data: bytearray, prompt_chars: int) -> RuntimeFailure:
        text = self.wire.clean(data.decode("utf-8", errors="replace"))
        body = parse_json(text)
        return self._refused(status, text if body is None else body, prompt_chars)

    def _blind(self, words: str) -> RuntimeFailure:
        """The server says that it cannot take a picture."""
        return RuntimeFailure("unsupported", f"{self.name} was refused a picture: {self.wire.clean(words)}")

    def _too_long(self, needs: int | None, window: int | None, words: str) -> RuntimeFailure:
        if needs is not None and window is not None:
            return RuntimeFailure("unsupported", f"prompt_too_long: needs {needs} tokens, the window has {window}")
        return RuntimeFailure("unsupported", f"prompt_too_long: {words or 'refused by the server'}")

    def _broken(self, status: int, words: str) -> RuntimeFailure:
        """A refusal that has no meaning of its own."""
        if httpx.codes.is_redirect(status):
            reason = f"{self.wire.url} answers with a redirect (HTTP {status}), which is never followed: {self.way_out}"
            return RuntimeFailure("runtime_error", reason, fatal=True)
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            reason = f"{self.wire.url} refuses access (HTTP {status}: {self.wire.clean(words)}): check the API key"
            return RuntimeFailure("runtime_error", reason, fatal=True)
        if mentions(words, TEMPLATE_WORDS):
            reason = f"the chat template refused the conversation (HTTP {status}: {self.wire.clean(words)})"
            return RuntimeFailure("harness_error", reason)
        how = "an error in the stream" if status == httpx.codes.OK else f"HTTP {status}"
        return RuntimeFailure("runtime_error", f"{self.wire.url} answered with {how}: {self.wire.clean(words)}")

    def _probe(self) -> float | None:
        """Tokens per second of one short call that is not measured."""
        messages = [Message("system", PROBE_SYSTEM), Message("user", PROBE_USER)]
        reply = self._call(
            alternate(messages, self._merge_system), self.settings.probe_tokens, seed=0, temperature=0.0, measured=False
        )
        tokens, seconds = reply.usage.completion_tokens, reply.usage.generation_s
        return tokens / seconds if tokens and seconds else None

    def _warm_up(self) -> float | None:
        """The first probe; finds out on the way whether the template takes a system message.

        Raises:
            RuntimeFailure: the model does not answer at all.
        """
        try:
            return self._probe()
        except RuntimeFailure as failure:
            if failure.fatal or self._dead or not mentions(failure.reason, SYSTEM_WORDS):
                raise
        self._merge_system = True
        return self._probe()

    def _system_role(self) -> Literal["own", "merged"]:
        return "merged" if self._merge_system else "own"


def stop_reason(finish: str | None, completion_tokens: int | None, max_tokens: int) -> StopReason:
    """Why a reply that the server ended has ended: the token count decides before the server's word.

    A reply cut by ``length`` with fewer tokens than allowed met the end of the window, not its cap.
    """
    if completion_tokens is not None and completion_tokens >= max_tokens:
        return "max_tokens"
    if finish == "length":
        return "max_tokens" if completion_tokens is None else "context_full"
    return "stop"


def so_far(said: Said) -> str:
    """Words for what a failed call had said, "" where that was nothing."""
    if said.clock.first is None:
        return ""
    content, thinking = len(whole_text(said.content)), len(whole_text(said.thinking))
    return f", after {content} characters of a reply and {thinking} of thinking"


def sse_data(line: str) -> Iterator[tuple[str, str]]:
    """(field, value) of one line of server-sent events; nothing for blank lines, comments and other fields.

    A bare JSON line, as servers send that do not stream, counts as data.
    """
    if line.startswith("{"):
        yield "data", line
    name, colon, value = line.partition(":")
    if colon and name in ("data", "error"):
        yield name, value.removeprefix(" ")
