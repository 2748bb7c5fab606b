"""The models of a session: what a ``--llm-model`` value means, and each model's runtime while it is in use."""

from __future__ import annotations

import difflib
import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import FileLock

from pytest_llmbench.harness.references import NULLS, nulls_for
from pytest_llmbench.runtimes.base import ModelCard, Runtime, RuntimeFactory, RuntimeFailure, RuntimeOptions
from pytest_llmbench.runtimes.reference import ReferenceRuntime
from pytest_llmbench.spec import Mode

REFERENCES = ("golden", "defective", "null")
ELSEWHERE = ("hf", "lmstudio", "llamacpp", "llama", "vllm", "http", "https", "file")
"""Prefixes that people try and that no runtime has; all of them speak the OpenAI protocol or name a file."""


class ModelError(Exception):
    """A ``--llm-model`` value that means nothing: the message names it and the way out."""


@dataclass(frozen=True)
class ModelSpec:
    """One model of a session, before anything is started."""

    ref: str
    """As node names, records and the report have it."""
    kind: str
    """Prefix of the runtime registry, ``golden``, ``defective``, ``null`` or ``replay``."""
    name: str = ""
    source: Path | None = None
    """Run folder whose transcripts are graded again."""

    @property
    def is_reference(self) -> bool:
        return self.kind in REFERENCES


def builtin_runtimes() -> dict[str, RuntimeFactory]:
    """The registry of prefixes; each runtime is imported when it is first used."""
    return {"ollama": _ollama, "openai": _openai, "gguf": _embedded, "tiny": _embedded}


def _ollama(ref: str, name: str, options: RuntimeOptions) -> Runtime:
    from pytest_llmbench.runtimes.ollama import OllamaRuntime

    return OllamaRuntime(ref, name, options)


def _openai(ref: str, name: str, options: RuntimeOptions) -> Runtime:
    from pytest_llmbench.runtimes.openai import OpenAIRuntime

    return OpenAIRuntime(ref, name, options)


def _embedded(ref: str, name: str, options: RuntimeOptions) -> Runtime:
    from pytest_llmbench.runtimes.embedded import EmbeddedRuntime

    return EmbeddedRuntime(ref, name, options)


def parse_models(values: Iterable[str], prefixes: Iterable[str]) -> list[str]:
    """The single model values of all ``--llm-model`` options, in order, without repeats.

    Raises:
        ModelError: for an empty value or a prefix that no runtime has.
    """
    known = {*prefixes, *REFERENCES, "replay"}
    wanted = [part.strip() for value in values for part in value.split(",")]
    for value in wanted:
        if not value:
            raise ModelError("--llm-model has an empty model name; write --llm-model=NAME or --llm-model=NAME,NAME.")
        if set(value) & set("[]@\n\r\t\0") or "::" in value:
            raise ModelError(
                f"--llm-model={value!r}: a model name must not contain brackets, '@', '::' or control characters."
            )
        prefix, colon, rest = value.partition(":")
        if not colon or prefix in known:
            if colon and prefix in {"ollama", "openai", "gguf", "replay"} and not rest:
                raise ModelError(f"--llm-model={value}: the prefix {prefix}: needs a name behind it.")
            if prefix == "null" and colon and rest not in NULLS:
                raise ModelError(f"--llm-model={value}: the null strategies are {', '.join(NULLS)}.")
            continue
        close = difflib.get_close_matches(prefix, known, n=1, cutoff=0.75)
        if prefix in ELSEWHERE or close:
            hint = f"did you mean {close[0]}:{rest}? " if close else ""
            raise ModelError(
                f"--llm-model={value}: there is no runtime with the prefix {prefix!r}; {hint}Prefixes are "
                f"{', '.join(sorted(known))}; LM Studio, llama-server and vLLM are openai:NAME with --llm-base-url. "
                f"For an Ollama model of that very name write ollama:{value}."
            )
    return list(dict.fromkeys(wanted))


