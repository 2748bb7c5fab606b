"""One streamed call: decoding, deadlines, loops, failures. Against a real server on loopback."""

from __future__ import annotations

import dataclasses
import itertools
import json
import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtimes.conftest import OLLAMA_DONE, ollama_says
from runtimes.loopback import Die, Hang, Say, js, ndjson, words

from pytest_llmbench.runtimes.base import Deadlines, Message, RuntimeFailure, RuntimeOptions
from pytest_llmbench.runtimes.ollama import OllamaRuntime
from pytest_llmbench.runtimes.openai import OpenAIRuntime, event_of
from pytest_llmbench.runtimes.stream import (
    REDACTED,
    CallClock,
    Lines,
    Redactor,
    RepetitionGuard,
    Said,
    alternate,
    as_count,
    as_number,
    cut,
    is_loopback,
    place,
    shared_start,
    shown,
    smallest_period,
    stop_reason,
    thinking_of,
    whole_text,
)


@pytest.fixture
def runtime(server, settings):
    server.on["/api/version"] = js({"version": "1"})
    return OllamaRuntime("toy:1b", "toy:1b", RuntimeOptions(settings, environ={"OLLAMA_HOST": server.url}))


def with_limits(runtime, **limits):
    deadlines = dataclasses.replace(runtime.settings.deadlines, **limits)
    runtime.settings = dataclasses.replace(runtime.settings, deadlines=deadlines)
    return runtime


# Pure decisions.


def test_field_case_51_the_stall_limit_expires_at_the_right_moment(case):
    limits = json.loads((case(51) / "limits.json").read_text())
    expected = json.loads((case(51) / "expected.json").read_text())
    now = 0.0
    clock = CallClock(Deadlines(1.0, limits["first_byte_s"], limits["idle_s"], limits["item_s"]), clock=lambda: now)
    assert clock.deadline() == (600.0, "first_token")
    clock.token(41.0, answer=True)
    clock.token(44.2, answer=True)
    assert clock.expired(344.1) is None
    assert clock.deadline() == (pytest.approx(expected["at"]), "stall")
    assert clock.expired(344.3) == "stall"


def test_the_call_limit_holds_however_lively_the_stream_is():
    clock = CallClock(Deadlines(1, 10, 10, 30), clock=lambda: 0.0)
    for second in range(30):
        clock.token(float(second), answer=True)
    assert clock.expired(29.9) is None
    assert clock.expired(30.0) == "call"


def test_field_case_60_first_token_of_any_channel(case):
    expected = json.loads((case(60) / "expected.json").read_text())
    said = Said(CallClock(Deadlines(1, 100, 100, 100), clock=lambda: 0.0))
    for line in (case(60) / "stream_times.jsonl").read_text().splitlines():
        data = json.loads(line)
        said.take(event_of({"choices": [{"delta": data.get("delta", {})}], "usage": data.get("usage")}), data["t"])
    usage = said.full_usage(None)
    assert usage.ttft_s == expected["ttft_s"]
    assert usage.ttfa_s == expected["ttfa_s"]
    assert usage.completion_tokens / usage.generation_s == pytest.approx(expected["gen_tok_s"])
    assert usage.longest_gap_s == pytest.approx(9.0)


def test_field_case_49_chunk_borders(case):
    expected = json.loads((case(49) / "expected.json").read_text())
    lines = Lines()
    got = [line for number in (1, 2, 3) for line in lines.feed((case(49) / f"chunk_{number}.bin").read_bytes())]
    data = [json.loads(line) for line in got + lines.flush()]
    assert data[0]["message"]["content"] == expected["text"]
    assert (data[-1]["eval_count"], data[-1]["done_reason"]) == (expected["eval_count"], expected["done_reason"])


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"))), st.data())
def test_lines_come_out_whole_however_they_are_cut(texts, data):
    raw = "".join(f"{text}\n" for text in texts).encode() + b"rest"
    lines, got = Lines(), []
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        got += lines.feed(raw[:size])
        raw = raw[size:]
    assert got + lines.flush() == [*texts, "rest"]


def test_only_a_newline_ends_a_line():
    assert Lines().feed("a\u2028b\x0bc\x85d\r\n".encode()) == ["a\u2028b\x0bc\x85d"]


@given(st.text("ab", min_size=1, max_size=40))
def test_smallest_period_is_the_smallest(text):
    slow = next(p for p in range(1, len(text) + 1) if all(text[i] == text[i - p] for i in range(p, len(text))))
    assert smallest_period(text) == slow


