"""Whether a model sees is found out before its first picture, and pictures arrive as they were drawn."""

from __future__ import annotations

import dataclasses
import random

import pytest
from levels.painter import Painter, answer, code_in
from runtimes.loopback import js, serving

from pytest_llmbench.bank import load_bank, packaged_bank
from pytest_llmbench.campaign.vision import VISION, blindness, look, picture_of, random_code
from pytest_llmbench.drawing import pixels
from pytest_llmbench.grading.grade import delivery_of, grade
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.harness.single import ask, check_fit, opening, picture_room, turn_of
from pytest_llmbench.runtimes.base import Message, Request, RuntimeFailure, RuntimeOptions
from pytest_llmbench.runtimes.embedded import EmbeddedRuntime
from pytest_llmbench.runtimes.ollama import OllamaRuntime
from pytest_llmbench.runtimes.openai import OpenAIRuntime

ITEMS = {item.spec.id: item for item in load_bank(packaged_bank() / "level_m")}
SETTINGS = Profile().settings()


@pytest.fixture
def painter():
    return Painter()


@pytest.fixture
def server():
    with serving() as loopback:
        yield loopback


@pytest.fixture
def ollama(server, painter):
    def make(capabilities=("completion", "vision"), **script):
        server.on.update(painter.ollama(None if capabilities is None else list(capabilities)) | script)
        return OllamaRuntime("toy:1b", "toy:1b", RuntimeOptions(SETTINGS, environ={"OLLAMA_HOST": server.url}))

    return make


@pytest.fixture
def openai(server, painter):
    def make(**script):
        server.on.update(painter.openai() | {f"/{path.replace('__', '/')}": say for path, say in script.items()})
        return OpenAIRuntime("openai:toy", "toy", RuntimeOptions(SETTINGS, base_url=server.url))

    return make


def points(item, instance, reply):
    return sum(row.earned for row in grade(item.task, instance, delivery_of(item.spec, reply)).rows)


@pytest.mark.parametrize("protocol", ["ollama", "openai"])
@pytest.mark.parametrize("name", ["M02", "M03"])
def test_one_who_sees_earns_every_point_from_the_pixels_alone(request, painter, protocol, name):
    runtime = request.getfixturevalue(protocol)()
    card = runtime.open()
    for variant, run in ((0, 1), (0, 2), (7, 1)):
        instance = ITEMS[name].build(variant, run)
        turn = ask(opening(instance), 1000, 1, runtime, card, Profile(), lambda piece: None)
        assert points(ITEMS[name], instance, turn.content) == 10
        assert painter.seen.pop() == pixels(instance.images[0])


@pytest.mark.parametrize("name", ["M02", "M03"])
def test_another_picture_gives_another_answer(name):
    item = ITEMS[name]
    one, other = item.build(0, 1), item.build(0, 2)
    text = opening(one)[-1].content
    assert points(item, one, answer(text, list(one.images))) == 10
    assert points(item, one, answer(text, list(other.images))) < 10


def test_the_codes_of_the_blind_check_can_be_read():
    for seed in range(10):
        code = random_code(random.Random(seed))
        assert code_in(picture_of(code)) == code


def test_ollama_gets_base64_without_a_prefix_beside_the_text(server, ollama):
    runtime = ollama()
    runtime.open()
    runtime.chat(Request([Message("user", "Look.", (picture_of("AAAAAA"),))], 50, 1))
    message = server.sent("/api/chat")[-1]["messages"][-1]
    assert message["content"] == "Look."
    assert message["images"][0].startswith("iVBORw0KGgo")


def test_messages_without_pictures_are_sent_as_ever(server, ollama, openai):
    ollama().open()
    openai().open()
    assert all("images" not in message for body in server.sent("/api/chat") for message in body["messages"])
    assert all(isinstance(m["content"], str) for body in server.sent("/v1/chat/completions") for m in body["messages"])


def test_a_server_that_wants_the_bare_string_is_asked_once_in_the_other_form(server, painter, openai):
    painter.bare_only = True
    runtime = openai()
    runtime.open()
    before = len(server.sent("/v1/chat/completions"))
    for _ in range(3):
        assert (
            runtime.chat(Request([Message("user", "Hm.", (picture_of("AAAAAA"),))], 50, 1)).content == "I cannot say."
        )
    sent = server.sent("/v1/chat/completions")[before:]
    forms = [type(body["messages"][-1]["content"][-1]["image_url"]) for body in sent]
    assert forms == [dict, str, str, str]


