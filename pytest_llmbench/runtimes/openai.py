"""Models behind an OpenAI-compatible endpoint: llama-server, LM Studio, vLLM and whatever else speaks it."""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from pytest_llmbench.runtimes.base import (
    Message,
    ModelCard,
    Reply,
    RuntimeFailure,
    RuntimeOptions,
    Sight,
    Usage,
)
from pytest_llmbench.runtimes.stream import (
    CHARACTERS_PER_TOKEN,
    PICTURE_WORDS,
    POLL_S,
    SECONDS_PER_MS,
    Event,
    HttpRuntime,
    InStreamError,
    UnreachableError,
    alternate,
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
    sse_data,
    thinking_of,
)

URL_FLAG: Final = "--llm-base-url"
WRONG_NAME: Final = "llmbench-no-such-model"
"""Sent once to find out whether the server looks at model names at all."""
LISTED_NAMES: Final = 20
"""So many served models are named in a message."""
TOO_LONG_WORDS: Final = ("exceed_context_size", "context_length_exceeded", "maximum context length", "context size")
NO_MODEL_WORDS: Final = ("not found", "not exist", "no such", "not loaded", "unknown model", "invalid model")
_VERSION: Final = re.compile(r"/v1$")


def root_of(base_url: str) -> str:
    """A base URL given with or without its trailing ``/v1`` → the server's root, without a trailing slash."""
    text = base_url.strip()
    text = text if "://" in text else f"http://{text}"
    return _VERSION.sub("", text.rstrip("/")).rstrip("/")


@dataclass
class _Server:
    """What the endpoints of a server gave away."""

    kind: str = "unknown"
    version: str | None = None
    entry: dict[str, Any] = field(default_factory=dict)
    """The asked model in /v1/models."""
    studio: dict[str, Any] = field(default_factory=dict)
    """The asked model in LM Studio's own list."""
    props: dict[str, Any] = field(default_factory=dict)
    slots: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def takes_pictures(self) -> bool | None:
        """Whether the server says that the model does; None where it does not say.

        Sources: ``modalities`` of llama-server's /props (tools/server/README.md in llama.cpp); ``type`` in LM Studio's
        /api/v0/models (https://lmstudio.ai/docs/api/rest-api).
        """
        told = as_dict(self.props.get("modalities")).get("vision")
        if isinstance(told, bool):
            return told
        kind = as_text(self.studio.get("type"))
        return None if kind is None else kind == "vlm"


def said(message: Message, *, bare: bool) -> dict[str, object]:
    """A message as the OpenAI protocol has it: with pictures, its content is a list, the text first.

    Args:
        message: the message.
        bare: the URL of a picture stands alone, instead of in an object.
    """
    if not message.images:
        return {"role": message.role, "content": message.content}
    urls = [f"data:image/png;base64,{encoded(image)}" for image in message.images]
    pictures = [{"type": "image_url", "image_url": url if bare else {"url": url}} for url in urls]
    return {"role": message.role, "content": [{"type": "text", "text": message.content}, *pictures]}


