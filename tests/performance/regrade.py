"""Time of re-grading a campaign of the whole level A. Run it by hand; nothing asserts these figures.

usage: python tests/performance/regrade.py [MODELS RUNS]
       python tests/performance/regrade.py FOLDER    (a run folder that was made by the first form)
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BANK = Path(__file__).resolve().parents[2] / "items"
MODELS, RUNS = 6, 3
CONFTEST = '''
from pathlib import Path

from pytest_llmbench.bank import load_bank
from pytest_llmbench.campaign.agents import messages_of
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.harness.references import conversation
from pytest_llmbench.harness.single import opening
from pytest_llmbench.runtimes.base import ModelCard, Reply

ITEMS = load_bank(Path({bank!r}))


class Cast:
    """Answers as a golden or a defective reference, by its own number, the item and the run."""

    endpoint = None

    def __init__(self, ref, name, options):
        self.ref, self.scripts = ref, {{}}
        for place, item in enumerate(ITEMS):
            parts = [("golden", ""), *(("defective", name) for name in sorted(item.spec.references))]
            for run in range(1, {runs} + 1):
                instance = item.build(0, run)
                agent = item.spec.mode == "agent"
                messages = messages_of(instance, Profile()) if agent else opening(instance)
                part = parts[(int(name) * (place + run)) % len(parts)]
                self.scripts[messages[-1].content] = conversation(
                    part[0], part[1].replace("defective", ""), item.task, instance
                )

    def open(self):
        return ModelCard(ref=self.ref, runtime="cast", context=131072)

    def count_tokens(self, messages):
        return None

    def close(self):
        return None

    def chat(self, request):
        [script] = [self.scripts[m.content] for m in request.messages if m.content in self.scripts][:1]
        return Reply(content=script(request.messages))


def pytest_llmbench_runtimes(config):
    return {{"cast": Cast}}
'''


def make(folder: Path, models: int, runs: int) -> Path:
    """A run folder of scripted models."""
    (folder / "conftest.py").write_text(CONFTEST.format(bank=str(BANK), runs=runs))
    refs = ",".join(f"cast:{number}" for number in range(models))
    arguments = [f"--llm-model={refs}", f"--llm-runs={runs}", f"--llm-report-dir={folder / 'run'}", str(BANK)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "conftest"]
    before = time.perf_counter()
    subprocess.run(
        [*command, f"--rootdir={folder}", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
        check=True,
    )
    print(f"measured {models} models x {runs} runs in {time.perf_counter() - before:.1f} s")
    return folder / "run"


def again(run: Path, name: str) -> None:
    """Re-grade a run folder in a process of its own."""
    command = [sys.executable, "-c", "import sys; from pytest_llmbench.cli import main; sys.exit(main())"]
    before = time.perf_counter()
    subprocess.run([*command, "regrade", str(run), "--items", str(BANK)], check=False)
    taken = time.perf_counter() - before
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"{name}: {taken:.1f} s on {os.cpu_count()} processors, largest process {memory} MiB")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        again(Path(sys.argv[1]), "regrade")
    else:
        models, runs = map(int, sys.argv[1:] or (MODELS, RUNS))
        with tempfile.TemporaryDirectory() as top:
            run = make(Path(top), models, runs)
            again(run, "nothing changed")
            for record in (run / "records").glob("*.json"):
                record.unlink()
            again(run, "every record lost")
