"""How time and memory of a campaign grow with its nodes. Run it by hand; nothing asserts these figures.

usage: python tests/performance/growth.py [-n WORKERS] [NODES ...]

Ten models, ten tiny items and as many runs as it takes, against a server on loopback that answers at once. The times
are those of the whole session less those of a session of one node, which is start-up: wall clock, and processor time
of the session with its workers, which says more where other programs run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

NODES = (100, 300, 1_000, 3_000)
"""Multiples of the models times the items. The longest that was measured has 10,000; it takes minutes."""
MODELS, ITEMS = 10, 10
DEFAULTS = """[defaults]
title = "Sum"
version = "1.0.0"
level = "A"
mode = "single"
points = 1
rows = [{ id = "q1", title = "The sum", points = 1 }]
answers = { keys = ["1"] }
"""
TASK = """from pytest_llmbench.grading.answers import grade_answers as grade
from pytest_llmbench.spec import Instance, Reference


def build(item, variant, run, seed):
    return Instance(item.spec, variant, run, f"Task {item.spec.id}: what is 1 + 2? " + "Think twice. " * 200, {"1": 3})


def golden(instance):
    return Reference(answers={"1": 3})


def defects(instance):
    return {}
"""
SERVER = """
import sys
from http.server import ThreadingHTTPServer
from benchmark import Instant

server = ThreadingHTTPServer(("127.0.0.1", 0), Instant)
print(server.server_port, flush=True)
server.serve_forever()
"""
POLL_S = 0.05
MIB = 2**20


def bank(folder: Path, size: int) -> Path:
    """A bank of so many items."""
    items = folder / f"bank{size}" / "many"
    items.mkdir(parents=True)
    entries = "".join(f'[[items]]\nid = "T{number:05}"\n' for number in range(size))
    (items / "items.toml").write_text(DEFAULTS + entries)
    (items / "task.py").write_text(TASK)
    return items.parent


class Peak(threading.Thread):
    """The most memory that the session's own process had while it ran."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self.process, self.bytes_ = psutil.Process(process.pid), 0

    def run(self) -> None:
        """Look again and again until the process is gone."""
        while True:
            try:
                self.bytes_ = max(self.bytes_, self.process.memory_info().rss)
            except psutil.Error:
                return
            time.sleep(POLL_S)


@dataclass(frozen=True)
class Cost:
    """What one campaign cost."""

    wall_s: float
    processor_s: float
    memory_mib: float
    """Peak of the main process."""


def session(folder: Path, nodes: int, address: str, workers: int) -> Cost:
    """Run one campaign."""
    run = folder / f"run{nodes}"
    models, items, runs = (1, 1, 1) if nodes == 1 else (MODELS, ITEMS, nodes // (MODELS * ITEMS))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    command += [f"--llm-runs={runs}", f"--llm-model={','.join(f'm{number}' for number in range(models))}"]
    spread = ["-n", str(workers)] if workers else []
    place = folder / f"bank{items}"
    if not place.exists():
        bank(folder, items)
    before = time.perf_counter()
    process = subprocess.Popen(
        [*command, *spread, f"--llm-report-dir={run}", str(place)],
        cwd=folder,
        env={**os.environ, "OLLAMA_HOST": address},
        stdout=subprocess.DEVNULL,
    )
    peak = Peak(process)
    peak.start()
    _, status, usage = os.wait4(process.pid, 0)
    taken = time.perf_counter() - before
    process.returncode = code = os.waitstatus_to_exitcode(status)
    peak.join()
    report = json.loads((run / "report.json").read_text())
    assert (code, report["status"]) == (0, "complete"), (code, report["status"])
    return Cost(taken, usage.ru_utime + usage.ru_stime, peak.bytes_ / MIB)


def grow(sizes: list[int], workers: int) -> None:
    """Measure campaigns of these sizes and fit the exponent."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert server.stdout is not None
    address = f"http://127.0.0.1:{int(server.stdout.readline())}"
    print(f"{workers or 'no'} workers, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    try:
        with tempfile.TemporaryDirectory() as top:
            first = session(Path(top), 1, address, workers)
            print(f"start-up {first.wall_s:.1f} s, {first.processor_s:.1f} s of processor, {first.memory_mib:.0f} MiB")
            net: list[tuple[float, float]] = []
            for nodes in sizes:
                cost = session(Path(top), nodes, address, workers)
                net.append((cost.wall_s - first.wall_s, cost.processor_s - first.processor_s))
                wall, processor = (1000 * seconds / nodes for seconds in net[-1])
                print(
                    f"{nodes:6} nodes: {cost.wall_s:6.1f} s, {wall:5.1f} ms a node, {processor:5.1f} ms of processor a "
                    f"node, {cost.memory_mib:4.0f} MiB in the main process, load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
            if len(sizes) > 1:
                [wall, processor], _ = np.polyfit(np.log(sizes), np.log(net), 1)
                print(f"exponent: {wall:.2f} of wall clock, {processor:.2f} of processor time")
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=0, dest="workers")
    parser.add_argument("nodes", type=int, nargs="*", default=list(NODES))
    options = parser.parse_args()
    grow(options.nodes, options.workers)
