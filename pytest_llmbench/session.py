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
from typing import Any, cast

import psutil
import pytest
from pydantic import ValidationError

import pytest_llmbench
from pytest_llmbench.bank import BankError, Item, bank_checksum, find_bank, load_bank
from pytest_llmbench.campaign.guard import DeadlineError, parse_deadline
from pytest_llmbench.campaign.measure import grader, redacted
from pytest_llmbench.campaign.models import (
    EMBEDDED,
    Model,
    ModelError,
    ModelSpec,
    expand,
    factories,
    parse_models,
)
from pytest_llmbench.campaign.observe import Live
from pytest_llmbench.campaign.resume import Before, read_before
from pytest_llmbench.endpoints import Seats
from pytest_llmbench.harness.frozen import Profile, harness, signature
from pytest_llmbench.locks import bank_version
from pytest_llmbench.records import Record
from pytest_llmbench.report.build import Manifest, Plan, PlannedItem, card_name, differing, read_cards
from pytest_llmbench.runtimes.base import RuntimeFactory, RuntimeFailure, RuntimeOptions
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.sandbox.layers import choose
from pytest_llmbench.store.folder import ENVIRONMENT, MANIFEST, PLAN, RunFolder, StoreError, node_stem, read_json

TERMS: Mapping[str, Any] = {
    "variant": 0,
    "runs": 1,
    "profile": "standard",
    "sampling": "greedy",
    "think": None,
    "context": None,
    "allow_unconfined": False,
    "concurrency": 1,
    "determinism": False,
    "until_separated": False,
}
"""Options that shape what is measured, with their defaults: a session that goes on in a run folder keeps that run's."""
TERMED = ("context", "allow_unconfined", "determinism", "until_separated")
"""Those that the manifest holds among its options."""
API_KEY = "LLMBENCH_API_KEY"
OLLAMA_HOST = "OLLAMA_HOST"
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
        self.before: Before | None = None
        """What is gone on with."""
        self.replayed: Manifest | None = None
        self.planned: dict[str, list[tuple[int, str]]] | None = None
        """Runs and models of each item, where a plan that was made before says so."""
        self.source: Path | None = None
        option = config.getoption
        if option("llm_resume"):
            self._read_before(Path(config.invocation_params.dir, option("llm_resume")))
        self.values = self._values()
        if any(value.startswith("replay:") for value in self.values):
            self._read_replay(self.values)
        old = self.replayed or (self.before.manifest if self.before else None)
        self.variant: int = old.variant if old else option("llm_variant")
        self.runs: int = old.runs if old else option("llm_runs")
        self.profile = Profile(
            old.profile if old else option("llm_profile"),
            old.sampling if old else option("llm_sampling"),
            old.think if old else option("llm_think"),
        )
        self.twice: bool = self.term("determinism")
        """Ask every instance of run 1 a second time."""
        self.until_separated: bool = self.term("until_separated")
        self.show_hidden: bool = option("llm_show_hidden")
        self.fail_under: float | None = option("llm_fail_under")
        self.concurrency: int = self.term("concurrency")
        """Requests that an endpoint may get at a time."""
        self.seats = Seats() if self.replayed else Seats(tuple(option("llm_endpoint")), self.concurrency)
        self.number = int(str(self.worker.get("llmbench_number", 0))) if self.worker else 0
        """Number of this worker, by which its endpoint is known."""
        self.misfit: str | None = None
        """Why this worker must not measure."""
        self.models: dict[str, Model] = {}
        self.items: dict[str, Item] = {}
        self.folder: RunFolder | None = None
        self.records: list[Mapping[str, object]] = []
        self.deadline: datetime | None = self._deadline()
        self.live = Live()
        """What this process measures right now."""
        self.stopped: str | None = None
        """Why the run folder cannot be written any more."""

    def _registry(self) -> dict[str, RuntimeFactory]:
        extra: dict[str, RuntimeFactory] = {}
        for more in self.config.hook.pytest_llmbench_runtimes(config=self.config):
            extra.update(more)
        return factories(extra)

    def _deadline(self) -> datetime | None:
        if self.worker is not None:
            told = self.worker.get("llmbench_deadline")
            return datetime.fromisoformat(str(told)) if told else None
        text = self.config.getoption("llm_deadline")
        try:
            return parse_deadline(text, datetime.now().astimezone()) if text else None
        except DeadlineError as error:
            raise pytest.UsageError(f"--llm-deadline={text}: {error}") from None

    def spare(self, nodes: Sequence[tuple[str, int, str]], looks: int) -> None:
        """Write down which planned nodes are not run, and how often the growing data are looked at for that.

        Raises:
            StoreError: where the disk refuses it.
        """
        if self.folder is not None:
            plan = Plan.model_validate(read_json(self.folder.path / PLAN))
            spared = list(dict.fromkeys([*plan.spared, *nodes]))
            self.folder.write(PLAN, plan.model_copy(update={"spared": spared, "looks": looks}))

    def term(self, name: str) -> Any:
        """An option under which the session measures: the one given, or the one that the run gone on with has.

        Raises:
            pytest.UsageError: where another one is given than that run has.
        """
        given = self.config.getoption(f"llm_{name}")
        if self.before is None:
            old = self.replayed.options.get(name, given) if self.replayed else given
            return old if name == "concurrency" else given
        saved = self.before.manifest.options.get(name, TERMS[name])
        if given not in (TERMS[name], saved):
            raise pytest.UsageError(_keeps(name, given, saved))
        return saved

    def _values(self) -> list[str]:
        try:
            given = parse_models(self.config.getoption("llm_model"), self.registry)
        except ModelError as error:
            raise pytest.UsageError(str(error)) from None
        return self._values_before(given) if self.before else given

    def _values_before(self, given: Sequence[str]) -> list[str]:
        """The models of the run gone on with; files are found again only where they are named."""
        assert self.before is not None
        named = {expand(value, self.registry)[0].ref: value for value in given if value.startswith("gguf:")}
        values = []
        for value in self.before.manifest.models:
            if value.startswith("gguf:") and value not in named:
                raise pytest.UsageError(
                    f"--llm-resume: a run folder holds no paths; say where the file of {value} is: "
                    f"--llm-model=gguf:/path/to/{value.removeprefix('gguf:')}"
                )
            values.append(named.get(value, value))
        strange = [value for value in given if value not in values]
        if strange:
            raise pytest.UsageError(_keeps("model", ",".join(strange), ",".join(self.before.manifest.models)))
        return values

    def _read_before(self, path: Path) -> None:
        try:
            self.before = read_before(path)
        except StoreError as error:
            raise pytest.UsageError(f"--llm-resume: {error}") from None
        manifest, option = self.before.manifest, self.config.getoption
        for name in ("variant", "runs", "profile", "sampling", "think"):
            given, saved = option(f"llm_{name}"), getattr(manifest, name)
            if given not in (TERMS[name], saved):
                raise pytest.UsageError(_keeps(name, given, saved))
        if option("llm_report_dir"):
            raise pytest.UsageError("--llm-resume goes on in the run's own folder; leave --llm-report-dir out.")
        if self.before.plan is not None:
            self._follow(self.before.plan)

    def _read_replay(self, values: Sequence[str]) -> None:
        if len(values) > 1:
            raise pytest.UsageError("--llm-model=replay:DIR stands alone: one run folder is graded again at a time.")
        self.source = Path(values[0].removeprefix("replay:"))
        try:
            self.replayed = Manifest.model_validate(read_json(self.source / MANIFEST))
            self._follow(Plan.model_validate(read_json(self.source / PLAN)))
        except (StoreError, ValidationError) as error:
            raise pytest.UsageError(f"--llm-model={values[0]}: no run folder that can be replayed: {error}") from None

    def _follow(self, plan: Plan) -> None:
        self.planned = {}
        for item, run, ref in plan.nodes:
            self.planned.setdefault(item, []).append((run, ref))

    def nodes(self, item: Item) -> list[tuple[int, ModelSpec]]:
        """Runs and models that an item is measured in, in the order of the command line."""
        known, mode = item.spec.references, item.spec.mode
        if self.planned is not None and self.source is not None:
            return [
                (run, replace(expand(ref, self.registry, known)[0], ref=ref, source=self.source))
                for run, ref in self.planned.get(item.spec.id, ())
            ]
        specs = {spec.ref: spec for value in self.values for spec in expand(value, self.registry, known, mode)}
        if self.planned is not None:
            return [(run, specs[ref]) for run, ref in self.planned.get(item.spec.id, ()) if ref in specs]
        runs = 1 if item.spec.once else self.runs
        return [(run, spec) for run in range(1, runs + 1) for spec in specs.values()]

    def model(self, spec: ModelSpec) -> Model:
        """The model in use under a reference."""
        if spec.ref not in self.models:
            own = spec.is_reference or spec.source is not None or spec.kind in EMBEDDED
            self.models[spec.ref] = Model(
                spec,
                self.registry.get(spec.kind),
                self.runtime_options,
                concurrency=1 if own else self.seats.concurrency,
                on_open=self._same_everywhere,
            )
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
            allow_unconfined=self.term("allow_unconfined"),
            only=[layer] if layer else None,
        )

    @cached_property
    def runtime_options(self) -> RuntimeOptions:
        endpoint = self.seats.url(self.number)
        return RuntimeOptions(
            settings=self.profile.settings(),
            base_url=endpoint or self.config.getoption("llm_base_url"),
            api_key=os.environ.get(API_KEY),
            environ={**os.environ, OLLAMA_HOST: endpoint} if endpoint else dict(os.environ),
            declared_context=self.term("context"),
        )

    @cached_property
    def bank(self) -> Mapping[str, str]:
        """Version and checksum of the bank that the session's items belong to.

        Raises:
            pytest.UsageError: where the bank is broken.
        """
        if self.worker is not None and "llmbench_bank" in self.worker:
            return cast("Mapping[str, str]", self.worker["llmbench_bank"])
        folder = find_bank(self.config.invocation_params.dir)
        try:
            items = {item.spec.id: item for item in (*load_bank(folder), *self.items.values())}
            return {"version": bank_version(folder), "checksum": bank_checksum(items.values())}
        except BankError as error:
            raise pytest.UsageError(str(error)) from None

    def take_up(self, item: Item) -> None:
        """Note an item of this session.

        Raises:
            BankError: where another file has an item of that id, or where this worker must not measure.
        """
        if self.misfit is not None:
            raise BankError(self.misfit)
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
                    self.folder = (
                        RunFolder.take_up(self.before.path) if self.before else RunFolder.create(self._folder_path())
                    )
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
                    **{name: self.term(name) for name in TERMED},
                    "concurrency": self.concurrency,
                    "endpoints": max(1, len(self.seats.urls)),
                    "base_url": redacted(option("llm_base_url")) if option("llm_base_url") else None,
                    "deadline": _utc(self.deadline) if self.deadline else None,
                },
                created=self.before.manifest.created if self.before else _utc(datetime.now(UTC)),
            ),
        )
        folder.write(ENVIRONMENT, environment())
        if self.before is None:
            folder.event("session_started", models=len(self.values))

    def write_plan(self, nodes: Iterable[tuple[str, int, str]]) -> None:
        """Write down every node that is to be measured, before the first one is.

        Raises:
            pytest.UsageError: where the disk refuses that.
        """
        if self.folder is None:
            return
        before = self.before.plan if self.before else None
        plan = before or Plan(nodes=list(nodes), items={})
        wanted = dict.fromkeys(item for item, _, _ in plan.nodes)
        missing = [item for item in wanted if item not in self.items]
        if missing:
            raise pytest.UsageError(
                f"--llm-resume: the run plans {', '.join(missing)}, which are not among what was collected; "
                "give the bank or the files as in the first call."
            )
        items = {
            name: PlannedItem(
                title=item.spec.title,
                version=item.spec.version,
                level=item.spec.level,
                points=float(item.spec.points),
                rows=len(item.spec.rows),
                group=item.spec.group,
                probe={name: str(value) for name, value in item.spec.data.items()} if item.spec.level == "C" else {},
            )
            for name, item in self.items.items()
            if name in wanted
        }
        try:
            self.folder.write(PLAN, plan.model_copy(update={"items": items}))
        except StoreError as error:
            raise pytest.UsageError(str(error)) from None

    def save_card(self, model: Model) -> None:
        """Write what is known about a model that was opened, or the card that a replayed run has of it."""
        if self.folder is None:
            return
        if model.spec.source is not None:
            for card in read_cards(model.spec.source, model.spec.ref)[:1]:
                self.folder.write(card_name(model.spec.ref), {**card, "replayed": True})
        elif model.card is not None:
            extra = {"closing_probe_tokens_per_s": model.closing_probe, "schema": "llmbench.model/1"}
            number = self.number if self.seats.fixed else 0
            self.folder.write(card_name(model.spec.ref, number), {**asdict(model.card), **extra})

    def _same_everywhere(self, model: Model) -> None:
        if self.folder is None or self.seats.count == 1 or model.spec.is_reference:
            return
        self.save_card(model)
        different = differing(read_cards(self.folder.path, model.spec.ref))
        if different:
            raise RuntimeFailure(
                "runtime_error",
                f"the endpoints of this session differ in {', '.join(different)} for {model.spec.ref}: "
                "install the same model, with the same window, on all of them.",
                fatal=True,
            )

    def close_model(self, ref: str) -> None:
        """Unload a model that was opened and complete its card; ``stopped`` says so where the disk refuses that."""
        model = self.models.get(ref)
        if model is not None and model.close():
            try:
                self.save_card(model)
                if self.folder is not None:
                    self.folder.event("model_closed", ref=ref, probe_tokens_per_s=model.closing_probe)
            except StoreError as error:
                self.stopped = str(error)

    def say(self, line: str) -> None:
        """Print a line about the session; nothing under ``-q`` and nothing from a worker."""
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None and self.worker is None and self.config.get_verbosity() >= 0:
            reporter.write_line(line)

    def note(self, kind: str, /, **fields: object) -> None:
        """Write an event where this process has a run folder; ``stopped`` says so where the disk refuses that."""
        try:
            if self.folder is not None:
                self.folder.event(kind, **fields)
        except StoreError as error:
            self.stopped = str(error)

    def worker_lost(self, nodeid: str) -> None:
        """An xdist worker died at a node."""
        match = NODE_NAME.fullmatch(nodeid.rpartition("::")[2])
        at = {} if match is None else {"item": match["item"], "run": int(match["run"]), "ref": match["ref"]}
        self.note("worker_lost", **{"item": None, "run": None, "ref": None, **at})

    def keep(self, record: Mapping[str, object]) -> None:
        """Take over a record that a worker reported; it is written here where the worker could not share its disk."""
        self.records.append(record)
        if self.folder is not None:
            stem = node_stem(
                str(record["item"]), int(str(record["variant"])), int(str(record["run"])), str(record["ref"])
            )
            if not (self.folder.path / "records" / f"{stem}.json").exists():
                self.folder.write_record(Record.model_validate(record))


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _keeps(name: str, given: object, saved: object) -> str:
    flag = f"--llm-{name.replace('_', '-')}"
    return (
        f"{flag}={given}: the run that --llm-resume goes on with has {saved}, and keeps it, so that its results can "
        f"stand in one table. Leave {flag} out, or start a new run."
    )


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