class OpenAIRuntime(HttpRuntime):
    """One model behind ``options.base_url`` (with or without ``/v1``), with ``options.api_key`` as bearer token."""

    chat_path = "/v1/chat/completions"
    alive_path = "/v1/models"
    way_out = f"start the server, or name the right URL with {URL_FLAG}"

    def __init__(self, ref: str, name: str, options: RuntimeOptions) -> None:
        """``name`` is the model's id or alias on the server."""
        super().__init__(ref, name, options, root_of(options.base_url) if options.base_url else "")
        self.endpoint = self.endpoint if options.base_url else None
        self._declared = options.declared_context
        self._accepted: tuple[str, ...] = (name,)
        self._last_refusal: int | None = None
        self._kind = "unknown"
        self._window: int | None = options.declared_context
        self._bare = False
        """Pictures are sent in the short form, because the server refused the other one."""
        self._form_known = False
        """Which form the server takes is settled."""

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
        """One call; the first with a picture that is refused with HTTP 400 is sent once more in the other form.

        Servers disagree about that form only: the object is OpenAI's, the bare string is what Ollama's documentation
        shows (https://docs.ollama.com/openai). A refusal is no reply, so nothing is measured twice.
        """
        pictured = any(message.images for message in messages)
        self._last_refusal = None
        once, previous = (max_tokens, seed, temperature, on_wire, on_piece, measured), self._previous
        try:
            reply = super()._call(messages, *once)
        except RuntimeFailure as refused:
            if not pictured or self._form_known or self._last_refusal != httpx.codes.BAD_REQUEST:
                raise
            self._bare, self._form_known, self._previous = True, True, previous
            try:
                return super()._call(messages, *once)
            except RuntimeFailure:
                self._bare = self._form_known = False
                raise refused from None
        self._form_known = self._form_known or pictured
        return reply

    def _body(self, messages: Sequence[Message], max_tokens: int, seed: int, temperature: float | None) -> object:
        body: dict[str, object] = {
            "model": self.name,
            "messages": [said(message, bare=self._bare) for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": max_tokens,
            "seed": seed,
            **self._think(),
        }
        if temperature is not None:
            body["temperature"] = temperature
        return body

    def _think(self) -> dict[str, object]:
        think = self.settings.think
        if think is None:
            return {}
        if think in ("on", "off"):
            return {"chat_template_kwargs": {"enable_thinking": think == "on"}}
        return {"reasoning_effort": think}

    def _event(self, line: str) -> Event | None:
        for name, value in sse_data(line):
            if name == "error":
                raise InStreamError(parse_json(value) or value)
            if value.strip() == "[DONE]":
                return Event(done=True)
            data = parse_json(value)
            if not isinstance(data, dict):
                raise RuntimeFailure("runtime_error", "the server sent data that is no JSON object")
            if data.get("error") is not None:
                raise InStreamError(data)
            return event_of(data)
        return None

    def _refused(self, status: int, body: object, prompt_chars: int) -> RuntimeFailure:
        words = error_text(body)
        self._last_refusal = status
        error = as_dict(as_dict(body).get("error"))
        kind = f"{error.get('type')} {error.get('code')} {words}"
        if mentions(kind, TOO_LONG_WORDS):
            return self._too_long(as_count(error.get("n_prompt_tokens")), as_count(error.get("n_ctx")), words)
        refused = status in (httpx.codes.BAD_REQUEST, httpx.codes.NOT_FOUND)
        if refused and mentions(words, ("model",)) and mentions(kind, NO_MODEL_WORDS):
            return self._not_installed((), words)
        if mentions(words, PICTURE_WORDS):
            return self._blind(words)
        over_long = self._window is not None and prompt_chars / CHARACTERS_PER_TOKEN > self._window
        if status == httpx.codes.BAD_REQUEST and over_long:
            return self._too_long(None, None, f"{prompt_chars} characters for {self._window} tokens ({words})")
        return self._broken(status, words)

    def _not_installed(self, names: Iterable[str], words: str = "") -> RuntimeFailure:
        served = ", ".join(list(names)[:LISTED_NAMES])
        said = f" ({self.wire.clean(words)})" if words else ""
        serves = f"; it serves: {served}. Ask for one of these, or load" if served else ": load"
        reason = f"{self.wire.url} does not serve {self.name}{said}{serves} {self.name} in the server"
        return RuntimeFailure("not_installed", reason, fatal=True)

    def _check_served(self, model: str) -> None:
        if not any(same_model(model, name) for name in self._accepted):
            reason = f"asked for {self.name}, the server answered as {model}: check what {self.wire.url} serves"
            raise RuntimeFailure("runtime_error", reason, fatal=True)

    def _look(self, path: str) -> Any:
        """The JSON value at a path; None where the server does not have it."""
        answer = self._ask("GET", path)
        return answer.body if answer.ok else None

    def _find(self) -> ModelCard:
        if not self.url:
            reason = f"{self.ref} needs the URL of its server: give it with {URL_FLAG} http://HOST:PORT/v1"
            raise RuntimeFailure("runtime_error", reason, fatal=True)
        server = self._survey()
        self._kind = server.kind
        meta = as_dict(server.entry.get("meta"))
        self._window = self._context(server, meta)
        names_checked = self._names_checked()
        speed = self._warm_up()
        size = as_count(meta.get("n_params"))
        template = as_text(server.props.get("chat_template"))
        return ModelCard(
            ref=self.ref,
            runtime="openai",
            runtime_version=server.version,
            server=server.kind,
            quantisation=as_text(server.studio.get("quantization"))
            or as_text(meta.get("ftype"))
            or as_text(server.props.get("model_ftype")),
            family=as_text(server.studio.get("arch")) or as_text(meta.get("architecture")),
            parameters=None if size is None else str(size),
            context=self._window,
            capabilities=("vision",) if server.takes_pictures else (),
            sight=Sight(claimed=server.takes_pictures),
            context_trained=as_count(meta.get("n_ctx_train")) or as_count(server.studio.get("max_context_length")),
            template=None if template is None else mentions(template, ("messages", "role")),
            think=self.settings.think,
            system_role=self._system_role(),
            names_checked=names_checked,
            slots=as_count(server.props.get("total_slots")) or len(server.slots) or None,
            probe_tokens_per_s=speed,
            endpoint=place(self.url),
            notes=tuple(server.notes),
        )

    def _survey(self) -> _Server:
        """Ask every endpoint that some server has.

        Raises:
            RuntimeFailure: fatal, nothing answers or the model is not served.
        """
        answer = self._ask("GET", self.alive_path)
        if answer.status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN) or httpx.codes.is_redirect(answer.status):
            raise self._broken(answer.status, answer.error)
        server = _Server()
        entries = [as_dict(entry) for entry in as_list(as_dict(answer.body).get("data"))] if answer.ok else []
        server.props = as_dict(self._look("/props"))
        server.slots = [as_dict(slot) for slot in as_list(self._look("/slots"))]
        studio = [as_dict(entry) for entry in as_list(as_dict(self._look("/api/v0/models")).get("data"))]
        ollama = as_text(as_dict(self._look("/api/version")).get("version"))
        if "default_generation_settings" in server.props or any(e.get("owned_by") == "llamacpp" for e in entries):
            server.kind = "llama-server"
            server.version = as_text(server.props.get("build_info"))
        elif any("state" in entry for entry in studio):
            server.kind = "lm-studio"
        elif any(entry.get("owned_by") == "vllm" for entry in entries):
            server.kind = "vllm"
            server.version = as_text(as_dict(self._look("/version")).get("version"))
        elif ollama:
            server.kind, server.version = "ollama", ollama
            server.notes.append(
                f"Ollama ignores num_ctx over /v1, so its window is unknown: measure ollama:{self.name} instead"
            )
        self._choose(server, entries, studio)
        if any(slot.get("is_processing") is True for slot in server.slots):
            server.notes.append("foreign load: the server was busy with another request")
        return server

    def _choose(self, server: _Server, entries: list[dict[str, Any]], studio: list[dict[str, Any]]) -> None:
        """Find the asked model in what the server lists, and the names under which it may answer."""
        if not entries:
            server.notes.append("the server lists no models: its name could not be checked")
        for entry in entries:
            if any(same_model(self.name, name) for name in names_of(entry)):
                server.entry = entry
        if entries and not server.entry:
            raise self._not_installed(name for entry in entries for name in names_of(entry)[:1])
        server.studio = next((e for e in studio if same_model(as_text(e.get("id")) or "", self.name)), {})
        if server.studio.get("state") not in (None, "loaded"):
            server.notes.append("LM Studio had not loaded the model: the window is known only of loaded models")
        path = as_text(server.props.get("model_path")) if server.kind == "llama-server" else None
        paths = (path, posixpath.basename(path.replace("\\", "/"))) if path else ()
        self._accepted = (self.name, *names_of(server.entry), *paths)

    def _context(self, server: _Server, meta: Mapping[str, Any]) -> int | None:
        """Tokens that one request gets, the smallest of what the server says."""
        generation = as_dict(server.props.get("default_generation_settings"))
        said = [
            generation.get("n_ctx"),
            *(slot.get("n_ctx") for slot in server.slots),
            meta.get("n_ctx"),
            server.studio.get("loaded_context_length"),
            server.entry.get("max_model_len"),
        ]
        windows = [window for window in map(as_count, said) if window]
        if windows and server.kind != "ollama":
            return min(windows)
        if self._declared is not None:
            server.notes.append("context declared by the user")
        return self._declared

    def _names_checked(self) -> bool:
        """Whether the server refuses a model that it cannot have."""
        body = {"model": WRONG_NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "stream": False}
        return not self._ask("POST", self.chat_path, body, limit_s=self.settings.deadlines.first_token_s).ok

    def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """Exact prompt length in tokens on a llama-server, else None. Generates nothing, never raises."""
        if self._kind != "llama-server" or self._fatal is not None:
            return None
        history = [{"role": m.role, "content": m.content} for m in alternate(messages, self._merge_system)]
        limit_s = self.settings.deadlines.stall_s
        try:
            applied = self.wire.ask("POST", "/apply-template", {"messages": history, **self._think()}, limit_s=limit_s)
            prompt = as_dict(applied.body).get("prompt")
            if not applied.ok or not isinstance(prompt, str):
                return None
            body = {"content": prompt, "add_special": True, "parse_special": True}
            answer = self.wire.ask("POST", "/tokenize", body, limit_s=limit_s)
        except (UnreachableError, RuntimeFailure):
            return None
        tokens = as_dict(answer.body).get("tokens")
        return len(tokens) if answer.ok and isinstance(tokens, list) else None

    def _after_abort(self) -> None:
        """Wait until a llama-server is idle, at most ``stall_s`` seconds: it notices a closed socket late."""
        until = time.monotonic() + self.settings.deadlines.stall_s
        while self._kind == "llama-server":
            try:
                answer = self.wire.ask("GET", "/slots", limit_s=max(POLL_S, until - time.monotonic()))
            except (UnreachableError, RuntimeFailure):
                return
            slots = as_list(answer.body) if answer.ok else []
            if not any(as_dict(slot).get("is_processing") is True for slot in slots) or time.monotonic() >= until:
                return
            time.sleep(POLL_S)


