"""The Ollama runtime: against a scripted server for what a real one rarely does, and against a real one."""

from __future__ import annotations

import dataclasses
import json

import httpx
import pytest
from runtimes.conftest import OLLAMA_DONE, ollama_says
from runtimes.loopback import Say, js, ndjson

from pytest_llmbench.runtimes.base import Message, Request, RuntimeFailure, RuntimeOptions
from pytest_llmbench.runtimes.ollama import OllamaRuntime, has_roles, parse_ollama_host, usage_of


@pytest.fixture
def make(server, settings, ollama_script):
    server.on.update(ollama_script)

    def build(**changes):
        options = RuntimeOptions(dataclasses.replace(settings, **changes), environ={"OLLAMA_HOST": server.url})
        return OllamaRuntime("toy:1b", "toy:1b", options)

    return build


@pytest.mark.parametrize(
    ("value", "url"),
    [
        (None, "http://127.0.0.1:11434"),
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("box", "http://box:11434"),
        ("box:99", "http://box:99"),
        (" 'box:99' ", "http://box:99"),
        (":99", "http://127.0.0.1:99"),
        ("http://box:99/ollama/", "http://box:99/ollama"),
        ("https://box:99", "https://box:99"),
        ("https://box", "https://box:443"),
        ("::1", "http://[::1]:11434"),
        ("[::]:99", "http://127.0.0.1:99"),
        ("me:word@box:99", "http://me:word@box:99"),
    ],
)
def test_ollama_host(value, url):
    assert parse_ollama_host(value) == url


@pytest.mark.parametrize("value", ["box:port", "box:99999", "http://[box"])
def test_a_broken_ollama_host_names_the_variable(value):
    with pytest.raises(RuntimeFailure, match="OLLAMA_HOST"):
        parse_ollama_host(value)


def test_has_roles():
    assert has_roles("{{ range .Messages }}{{ .Role }}{{ end }}")
    assert has_roles("{{ .System }} USER: {{ .Prompt }}")
    assert not has_roles("{{ .Prompt }}")


def test_the_card(server, make):
    runtime = make()
    card = runtime.open()
    assert (card.ref, card.runtime, card.runtime_version, card.digest) == ("toy:1b", "ollama", "0.9.3", "d1")
    assert (card.family, card.parameters, card.quantisation) == ("toy", "1B", "Q4_0")
    assert (card.context, card.context_trained) == (2048, 8192)
    assert (card.template, card.system_role, card.capabilities) == (True, "own", ("completion",))
    assert card.probe_tokens_per_s == 2.0
    assert card.load_s is not None
    assert card.endpoint == f"loopback:{server.port}"
    assert card.notes == ()
    load, probe = server.sent("/api/chat")
    assert (load["messages"], load["options"]) == ([], {"num_ctx": 2048})
    assert (probe["options"]["num_predict"], probe["options"]["temperature"]) == (16, 0.0)
    assert runtime.close() == 2.0
    assert server.sent("/api/chat")[-1]["keep_alive"] == 0


def test_what_a_call_sends(server, make, ask):
    runtime = make(temperature=None, think="off")
    runtime.chat(ask(max_tokens=9))
    (body,) = server.sent("/api/chat")
    assert body["options"] == {"num_ctx": 2048, "num_predict": 9, "seed": 7}
    assert (body["stream"], body["think"], body["model"]) == (True, False, "toy:1b")
    assert [m["role"] for m in body["messages"]] == ["system", "user"]


@pytest.mark.parametrize(("think", "sent"), [("on", True), ("off", False), ("high", "high")])
def test_think(server, make, ask, think, sent):
    make(think=think).chat(ask())
    assert server.sent("/api/chat")[0]["think"] is sent or sent == "high"


def test_notes_about_template_foreign_load_and_window(server, make):
    server.on["/api/show"] = js({"template": "{{ .Prompt }}", "model_info": {"x.context_length": 1024}})
    server.on["/api/ps"] = js({"models": [{"name": "big:70b"}, {"name": "toy:1b", "context_length": 512}]})
    card = make().open()
    assert (card.template, card.context, card.context_trained) == (False, 512, 1024)
    assert "the chat template is missing" in card.notes
    assert any("foreign load: big:70b" in note for note in card.notes)
    assert any("512 tokens instead of 1024" in note for note in card.notes)


def test_a_missing_model_names_the_command(server, make):
    server.on["/api/show"] = js({"error": "model 'toy:1b' not found"}, 404)
    with pytest.raises(RuntimeFailure, match="\nollama pull toy:1b") as caught:
        make().open()
    assert (caught.value.status, caught.value.fatal) == ("not_installed", True)


def test_a_model_that_cannot_think(server, make):
    server.on["/api/chat"] = lambda seen: (
        js({"error": "toy:1b does not support thinking"}, 400) if seen.body["messages"] else js({"done": True})
    )
    with pytest.raises(RuntimeFailure, match="think=on") as caught:
        make(think="on").open()
    assert (caught.value.status, caught.value.fatal) == ("unsupported", True)


def test_a_template_without_system_role_gets_it_merged(server, make, ask):
    def chat(seen):
        if any(m["role"] == "system" for m in seen.body["messages"]):
            return js({"error": "template: System role not supported"}, 500)
        return ndjson(ollama_says("x"), OLLAMA_DONE) if seen.body["messages"] else js({"done": True})

    server.on["/api/chat"] = chat
    runtime = make()
    assert runtime.open().system_role == "merged"
    assert runtime.chat(ask("Hello")).content == "x"
    assert server.sent("/api/chat")[-1]["messages"] == [{"role": "user", "content": "Be brief.\n\nHello"}]


