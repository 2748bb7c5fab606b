"""Several endpoints, several machines: nothing is measured differently, and nothing gets lost on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from runtimes.loopback import Loopback, Say, Script, Seen, js, serving, sse

pytest.importorskip("xdist")

PLACED = """

class Placed(Script):
    def __init__(self, ref, name, options):
        super().__init__(ref, name, options)
        self.url = options.base_url

    def chat(self, request):
        with (HERE / "places.txt").open("a") as file:
            file.write(f"{self.url} {os.environ.get('PYTEST_XDIST_WORKER')}\\n")
        return super().chat(request)


def pytest_llmbench_runtimes(config):
    return {"script": Placed}
"""


class Busy:
    """A server that answers the items of the bank and notices how many requests it has at a time."""

    def __init__(self, digest: str = "toy", *, replies: list[str] | None = None) -> None:
        self.most = 0
        self.asked = 0
        self._taken: set[int] = set()
        self._guard = threading.Lock()
        self._replies = replies or [""]
        models = js({"data": [{"id": digest}]})
        self.script: dict[str, Script] = {"/v1/models": models, "/v1/chat/completions": self.chat}
        self.loopback: Loopback | None = None

    @property
    def url(self) -> str:
        assert self.loopback is not None
        return f"{self.loopback.url}/v1"

    def chat(self, seen: Seen) -> Say:
        with self._guard:
            slot = min(set(range(len(self._taken) + 1)) - self._taken)
            self._taken.add(slot)
            self.most = max(self.most, len(self._taken))
        time.sleep(0.05)
        with self._guard:
            self._taken.remove(slot)
        found = re.search(r"of (\d+) and (\d+)", seen.body["messages"][-1]["content"])
        self.asked += found is not None
        a, b = map(int, found.groups()) if found else (0, 0)
        text = f"ANSWER 1: {a + b}\nANSWER 2: {a * b if a % 2 else 1}\n{self._replies[slot % len(self._replies)]}"
        delta = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        return sse(*({"model": seen.body["model"], "choices": [choice]} for choice in (delta, end)))


@pytest.fixture
def servers() -> Iterator[Callable[..., Busy]]:
    """Starts busy servers."""
    with ExitStack() as stack:

        def start(**how: Any) -> Busy:
            busy = Busy(**how)
            busy.loopback = stack.enter_context(serving(busy.script))
            return busy

        yield start


@pytest.fixture
def wide(bank: Any) -> Any:
    """A bank of six items."""
    for number in range(2, 7):
        bank.item(f"T0{number}")
    return bank


def places(bank: Any) -> list[list[str]]:
    return [line.split() for line in (bank.path / "places.txt").read_text().splitlines()]


TIMES = {"elapsed_s", "speed", "speeds", "load_s", "probe_tokens_per_s", "closing_probe_tokens_per_s", "created"}


def timeless(document: Any) -> Any:
    """A report without times and without the ports of its servers."""
    if isinstance(document, dict):
        return {key: timeless(value) for key, value in document.items() if key not in {*TIMES, "endpoint"}}
    return [timeless(entry) for entry in document] if isinstance(document, list) else document


def test_the_same_report_comes_out_whatever_the_number_of_workers(wide: Any, servers: Callable[..., Busy]) -> None:
    reports, asked = [], []
    for workers, endpoints in (("-n0", 1), ("-n1", 1), ("-n2", 2)):
        busy = [servers() for _ in range(endpoints)]
        flags = [f"--llm-endpoint={server.url}" for server in busy]
        models = "openai:toy,golden,openai:toy2"
        for server in busy:
            server.script["/v1/models"] = js({"data": [{"id": "toy"}, {"id": "toy2"}]})
            server.loopback.on.update(server.script)  # type: ignore[union-attr]
        assert wide.run(models, "--llm-runs=2", "--llm-context=65536", workers, *flags).ret == 0
        reports.append(timeless(wide.report()))
        asked.append([server.asked for server in busy])
        assert [server.most for server in busy] == [1] * endpoints
        wide.again()
    assert reports[0]["status"] == "complete"
    assert reports[0] == reports[1] == reports[2]
    assert [sum(counts) for counts in asked] == [24, 24, 24]
    assert min(asked[2]) > 4, "both endpoints did their part"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--llm-endpoint=http://a:1", "--llm-endpoint=http://b:1"], ["2 times", "-n 2", "no workers"]),
        (["--llm-endpoint=http://a:1", "--llm-endpoint=http://b:1", "-n1"], ["-n 2", "gives 1"]),
        (["--llm-concurrency=2"], ["--llm-concurrency=2", "-n 2"]),
        (["--llm-endpoint=http://a:1", "--llm-endpoint=http://b:1", "--llm-concurrency=2", "-n3"], ["-n 4", "gives 3"]),
        (
            ["--llm-endpoint=http://127.0.0.1:1", "--llm-endpoint=http://localhost:1/", "-n2"],
            ["more than once", "--tx"],
        ),
        (["--tx", "ssh=gpu1", "-d", "--llm-model=replay:RUN"], ["--tx ssh=gpu1", "see the run folder", "-n"]),
        (["--llm-endpoint=gpu1:11434"], ["'gpu1:11434' is no http"]),
        (["--llm-concurrency=0"], ["0 is below 1"]),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(bank: Any, flags: list[str], words: list[str]) -> None:
    replayed = "--llm-model=replay:RUN" in flags
    if replayed:
        assert bank.run("script:golden", f"--llm-report-dir={bank.path / 'RUN'}").ret == 0
    result = bank.run(None if replayed else "script:golden", *flags)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = result.stderr.str()
    assert [word for word in words if word not in told] == []
    assert not bank.folder.exists()


def test_one_endpoint_needs_no_workers(bank: Any, servers: Callable[..., Busy]) -> None:
    server = servers()
    assert bank.run("openai:toy", "--llm-context=65536", f"--llm-endpoint={server.url}").ret == 0
    assert server.asked == 1


def test_workers_beyond_the_endpoints_get_no_model(wide: Any) -> None:
    with (wide.path / "conftest.py").open("a") as file:
        file.write(PLACED)
    flags = ("--llm-endpoint=http://a:1", "--llm-endpoint=http://b:1/v1")
    assert wide.run("script:golden,golden", "-n3", "--llm-runs=2", *flags, apart=True).ret == 0
    assert {tuple(place) for place in places(wide)} == {("http://a:1", "gw0"), ("http://b:1/v1", "gw1")}
    assert wide.report()["status"] == "complete"


def test_who_replaces_a_crashed_worker_takes_over_its_endpoint(wide: Any) -> None:
    with (wide.path / "conftest.py").open("a") as file:
        file.write(PLACED)
    wide.script(T01="dies")
    flags = ("--llm-endpoint=http://a:1", "--llm-endpoint=http://b:1")
    assert wide.run("script:naps,script:golden", "-n2", *flags, apart=True).ret == 1
    by_worker = dict(reversed(place) for place in places(wide))
    assert by_worker.pop("gw0") == "http://a:1"
    assert by_worker.pop("gw1") == "http://b:1"
    assert by_worker
    assert [item for _, item, _ in wide.calls()].count("T01") == 2
    models = wide.report()["levels"]["A"]["models"]
    assert {ref: model["unmeasured_nodes"] for ref, model in models.items()} == {
        "script:naps": ["T01-run1"],
        "script:golden": ["T01-run1"],
    }


def test_several_requests_at_a_time_are_stamped_and_never_pass_as_one(
    wide: Any, servers: Callable[..., Busy], fieldcase: Callable[[str, str], Any]
) -> None:
    server = servers(replies=[reply["text_sha"] for reply in fieldcase("56", "replies.jsonl")])
    expected = fieldcase("56", "expected.json")

    def measure(*flags: str) -> tuple[set[str], set[int], set[str]]:
        again = wide.run("openai:toy", "--llm-context=65536", "--llm-runs=2", f"--llm-endpoint={server.url}", *flags)
        assert again.ret == 0
        said = [json.loads(path.read_text()) for path in (wide.folder / "transcripts").glob("*.json")]
        texts = {transcript["turns"][-1]["content"].splitlines()[-1] for transcript in said}
        records = wide.records().values()
        return texts, {r["concurrency"] for r in records}, {r["fingerprints"]["request"] for r in records}

    texts, stamps, alone = measure("-n2")
    assert (len(texts), stamps, server.most, wide.report()["concurrency"]) == (1, {1}, 1, 1)
    wide.again()
    server._replies = server._replies[1:3]
    texts, stamps, together = measure("-n2", "--llm-concurrency=2")
    assert (stamps, server.most, wide.report()["concurrency"]) == ({2}, 2, 2)
    assert 1 < len(texts) <= expected["distinct"]
    assert not alone & together
    manifest = json.loads((wide.folder / "manifest.json").read_text())
    assert manifest["options"]["concurrency"] == 2
    replay = wide.path / "replayed"
    assert wide.run(f"replay:{wide.folder}", f"--llm-report-dir={replay}").ret == 0
    assert {record["concurrency"] for record in wide.records(replay).values()} == {2}
    assert wide.report(replay)["concurrency"] == 2


def test_endpoints_that_serve_different_models_under_one_name_are_found_out(wide: Any) -> None:
    with (wide.path / "conftest.py").open("a") as file:
        file.write(PLACED)
        file.write(
            "\n\ndef opened(self):\n"
            "    return ModelCard(ref=self.ref, runtime='script', context=32768, digest=self.url)\n"
            "\n\nPlaced.open = opened\n"
        )
    flags = ("--llm-endpoint=http://a:1", "--llm-endpoint=http://b:1")
    result = wide.run("script:golden", "-n2", *flags, apart=True)
    assert result.ret == 1
    reasons = {record["reason"] for record in wide.records().values() if record["status"] == "runtime_error"}
    assert any("differ in digest for script:golden" in reason for reason in reasons)
    assert wide.report()["models"]["script:golden"]["endpoints_differ"] == ["digest"]


def test_stopping_at_the_first_failure_leaves_an_interrupted_report(wide: Any) -> None:
    wide.script(T01="breaks")
    assert wide.run("script:golden", "-n1", "-x", "--llm-runs=3").ret == pytest.ExitCode.INTERRUPTED
    report = wide.report()
    assert report["status"] == "interrupted"
    assert report["levels"]["A"]["models"]["script:golden"]["unmeasured"] > 6


def test_ctrl_c_leaves_an_interrupted_report_with_every_record_there_is(wide: Any) -> None:
    wide.script(T03="sleeps")
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:hypothesispytest", "-n2"]
    process = subprocess.Popen(
        [*command, "--llm-model=script:golden,golden", f"--llm-report-dir={wide.folder}"],
        cwd=wide.path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while process.poll() is None and ["script:golden", "T03"] not in [call[:2] for call in calls_so_far(wide)]:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=50)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    report = wide.report()
    assert report["status"] == "interrupted"
    nodes = [
        (item, ref, entry["status"])
        for ref, model in report["levels"]["A"]["models"].items()
        for run in model["runs"]
        for item, entry in run["items"].items()
    ]
    assert {status for _, _, status in nodes} == {"measured", "lost"}
    assert len(wide.records()) == sum(status == "measured" for _, _, status in nodes)


def calls_so_far(bank: Any) -> list[list[str]]:
    path = bank.path / "calls.txt"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def blind(tmp_path: Path, wide: Any) -> Path:
    """A Python that does not see the run folder, as on another machine."""
    bwrap = ["bwrap", "--dev-bind", "/", "/", "--tmpfs"]
    unshare = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
    for words in (bwrap, unshare):
        if (
            shutil.which(words[0])
            and not subprocess.run([*words, str(tmp_path), "true"], capture_output=True).returncode
        ):
            wrapper = tmp_path / "python"
            start = " ".join(f"'{word}'" for word in (*words, str(wide.folder), sys.executable))
            wrapper.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
            wrapper.chmod(0o755)
            return wrapper
    pytest.skip("neither bwrap nor unshare can hide a folder here")


def test_a_worker_without_the_controllers_disk_sends_its_files(
    wide: Any, blind: Path, servers: Callable[..., Busy], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    one, other = servers(), servers()
    flags = [f"--llm-endpoint={server.url}" for server in (one, other)]
    machines = ["--tx", "popen", "--tx", f"popen//python={blind}", "-d"]
    model = ("openai:toy", "--llm-context=65536", "--llm-runs=2")
    assert wide.run(*model, *machines, *flags, apart=True).ret == 0
    assert min(one.asked, other.asked) > 2
    apart, folder = timeless(wide.report()), wide.path / "apart"
    wide.folder.rename(folder)
    assert wide.run(*model, f"--llm-endpoint={one.url}").ret == 0
    assert apart == timeless(wide.report())

    def files(root: Path, ending: str) -> set[str]:
        return {path.relative_to(root).as_posix() for path in root.rglob(f"*{ending}")}

    [card] = files(wide.folder / "models", ".json")
    assert files(wide.folder, "") <= files(folder, "")
    assert {"environment.1.json", f"models/{card.removesuffix('.json')}.1.json"} <= files(folder, ".json")
    wires = [path.stat().st_size for path in (folder / "transcripts").glob("*.wire")]
    assert len(wires) == 12
    assert min(wires) > 0
    events = [json.loads(line)["event"] for line in (folder / "events.jsonl").read_text().splitlines()]
    assert events.count("request_sent") == 12
    assert events.count("model_closed") == 2
    left = [path for path in scratch.rglob("llmbench-*") if path.name != "llmbench-endpoints"]
    assert left == []
