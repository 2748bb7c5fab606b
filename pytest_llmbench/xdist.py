"""Under xdist: which worker measures what, and how results of a worker on another machine come home."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from execnet import XSpec
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]
from xdist.workermanage import parse_tx_spec_config  # type: ignore[import-untyped]

from pytest_llmbench.bank import read_items
from pytest_llmbench.campaign.measure import grader
from pytest_llmbench.campaign.models import EMBEDDED, REFERENCES, expand
from pytest_llmbench.collect import BenchNode
from pytest_llmbench.environment import environment
from pytest_llmbench.harness.frozen import signature
from pytest_llmbench.plain import items_below
from pytest_llmbench.report.build import is_reference
from pytest_llmbench.session import NODE_NAME, Session
from pytest_llmbench.store.folder import TOKEN, RunFolder, StoreError
from pytest_llmbench.validation import validate_first

IN_PROCESS = "embedded"
"""The one endpoint that all models share that run in the process that measures them."""


def workers_of(config: pytest.Config) -> tuple[int, bool]:
    """How many workers the session has, 0 without any, and whether they may run on several machines."""
    return len(_specs(config)), not config.getoption("numprocesses")


def _specs(config: pytest.Config) -> list[str]:
    if not config.getoption("tx", None) or config.getoption("dist") == "no":
        return []
    return list(parse_tx_spec_config(config))


def distribution(session: Session) -> object:
    """The plugin for this process: of the controller or of one of its workers."""
    return Distribution(session) if session.worker is None else Worker(session, session.worker)


def number_of(node: Any) -> int:
    """Number of a worker; one that takes over from a crashed worker has the crashed one's."""
    return next(number for number, spec in enumerate(node.nodemanager.specs) if spec is node.gateway.spec)


class EndpointScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Every node is handed out by itself, in the order of the plan, to a worker that may measure it."""

    llmbench: Session
    owners: dict[str, Any]
    """Worker by endpoint, where an endpoint's nodes stay on the worker that took the first of them."""
    endpoints: dict[str, str | None]

    def _split_scope(self, nodeid: str) -> str:
        return nodeid

    def _endpoint(self, nodeid: str) -> str | None:
        """What a node must have for itself; None where any worker can take it."""
        if nodeid not in self.endpoints:
            match = NODE_NAME.fullmatch(nodeid.rpartition("::")[2])
            self.endpoints[nodeid] = None
            if match is not None and self.llmbench.source is None:
                name = match["ref"].partition(":")[2] or "defective"
                [*_, spec] = expand(match["ref"], self.llmbench.registry, [name])
                if spec.kind not in REFERENCES:
                    self.endpoints[nodeid] = IN_PROCESS if spec.kind in EMBEDDED else spec.kind
        return self.endpoints[nodeid]

    def _may(self, node: Any, nodeid: str) -> bool:
        endpoint = self._endpoint(nodeid)
        if endpoint is None:
            return True
        seats = self.llmbench.seats
        if seats.fixed and endpoint != IN_PROCESS:
            return number_of(node) < seats.count
        return self.owners.setdefault(endpoint, node) is node

    def schedule(self) -> None:
        """Start with the workers in the order of their numbers, so that those without work are none with a seat."""
        by_number = sorted(self.assigned_work.items(), key=lambda entry: number_of(entry[0]))
        self.assigned_work: dict[Any, dict[str, dict[str, bool]]] = dict(by_number)
        super().schedule()

    def _assign_work_unit(self, node: Any) -> None:
        """Give a worker the first node that it may measure; where there is none, it ends after those it has."""
        nodeid = next((nodeid for nodeid in self.workqueue if self._may(node, nodeid)), None)
        if nodeid is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(nodeid, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        """A worker starts a node when it knows the next one or that there is none: it is told either at once."""
        told = node not in self.registered_collections
        while not told:
            super()._reschedule(node)
            told = node.shutting_down or len(self.assigned_work[node]) > 1

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a node that is done, so that a long session takes no longer for each."""
        del self.assigned_work[node][self.registered_collections[node][item_index]]
        self._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """Take back a dead worker's nodes. The one that took it down is lost and not started again."""
        pending = list(self.assigned_work.pop(node))
        waiting = pending[1:]
        self.owners = {endpoint: owner for endpoint, owner in self.owners.items() if owner is not node}
        for nodeid in reversed(waiting):
            self.workqueue[nodeid] = {nodeid: False}
            self.workqueue.move_to_end(nodeid, last=False)
        if waiting:
            for other in self.assigned_work:
                self._reschedule(other)
        return pending[0] if pending else None


class Distribution:
    """Hooks of the controller."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.planned = False
        self.token = secrets.token_hex()
        others = [spec for spec in _specs(session.config) if not XSpec(spec).popen]
        if others and (session.source is not None or session.before is not None):
            raise pytest.UsageError(
                f"--tx {others[0]}: a run is only resumed or graded again by workers that see the run folder; "
                "use -n on this machine."
            )

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> EndpointScheduling:
        """Nodes are handed out by endpoint."""
        scheduler = EndpointScheduling(config, log)
        scheduler.llmbench, scheduler.owners, scheduler.endpoints = self.session, {}, {}
        return scheduler

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """What a worker must know: the run folder, its endpoint by its number, and the instrument."""
        folder = self.session.open_folder()
        folder.write_text(TOKEN, self.token)
        node.workerinput.update(
            llmbench_folder=str(folder.path),
            llmbench_token=self.token,
            llmbench_number=number_of(node),
            llmbench_deadline=self.session.deadline.isoformat() if self.session.deadline else None,
            llmbench_bank=dict(self.session.bank),
            llmbench_chooses=self.session.chooses,
            llmbench_instrument=instrument(),
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """The first worker's collection is the plan."""
        if self.planned:
            return
        self.planned = True
        keys, files = [], set()
        for nodeid in ids:
            match = NODE_NAME.fullmatch(nodeid.rpartition("::")[2])
            if match is not None:
                files.add(Path(self.session.config.rootpath, nodeid.partition("::")[0]))
                keys.append((match["item"], int(match["run"]), match["ref"]))
        for path in sorted(files):
            self._take_up(path)
        self.session.write_plan(keys)
        if self.session.before is not None:
            self.session.note("session_resumed", nodes=len(keys), kept=None)
        validate_first(self.session, (key for key in keys if not is_reference(key[2])))

    def _take_up(self, path: Path) -> None:
        """Note the items of a file whose nodes the workers have."""
        if path.suffix == ".py":
            everything = self.session.config.pluginmanager.getplugin("session")
            items_below(pytest.Module.from_parent(everything, path=path))
            return
        for item in read_items(path):
            self.session.take_up(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The files of a node come with its report where the worker has a disk of its own."""
        self._take_in(report.__dict__.pop("llmbench_files", {}))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker wrote after its last node."""
        self._take_in(getattr(node, "workeroutput", {}).pop("llmbench_files", {}))

    def _take_in(self, files: Mapping[str, bytes]) -> None:
        if files and self.session.folder is not None:
            try:
                self.session.folder.take_in(files)
            except StoreError as error:
                self.session.stopped = str(error)
                self.session.config.pluginmanager.getplugin("dsession").shouldstop = str(error)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """No worker measures any more when the report is written."""
        manager = getattr(self.session.config.pluginmanager.getplugin("dsession"), "nodemanager", None)
        if manager is not None:
            manager.teardown_nodes()
        if self.session.folder is not None:
            self.session.folder.part()


class Worker:
    """Hooks of a worker. On a disk of its own it measures into a folder of its own, whose files go with the reports."""

    def __init__(self, session: Session, given: Mapping[str, Any]) -> None:
        self.session = session
        self.own: tempfile.TemporaryDirectory[str] | None = None
        if not _same_disk(Path(given["llmbench_folder"]), given["llmbench_token"]):
            self.own = tempfile.TemporaryDirectory(prefix="llmbench-")
            session.folder = RunFolder(Path(self.own.name))
            session.folder.write(f"environment.{session.number}.json", environment())
        if given["llmbench_instrument"] != instrument():
            session.misfit = (
                "this worker has another version of pytest-llmbench or of its grader than the session: "
                "install the same one on every machine."
            )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """What was written since the last report goes with this one."""
        report = yield
        if self.own is not None and isinstance(item, BenchNode):
            report.llmbench_files = self._files()
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """The cards of models that were closed just now go with the worker's last word; then its folder goes."""
        if self.own is not None:
            self.session.config.workeroutput["llmbench_files"] = self._files()  # type: ignore[attr-defined]
            self.own.cleanup()

    def _files(self) -> dict[str, bytes]:
        assert self.session.folder is not None
        return self.session.folder.take_away()


def instrument() -> str:
    """What must be the same on every machine for results to stand in one report."""
    return f"{signature()} {grader()}"


def _same_disk(folder: Path, token: str) -> bool:
    try:
        return (folder / TOKEN).read_text(encoding="utf-8") == token
    except OSError:
        return False