@pytest.mark.parametrize(
    ("text", "circle"),
    [
        ("".join(words(400)), False),
        ("The same line again.\n" * 100, True),
        ("\n \t  \n\n" * 300, True),
        ("x" * 2000, True),
        ("".join(chr(0x4E00 + i) for i in range(300)) * 5, False),
    ],
    ids=["prose", "line", "white space", "letter", "longer period"],
)
@pytest.mark.parametrize("step", [1, 7, 5000])
def test_repetition(text, circle, step):
    guard = RepetitionGuard(tail=600, period=200)
    assert any(guard.feed(text[i : i + step]) for i in range(0, len(text), step)) is circle


def test_repetition_takes_linear_time():
    guard = RepetitionGuard(tail=4000, period=500)
    start = time.perf_counter()
    for index in range(20_000):
        guard.feed("ab" * 8 if index % 40 else "c")
    assert time.perf_counter() - start < 5


@given(st.binary(max_size=60), st.binary(max_size=60), st.data())
def test_a_secret_is_cut_out_wherever_the_chunks_end(before, after, data):
    secret = "sk-0123456789"
    raw = before + secret.encode() + after
    redactor, got = Redactor(secret), b""
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        got += redactor.feed(raw[:size])
        raw = raw[size:]
    got += redactor.flush()
    assert got == before + REDACTED.encode() + after


def test_a_placeholder_key_leaves_replies_alone():
    assert Redactor("none").feed(b"none of them") == b"none of them"


def test_field_case_54_roles_alternate(case):
    messages = [Message(m["role"], m["content"]) for m in json.loads((case(54) / "messages.json").read_text())]
    sent = json.loads((case(54) / "expected.json").read_text())["messages_sent"]
    got = [[m.role, m.content] for m in alternate(messages, merge_system=True)]
    got[1][1] = got[1][1].partition("{")[0] + "..."  # the case abbreviates the call
    assert got == sent
    own = alternate(messages, merge_system=False)
    assert [m.role for m in own] == ["system", "user", "assistant", "user"]


@given(st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant"]), st.text())), st.booleans())
def test_alternate_never_leaves_equal_neighbours_or_loses_text(messages, merge):
    merged = alternate(messages, merge)
    assert all(one.role != other.role for one, other in itertools.pairwise(merged))
    assert not (merge and any(m.role == "system" for m in merged))
    assert "".join(m.content for m in messages if m.content).replace("\n", "") == "".join(
        m.content for m in merged
    ).replace("\n", "")
    assert alternate(merged, merge) == merged


@pytest.mark.parametrize("name", ["a_native", "b_reasoning", "c_reasoning_content", "d_empty_field_tags", "f_null"])
def test_field_case_46_names_of_the_thinking_field(case, name):
    data = json.loads((case(46) / f"{name}.json").read_text())
    message = data["message"] if "message" in data else data["choices"][0]["message"]
    event = event_of({"choices": [{"message": message}]})
    wanted = {"a_native": "thinking", "b_reasoning": "reasoning", "d_empty_field_tags": None}
    assert event.thinking_field == wanted.get(name, "reasoning_content")
    assert thinking_of(message)[1] == ("" if name == "d_empty_field_tags" else "4+6+4")
    assert event.content == (message["content"] or "")


def test_small_readers():
    assert shared_start("abcd", "abxx") == 0.5
    assert (shared_start("", "a"), shared_start("a", "")) == (0.0, 0.0)
    assert cut("aä", 2) == "a"
    assert whole_text(["\ud83d", "\ude00", "\ud800"]) == "\U0001f600\ud800"
    assert as_number(10**400) is None
    assert as_number(True) is None
    assert as_count(-1) is None
    assert shown("http://me:secret@host:1/v1?k=secret") == "http://host:1/v1"
    assert (place("http://127.0.0.2:81/x"), place("https://[::1]"), place("http://box:1")) == (
        "loopback:81",
        "loopback:443",
        "remote",
    )
    assert is_loopback("localhost")
    assert not is_loopback("localhost.evil.example")


@pytest.mark.parametrize(
    ("finish", "tokens", "reason"),
    [
        ("stop", 5, "stop"),
        ("stop", 64, "max_tokens"),
        ("length", 64, "max_tokens"),
        ("length", 63, "context_full"),
        ("length", None, "max_tokens"),
        (None, None, "stop"),
    ],
)
def test_stop_reason(finish, tokens, reason):
    assert stop_reason(finish, tokens, 64) == reason


# Calls.


def test_a_call_gives_text_times_and_every_raw_byte(server, runtime, ask):
    server.on["/api/chat"] = ndjson(0.05, ollama_says("one"), 0.1, ollama_says(" two"), OLLAMA_DONE)
    wire = []
    reply = runtime.chat(ask(on_wire=wire.append))
    assert (reply.content, reply.stop_reason, reply.server_stop) == ("one two", "stop", "stop")
    assert b"".join(wire) == b"".join(server.on["/api/chat"].pieces[i] for i in (1, 3, 4))
    usage = reply.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.prompt_s, usage.generation_s) == (20, 4, 0.5, 2.0)
    assert 0.04 < usage.ttft_s < usage.elapsed_s
    assert usage.ttfa_s == usage.ttft_s
    assert usage.longest_gap_s > 0.08
    assert usage.reply_bytes == len("one two")
    assert usage.prompt_shared is None


