"""The hooks that are at work once ``--llm-model`` is given."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_llmbench import fixtures
from pytest_llmbench.bank import ITEM_FILE, ITEMS_FILE
from pytest_llmbench.collect import COURSE, SESSION, BenchNode, ItemFile
from pytest_llmbench.course import Course, check_models, check_terms
from pytest_llmbench.harness.frozen import harness, signature
from pytest_llmbench.outcome import complete_report, sections, shorten, words
from pytest_llmbench.plain import PlainNode, marked_modules, with_marked
from pytest_llmbench.progress import Progress, fits
from pytest_llmbench.report.build import Report, write_report
from pytest_llmbench.report.tables import summary
from pytest_llmbench.session import Session
from pytest_llmbench.store.folder import REPORT, RunFolder, StoreError
from pytest_llmbench.validation import validate_first

MEASURED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
"""Exit codes of a session that got through its plan."""
CRASHED = "???"
"""Phase in xdist's report of a node whose worker died."""


def activate(config: pytest.Config) -> None:
    """Register everything that measures.

    Raises:
        pytest.UsageError: for an option that means nothing.
    """
    manager = config.pluginmanager
    session = Session(config)
    config.stash[SESSION] = session
    config.stash[COURSE] = Course(session)
    manager.register(Active(config, session), "llmbench-active")
    manager.register(fixtures, "llmbench-fixtures")
    if fits(config):
        manager.register(Progress(config, session), "llmbench-progress")
    workers, spread = 0, False
    if manager.hasplugin("xdist"):
        from pytest_llmbench.xdist import distribution, workers_of

        manager.register(distribution(session), "llmbench-xdist")
        workers, spread = workers_of(config)
    if session.worker is None and not config.option.collectonly:
        session.seats.check(workers, spread=spread)
        check_terms(session, workers)
    if config.args_source != pytest.Config.ArgsSource.ARGS:
        config.args = [str(path) for path in (*session.places, *marked_modules(config))]