def expand(
    value: str, prefixes: Iterable[str], references: Iterable[str] = (), mode: Mode = "agent"
) -> list[ModelSpec]:
    """One model value → models: ``defective:all`` and ``null`` stand for several.

    Args:
        value: as given, ``replay:`` excepted.
        prefixes: the registry's.
        references: names of the defective references of the item at hand.
        mode: that item's; a null strategy that needs tools stands for nothing where there are none.
    """
    prefix, _, name = value.partition(":")
    if prefix == "golden":
        return [ModelSpec("golden", "golden")]
    if prefix == "defective":
        wanted = (
            sorted(references, key=lambda one: (one != "defective", one)) if name == "all" else [name or "defective"]
        )
        return [_defective(one) for one in wanted if one in set(references)]
    if prefix == "null":
        chosen = [kind for kind in nulls_for(mode) if name in ("", kind)]
        return [ModelSpec(f"null:{kind}", "null", kind) for kind in chosen]
    if prefix == "gguf":
        return [ModelSpec(f"gguf:{re.split(chr(47) + '|' + chr(92) * 2, name)[-1]}", "gguf", name)]
    if prefix in set(prefixes):
        return [ModelSpec(value, prefix, name)]
    return [ModelSpec(value, "ollama", value)]


def _defective(name: str) -> ModelSpec:
    return (
        ModelSpec("defective", "defective")
        if name == "defective"
        else ModelSpec(f"defective:{name}", "defective", name)
    )


@dataclass
class Model:
    """A model in use: opened before its first call, dead after a fatal failure, closed after its last node."""

    spec: ModelSpec
    factory: RuntimeFactory | None
    options: RuntimeOptions
    runtime: Runtime | None = None
    card: ModelCard | None = None
    failure: RuntimeFailure | None = None
    closing_probe: float | None = None
    closed: bool = False
    _locks: list[FileLock] = field(default_factory=list)

    def open(self) -> tuple[Runtime, ModelCard]:
        """The runtime and its card; started on first use.

        Raises:
            RuntimeFailure: the same one every time once the model cannot be measured.
        """
        if self.failure is not None:
            raise self.failure
        if self.runtime is None or self.card is None:
            runtime = (
                ReferenceRuntime(self.spec.ref)
                if self.factory is None
                else self.factory(self.spec.ref, self.spec.name, self.options)
            )
            self.runtime = runtime
            try:
                with self.exclusive():
                    self.card = replace(runtime.open(), ref=self.spec.ref)
            except RuntimeFailure as failure:
                self.failure = failure
                raise
        return self.runtime, self.card

    def broke(self, failure: RuntimeFailure) -> None:
        """Remember a failure after which no further call can succeed."""
        if failure.fatal:
            self.failure = failure

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the endpoint against every other process on this machine while a call is under way."""
        endpoint = getattr(self.runtime, "endpoint", None)
        if endpoint is None:
            yield
            return
        name = hashlib.sha256(endpoint.encode()).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / "llmbench-endpoints"
        folder.mkdir(mode=0o777, exist_ok=True)
        with FileLock(folder / f"{name}.lock", mode=0o666):
            yield

    def close(self) -> None:
        """Unload the model. Called once; safe where nothing was opened."""
        if self.runtime is not None and not self.closed:
            self.closed = True
            with self.exclusive():
                self.closing_probe = self.runtime.close()


def speeds_stable(probes: Sequence[float | None], drift: float) -> bool | None:
    """Whether the last probe of a block of measurements lies within ``drift`` of the first; None without two probes."""
    known = [probe for probe in probes if probe]
    return abs(known[-1] - known[0]) <= drift * known[0] if len(known) > 1 else None


def factories(extra: Mapping[str, RuntimeFactory]) -> dict[str, RuntimeFactory]:
    """The registry with what others added through the hook."""
    return {**builtin_runtimes(), **extra}