def test_pieces_of_answer_and_thinking_are_handed_on_as_they_come(server, runtime, ask):
    thinks = {"model": "toy:1b", "message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False}
    says = [ollama_says("one"), ollama_says(" two"), ollama_says("")]
    server.on["/api/chat"] = ndjson(thinks, *says, OLLAMA_DONE)
    pieces = []
    assert runtime.chat(ask(on_piece=pieces.append)).content == "one two"
    assert pieces == ["hm", "one", " two"]


def test_the_share_of_the_previous_prompt(server, runtime, ask):
    server.on["/api/chat"] = ndjson(ollama_says("x"), OLLAMA_DONE)
    runtime.chat(ask("12345"))
    assert runtime.chat(ask("12345")).usage.prompt_shared == 1.0
    assert 0 < runtime.chat(ask("x2345")).usage.prompt_shared < 1


def test_cut_characters_and_a_last_line_without_newline(server, runtime, ask, case):
    pieces = [(case(49) / f"chunk_{number}.bin").read_bytes() for number in (1, 2, 3)]
    server.on["/api/chat"] = Say((pieces[0], 0.02, pieces[1], 0.02, pieces[2].rstrip(b"\n")))
    reply = runtime.chat(ask())
    assert reply.content == json.loads((case(49) / "expected.json").read_text())["text"]
    assert reply.usage.completion_tokens == 7


def test_field_case_47_an_error_line_is_never_a_reply(server, runtime, ask, case):
    server.on["/api/chat"] = Say(((case(47) / "stream.ndjson").read_bytes(),))
    with pytest.raises(RuntimeFailure, match="while running the model, after 9 characters") as caught:
        runtime.chat(ask())
    assert (caught.value.status, caught.value.fatal) == ("runtime_error", False)


@pytest.mark.parametrize(
    "say",
    [
        ndjson(ollama_says("ANSWER: 1")),
        ndjson(ollama_says("ANSWER: 1"), Die()),
        Say((b'{"message": {"content": "ANSWER: 1"}}\n<html>no JSON</html>\n',)),
        Say((b"[" * 100_000 + b"\n",)),
        ndjson({"message": {"content": {"a": 1}}, "done": True}),
    ],
    ids=["no end marker", "reset", "no JSON", "deep", "content no text"],
)
def test_a_broken_stream_is_a_failure(server, runtime, ask, say):
    server.on["/api/chat"] = say
    with pytest.raises(RuntimeFailure) as caught:
        runtime.chat(ask())
    assert (caught.value.status, caught.value.fatal) == ("runtime_error", False)


def test_no_token_at_all_measures_nothing(server, runtime, ask):
    server.on["/api/chat"] = Say((Hang(),))
    start = time.monotonic()
    with pytest.raises(RuntimeFailure, match=r"no token within 0\.3 s") as caught:
        with_limits(runtime, first_token_s=0.3).chat(ask())
    assert caught.value.status == "runtime_error"
    assert time.monotonic() - start < 1.5
    assert server.closed_by_client.wait(1)


def test_keep_alive_bytes_are_no_tokens(server, settings, ask):
    beats = [piece for _ in range(100) for piece in (b": ping\n\n", 0.02)]
    server.on["/v1/chat/completions"] = Say(tuple(beats))
    runtime = OpenAIRuntime("r", "toy", RuntimeOptions(settings, base_url=server.url))
    with pytest.raises(RuntimeFailure, match="first_token_s"):
        with_limits(runtime, first_token_s=0.3).chat(ask())


def test_a_stall_keeps_what_was_said_and_closes_the_socket(server, runtime, ask):
    server.on["/api/chat"] = ndjson(ollama_says("half"), Hang())
    reply = with_limits(runtime, stall_s=0.3).chat(ask())
    assert (reply.content, reply.stop_reason) == ("half", "stall")
    assert reply.usage.elapsed_s >= 0.3
    assert server.closed_by_client.wait(1)


def test_the_whole_call_has_a_limit(server, runtime, ask):
    server.on["/api/chat"] = ndjson(*[piece for word in words(100) for piece in (ollama_says(word), 0.03)])
    reply = with_limits(runtime, call_s=0.3).chat(ask())
    assert reply.stop_reason == "call_timeout"
    assert reply.content.startswith("word0 word1")


def test_a_reply_in_a_circle_is_cut(server, runtime, ask):
    server.on["/api/chat"] = ndjson(*[ollama_says("again and again. ")] * 500, Hang())
    reply = runtime.chat(ask())
    assert reply.stop_reason == "repetition"
    assert 600 <= len(reply.content) < 1200


def test_a_reply_beyond_its_bytes_is_cut(server, runtime, ask):
    runtime.settings = dataclasses.replace(runtime.settings, reply_bytes=50)
    server.on["/api/chat"] = ndjson(*[ollama_says(word) for word in words(100)], Hang())
    reply = runtime.chat(ask())
    assert reply.stop_reason == "reply_bytes"
    assert len(reply.content) == reply.usage.reply_bytes == 50


def test_an_endless_line_is_a_failure(server, runtime, ask, monkeypatch):
    monkeypatch.setattr("pytest_llmbench.runtimes.stream.BODY_BYTES", 10_000)
    server.on["/api/chat"] = Say((b"x" * 8_000,) * 4)
    with pytest.raises(RuntimeFailure, match="line of more than"):
        runtime.chat(ask())


def test_ctrl_c_ends_a_hanging_call_and_its_socket(server, runtime, ask):
    server.on["/api/chat"] = Say((Hang(),))
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            runtime.chat(ask())
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - start < 1.5
    assert server.closed_by_client.wait(1)


def test_no_reader_thread_is_left(server, runtime, ask):
    before = threading.active_count()
    server.on["/api/chat"] = ndjson(ollama_says("half"), Hang())
    with_limits(runtime, stall_s=0.2).chat(ask())
    assert [t.name for t in threading.enumerate() if "_read" in t.name] == []
    assert threading.active_count() <= before + 1


# Dead servers.


def test_a_refused_connection_is_fatal_and_names_url_and_way_out(runtime, ask, unused_port):
    runtime.url = f"http://127.0.0.1:{unused_port}"
    with pytest.raises(RuntimeFailure, match=rf"127\.0\.0\.1:{unused_port}.*ollama serve") as caught:
        runtime.chat(ask())
    assert (caught.value.status, caught.value.fatal) == ("runtime_error", True)


def test_after_a_fatal_failure_the_network_is_left_alone(server, runtime, ask):
    server.on["/api/chat"] = ndjson({**OLLAMA_DONE, "model": "impostor:3b"})
    with pytest.raises(RuntimeFailure, match=r"asked for toy:1b, the server answered as impostor:3b") as first:
        runtime.chat(ask())
    seen = len(server.seen)
    with pytest.raises(RuntimeFailure) as second:
        runtime.chat(ask())
    assert second.value.reason == first.value.reason
    assert second.value.fatal
    assert len(server.seen) == seen


def test_errors_of_a_live_server_are_fatal_only_in_a_row(server, runtime, ask):
    good, bad = ndjson(ollama_says("x"), OLLAMA_DONE), js({"error": "out of luck"}, 500)
    for say in (bad, bad, good, bad, bad):
        server.on["/api/chat"] = say
        if say is good:
            runtime.chat(ask())
            continue
        with pytest.raises(RuntimeFailure, match="HTTP 500: out of luck") as caught:
            runtime.chat(ask())
        assert not caught.value.fatal
    with pytest.raises(RuntimeFailure, match="3 calls in a row") as caught:
        runtime.chat(ask())
    assert caught.value.fatal


def test_redirects_are_not_followed(server, runtime, ask):
    server.on["/api/chat"] = Say((b"",)[:0], 307, (("Location", f"{server.url}/elsewhere"),))
    with pytest.raises(RuntimeFailure, match="redirect") as caught:
        runtime.chat(ask())
    assert caught.value.fatal
    assert server.sent("/elsewhere") == []


def test_no_proxy_for_this_machine(server, runtime, ask, monkeypatch, unused_port):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{unused_port}")
    server.on["/api/chat"] = ndjson(ollama_says("x"), OLLAMA_DONE)
    assert runtime.chat(ask()).content == "x"


def test_field_case_54_a_template_exception_is_ours(server, settings, ask, case):
    server.on["/v1/chat/completions"] = Say(((case(54) / "response.json").read_bytes(),), 500)
    runtime = OpenAIRuntime("r", "toy", RuntimeOptions(settings, base_url=server.url))
    with pytest.raises(RuntimeFailure, match="must alternate") as caught:
        runtime.chat(ask())
    assert (caught.value.status, caught.value.fatal) == ("harness_error", False)
    assert len(server.sent("/v1/chat/completions")) == 1
