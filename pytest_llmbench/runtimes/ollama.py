"""Models served by Ollama, over its native API: the only one that honours ``num_ctx`` and tells what is loaded."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from pytest_llmbench.runtimes.base import Message, ModelCard, RuntimeFailure, RuntimeOptions, Sight, Think, Usage
from pytest_llmbench.runtimes.stream import (
    CHARACTERS_PER_TOKEN,
    PICTURE_WORDS,
    SECONDS_PER_NS,
    Event,
    HttpRuntime,
    InStreamError,
    as_count,
    as_dict,
    as_list,
    as_text,
    content_of,
    encoded,
    error_text,
    mentions,
    parse_json,
    place,
    same_model,
    scaled,
    thinking_of,
)

HOST_VARIABLE: Final = "OLLAMA_HOST"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 11434
KEEP_ALIVE: Final = "30m"
"""How long Ollama keeps the model after each call; longer than any pause between two calls of a session."""
THINK: Final[Mapping[Think, bool | str]] = {"on": True, "off": False, "low": "low", "medium": "medium", "high": "high"}
CONTEXT_WORDS: Final = ("exceeds the context", "context length", "context size", "context window")
_LOOP: Final = re.compile(r"\.Messages|\.Role|\.System|message", re.IGNORECASE)


def parse_ollama_host(value: str | None) -> str:
    """The base URL that ``OLLAMA_HOST`` means: ``host``, ``host:port`` or ``http(s)://host[:port][/path]``.

    Nothing, ``0.0.0.0`` and ``::`` (addresses to listen on) mean this machine; the port is 11434 unless one is given,
    or unless the scheme is given without one (then 80 or 443), as in Ollama's own client.

    Raises:
        RuntimeFailure: fatal, where it is no host.
    """
    text = (value or "").strip().strip("\"'")
    scheme, separator, rest = text.rpartition("://")
    default = {"http": "80", "https": "443"}.get(scheme.lower(), str(DEFAULT_PORT)) if separator else str(DEFAULT_PORT)
    with contextlib.suppress(ValueError):  # it need not be a bare IPv6 address
        rest = f"[{ipaddress.IPv6Address(rest)}]"
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname or DEFAULT_HOST, parts.port or default
    except ValueError:
        reason = f"{HOST_VARIABLE} names no valid address: set it to host:port, such as {DEFAULT_HOST}:{DEFAULT_PORT}"
        raise RuntimeFailure("runtime_error", reason, fatal=True) from None
    if host in ("0.0.0.0", "::"):
        host = DEFAULT_HOST
    user, at, _ = parts.netloc.rpartition("@")
    shown_host = f"[{host}]" if ":" in host else host
    return f"{scheme.lower() or 'http'}://{user}{at}{shown_host}:{port}{parts.path.rstrip('/')}"


def has_roles(template: str) -> bool:
    """Whether a chat template of Ollama looks at messages or roles, rather than at ``{{ .Prompt }}`` alone."""
    return bool(_LOOP.search(template))


def said(message: Message) -> dict[str, object]:
    """A message as Ollama takes it: pictures stand beside the text, in base64 without a prefix.

    Source: ``images`` of a message in Ollama's API documentation, docs/api.md.
    """
    pictures = [encoded(image) for image in message.images]
    return {"role": message.role, "content": message.content, **({"images": pictures} if pictures else {})}


class OllamaRuntime(HttpRuntime):
    """One model of an Ollama server. The server is the one that ``options.environ["OLLAMA_HOST"]`` names."""

    chat_path = "/api/chat"
    alive_path = "/api/version"
    way_out = f"start it with `ollama serve`, or set {HOST_VARIABLE} to where it listens"

    def __init__(self, ref: str, name: str, options: RuntimeOptions) -> None:
        """``name`` is the model's name in Ollama, such as ``qwen3:4b``.

        Raises:
            RuntimeFailure: fatal, ``OLLAMA_HOST`` cannot be read.
        """
        super().__init__(ref, name, options, parse_ollama_host(options.environ.get(HOST_VARIABLE)))
        self._api_key = None  # the key belongs to the OpenAI-compatible endpoint, not to this server
        self._window = self.settings.context

    def _body(self, messages: Sequence[Message], max_tokens: int, seed: int, temperature: float | None) -> object:
        options: dict[str, object] = {"num_ctx": self._window, "num_predict": max_tokens, "seed": seed}
        if temperature is not None:
            options["temperature"] = temperature
        body: dict[str, object] = {
            "model": self.name,
            "messages": [said(message) for message in messages],
            "stream": True,
            "options": options,
            "keep_alive": KEEP_ALIVE,
        }
        if self.settings.think is not None:
            body["think"] = THINK[self.settings.think]
        return body

    def _event(self, line: str) -> Event | None:
        if not line.strip():
            return None
        data = parse_json(line)
        if not isinstance(data, dict):
            raise RuntimeFailure("runtime_error", "Ollama sent a line that is no JSON object")
        if data.get("error") is not None:
            raise InStreamError(data)
        message = as_dict(data.get("message"))
        name, thinking = thinking_of(message)
        done = data.get("done") is True
        return Event(
            content=content_of(message),
            thinking=thinking,
            thinking_field=name,
            tool_calls=bool(message.get("tool_calls")),
            finish=as_text(data.get("done_reason")),
            model=as_text(data.get("model")),
            done=done,
            usage=usage_of(data) if done else None,
        )

    def _refused(self, status: int, body: object, prompt_chars: int) -> RuntimeFailure:
        words = error_text(body)
        if status == httpx.codes.NOT_FOUND and mentions(words, ("not found", "no such")):
            return self._not_installed()
        if status == httpx.codes.BAD_REQUEST and self.settings.think is not None and mentions(words, ("think",)):
            reason = f"{self.name} cannot do think={self.settings.think} ({words}): run it without --llm-think"
            return RuntimeFailure("unsupported", reason, fatal=True)
        if mentions(words, PICTURE_WORDS):
            return self._blind(words)
        too_long = prompt_chars / CHARACTERS_PER_TOKEN > self._window or mentions(words, CONTEXT_WORDS)
        if status == httpx.codes.BAD_REQUEST and too_long:
            return self._too_long(None, None, f"{prompt_chars} characters for {self._window} tokens ({words})")
        return self._broken(status, words)

    def _check_served(self, model: str) -> None:
        if not same_model(model, self.name):
            reason = f"asked for {self.name}, the server answered as {model}: check what {self.wire.url} serves"
            raise RuntimeFailure("runtime_error", reason, fatal=True)

    def _not_installed(self) -> RuntimeFailure:
        reason = (
            f"{self.name} is not installed in the Ollama at {self.wire.url}; install it with\nollama pull {self.name}"
        )
        return RuntimeFailure("not_installed", reason, fatal=True)

    def _get(self, path: str) -> dict[str, Any]:
        answer = self._ask("GET", path)
        if not answer.ok or not isinstance(answer.body, dict):
            raise self._broken(answer.status, f"{path} gave no JSON object: is this an Ollama server? {answer.error}")
        return answer.body

    def _entry(self, path: str) -> tuple[dict[str, Any], list[str]]:
        """(this model's entry, names of the other models) in a list of models."""
        mine: dict[str, Any] = {}
        others = []
        for entry in map(as_dict, as_list(self._get(path).get("models"))):
            name = as_text(entry.get("name")) or as_text(entry.get("model")) or ""
            if same_model(name, self.name):
                mine = entry
            else:
                others.append(name)
        return mine, others

    def _find(self) -> ModelCard:
        notes: list[str] = []
        version = as_text(self._get("/api/version").get("version"))
        answer = self._ask("POST", "/api/show", {"model": self.name})
        if answer.status == httpx.codes.NOT_FOUND:
            raise self._not_installed()
        if not answer.ok:
            raise self._broken(answer.status, answer.error)
        show = as_dict(answer.body)
        details, info = as_dict(show.get("details")), as_dict(show.get("model_info"))
        trained = next((as_count(value) for key, value in info.items() if key.endswith(".context_length")), None)
        template = has_roles(show["template"]) if isinstance(show.get("template"), str) else None
        if template is False:
            notes.append("the chat template is missing")
        if trained:
            self._window = min(self._window, trained)
        tag, _ = self._entry("/api/tags")
        _, others = self._entry("/api/ps")
        if others:
            notes.append(f"foreign load: {', '.join(others)} was loaded as well")
        load_s = self._load()
        loaded, _ = self._entry("/api/ps")
        asked = self._window
        self._window = as_count(loaded.get("context_length")) or self._window
        if self._window < asked:
            notes.append(f"the server loaded a window of {self._window} tokens instead of {asked}")
        speed = self._warm_up()
        capabilities = as_list(show.get("capabilities"))
        return ModelCard(
            ref=self.ref,
            runtime="ollama",
            runtime_version=version,
            digest=as_text(loaded.get("digest")) or as_text(tag.get("digest")),
            quantisation=as_text(details.get("quantization_level")),
            family=as_text(details.get("family")),
            parameters=as_text(details.get("parameter_size")),
            context=self._window,
            context_trained=trained,
            capabilities=tuple(text for text in map(as_text, capabilities) if text),
            sight=Sight(claimed="vision" in capabilities if capabilities else None),
            template=template,
            think=self.settings.think,
            system_role=self._system_role(),
            names_checked=True,
            load_s=load_s,
            probe_tokens_per_s=speed,
            endpoint=place(self.url),
            notes=tuple(notes),
        )

    def _load(self) -> float:
        """Load the model with the window of this session. Returns: seconds, the server's where it says, else ours."""
        start = time.monotonic()
        body = {
            "model": self.name,
            "messages": [],
            "stream": False,
            "options": {"num_ctx": self._window},
            "keep_alive": KEEP_ALIVE,
        }
        answer = self._ask("POST", self.chat_path, body, limit_s=self.settings.deadlines.first_token_s)
        wall = time.monotonic() - start
        if not answer.ok:
            raise self._refused(answer.status, answer.body, prompt_chars=0)
        return scaled(as_dict(answer.body).get("load_duration"), SECONDS_PER_NS) or wall

    def _unload(self) -> None:
        body = {"model": self.name, "messages": [], "stream": False, "keep_alive": 0}
        self.wire.ask("POST", self.chat_path, body, limit_s=self.settings.deadlines.stall_s)


def usage_of(data: Mapping[str, Any]) -> Usage:
    """Counts and times of Ollama's last line, in tokens and seconds."""
    return Usage(
        prompt_tokens=as_count(data.get("prompt_eval_count")),
        completion_tokens=as_count(data.get("eval_count")),
        load_s=scaled(data.get("load_duration"), SECONDS_PER_NS),
        prompt_s=scaled(data.get("prompt_eval_duration"), SECONDS_PER_NS),
        generation_s=scaled(data.get("eval_duration"), SECONDS_PER_NS),
    )
