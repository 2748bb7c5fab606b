"""Speed of the plugin, as ratios against the bare thing in the same run. Run it by hand; nothing asserts these figures.

usage: python tests/performance/benchmark.py [PART ...], with the names of the functions below; all without one
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from pytest_llmbench.bank import load_bank
from pytest_llmbench.campaign.agents import converse_scripted
from pytest_llmbench.grading.grade import grade
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.harness.references import conversation
from pytest_llmbench.harness.reply import parse_reply
from pytest_llmbench.sandbox.calls import open_worker
from pytest_llmbench.sandbox.layers import choose

BANK = Path(__file__).resolve().parents[2] / "items"
ENTRIES = 10_000
NODES = 300
STARTS = 30
CALLS = 2_000


def seconds(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> tuple[float, int]:
    """Wall clock of a command in seconds and its peak memory in MiB; its output is dropped."""
    before = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    return time.perf_counter() - before, usage.ru_maxrss // 1024


def unused(folder: Path) -> None:
    """An unrelated pytest run with the plugin installed, against one without it; alternating, the medians."""
    (folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    base = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    runs: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(15):
        runs["with"].append(seconds(base, folder)[0])
        runs["without"].append(seconds([*base, "-p", "no:llmbench"], folder)[0])
    with_, without = statistics.median(runs["with"]), statistics.median(runs["without"])
    print(f"unused: {1000 * (with_ - without):+.1f} ms on {1000 * without:.0f} ms (ratio {with_ / without:.3f})")


def collect(folder: Path) -> None:
    """``--co`` over 10,000 entries of an ``items.toml`` against 10,000 parametrised functions."""
    items = folder / "items" / "many"
    items.mkdir(parents=True)
    defaults = '[defaults]\ntitle = "T"\nversion = "1.0.0"\nlevel = "A"\nmode = "single"\npoints = 1\n'
    defaults += 'rows = [{ id = "q1", title = "R", points = 1 }]\nanswers = { keys = ["1"] }\n'
    entries = "".join(f'[[items]]\nid = "T{number:05}"\n' for number in range(ENTRIES))
    (items / "items.toml").write_text(defaults + entries)
    (folder / "test_many.py").write_text(
        f"import pytest\n\n@pytest.mark.parametrize('n', range({ENTRIES}))\ndef test_many(n):\n    pass\n"
    )
    base = [sys.executable, "-m", "pytest", "--co", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    bare, _ = seconds([*base, "-p", "no:llmbench", "test_many.py"], folder)
    ours, memory = seconds([*base, "--llm-model=golden", "items"], folder)
    print(f"collect: {ours:.2f} s against {bare:.2f} s (ratio {ours / bare:.2f}), {memory} MiB")


class Instant(BaseHTTPRequestHandler):
    """An Ollama that answers at once."""

    protocol_version = "HTTP/1.1"
    wbufsize = 65536

    def _send(self, document: object) -> None:
        body = json.dumps(document).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Version, tags and loaded models."""
        self._send({"version": "0.9.3", "models": []})

    def do_POST(self) -> None:
        """A model's details, or a reply."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/show":
            info = {"general.architecture": "x", "x.context_length": 32768}
            self._send({"details": {"family": "x"}, "model_info": info, "template": "{{ range .Messages }}{{ end }}"})
            return
        self._send(
            {
                "model": asked["model"],
                "message": {"role": "assistant", "content": "ANSWER 1: 3"},
                "done": True,
                "done_reason": "stop",
                "prompt_eval_count": 700,
                "eval_count": 5,
            }
        )

    def log_message(self, *arguments: object) -> None:
        """Stay silent."""


def node(folder: Path) -> None:
    """Overhead per single-mode node against a loopback server that answers at once, over the bare httpx call."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Instant)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    client = httpx.Client(trust_env=False)
    calls = []
    for _ in range(NODES):
        before = time.perf_counter()
        with client.stream(
            "POST", f"{address}/api/chat", json={"messages": [{"role": "user", "content": "x" * 3000}]}
        ) as reply:
            reply.read()
        calls.append(time.perf_counter() - before)
    bare = statistics.mean(calls)
    base = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--llm-model=m"]
    environment = {**os.environ, "OLLAMA_HOST": address}
    bank = "items/small"
    (folder / bank).mkdir(parents=True)
    (folder / bank / "item.toml").write_text(
        'id = "T1"\ntitle = "T"\nversion = "1.0.0"\nlevel = "A"\nmode = "single"\npoints = 1\n'
        'rows = [{ id = "q1", title = "R", points = 1 }]\nanswers = { keys = ["1"] }\n'
    )
    (folder / bank / "prompt.md").write_text("What is 1 + 2? " * 180)
    (folder / bank / "task.py").write_text(
        "from pytest_llmbench.grading.answers import grade_answers as grade\n"
        "from pytest_llmbench.spec import Instance, Reference\n"
        "def build(item, variant, run, seed):\n"
        "    return Instance(item.spec, variant, run, item.render(), {'1': 3})\n"
        "def golden(instance):\n    return Reference(answers={'1': 3})\n"
        "def defects(instance):\n    return {}\n"
    )
    few, _ = seconds([*base, "--llm-runs=1", "--llm-report-dir=few", bank], folder, environment)
    many, _ = seconds([*base, f"--llm-runs={NODES + 1}", "--llm-report-dir=many", bank], folder, environment)
    per = (many - few) / NODES
    print(f"node: {1000 * per:.1f} ms, the bare call {1000 * bare:.1f} ms; overhead {1000 * (per - bare):.1f} ms")
    server.shutdown()


