"""Settings with short deadlines, loopback servers, and real ones where they are reachable."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from runtimes.loopback import Loopback, Script, js, ndjson, serving, sse

from pytest_llmbench.runtimes.base import Deadlines, Message, Request, Settings

CASES = Path(__file__).parent.parent / "fieldcases"
SMOLLM2 = Path("~/.cache/llmbench-models/smollm2-135m.gguf").expanduser()


@pytest.fixture
def case() -> Callable[[int], Path]:
    return lambda number: next(CASES.glob(f"{number}-*"))


@pytest.fixture
def deadlines() -> Deadlines:
    return Deadlines(connect_s=2.0, first_token_s=2.0, stall_s=2.0, call_s=5.0)


@pytest.fixture
def settings(deadlines: Deadlines) -> Settings:
    return Settings(
        context=2048,
        think=None,
        temperature=0.0,
        deadlines=deadlines,
        reply_bytes=100_000,
        repetition_tail=600,
        repetition_period=200,
        cold_load_s=1.0,
        probe_tokens=16,
        attempts=3,
    )


@pytest.fixture
def patient(settings: Settings) -> Settings:
    """For real models on a slow machine."""
    return dataclasses.replace(settings, deadlines=Deadlines(5.0, 120.0, 60.0, 180.0))


@pytest.fixture
def server() -> Iterator[Loopback]:
    with serving() as loopback:
        yield loopback


@pytest.fixture
def ask() -> Callable[..., Request]:
    def make(text: str = "Say something.", *, max_tokens: int = 64, **more: object) -> Request:
        return Request((Message("system", "Be brief."), Message("user", text)), max_tokens, 7, **more)  # type: ignore[arg-type]

    return make


OLLAMA_DONE = {
    "model": "toy:1b",
    "message": {"role": "assistant", "content": ""},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 20,
    "prompt_eval_duration": 500_000_000,
    "eval_count": 4,
    "eval_duration": 2_000_000_000,
    "load_duration": 30_000_000,
}


def ollama_says(text: str) -> dict[str, object]:
    return {"model": "toy:1b", "message": {"role": "assistant", "content": text}, "done": False}


@pytest.fixture
def ollama_script() -> dict[str, Script]:
    """An Ollama that serves toy:1b."""

    def chat(seen: object) -> object:
        body = seen.body  # type: ignore[attr-defined]
        if not body["messages"]:
            return js({"model": "toy:1b", "done": True, "done_reason": "unload" if body["keep_alive"] == 0 else "load"})
        return ndjson(ollama_says("one"), ollama_says(" two"), OLLAMA_DONE)

    entry = {"name": "toy:1b", "model": "toy:1b", "digest": "d1"}
    return {
        "/api/version": js({"version": "0.9.3"}),
        "/api/show": js(
            {
                "template": "{{- range .Messages }}{{ .Role }}{{ .Content }}{{ end }}",
                "details": {"family": "toy", "parameter_size": "1B", "quantization_level": "Q4_0"},
                "model_info": {"toy.context_length": 8192},
                "capabilities": ["completion"],
            }
        ),
        "/api/tags": js({"models": [{"name": "other:2b", "digest": "d2"}, entry]}),
        "/api/ps": js({"models": [entry]}),
        "/api/chat": chat,  # type: ignore[dict-item]
    }


def chunk(
    content: str | None = None, *, finish: str | None = None, model: str = "toy", **more: object
) -> dict[str, object]:
    delta = {} if content is None else {"content": content}
    return {"model": model, "choices": [{"index": 0, "delta": {**delta, **more}, "finish_reason": finish}]}


def usage(completion: int = 4, **more: object) -> dict[str, object]:
    return {"model": "toy", "choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": completion, **more}}


@pytest.fixture
def openai_script() -> dict[str, Script]:
    """A server of no known kind that serves toy and checks names."""

    def chat(seen: object) -> object:
        body = seen.body  # type: ignore[attr-defined]
        if body["model"] != "toy":
            return js({"error": {"message": f"model {body['model']} not found"}}, 404)
        return sse(chunk("one"), chunk(" two"), chunk(finish="stop"), usage())

    return {"/v1/models": js({"data": [{"id": "toy"}, {"id": "other"}]}), "/v1/chat/completions": chat}  # type: ignore[dict-item]


@pytest.fixture
def real_ollama() -> str:
    host = os.environ.get("OLLAMA_HOST", "127.0.0.1:11434")
    url = host if "://" in host else f"http://{host}"
    try:
        httpx.get(f"{url}/api/version", trust_env=False, timeout=2).raise_for_status()
    except httpx.HTTPError as error:
        pytest.skip(f"no Ollama at {url}: {error}")
    return url


@pytest.fixture
def smollm2() -> Path:
    if not SMOLLM2.exists():
        pytest.skip(f"{SMOLLM2} is not there: fetch it with get-model smollm2-135m")
    return SMOLLM2


@pytest.fixture
def unused_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
