"""What one pytest process knows of the session it measures in: options, models, run folder, plan."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

import pytest_llmbench
from pytest_llmbench.bank import BankError, Item, bank_checksum, find_bank, load_bank
from pytest_llmbench.campaign.measure import grader
from pytest_llmbench.campaign.models import Model, ModelError, ModelSpec, expand, factories, parse_models
from pytest_llmbench.harness.frozen import Profile, harness, signature
from pytest_llmbench.locks import bank_version
from pytest_llmbench.records import Record
from pytest_llmbench.report.build import Manifest, Plan, PlannedItem, card_name
from pytest_llmbench.runtimes.base import RuntimeFactory, RuntimeOptions
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.sandbox.layers import choose
from pytest_llmbench.store.folder import ENVIRONMENT, MANIFEST, PLAN, RunFolder, StoreError, node_stem, read_json

API_KEY = "LLMBENCH_API_KEY"
SANDBOX = "LLMBENCH_SANDBOX"
"""Environment variable that allows one layer only."""
NODE_NAME = re.compile(r"(?P<item>[A-Z][A-Za-z0-9_.]*)-run(?P<run>\d+)-(?P<ref>.+)", re.DOTALL)


def node_name(item: str, run: int, ref: str) -> str:
    """Name of a node: without brackets, the model last."""
    return f"{item}-run{run}-{ref}"


class Session:
    """The session as this process sees it; the controller and every xdist worker have one each."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.worker: Mapping[str, object] | None = getattr(config, "workerinput", None)
        self.registry = self._registry()
        values = self._values()
        self.replayed: Manifest | None = None
        self.replay_nodes: dict[str, list[tuple[int, str]]] = {}
        self.source: Path | None = None
        if any(value.startswith("replay:") for value in values):
            self._read_replay(values)
        self.values = values
        option = config.getoption
        old = self.replayed
        self.variant: int = old.variant if old else option("llm_variant")
        self.runs: int = old.runs if old else option("llm_runs")
        self.profile = Profile(
            old.profile if old else option("llm_profile"),
            old.sampling if old else option("llm_sampling"),
            old.think if old else option("llm_think"),
        )
        self.show_hidden: bool = option("llm_show_hidden")
        self.fail_under: float | None = option("llm_fail_under")
        self.models: dict[str, Model] = {}
        self.items: dict[str, Item] = {}
        self.remaining: dict[str, int] = {}
        self.folder: RunFolder | None = None
        self.records: list[Mapping[str, object]] = []
        self.stopped: str | None = None
        """Why the run folder cannot be written any more."""

    def _registry(self) -> dict[str, RuntimeFactory]:
        extra: dict[str, RuntimeFactory] = {}
        for more in self.config.hook.pytest_llmbench_runtimes(config=self.config):
            extra.update(more)
        return factories(extra)

    def _values(self) -> list[str]:
        try:
            return parse_models(self.config.getoption("llm_model"), self.registry)
        except ModelError as error:
            raise pytest.UsageError(str(error)) from None

    def _read_replay(self, values: Sequence[str]) -> None:
        if len(values) > 1:
            raise pytest.UsageError("--llm-model=replay:DIR stands alone: one run folder is graded again at a time.")
        self.source = Path(values[0].removeprefix("replay:"))
        try:
            self.replayed = Manifest.model_validate(read_json(self.source / MANIFEST))
            plan = Plan.model_validate(read_json(self.source / PLAN))
        except (StoreError, ValidationError) as error:
            raise pytest.UsageError(f"--llm-model={values[0]}: no run folder that can be replayed: {error}") from None
        for item, run, ref in plan.nodes:
            self.replay_nodes.setdefault(item, []).append((run, ref))

    def nodes(self, item: Item) -> list[tuple[int, ModelSpec]]:
        """Runs and models that an item is measured in, in the order of the command line."""
        if self.source is not None:
            return [
                (run, replace(expand(ref, self.registry, item.spec.references)[0], ref=ref, source=self.source))
                for run, ref in self.replay_nodes.get(item.spec.id, ())
            ]
        known, mode = item.spec.references, item.spec.mode
        specs = [spec for value in self.values for spec in expand(value, self.registry, known, mode)]
        return [(run, spec) for run in range(1, self.runs + 1) for spec in {spec.ref: spec for spec in specs}.values()]

    def model(self, spec: ModelSpec) -> Model:
        """The model in use under a reference."""
        if spec.ref not in self.models:
            self.models[spec.ref] = Model(spec, self.registry.get(spec.kind), self.runtime_options)
        return self.models[spec.ref]

    @cached_property
    def sandbox(self) -> Sandbox:
        """Where code that a model wrote runs, chosen by trying it out.

        Raises:
            Unconfinable: where nothing on this machine confines it.
        """
        layer = os.environ.get(SANDBOX)
        return choose(
            self.profile.sandbox(),
            allow_unconfined=self.config.getoption("llm_allow_unconfined"),
            only=[layer] if layer else None,
        )

    @cached_property
    def runtime_options(self) -> RuntimeOptions:
        return RuntimeOptions(
            settings=self.profile.settings(),
            base_url=self.config.getoption("llm_base_url"),
            api_key=os.environ.get(API_KEY),
            environ=dict(os.environ),
            declared_context=self.config.getoption("llm_context"),
        )

    @cached_property
    def bank(self) -> Mapping[str, str]:
        """Version and checksum of the bank that the session's items belong to.

        Raises:
            pytest.UsageError: where the bank is broken.
        """
        folder = find_bank(self.config.invocation_params.dir)
        try:
            items = {item.spec.id: item for item in (*load_bank(folder), *self.items.values())}
            return {"version": bank_version(folder), "checksum": bank_checksum(items.values())}
        except BankError as error:
            raise pytest.UsageError(str(error)) from None

    def take_up(self, item: Item) -> None:
        """Note an item of this session.

        Raises:
            BankError: where another file has an item of that id.
        """
        known = self.items.setdefault(item.spec.id, item)
        if known.path != item.path:
            raise BankError(f"{item.path}: item id {item.spec.id} is already used in {known.path}")

    def open_folder(self) -> RunFolder:
        """The run folder: made and locked by the controller, joined by its workers.

        Raises:
            pytest.UsageError: where it cannot be written.
        """
        if self.folder is None:
            if self.worker is not None:
                self.folder = RunFolder(Path(str(self.worker["llmbench_folder"])))
            else:
                try:
                    self.folder = RunFolder.create(self._folder_path())
                    self._write_manifest(self.folder)
                except StoreError as error:
                    raise pytest.UsageError(str(error)) from None
        return self.folder

    def _folder_path(self) -> Path:
        named = self.config.getoption("llm_report_dir")
        if named:
            return Path(self.config.invocation_params.dir, named)
        first = re.sub(r"[^A-Za-z0-9.]+", "_", self.values[0].rsplit("/", 1)[-1])[:40]
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        top = Path(self.config.invocation_params.dir, "reports")
        path = top / f"{stamp}-{first}-{self.profile.name}"
        return path if not path.exists() else path.with_name(f"{path.name}-{os.getpid()}")

    def _write_manifest(self, folder: RunFolder) -> None:
        option = self.config.getoption
        folder.write(
            MANIFEST,
            Manifest(
                plugin_version=pytest_llmbench.__version__,
                harness={"version": harness().version, "signature": signature()},
                bank=self.bank,
                grader=grader(),
                profile=self.profile.name,
                sampling=self.profile.sampling,
                think=self.profile.think,
                variant=self.variant,
                runs=self.runs,
                models=[re.sub(r"(gguf|replay):.*[/\\]", r"\1:", value) for value in self.values],
                options={
                    "fail_under": self.fail_under,
                    "context": option("llm_context"),
                    "allow_unconfined": option("llm_allow_unconfined"),
                },
                created=datetime.now(UTC).isoformat(timespec="seconds"),
            ),
        )
        folder.write(ENVIRONMENT, environment())
        folder.event("session_started", models=len(self.values))

    def write_plan(self, nodes: Iterable[tuple[str, int, str]]) -> None:
        """Write down every node that is to be measured, before the first one is.

        Raises:
            pytest.UsageError: where the disk refuses that.
        """
        if self.folder is None:
            return
        planned = list(nodes)
        wanted = {item for item, _, _ in planned}
        items = {
            name: PlannedItem(
                title=item.spec.title,
                version=item.spec.version,
                level=item.spec.level,
                points=float(item.spec.points),
                rows=len(item.spec.rows),
            )
            for name, item in self.items.items()
            if name in wanted
        }
        try:
            self.folder.write(PLAN, Plan(nodes=planned, items=items))
        except StoreError as error:
            raise pytest.UsageError(str(error)) from None

    def save_card(self, model: Model) -> None:
        """Write what is known about a model that was opened, or the card that a replayed run has of it."""
        if self.folder is None:
            return
        if model.spec.source is not None:
            try:
                card = read_json(model.spec.source / card_name(model.spec.ref))
            except StoreError:
                return
            self.folder.write(card_name(model.spec.ref), {**card, "replayed": True})
        elif model.card is not None:
            extra = {"closing_probe_tokens_per_s": model.closing_probe, "schema": "llmbench.model/1"}
            self.folder.write(card_name(model.spec.ref), {**asdict(model.card), **extra})

    def node_done(self, ref: str) -> None:
        """One node of a model is done; the model is closed after its last one."""
        self.remaining[ref] = self.remaining.get(ref, 1) - 1
        if self.remaining[ref] <= 0:
            self.close_model(ref)

    def close_model(self, ref: str) -> None:
        """Unload a model that was opened and complete its card; ``stopped`` says so where the disk refuses that."""
        model = self.models.get(ref)
        if model is not None and model.card is not None and not model.closed:
            model.close()
            try:
                self.save_card(model)
                if self.folder is not None:
                    self.folder.event("model_closed", ref=ref)
            except StoreError as error:
                self.stopped = str(error)

    def keep(self, record: Mapping[str, object]) -> None:
        """Take over a record that a worker reported; it is written here where the worker could not share its disk."""
        self.records.append(record)
        if self.folder is not None:
            stem = node_stem(
                str(record["item"]), int(str(record["variant"])), int(str(record["run"])), str(record["ref"])
            )
            if not (self.folder.path / "records" / f"{stem}.json").exists():
                self.folder.write_record(Record.model_validate(record))


def environment() -> dict[str, object]:
    """The machine and the software, without names of hosts, users or folders."""
    packages = ("pytest", "pytest-xdist", "httpx", "pydantic", "markdown-it-py", "xllamacpp")
    return {
        "schema": "llmbench.environment/1",
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "processors": psutil.cpu_count(),
        "memory_mb": round(psutil.virtual_memory().total / 2**20),
        "byteorder": sys.byteorder,
        "packages": {name: _version(name) for name in packages},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