def test_a_refusal_in_both_forms_is_the_first_one_told(server, openai):
    def refuses(seen):
        form = type(seen.body["messages"][-1]["content"])
        return js({"error": {"message": f"no {form.__name__}, thanks"}}, 400 if form is list else 200)

    runtime = openai()
    runtime.open()
    server.on["/v1/chat/completions"] = refuses
    with pytest.raises(RuntimeFailure, match="no list, thanks"):
        runtime.chat(Request([Message("user", "Hm.", (picture_of("AAAAAA"),))], 50, 1))


@pytest.mark.parametrize(
    ("script", "claimed"),
    [
        ({}, None),
        ({"props": js({"default_generation_settings": {}, "modalities": {"vision": True}})}, True),
        ({"props": js({"default_generation_settings": {}, "modalities": {"vision": False}})}, False),
        ({"api__v0__models": js({"data": [{"id": "toy", "state": "loaded", "type": "vlm"}]})}, True),
        ({"api__v0__models": js({"data": [{"id": "toy", "state": "loaded", "type": "llm"}]})}, False),
    ],
    ids=["silent", "llama-server sees", "llama-server blind", "lm-studio sees", "lm-studio blind"],
)
def test_what_servers_say_of_vision(openai, script, claimed):
    card = openai(**script).open()
    assert card.sight.claimed is claimed
    assert (VISION in card.capabilities) == (claimed is True)


@pytest.mark.parametrize(
    ("capabilities", "claimed"), [(None, None), (["completion"], False), (["completion", "vision"], True)]
)
def test_what_ollama_says_of_vision(ollama, capabilities, claimed):
    assert ollama(capabilities).open().sight.claimed is claimed


def test_a_claim_that_holds(ollama, painter):
    runtime = ollama()
    card = look(runtime, runtime.open(), Profile())
    assert (card.sight.shown, card.sight.read) == (2, 2)
    assert VISION in card.capabilities
    assert blindness(card.ref, card.sight) is None
    assert len(set(painter.seen)) == 2


def test_one_code_of_two_is_enough(ollama, painter):
    replies = iter(["No idea.", None])
    painter.says = lambda text, images: (images and next(replies)) or answer(text, images)
    runtime = ollama()
    card = look(runtime, runtime.open(), Profile())
    assert (card.sight.read, VISION in card.capabilities) == (1, True)


def test_a_claim_that_does_not_hold(ollama, painter):
    painter.says = lambda text, images: "It shows the code ABC123."
    runtime = ollama()
    card = look(runtime, runtime.open(), Profile())
    assert VISION not in card.capabilities
    assert "says that it takes pictures, but it read none of 2 pictures" in (blindness(card.ref, card.sight) or "")


def test_a_runtime_that_denies_is_shown_nothing(ollama, painter):
    runtime = ollama(["completion"])
    card = look(runtime, runtime.open(), Profile())
    assert painter.seen == []
    assert "says that it takes no pictures" in (blindness(card.ref, card.sight) or "")


def test_a_silent_server_that_refuses_the_picture_is_blind(server, openai):
    runtime = openai()
    card = runtime.open()
    server.on["/v1/chat/completions"] = js({"error": {"message": "image input is not supported by this server"}}, 500)
    card = look(runtime, card, Profile())
    assert (card.sight.shown, card.sight.read) == (1, 0)
    assert "image input is not supported" in (blindness(card.ref, card.sight) or "")


def test_a_server_that_breaks_is_not_blind(server, ollama):
    runtime = ollama()
    card = runtime.open()
    server.on["/api/chat"] = js({"error": "out of memory"}, 500)
    with pytest.raises(RuntimeFailure) as failure:
        look(runtime, card, Profile())
    assert failure.value.status == "runtime_error"


def test_pictures_take_room_in_the_window(ollama):
    runtime = ollama()
    card = runtime.open()
    messages = [Message("user", "Look.", (b"", b""))]
    assert picture_room(messages, Profile()) == 2 * Profile().count("picture_tokens")
    with pytest.raises(RuntimeFailure, match="context_too_small"):
        check_fit(messages, 1000, runtime, dataclasses.replace(card, context=5000), Profile())
    check_fit(messages, 1000, runtime, dataclasses.replace(card, context=8000), Profile())


def test_a_transcript_holds_the_hash_of_a_picture_and_not_the_picture():
    turn = turn_of(Message("user", "Look.", (b"one",)))
    assert turn.images == ["7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"]


def test_the_embedded_runtime_takes_no_pictures():
    runtime = EmbeddedRuntime("tiny", "", RuntimeOptions(SETTINGS))
    with pytest.raises(RuntimeFailure, match="the embedded runtime takes no pictures") as failure:
        runtime.chat(Request([Message("user", "Look.", (b"",))], 10, 1))
    assert failure.value.status == "unsupported"
