"""What one pytest process knows of the session it measures in: options, models, run folder, plan."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import cast

import pytest

import pytest_llmbench
from pytest_llmbench.bank import (
    BankError,
    Item,
    bank_around,
    bank_checksum,
    check_unique,
    find_bank,
    item_files,
    load_bank,
)
from pytest_llmbench.campaign.measure import grader, redacted
from pytest_llmbench.campaign.models import (
    EMBEDDED,
    Model,
    ModelSpec,
)
from pytest_llmbench.campaign.observe import Live
from pytest_llmbench.endpoints import Seats
from pytest_llmbench.environment import environment
from pytest_llmbench.harness.frozen import harness, signature
from pytest_llmbench.locks import bank_version
from pytest_llmbench.records import Record
from pytest_llmbench.report.build import Manifest, Plan, PlannedItem, card_name, differing, read_cards
from pytest_llmbench.runtimes.base import RuntimeFailure, RuntimeOptions
from pytest_llmbench.sandbox.jail import Sandbox
from pytest_llmbench.sandbox.layers import choose
from pytest_llmbench.store.folder import ENVIRONMENT, MANIFEST, PLAN, RunFolder, StoreError, node_stem, read_json
from pytest_llmbench.terms import TERMED, Terms

API_KEY = "LLMBENCH_API_KEY"
OLLAMA_HOST = "OLLAMA_HOST"
SANDBOX = "LLMBENCH_SANDBOX"
"""Environment variable that allows one layer only."""
NO_BANK = "none"
NODE_NAME = re.compile(r"(?P<item>[A-Z][A-Za-z0-9_.]*)-run(?P<run>\d+)-(?P<ref>.+)", re.DOTALL)


def node_name(item: str, run: int, ref: str) -> str:
    """Name of a node: without brackets, the model last."""
    return f"{item}-run{run}-{ref}"


class Session(Terms):
    """The session as this process sees it; the controller and every xdist worker have one each."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(config)
        self.seats = Seats() if self.replayed else Seats(tuple(config.getoption("llm_endpoint")), self.concurrency)
        self.number = int(str(self.worker.get("llmbench_number", 0))) if self.worker else 0
        """Number of this worker, by which its endpoint is known."""
        self.misfit: str | None = None
        """Why this worker must not measure."""
        self.models: dict[str, Model] = {}
        self.items: dict[str, Item] = {}
        self.folder: RunFolder | None = None
        self.live = Live()
        """What this process measures right now."""
        self.stopped: str | None = None
        """Why the run folder cannot be written any more."""

    def spare(self, nodes: Sequence[tuple[str, int, str]], looks: int) -> None:
        """Write down which planned nodes are not run, and how often the growing data are looked at for that.

        Raises:
            StoreError: where the disk refuses it.
        """
        if self.folder is not None:
            plan = Plan.model_validate(read_json(self.folder.path / PLAN))
            spared = list(dict.fromkeys([*plan.spared, *nodes]))
            self.folder.write(PLAN, plan.model_copy(update={"spared": spared, "looks": looks}))

    def model(self, spec: ModelSpec) -> Model:
        """The model in use under a reference."""
        if spec.ref not in self.models:
            own = spec.is_reference or spec.source is not None or spec.kind in EMBEDDED
            self.models[spec.ref] = Model(
                spec,
                self.registry.get(spec.kind),
                self.runtime_options,
                concurrency=1 if own else self.seats.concurrency,
                on_open=self._opened,
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
            base_url=endpoint or self.base_url,
            api_key=os.environ.get(API_KEY),
            environ={**os.environ, OLLAMA_HOST: endpoint} if endpoint else dict(os.environ),
            declared_context=self.term("context"),
        )

    @cached_property
    def places(self) -> Sequence[Path]:
        """Folders of the banks that are measured: of ``--llm-items``, else of the paths given, else the folder's own.

        Raises:
            pytest.UsageError: where ``--llm-items`` names none.
        """
        config, here = self.config, self.config.invocation_params.dir
        named = config.getoption("llm_items")
        if named:
            return [_bank_in(named, Path(here, named).resolve())]
        if self.chooses:
            return [find_bank(here)]
        paths = [Path(here, argument.partition("::")[0]).resolve() for argument in config.args]
        found = [bank_around(path) for path in paths if path.exists()]
        return list(dict.fromkeys(place for place in found if place is not None))

    @cached_property
    def chooses(self) -> bool:
        """Whether no path was given, so that the session chooses what is collected."""
        if self.worker is not None:
            return bool(self.worker.get("llmbench_chooses"))
        return self.config.args_source != pytest.Config.ArgsSource.ARGS

    @cached_property
    def bank(self) -> Mapping[str, str]:
        """Version and checksum of the bank that the session's items belong to.

        Raises:
            pytest.UsageError: where the bank is broken.
        """
        if self.worker is not None and "llmbench_bank" in self.worker:
            return cast("Mapping[str, str]", self.worker["llmbench_bank"])
        try:
            items = [item for place in self.places for item in load_bank(place)]
            check_unique(items)
            version = " + ".join(bank_version(place) for place in self.places) or NO_BANK
            return {"version": version, "checksum": bank_checksum(items)}
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
                        RunFolder.reopen(self.before.path) if self.before else RunFolder.create(self._folder_path())
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
                    "base_url": redacted(self.base_url) if self.base_url else None,
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

    def _opened(self, model: Model) -> None:
        """A model's card is on disk before its first reply is; several endpoints must serve the same model."""
        if self.folder is None or model.spec.is_reference:
            return
        try:
            self.save_card(model)
        except StoreError as error:
            self.stopped = str(error)
        if self.seats.count == 1:
            return
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
        if self.folder is not None:
            stem = node_stem(
                str(record["item"]), int(str(record["variant"])), int(str(record["run"])), str(record["ref"])
            )
            if not (self.folder.path / "records" / f"{stem}.json").exists():
                self.folder.write_record(Record.model_validate(record))


def _bank_in(named: str, path: Path) -> Path:
    if not path.is_dir():
        raise pytest.UsageError(f"--llm-items={named}: there is no such folder; name the one that holds your items.")
    place = bank_around(path)
    if place is None or next(item_files(path), None) is None:
        raise pytest.UsageError(f"--llm-items={named}: there is no item.toml or items.toml in it.")
    return place if path in place.parents else path


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
