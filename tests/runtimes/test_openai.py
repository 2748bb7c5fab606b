"""The OpenAI-compatible runtime against scripted servers of every kind, and against a real Ollama behind /v1."""

from __future__ import annotations

import dataclasses
import json
import logging

import httpx
import pytest
from runtimes.conftest import chunk, usage
from runtimes.loopback import Hang, Say, js, sse

from pytest_llmbench.runtimes.base import Message, Request, RuntimeFailure, RuntimeOptions
from pytest_llmbench.runtimes.openai import OpenAIRuntime, root_of, usage_of

CHAT = "/v1/chat/completions"
KEY = "sk-very-secret-0123456789"


@pytest.fixture
def make(server, settings, openai_script):
    server.on.update(openai_script)

    def build(name="toy", *, url="", key=None, declared=None, **changes):
        options = RuntimeOptions(
            dataclasses.replace(settings, **changes),
            base_url=server.url + url,
            api_key=key,
            declared_context=declared,
        )
        return OpenAIRuntime(f"openai:{name}", name, options)

    return build


@pytest.fixture
def llama_server(server, make):
    """Turns the server into a llama-server that takes any name."""
    entry = {
        "id": "toy",
        "aliases": ["toy-alias"],
        "owned_by": "llamacpp",
        "meta": {"n_ctx": 2048, "n_ctx_train": 8192, "n_params": 134515008, "size": 96576768, "ftype": "Q4_1"},
    }
    server.on["/v1/models"] = js({"data": [entry]})
    server.on["/props"] = js(
        {
            "default_generation_settings": {"n_ctx": 2048},
            "total_slots": 1,
            "model_path": "/models/toy.gguf",
            "build_info": "b1",
            "chat_template": "{% for m in messages %}{{ m['role'] }}{% endfor %}",
        }
    )
    server.on["/slots"] = js([{"id": 0, "n_ctx": 2048, "is_processing": False}])
    server.on[CHAT] = sse(
        chunk("one", model="toy.gguf"),
        chunk(finish="stop", model="toy.gguf"),
        {**usage(4), "model": "toy.gguf", "timings": {"cache_n": 3, "prompt_ms": 250.0, "predicted_ms": 500.0}},
    )
    return server


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "h:1/v1"])
def test_root_of(url):
    assert root_of(url) == "http://h:1"


def test_a_server_of_no_known_kind(server, make):
    card = make(url="/v1").open()
    assert (card.ref, card.runtime, card.server) == ("openai:toy", "openai", "unknown")
    assert (card.context, card.names_checked, card.system_role, card.template) == (None, True, "own", None)
    assert card.endpoint == f"loopback:{server.port}"
    assert card.probe_tokens_per_s is None or card.probe_tokens_per_s > 0


def test_a_llama_server(llama_server, make, ask):
    runtime = make()
    card = runtime.open()
    assert (card.server, card.runtime_version, card.quantisation) == ("llama-server", "b1", "Q4_1")
    assert (card.context, card.context_trained, card.slots) == (2048, 8192, 1)
    assert (card.parameters, card.template, card.names_checked) == ("134515008", True, False)
    assert card.probe_tokens_per_s == 8.0
    got = runtime.chat(ask()).usage
    assert (got.prompt_tokens, got.cached_tokens, got.prompt_s, got.generation_s) == (20, 3, 0.25, 0.5)


def test_field_case_43_the_smallest_slot_is_the_window(llama_server, make, case):
    props = json.loads((case(43) / "props.json").read_text())
    llama_server.on["/props"] = js({**props, "model_path": "/models/toy.gguf"})
    llama_server.on["/slots"] = js([{"n_ctx": 4096, "is_processing": True}, {"n_ctx": 1024}])
    card = make().open()
    assert (card.context, card.slots) == (1024, 4)
    assert any("foreign load" in note for note in card.notes)


def test_lm_studio(server, make):
    models = [
        {"id": "toy", "state": "loaded", "loaded_context_length": 4096, "max_context_length": 32768, "arch": "qwen2",
         "quantization": "Q4_K_M"},
        {"id": "other", "state": "not-loaded"},
    ]  # fmt: skip
    for path in ("/props", "/slots", "/api/version"):
        server.on[path] = js({"error": "Unexpected endpoint or method."})
    server.on["/api/v0/models"] = js({"data": models})
    card = make().open()
    assert (card.server, card.context, card.context_trained) == ("lm-studio", 4096, 32768)
    assert (card.family, card.quantisation) == ("qwen2", "Q4_K_M")


def test_vllm(server, make):
    server.on["/v1/models"] = js({"data": [{"id": "toy", "owned_by": "vllm", "max_model_len": 16384}]})
    server.on["/version"] = js({"version": "0.11"})
    card = make().open()
    assert (card.server, card.runtime_version, card.context) == ("vllm", "0.11", 16384)


def test_ollama_behind_v1_has_no_known_window(server, make):
    server.on["/api/version"] = js({"version": "0.9.3"})
    card = make().open()
    assert (card.server, card.context) == ("ollama", None)
    assert any("num_ctx" in note and "ollama:toy" in note for note in card.notes)


