"""Time, memory and size of the report and its page. Run it by hand; nothing asserts these figures.

usage: PYTHONPATH=tests python tests/performance/page.py [MODELS RUNS CHARS]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report.campaigns import campaign

from pytest_llmbench.report.build import write_report
from pytest_llmbench.report.page import write_page
from pytest_llmbench.store.folder import RunFolder

MODELS, RUNS, CHARS = 20, 5, 20_000


def measure(path: Path) -> None:
    """Report and page of a run folder, in a process that did nothing else."""
    folder = RunFolder(path)
    start = time.perf_counter()
    write_report(folder)
    between = time.perf_counter()
    size = write_page(folder).stat().st_size
    end = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"report {between - start:.2f} s, page {end - between:.2f} s, {memory} MiB, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        measure(Path(sys.argv[1]))
    else:
        models, runs, chars = map(int, sys.argv[1:] or (MODELS, RUNS, CHARS))
        with tempfile.TemporaryDirectory() as folder:
            campaign(Path(folder), models, runs, chars=chars)
            print(f"{models} models x {runs} runs, conversations of about {chars} characters")
            subprocess.run([sys.executable, __file__, folder], check=True)