def test_field_case_42_refused_for_length(server, make, ask, case):
    meta = json.loads((case(42) / "request_meta.json").read_text())
    server.on["/api/chat"] = Say(((case(42) / "response_400.json").read_bytes(),), 400)
    with pytest.raises(RuntimeFailure, match=r"^prompt_too_long") as caught:
        make(context=8192).chat(ask("x" * meta["prompt_chars"]))
    assert (caught.value.status, caught.value.fatal) == ("unsupported", False)
    server.on["/api/chat"] = js({"error": "bad option"}, 400)
    with pytest.raises(RuntimeFailure) as caught:
        make(context=8192).chat(ask("short"))
    assert caught.value.status == "runtime_error"


def test_field_case_42_the_counts_are_passed_on(server, make, ask, case):
    server.on["/api/chat"] = Say(((case(42) / "response.json").read_bytes().replace(b"tiny:1b", b"toy:1b"),))
    assert make(context=8192).chat(ask()).usage.prompt_tokens == 4098


def test_field_case_44_thinking_took_the_whole_cap(server, make, ask, case):
    server.on["/api/chat"] = Say(((case(44) / "response.json").read_bytes().replace(b"thinker:4b", b"toy:1b"),))
    reply = make().chat(ask(max_tokens=256))
    assert (reply.content, reply.thinking_field, reply.stop_reason) == ("", "thinking", "max_tokens")
    assert reply.thinking.startswith("First I list")


def test_the_window_was_full_before_the_cap(server, make, ask):
    server.on["/api/chat"] = ndjson(ollama_says("x"), {**OLLAMA_DONE, "done_reason": "length"})
    assert make().chat(ask(max_tokens=64)).stop_reason == "context_full"
    assert make().chat(ask(max_tokens=4)).stop_reason == "max_tokens"


def test_field_case_59_load_time_stands_apart(case):
    for name, load_s in (("first", 48.1), ("second", 0.061)):
        usage = usage_of(json.loads((case(59) / f"{name}.json").read_text()))
        assert usage.load_s == pytest.approx(load_s)
        assert usage.completion_tokens / usage.generation_s == pytest.approx(31.25)


def test_tool_calls_are_flagged(server, make, ask):
    message = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}
    server.on["/api/chat"] = ndjson({"message": message, "done": False}, OLLAMA_DONE)
    assert make().chat(ask()).flags == ("tool_calls_in_response",)


def test_latest_and_case_make_no_other_model(server, settings, ask):
    server.on["/api/chat"] = ndjson({**OLLAMA_DONE, "model": "toy:latest"})
    runtime = OllamaRuntime("Toy", "Toy", RuntimeOptions(settings, environ={"OLLAMA_HOST": server.url}))
    assert runtime.chat(ask()).served_model == "toy:latest"


def test_close_never_raises(server, make):
    runtime = make()
    runtime.open()
    server.on["/api/chat"] = js({"error": "no"}, 500)
    assert runtime.close() is None
    assert runtime.close() is None


def test_no_server(settings, unused_port):
    options = RuntimeOptions(settings, environ={"OLLAMA_HOST": f"127.0.0.1:{unused_port}"})
    with pytest.raises(RuntimeFailure, match="ollama serve") as caught:
        OllamaRuntime("toy", "toy", options).open()
    assert caught.value.fatal


@pytest.mark.parametrize("body", [{"version": None}, [], {"models": 5}])
def test_odd_answers_do_not_break_open(server, make, body):
    for path in ("/api/tags", "/api/ps", "/api/show"):
        server.on[path] = js(body if isinstance(body, dict) else {})
    card = make().open()
    assert (card.digest, card.template) == (None, None)


class TestRealOllama:
    @pytest.fixture
    def runtime(self, real_ollama, patient):
        name = "smollm2:135m"
        tags = httpx.get(f"{real_ollama}/api/tags", trust_env=False).json()["models"]
        if name not in [tag["name"] for tag in tags]:
            pytest.skip(f"{name} is not in the Ollama at {real_ollama}")
        runtime = OllamaRuntime(name, name, RuntimeOptions(patient, environ={"OLLAMA_HOST": real_ollama}))
        yield runtime
        runtime.close()

    def test_open_chat_close(self, runtime, real_ollama):
        card = runtime.open()
        assert card.context == 2048
        assert card.context_trained == 8192
        assert card.quantisation == "Q4_1"
        assert card.template is True
        assert card.probe_tokens_per_s > 0
        request = Request((Message("system", "Be brief."), Message("user", "Name the capital of France.")), 12, 1)
        one, two = runtime.chat(request), runtime.chat(request)
        assert one.content == two.content != ""
        assert one.usage.completion_tokens <= 12
        assert two.usage.prompt_shared == 1.0
        assert one.usage.generation_s > 0
        assert runtime.close() > 0

    def test_it_cannot_think(self, runtime):
        runtime.settings = dataclasses.replace(runtime.settings, think="on")
        with pytest.raises(RuntimeFailure) as caught:
            runtime.open()
        assert caught.value.status == "unsupported"

    def test_an_unknown_model(self, real_ollama, patient):
        options = RuntimeOptions(patient, environ={"OLLAMA_HOST": real_ollama})
        with pytest.raises(RuntimeFailure, match="ollama pull no-such-model") as caught:
            OllamaRuntime("no-such-model", "no-such-model", options).open()
        assert caught.value.status == "not_installed"
