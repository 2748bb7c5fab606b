"""What a session measures, and under which options: those given, or those of the run it goes on with or replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_llmbench.bank import Item
from pytest_llmbench.campaign.guard import DeadlineError, parse_deadline
from pytest_llmbench.campaign.measure import UNSAID
from pytest_llmbench.campaign.models import ModelError, ModelSpec, expand, factories, parse_models
from pytest_llmbench.campaign.resume import Before, read_before
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.report.build import Manifest, Plan
from pytest_llmbench.runtimes.base import RuntimeFactory
from pytest_llmbench.store.folder import MANIFEST, PLAN, StoreError, read_json

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


class Terms:
    """What is asked for, made out once per process; nothing is started by it."""

    def __init__(self, config: pytest.Config) -> None:
        """
        Raises:
            pytest.UsageError: for an option that means nothing, or another one than the run gone on with has.
        """
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
        self.base_url: str | None = self._base_url()
        self.deadline: datetime | None = self._deadline()

    def _registry(self) -> dict[str, RuntimeFactory]:
        extra: dict[str, RuntimeFactory] = {}
        for more in self.config.hook.pytest_llmbench_runtimes(config=self.config):
            extra.update(more)
        return factories(extra)

    def _base_url(self) -> str | None:
        given = self.config.getoption("llm_base_url")
        saved = self.before.manifest.options.get("base_url") if self.before else None
        if given or not saved or self.config.getoption("llm_endpoint"):
            return str(given) if given else None
        if UNSAID in saved:
            raise pytest.UsageError(
                f"--llm-resume: a run folder holds no host names; say where the server is: --llm-base-url={saved}"
            )
        return str(saved)

    def _deadline(self) -> datetime | None:
        if self.worker is not None:
            told = self.worker.get("llmbench_deadline")
            return datetime.fromisoformat(str(told)) if told else None
        text = self.config.getoption("llm_deadline")
        try:
            return parse_deadline(text, datetime.now().astimezone()) if text else None
        except DeadlineError as error:
            raise pytest.UsageError(f"--llm-deadline={text}: {error}") from None

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


def _keeps(name: str, given: object, saved: object) -> str:
    flag = f"--llm-{name.replace('_', '-')}"
    return (
        f"{flag}={given}: the run that --llm-resume goes on with has {saved}, and keeps it, so that its results can "
        f"stand in one table. Leave {flag} out, or start a new run."
    )