def test_a_declared_window(make):
    card = make(declared=4096).open()
    assert card.context == 4096
    assert "context declared by the user" in card.notes


def test_a_known_window_beats_a_declared_one(llama_server, make):
    assert make(declared=99999).open().context == 2048


def test_a_model_that_is_not_served(make):
    with pytest.raises(RuntimeFailure, match=r"does not serve nope.*it serves: toy, other") as caught:
        make("nope").open()
    assert (caught.value.status, caught.value.fatal) == ("not_installed", True)


def test_a_missing_base_url_names_the_flag(settings):
    runtime = OpenAIRuntime("openai:toy", "toy", RuntimeOptions(settings))
    with pytest.raises(RuntimeFailure, match="--llm-base-url") as caught:
        runtime.open()
    assert caught.value.fatal
    assert runtime.close() is None


@pytest.mark.parametrize("url", ["ftp://h/v1", "http://", "http://h:port/v1", "http://[h/v1"])
def test_a_broken_base_url(settings, url):
    runtime = OpenAIRuntime("openai:toy", "toy", RuntimeOptions(settings, base_url=url))
    with pytest.raises(RuntimeFailure) as caught:
        runtime.open()
    assert (caught.value.status, caught.value.fatal) == ("runtime_error", True)


def test_field_case_52_another_model_answers(server, make, case):
    asked = (case(52) / "request_model.txt").read_text().strip()
    served = json.loads((case(52) / "response.json").read_text())
    server.on["/v1/models"] = js({"data": [{"id": asked}]})
    server.on[CHAT] = js(served)
    with pytest.raises(RuntimeFailure, match=f"asked for {asked}, the server answered as gamma-1b:2") as caught:
        make(asked).open()
    assert (caught.value.status, caught.value.fatal) == ("runtime_error", True)


def test_field_case_52_names_that_are_not_checked(server, make, case):
    wrong = (case(52) / "probe_wrong_name_response.json").read_bytes()
    good = server.on[CHAT]
    server.on[CHAT] = lambda seen: Say((wrong,)) if seen.body["model"] != "toy" else good(seen)
    assert make().open().names_checked is False


def test_what_a_call_sends(server, make, ask):
    make(temperature=0.0).chat(ask(max_tokens=9))
    (body,) = server.sent(CHAT)
    assert body == {
        "model": "toy",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say something."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "seed": 7,
        "temperature": 0.0,
    }