class Active:
    """One per pytest process."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self.config = config
        self.session = session
        self.report: Report | None = None
        self.interrupted = False

    @property
    def distributes(self) -> bool:
        """Whether this process only hands out nodes to xdist workers."""
        return (
            self.session.worker is None
            and bool(getattr(self.config.option, "tx", None))
            and self.config.option.dist != "no"
        )

    def pytest_report_header(self) -> list[str]:
        """The instrument's versions and what is measured."""
        session = self.session
        lines = [
            f"llmbench: harness {harness().version} ({signature()[:12]}), bank {session.bank['version']} "
            f"({session.bank['checksum'][:12]}), profile {session.profile.name}, variant {session.variant}, "
            f"runs {session.runs}"
        ]
        if session.folder is not None:
            lines.append(f"llmbench: writing {self._shown(session.folder.path)}")
        return lines

    def _shown(self, path: Path) -> str:
        try:
            return str(path.relative_to(self.config.invocation_params.dir))
        except ValueError:
            return str(path)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """The run folder is made before anything runs, so that one that cannot be written costs nothing."""
        if not self.config.option.collectonly:
            self.session.open_folder()

    def pytest_collect_file(self, parent: pytest.Collector, file_path: Path) -> ItemFile | None:
        """Item files are collected as such."""
        if file_path.name in (ITEM_FILE, ITEMS_FILE):
            return ItemFile.from_parent(parent, path=file_path)
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector, name: str) -> Generator[None, object, object]:
        """A marked function is an item of one's own; where no path is given, nothing else of its module is one."""
        made = yield
        return with_marked(made, collector, name, marked_only=self.session.chooses)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run 1 of every model before run 2 of any, a model's items together."""
        order = {
            ref: number
            for number, ref in enumerate(dict.fromkeys(n.spec.ref for n in items if isinstance(n, BenchNode)))
        }
        places = [place for place, node in enumerate(items) if isinstance(node, BenchNode)]
        nodes = [items[place] for place in places]
        nodes.sort(
            key=lambda node: (
                (node.run, order[node.spec.ref], str(node.path), node.item.spec.id)
                if isinstance(node, BenchNode)
                else ()
            )
        )
        for place, node in zip(places, nodes, strict=True):
            items[place] = node
        if self.config.pluginmanager.hasplugin("timeout"):
            self._back_stop([node for node in nodes if isinstance(node, BenchNode) and not isinstance(node, PlainNode)])

    def _back_stop(self, nodes: list[BenchNode]) -> None:
        profile = self.session.profile
        patience = profile.limit("load_s") + profile.limit("first_token_s") + profile.limit("call_timeout_s")
        for node in nodes:
            node.add_marker(pytest.mark.timeout(patience))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The plan is on disk, and the instrument known to be in order, before the first node runs."""
        nodes = [node for node in session.items if isinstance(node, BenchNode)]
        self.config.stash[COURSE].nodes = nodes
        if self.session.worker is None and not self.distributes and not self.config.option.collectonly:
            self.session.write_plan(node.key for node in nodes)
            real = [node.key for node in nodes if not node.spec.is_reference]
            check_models(self.session, real)
            validate_first(self.session, real)

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """What is kept of the run that is gone on with, and what is measured again."""
        if self.session.before is None or self.distributes or self.config.option.collectonly:
            return []
        self.config.stash[COURSE].nodes = [node for node in items if isinstance(node, BenchNode)]
        course = self.config.stash[COURSE]
        self.session.note("session_resumed", nodes=len(course.nodes), kept=course.kept)
        return list(course.outlook())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """The record rides on the test report."""
        report = yield
        if isinstance(item, BenchNode):
            complete_report(item, report)
        if isinstance(item, PlainNode) and report.when == "setup" and report.skipped:
            item.leave_out(report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """A model that is not needed next is unloaded, and what is on disk is held no longer."""
        if isinstance(item, BenchNode):
            following = nextitem if isinstance(nextitem, BenchNode) else None
            self.config.stash[COURSE].after(item, following)
            item.forget()
            if self.session.stopped is not None:
                item.session.shouldstop = self.session.stopped

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Records are gathered where the report is written; xdist reports a node that took its worker down so."""
        if report.when == CRASHED and self.session.worker is None:
            self.session.worker_lost(report.nodeid)
        record = getattr(report, "llmbench", None)
        if record is not None and report.when == "call" and self.session.worker is None:
            self.session.keep(record)
            self.config.hook.pytest_llmbench_record(config=self.config, record=record)

    @pytest.hookimpl(specname="pytest_runtest_logreport", trylast=True)
    def pytest_llmbench_told(self, report: pytest.TestReport) -> None:
        """pytest holds every report to the end: of a record that everybody was told, only what is shown then stays."""
        if self.session.worker is None:
            shorten(report)

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Points instead of PASSED."""
        return words(report) if isinstance(report, pytest.TestReport) else None

    def pytest_keyboard_interrupt(self) -> None:
        """Ctrl-C leaves a valid report that says so."""
        self.interrupted = True
        if self.session.worker is None:
            self.session.note("interrupted")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Unload what is loaded; then the process that has the records writes the report."""
        for ref in list(self.session.models):
            self.session.close_model(ref)
        folder = self.session.folder
        if self.session.worker is not None or folder is None:
            return
        try:
            self.report = write_report(folder, interrupted=self.interrupted, broken=exitstatus not in MEASURED)
            self.report = self._updated(folder, self.report)
            folder.event("session_finished", status=self.report.status)
        except StoreError as error:
            self.session.stopped = str(error)
        finally:
            folder.release()
        whole = self.report is not None and self.report.status == "complete" and self.session.stopped is None
        if not whole and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _updated(self, folder: RunFolder, report: Report) -> Report:
        """The report with what others add to it, which stands under ``extra`` and nowhere else."""
        update = self.config.hook.pytest_llmbench_update_report
        if not update.get_hookimpls():
            return report
        document = report.model_dump(mode="json", by_alias=True)
        update(config=self.config, report=document)
        extra = document.get("extra")
        if extra == report.extra:
            return report
        try:
            updated = report.model_copy(update={"extra": json.loads(json.dumps(extra, allow_nan=False))})
            folder.write(REPORT, Report.model_validate(updated.model_dump(by_alias=True)))
        except (TypeError, ValueError) as error:
            self.session.stopped = f"pytest_llmbench_update_report: report['extra'] cannot be written as JSON: {error}"
            return report
        return updated

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The tables, what was not measured, and where the rest lies."""
        shown = terminalreporter.stats.get("measured", [])
        if terminalreporter.hasopt("P"):
            for nodeid, text in sections(shown):
                terminalreporter.section(nodeid, sep="_")
                terminalreporter.write_line(text)
        if self.report is not None and self.session.folder is not None:
            terminalreporter.section("llmbench")
            for line in summary(self.report):
                terminalreporter.write_line(line)
            terminalreporter.write_line(f"report: {self._shown(self.session.folder.path / 'report.json')}")
        if self.session.stopped is not None:
            terminalreporter.section("llmbench")
            terminalreporter.write_line(self.session.stopped)