def reply(folder: Path) -> None:
    """Parsing and grading of hostile replies of the largest size."""
    texts: dict[str, str] = {
        "fences": "```md\n" * 170_000,
        "open fences": "notice.txt\n````\nx\n" * 50_000,
        "no newline": "a" * 1_000_000,
        "answers": "ANSWER 1: 1,234\n" * 60_000,
        "digits": "ANSWER 1: " + "1," * 500_000,
        "brackets": "[" * 1_000_000,
        "quotes": "> " * 500_000,
        "thinking": "<think>" * 140_000,
    }
    items = load_bank(BANK)
    sandbox = choose(Profile().sandbox())
    for name, text in texts.items():
        worst = 0.0
        for item in items:
            before = time.perf_counter()
            answers = item.spec.answers
            delivery = parse_reply(text, "", files=item.spec.files, answers=answers.keys if answers else ())
            grade(item.task, item.build(0, 1), delivery, sandbox)
            worst = max(worst, time.perf_counter() - before)
        print(f"reply: {name}: {len(text)} characters, slowest item {worst:.2f} s")


def confined(folder: Path) -> None:
    """A confined start against ``python -I -S -c pass``, alternating, the medians; a call into delivered code."""
    sandbox = choose(Profile().sandbox())
    program = folder / "empty.py"
    program.write_text("")
    bare: list[float] = []
    ours: list[float] = []
    with sandbox.workdir({}) as workdir:
        for _ in range(STARTS):
            bare.append(seconds([sys.executable, "-I", "-S", "-c", "pass"], folder)[0])
            before = time.perf_counter()
            sandbox.run(program, [], workdir)
            ours.append(time.perf_counter() - before)
    first, second = statistics.median(bare), statistics.median(ours)
    print(f"confined: start {1000 * second:.1f} ms against {1000 * first:.1f} ms (ratio {second / first:.2f})")
    with open_worker(sandbox, {"sums.py": "def add(a, b):\n    return a + b\n"}, "sums") as worker:
        worker.call("add", 1, 2)
        before = time.perf_counter()
        for _ in range(CALLS):
            worker.call("add", 1, 2)
        print(f"confined: call {1000 * (time.perf_counter() - before) / CALLS:.3f} ms in {sandbox.layer}")


def references(folder: Path) -> None:
    """Golden and every defective reference of level A, with one worker and with two."""
    base = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "--llm-model=golden,defective:all",
        "-m",
        "levelA",
    ]
    for workers in ([], ["-n", "2"]):
        taken, memory = seconds([*base, *workers, f"--llm-report-dir={folder}/run{len(workers)}", str(BANK)], folder)
        print(f"references: {' '.join(workers) or 'one process'} {taken:.1f} s, {memory} MiB")


def hostile(folder: Path) -> None:
    """What a hostile delivery costs, and what it costs its neighbour."""
    sandbox = choose(Profile().sandbox())
    sources = {
        "honest": "",
        "busy loop": "while True:\n    pass\n",
        "flood": "import os\nwhile True:\n    os.write(1, b'x' * 65536)\n",
        "fork bomb": "import os\nwhile True:\n    os.fork()\n",
        "memory": "x = []\nwhile True:\n    x.append(bytearray(1 << 20))\n",
    }
    for name, source in sources.items():
        before = time.perf_counter()
        with open_worker(sandbox, {"a.py": f"{source}def add(a, b):\n    return a + b\n"}, "a") as worker:
            result = worker.call("add", 1, 2)
        print(f"hostile: {name} {time.perf_counter() - before:.2f} s, {result}")


def agents(folder: Path) -> None:
    """Golden over every agent item and three runs; time per turn without the tests that ``run_tests`` runs."""
    sandbox, profile = choose(Profile().sandbox()), Profile()
    for item in load_bank(BANK):
        if item.spec.mode != "agent":
            continue
        for run in (1, 2, 3):
            instance = item.build(0, run)
            script = conversation("golden", "", item.task, instance)
            before = time.perf_counter()
            done = converse_scripted(item, instance, profile, script, sandbox)
            taken = time.perf_counter() - before
            ran = sum(call.tool == "run_tests" for call in done.calls)
            print(f"agents: {item.spec.id} run {run}: {taken:.2f} s, {done.record().turns} turns, {ran} with tests")


PARTS: dict[str, Callable[[Path], None]] = {
    "unused": unused,
    "collect": collect,
    "node": node,
    "reply": reply,
    "confined": confined,
    "references": references,
    "hostile": hostile,
    "agents": agents,
}


if __name__ == "__main__":
    for name in sys.argv[1:] or list(PARTS):
        with tempfile.TemporaryDirectory() as top:
            PARTS[name](Path(top))
