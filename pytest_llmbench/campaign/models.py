"""The models of a session: what a ``--llm-model`` value means, and each model's runtime while it is in use."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, ReadWriteLock, Timeout

from pytest_llmbench.harness.references import NULLS, nulls_for
from pytest_llmbench.runtimes.base import ModelCard, Runtime, RuntimeFactory, RuntimeFailure, RuntimeOptions
from pytest_llmbench.runtimes.reference import ReferenceRuntime
from pytest_llmbench.spec import Mode

REFERENCES = ("golden", "defective", "null")
EMBEDDED = ("gguf", "tiny")
"""Prefixes of models that run in the process that measures them."""
FOLDER_OF_ALL, FILE_OF_ALL = 0o777, 0o666
"""Modes of the locks, which all users of the machine share."""
SLOT_POLL_S = 0.05
"""Pause between two looks for a free slot of an endpoint, in seconds."""
ELSEWHERE = ("hf", "lmstudio", "llamacpp", "llama", "vllm", "http", "https", "file")
"""Prefixes that people try and that no runtime has; all of them speak the OpenAI protocol or name a file."""


IDENTITY = ("digest", "quantisation", "context")
"""Fields of a card by which it is known whether the same model answers."""


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
    """A model in use: opened before its first call of a run, dead after a fatal failure, closed after its last one."""

    spec: ModelSpec
    factory: RuntimeFactory | None
    options: RuntimeOptions
    runtime: Runtime | None = None
    card: ModelCard | None = None
    failure: RuntimeFailure | None = None
    closing_probe: float | None = None
    concurrency: int = 1
    """Requests that the model's endpoint may get at a time."""
    on_open: Callable[[Model], None] = lambda model: None
    """Called once the card is there; a ``RuntimeFailure`` it raises is the model's."""

    def open(self) -> tuple[Runtime, ModelCard]:
        """The runtime and its card; started on first use, and again where it was closed in between.

        Raises:
            RuntimeFailure: the same one every time once the model cannot be measured; so where another model than
                before answers to its name.
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
                    card = replace(runtime.open(), ref=self.spec.ref)
                    self.card = self._same(card)
                self.on_open(self)
            except RuntimeFailure as failure:
                self.failure = failure
                raise
        return self.runtime, self.card

    def _same(self, card: ModelCard) -> ModelCard:
        if self.card is not None and (moved := moved_parts(self.card, card)):
            raise RuntimeFailure(
                "runtime_error",
                f"{self.spec.ref} is another model than before in this session: {moved}. "
                "What was measured before stands; measure this one in a run of its own.",
                fatal=True,
            )
        return self.card or card

    def broke(self, failure: RuntimeFailure) -> None:
        """Remember a failure after which no further call can succeed."""
        if failure.fatal:
            self.failure = failure

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the endpoint against every other process on this machine while a call is under way.

        Where ``concurrency`` allows more than one request, hold one of so many slots; sessions that allow one only
        still get the endpoint for themselves.
        """
        endpoint = getattr(self.runtime, "endpoint", None)
        if endpoint is None:
            yield
            return
        name = hashlib.sha256(endpoint_key(endpoint).encode()).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / "llmbench-endpoints"
        folder.mkdir(exist_ok=True)
        gate_file = folder / f"{name}.db"
        gate_file.touch()
        with suppress(OSError):  # they belong to another user, who has opened them already
            folder.chmod(FOLDER_OF_ALL)
            gate_file.chmod(FILE_OF_ALL)
        gate = ReadWriteLock(gate_file)
        if self.concurrency == 1:
            with gate.write_lock():
                yield
            return
        slots = [FileLock(folder / f"{name}.{slot}.lock", mode=FILE_OF_ALL) for slot in range(self.concurrency)]
        with _free_one(slots), gate.read_lock():
            yield

    def close(self) -> bool:
        """Unload the model; whether there was one to unload. ``open`` loads it again."""
        runtime = self.runtime
        if runtime is None or self.card is None:
            return False
        try:
            with self.exclusive():
                self.closing_probe = runtime.close()
        finally:
            self.runtime = None
        return True


def moved_parts(before: ModelCard, now: ModelCard) -> str:
    """What differs between two cards of what should be one model, for people; empty where nothing does."""
    changes = [
        f"{name} {getattr(before, name)} -> {getattr(now, name)}"
        for name in IDENTITY
        if getattr(before, name) != getattr(now, name)
    ]
    return ", ".join(changes)


def endpoint_key(endpoint: str) -> str:
    """One name for all spellings of an endpoint on this machine."""
    return re.sub(r"(?<=//)(localhost|\[::1\])(?=[:/]|$)", "127.0.0.1", endpoint.lower().rstrip("/"))


@contextmanager
def _free_one(slots: Sequence[FileLock]) -> Iterator[None]:
    """Hold the first slot that is free; waits for one."""
    for slot in itertools.cycle(slots):
        try:
            slot.acquire(blocking=False)
        except Timeout:
            if slot is slots[-1]:
                time.sleep(SLOT_POLL_S)
            continue
        try:
            yield
        finally:
            slot.release()
        return


def speeds_stable(probes: Sequence[float | None], drift: float) -> bool | None:
    """Whether the last probe of a block of measurements lies within ``drift`` of the first; None without two probes."""
    known = [probe for probe in probes if probe]
    return abs(known[-1] - known[0]) <= drift * known[0] if len(known) > 1 else None


def factories(extra: Mapping[str, RuntimeFactory]) -> dict[str, RuntimeFactory]:
    """The registry with what others added through the hook."""
    return {**builtin_runtimes(), **extra}
