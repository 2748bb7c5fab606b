"""Under xdist: an endpoint's nodes stay on one worker, the rest spreads, a dead worker leaves a counted gap."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from pytest_llmbench.bank import read_items
from pytest_llmbench.campaign.models import REFERENCES, expand
from pytest_llmbench.session import NODE_NAME, Session


class EndpointScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Scopes are endpoints; a reference's node is a scope of its own."""

    llmbench: Session

    def _split_scope(self, nodeid: str) -> str:
        match = NODE_NAME.fullmatch(nodeid.rpartition("::")[2])
        if match is None or self.llmbench.source is not None:
            return nodeid
        [*_, spec] = expand(match["ref"], self.llmbench.registry, [match["ref"].partition(":")[2] or "defective"])
        return (
            nodeid
            if spec.kind in REFERENCES
            else f"endpoint of {'embedded' if spec.kind in ('gguf', 'tiny') else spec.kind}"
        )

    def remove_node(self, node: Any) -> str | None:
        """Take back a dead worker's nodes. The one that took it down is lost and not started again."""
        workload = self.assigned_work.pop(node)
        pending: list[tuple[str, str]] = [
            (scope, nodeid) for scope, unit in workload.items() for nodeid, done in unit.items() if not done
        ]
        if not pending:
            return None
        scope, lost = pending[0]
        workload[scope][lost] = True
        self.workqueue.update({scope: unit for scope, unit in workload.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return lost


class Distribution:
    """Hooks that only exist with xdist."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.planned = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> EndpointScheduling:
        """Nodes are handed out by endpoint."""
        scheduler = EndpointScheduling(config, log)
        scheduler.llmbench = self.session
        return scheduler

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Workers write into the controller's run folder."""
        node.workerinput["llmbench_folder"] = str(self.session.open_folder().path)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """The first worker's collection is the plan."""
        if self.planned:
            return
        self.planned = True
        keys, files = [], set()
        for nodeid in ids:
            path, _, name = nodeid.rpartition("::")
            match = NODE_NAME.fullmatch(name)
            if match is not None:
                files.add(path)
                keys.append((match["item"], int(match["run"]), match["ref"]))
        for path in sorted(files):
            for item in read_items(Path(self.session.config.rootpath, path)):
                self.session.take_up(item)
        self.session.write_plan(keys)