def names_of(entry: Mapping[str, Any]) -> list[str]:
    """The id and the aliases of one served model."""
    names = [entry.get("id"), *as_list(entry.get("aliases"))]
    return [text for text in map(as_text, names) if text]


def event_of(data: Mapping[str, Any]) -> Event:
    """One chunk of a streamed completion, or a whole one where the server did not stream."""
    choice = as_dict(next(iter(as_list(data.get("choices"))), None))
    whole = "message" in choice
    message = as_dict(choice.get("message" if whole else "delta"))
    name, thinking = thinking_of(message)
    usage = as_dict(data.get("usage"))
    timings = as_dict(data.get("timings"))
    return Event(
        content=content_of(message),
        thinking=thinking,
        thinking_field=name,
        tool_calls=bool(message.get("tool_calls")),
        finish=as_text(choice.get("finish_reason")),
        model=as_text(data.get("model")),
        done=whole,
        usage=usage_of(usage, timings) if usage or timings else None,
    )


def usage_of(usage: Mapping[str, Any], timings: Mapping[str, Any]) -> Usage:
    """Counts and times of the OpenAI ``usage`` and of llama.cpp's ``timings``, in tokens and seconds.

    ``prompt_tokens`` includes the cached ones.
    """
    cached = as_count(as_dict(usage.get("prompt_tokens_details")).get("cached_tokens"))
    return Usage(
        prompt_tokens=as_count(usage.get("prompt_tokens")),
        completion_tokens=as_count(usage.get("completion_tokens")),
        cached_tokens=as_count(timings.get("cache_n")) if cached is None else cached,
        prompt_s=scaled(timings.get("prompt_ms"), SECONDS_PER_MS),
        generation_s=scaled(timings.get("predicted_ms"), SECONDS_PER_MS),
    )