@pytest.mark.parametrize(
    ("think", "sent"),
    [
        ("on", {"chat_template_kwargs": {"enable_thinking": True}}),
        ("off", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("low", {"reasoning_effort": "low"}),
    ],
)
def test_think(server, make, ask, think, sent):
    make(think=think, temperature=None).chat(ask())
    (body,) = server.sent(CHAT)
    assert sent.items() <= body.items()
    assert "temperature" not in body
    assert "tools" not in body


def test_comments_and_other_fields_are_no_data(server, make, ask):
    data = json.dumps(chunk("hi")).encode()
    server.on[CHAT] = Say((b": ping\n\nevent: x\nid: 4\ndata:" + data + b"\r\n\r\n", b"data: [DONE]"))
    assert make().chat(ask()).content == "hi"


def test_a_server_that_does_not_stream(server, make, ask):
    whole = {"model": "toy", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    server.on[CHAT] = js(whole)
    assert make().chat(ask()).content == "hi"


def test_without_done_nothing_was_measured(server, make, ask):
    server.on[CHAT] = sse(chunk("hi"), chunk(finish="stop"), done=False)
    with pytest.raises(RuntimeFailure, match="end marker"):
        make().chat(ask())


OVERLONG = {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_prompt_tokens": 4031,
                      "n_ctx": 2048}}  # fmt: skip


@pytest.mark.parametrize("say", [js(OVERLONG, 400), sse(OVERLONG, done=False)], ids=["status", "in the stream"])
def test_an_over_long_prompt(server, make, ask, say):
    server.on[CHAT] = say
    with pytest.raises(RuntimeFailure) as caught:
        make().chat(ask())
    assert caught.value.status == "unsupported"
    assert caught.value.reason.startswith("prompt_too_long: needs 4031 tokens, the window has 2048")


def test_vllm_words_for_an_over_long_prompt(server, make, ask):
    server.on[CHAT] = js({"message": "This model's maximum context length is 8192 tokens.", "code": 400}, 400)
    with pytest.raises(RuntimeFailure, match=r"^prompt_too_long"):
        make().chat(ask())


def test_a_model_that_vanished(server, make, ask):
    server.on[CHAT] = js({"error": {"message": 'model "toy" not found, try pulling it first'}}, 404)
    with pytest.raises(RuntimeFailure) as caught:
        make().chat(ask())
    assert (caught.value.status, caught.value.fatal) == ("not_installed", True)


def test_an_old_llama_server_error_field(server, make, ask):
    server.on[CHAT] = Say((b'error: {"code": 500, "message": "slot lost"}\n\n',))
    with pytest.raises(RuntimeFailure, match="slot lost"):
        make().chat(ask())


def test_field_case_57_cached_tokens(case):
    data = json.loads((case(57) / "usage_openai.json").read_text())
    got = usage_of(data["usage"], {})
    assert (got.prompt_tokens, got.cached_tokens) == (8112, 8111)


def test_field_case_44_finish_stop_with_only_thinking(server, make, ask, case):
    server.on[CHAT] = Say(((case(44) / "response_stop.json").read_bytes(),))
    reply = make().chat(ask(max_tokens=256))
    assert (reply.content, reply.thinking_field, reply.stop_reason) == ("", "reasoning_content", "max_tokens")


def test_system_role_refused(server, make):
    good = server.on[CHAT]

    def chat(seen):
        if any(m["role"] == "system" for m in seen.body["messages"]):
            return js({"error": {"message": "Jinja Exception: System role not supported"}}, 500)
        return good(seen)

    server.on[CHAT] = chat
    assert make().open().system_role == "merged"


def test_counting_tokens_on_a_llama_server(llama_server, make):
    llama_server.on["/apply-template"] = lambda seen: js({"prompt": seen.body["messages"][0]["content"]})
    llama_server.on["/tokenize"] = lambda seen: js({"tokens": list(range(len(seen.body["content"])))})
    runtime = make()
    assert runtime.count_tokens([Message("user", "12345")]) is None
    runtime.open()
    assert runtime.count_tokens([Message("user", "12345")]) == 5
    llama_server.on["/tokenize"] = js({"error": "no"}, 500)
    assert runtime.count_tokens([Message("user", "12345")]) is None


def test_after_an_aborted_call_it_waits_for_the_idle_slot(llama_server, make, ask):
    runtime = make()
    runtime.open()
    busy = [True, True, False]
    llama_server.on["/slots"] = lambda seen: js([{"n_ctx": 2048, "is_processing": busy.pop(0)}])
    llama_server.on[CHAT] = sse(chunk("half", model="toy"), Hang())
    runtime.settings = dataclasses.replace(
        runtime.settings, deadlines=dataclasses.replace(runtime.settings.deadlines, stall_s=0.4)
    )
    assert runtime.chat(ask()).stop_reason == "stall"
    assert busy == []


class TestApiKey:
    def test_it_goes_into_the_header_only(self, server, make, ask, caplog):
        caplog.set_level(logging.DEBUG)
        runtime = make(key=KEY)
        runtime.open()
        runtime.chat(ask())
        assert {seen.headers["Authorization"] for seen in server.seen} == {f"Bearer {KEY}"}
        assert KEY not in caplog.text
        assert KEY not in repr(runtime)
        assert KEY not in repr(runtime.wire)

    @pytest.mark.parametrize("status", [200, 400, 401, 500])
    def test_an_echo_in_an_error_is_redacted(self, server, make, ask, status):
        server.on[CHAT] = lambda seen: js({"error": {"message": f"bad {seen.headers['Authorization']}"}}, status)
        with pytest.raises(RuntimeFailure) as caught:
            make(key=KEY).chat(ask())
        assert KEY not in caught.value.reason
        assert caught.value.__cause__ is None
        assert "[API key]" in caught.value.reason

    def test_an_echo_in_a_reply_is_redacted(self, server, make, ask):
        raw = json.dumps(chunk(f"key {KEY}!")).encode()
        server.on[CHAT] = Say((b"data: " + raw[:60], 0.02, raw[60:] + b"\n\n", *sse(chunk(finish="stop")).pieces))
        wire = []
        assert make(key=KEY).chat(ask(on_wire=wire.append)).content == "key [API key]!"
        assert KEY.encode() not in b"".join(wire)

    @pytest.mark.parametrize("key", ["schlüssel-0123", "sk-0123456789\nX-Evil: 1"])
    def test_a_key_that_no_header_carries(self, make, key):
        with pytest.raises(RuntimeFailure, match="API key") as caught:
            make(key=key).open()
        assert key not in str(caught.value)

    def test_refused(self, server, make):
        server.on["/v1/models"] = js({"error": {"message": "Invalid API key"}}, 401)
        with pytest.raises(RuntimeFailure, match="check the API key") as caught:
            make(key=KEY).open()
        assert caught.value.fatal


def test_a_real_ollama_behind_v1(real_ollama, patient):
    name = "smollm2:135m"
    if name not in [entry["id"] for entry in httpx.get(f"{real_ollama}/v1/models", trust_env=False).json()["data"]]:
        pytest.skip(f"{name} is not in the Ollama at {real_ollama}")
    runtime = OpenAIRuntime(f"openai:{name}", name, RuntimeOptions(patient, base_url=f"{real_ollama}/v1"))
    card = runtime.open()
    assert (card.server, card.context, card.names_checked) == ("ollama", None, True)
    reply = runtime.chat(Request((Message("system", "Be brief."), Message("user", "Tell me a story.")), 8, 1))
    assert (reply.stop_reason, reply.usage.completion_tokens) == ("max_tokens", 8)
    runtime.close()
