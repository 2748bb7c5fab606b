"""A session that ends at any moment and is gone on with leaves what an uninterrupted one leaves, but for times."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from plugin import test_agent_items as agent_items
from plugin.conftest import CONFTEST, ITEM, PROMPT, TASK
from runtimes.conftest import chunk, usage
from runtimes.loopback import Loopback, Say, js, serving, sse

from pytest_llmbench.cli import main
from pytest_llmbench.store.folder import node_stem

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no process groups")

CHAT = "/v1/chat/completions"
SEED = int(os.environ.get("LLMBENCH_KILL_SEED", "5"))
"""Where the moments come from; another one may be given."""
KINDS = {"time": 8, "request": 9, "disk": 10, "start": 3}
"""How many moments are drawn of each kind: seconds since the start, the server's k-th request (before, amid or behind
its reply), the k-th operation on the run folder, one of the first of these."""
FIRST = 6
"""Operations on the run folder of which the last is behind the manifest."""
TWICE = 4
"""Every so many moments, the session that goes on is killed, too."""
ROOM = 10
"""Times what a session needs."""
PATIENCE_S = 60
PAGE = 4096
"""Bytes of which a small disk gives a file a whole number."""
TIMES = frozenset(
    {
        *("started", "finished", "created"),
        *("elapsed_s", "ttft_s", "ttfa_s", "longest_gap_s", "generation_s", "prompt_s", "load_s", "total_s"),
        *("speed", "conditions", "caps", "prompt_shared", "cold"),
        *("probe_tokens_per_s", "closing_probe_tokens_per_s", "speeds", "free_memory_mb"),
    }
)
"""What two sessions never have in common: moments, durations, and what is made from these."""
NOT_COMPARED = ("archive/", "events.jsonl", ".lock", "environment.json")
"""What tells the course of the sessions and not what was measured; the memory of the machine."""

SAID = "said.txt"
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(
    [__name__, "xdist.plugin", "pytest_llmbench.active", "pytest_llmbench.report.analysis", "pytest_llmbench.xdist"]
)

KILLER = '''
import sys

WRITES = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir"})
OPERATIONS = iter(range(int(os.environ.get("KILL_AT", "1000000"))))


def _kill(event, arguments):
    """Kill the process before so many operations on its run folder."""
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if (event in WRITES or writes) and os.environ["RUN"] in str(arguments[0]):
        if next(OPERATIONS, None) is None or os.environ.get("KILL_IN", "nowhere") in str(arguments[-3:]):
            os.kill(os.getpid(), 9)


sys.addaudithook(_kill)


def pytest_unconfigure():
    if "COUNT_TO" in os.environ:
        Path(os.environ["COUNT_TO"]).write_text(str(next(OPERATIONS)))
'''
TASKS = re.compile(r"Task T0\d|Copy the figure")
STEPS = ("TOOL list_files\nEND TOOL", *["TOOL read_file\npath: figure.txt\nEND TOOL"] * 2)


def run_pytest(arguments: list[str], folder: Path, environ: dict[str, str]) -> None:
    """What a process of its own does that has imported the plugin and done nothing else: a whole session."""
    os.setsid()
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "PYTHONDONTWRITE"))]:
        del os.environ[name]
    os.environ.update(environ)
    said = os.open(SAID, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(said, stream)
    code = pytest.main(arguments)
    sys.stdout.flush()
    os._exit(code)


@dataclass
class Campaign:
    """Two models, two runs, three items, one of them a conversation with tools; a server that answers at once."""

    path: Path
    server: Loopback
    victim: Any = None
    on_request: dict[int, tuple[str, int]] = field(default_factory=dict)
    """What is sent to the session, and when: at the request of that number, before, amid or behind its reply."""

    def __post_init__(self) -> None:
        self.server.on["/v1/models"] = js({"data": [{"id": "good"}, {"id": "poor"}]})
        self.server.on[CHAT] = self.chat
        (self.path / "conftest.py").write_text(CONFTEST + KILLER)
        for name in ("T01", "T02"):
            self.item(name, ITEM.format(name=name, level="A", points=3, rest=2), TASK, PROMPT)
        self.item("G01", agent_items.ITEM, agent_items.TASK, agent_items.PROMPT)
        (self.path / "fixtures/g01").mkdir(parents=True)
        (self.path / "fixtures/g01/faults.toml").write_text(agent_items.FAULTS)

    def item(self, name: str, item: str, task: str, prompt: str) -> None:
        folder = self.path / "items/level_a" / name.lower()
        folder.mkdir(parents=True)
        for file, text in {"item.toml": item, "task.py": task, "prompt.md": prompt}.items():
            (folder / file).write_text(text)

    def chat(self, seen: Any) -> Say:
        """What the server says, and what happens to the session meanwhile."""
        moment, number = self.on_request.get(len(self.server.sent(CHAT)) - 1, ("never", 0))
        if moment == "before":
            self.send(number)
        say = self.answer(seen.body)
        return replace(say, pieces=self.pieces(say, moment, number))  # type: ignore[arg-type]

    def answer(self, body: Any) -> Say:
        if body["model"] not in ("good", "poor"):
            return js({"error": {"message": f"model {body['model']} not found"}}, 404)
        text = reply_to(body["model"], body["messages"])
        halves = text[: len(text) // 2], text[len(text) // 2 :]
        events = [*(chunk(half, model=body["model"]) for half in halves), chunk(finish="stop", model=body["model"])]
        length = sum(len(message["content"]) for message in body["messages"]) // 4
        return sse(*events, {**usage(len(text.split()), prompt_tokens=length), "model": body["model"]})

    def pieces(self, say: Say, moment: str, number: int) -> Iterator[Any]:
        for place, piece in enumerate(say.pieces):
            yield piece
            if moment == "amid" and place == 0:
                self.send(number)
        if moment == "behind":
            self.send(number)

    def send(self, number: int) -> None:
        """Send a signal to the whole session; so early that it has no process group yet, to its process."""
        try:
            os.killpg(self.victim.pid, number)
        except ProcessLookupError:
            os.kill(self.victim.pid, number)

    def session(self, folder: Path, *arguments: str, after_s: float | None = None, **environ: str) -> int:
        """A session in a process group of its own; killed after some time where that is said. Gives its exit code."""
        plugins = [f"-pno:{name}" for name in ("randomly", "hypothesispytest", "cacheprovider", "timeout", "anyio")]
        chosen = ["--llm-model=openai:good,openai:poor", "--llm-runs=2", "--llm-context=32768"]
        begun = (folder / "manifest.json").exists()
        where = f"--llm-resume={folder}" if begun else f"--llm-report-dir={folder}"
        self.server.seen.clear()
        self.victim = FRESH.Process(
            target=run_pytest,
            args=(
                [*plugins, *chosen, f"--llm-base-url={self.server.url}/v1", where, *arguments],
                self.path,
                {"RUN": str(folder), **environ},
            ),
        )
        self.victim.start()
        self.victim.join(PATIENCE_S if after_s is None else after_s)
        if self.victim.exitcode is None:
            self.send(signal.SIGKILL)
            self.victim.join()
        assert self.victim.exitcode is not None
        return self.victim.exitcode

    @property
    def said(self) -> str:
        return (self.path / SAID).read_text()

    def asked(self) -> Counter[str]:
        """Requests of the last session, by the conversation they belong to."""
        bodies = self.server.sent(CHAT)
        return Counter(
            conversation(body["model"], body["seed"], body["messages"]) for body in bodies if of_a_node(body)
        )


def of_a_node(body: Mapping[str, Any]) -> bool:
    """Whether a request belongs to a conversation, and not to what a server is asked about itself."""
    return any(TASKS.search(message["content"]) for message in body["messages"])


def conversation(model: str, seed: int, messages: list[Mapping[str, str]]) -> str:
    """A name for the conversation that begins with such messages."""
    task = next(found[0] for message in messages if (found := TASKS.search(message["content"])))
    return f"{task} {seed} {model}"


def reply_to(model: str, messages: list[Mapping[str, str]]) -> str:
    if (sums := re.search(r"Task \w+: .* of (\d+) and (\d+)", messages[-1]["content"])) is not None:
        a, b = map(int, sums.groups())
        return f"ANSWER 1: {a + b}\nANSWER 2: {a * b if model == 'good' else 1}\n"
    done = sum(message["role"] == "assistant" for message in messages)
    if done < len(STEPS):
        return STEPS[done]
    figure = re.findall(r"\b\d{4}\b", messages[-1]["content"])
    if done == len(STEPS):
        return f"TOOL write_file\npath: copy.txt\ncontent: {figure[-1] if figure and model == 'good' else 12}\nEND TOOL"
    return "TOOL finish\nstatement: copied\nEND TOOL"


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in TIMES}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def measured(folder: Path) -> dict[str, Any]:
    """Everything in a run folder that tells what was measured, by file, without times."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(NOT_COMPARED):
            content = path.read_bytes()
            found[name] = without_times(json.loads(content)) if name.endswith(".json") else content
    return found


def whole(folder: Path) -> set[str]:
    """Conversations that were had to their end, as far as the disk tells."""
    found = set()
    for path in (folder / "transcripts").glob("*.json"):
        saved = json.loads(path.read_text())
        if saved["failure"] is None and (saved["item"] != "G01" or saved["end"] is not None):
            found.add(conversation(saved["ref"].partition(":")[2], saved["seed"], saved["turns"][:2]))
    return found


@dataclass
class Uninterrupted:
    """A session that came to its end, and how long it was."""

    campaign: Campaign
    seconds: float
    requests: int
    operations: int
    asked: Counter[str]
    measured: dict[str, Any]
    bytes_: int


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uninterrupted]:
    path = tmp_path_factory.mktemp("killed")
    with serving() as server:
        campaign = Campaign(path, server)
        folder, count = path / "uninterrupted", path / "count.txt"
        begun = time.monotonic()
        assert campaign.session(folder, COUNT_TO=str(count)) == 0, campaign.said
        seconds = time.monotonic() - begun
        size = sum(-(-file.stat().st_size // PAGE) * PAGE for file in folder.rglob("*") if file.is_file())
        asked, found = campaign.asked(), measured(folder)
        assert found["report.json"]["status"] == "complete"
        assert len(asked) == 12
        assert max(asked.values()) > len(STEPS)
        yield Uninterrupted(campaign, seconds, len(server.sent(CHAT)), int(count.read_text()), asked, found, size)


@dataclass(frozen=True)
class Moment:
    """When a session is killed: at a share of its length, in one of three measures."""

    kind: str
    share: float
    place: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.share:.3f}" + (f"-{self.place}" if self.kind == "request" else "")

    def kills(self, length: Uninterrupted, folder: Path, *arguments: str) -> None:
        """A session that is killed then, if it lasts so long."""
        campaign, begun = length.campaign, folder.exists()
        after_s, environ = None, {}
        if self.kind == "time":
            after_s = self.share * length.seconds
        elif self.kind in ("disk", "start"):
            environ["KILL_AT"] = str(int(self.share * (length.operations if self.kind == "disk" else FIRST)))
        else:
            campaign.on_request[int(self.share * length.requests)] = (self.place, signal.SIGKILL)
        code = campaign.session(folder, *arguments, after_s=after_s, **environ)
        campaign.on_request.clear()
        assert code in (0, -signal.SIGKILL), campaign.said
        assert code or self.kind == "time" or begun, campaign.said


def moments() -> Iterator[tuple[Moment, ...]]:
    draw = random.Random(SEED)
    kinds = [kind for kind, count in KINDS.items() for _ in range(count)]
    for number, kind in enumerate(kinds):
        further = [draw.choice(["time", "request", "disk"])] if number % TWICE == 0 else []
        yield tuple(Moment(one, draw.random(), draw.choice(["before", "amid", "behind"])) for one in (kind, *further))


def goes_on_to_the_end(length: Uninterrupted, folder: Path) -> None:
    """Go on in a folder: only what was not whole is asked, and in the end it holds what it should."""
    campaign, before = length.campaign, whole(folder)
    assert campaign.session(folder) == 0, campaign.said
    assert campaign.asked() == Counter({name: n for name, n in length.asked.items() if name not in before})
    assert measured(folder) == length.measured


@pytest.mark.parametrize("killed", list(moments()), ids=lambda killed: "+".join(map(str, killed)))
def test_killed_at_any_moment_and_gone_on_with(
    uninterrupted: Uninterrupted, tmp_path: Path, killed: tuple[Moment, ...]
) -> None:
    print(f"LLMBENCH_KILL_SEED={SEED}")
    folder = tmp_path / "run"
    for moment in killed:
        before = whole(folder)
        moment.kills(uninterrupted, folder)
        assert not before & uninterrupted.campaign.asked().keys()
    goes_on_to_the_end(uninterrupted, folder)


def test_killed_with_all_of_its_workers(uninterrupted: Uninterrupted, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Moment("request", 0.6, "amid").kills(uninterrupted, folder, "-n2")
    assert whole(folder)
    goes_on_to_the_end(uninterrupted, folder)


def test_the_only_node_killed_behind_its_reply_is_graded_without_its_model(
    uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    campaign, one = uninterrupted.campaign, ("-k", "T01 and run1 and good")
    assert campaign.session(tmp_path / "whole", *one) == 0
    assert campaign.session(tmp_path / "run", *one, KILL_IN="records") == -signal.SIGKILL
    assert campaign.session(tmp_path / "run") == 0
    assert not campaign.server.seen
    assert measured(tmp_path / "run") == measured(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_its_user_or_by_the_machine(uninterrupted: Uninterrupted, tmp_path: Path, number: int) -> None:
    campaign, folder = uninterrupted.campaign, tmp_path / "run"
    campaign.on_request[uninterrupted.requests // 2] = ("amid", number)
    code = campaign.session(folder)
    campaign.on_request.clear()
    if number == signal.SIGINT:
        assert code == pytest.ExitCode.INTERRUPTED
        assert json.loads((folder / "report.json").read_text())["status"] == "interrupted"
    else:
        assert code == -number
    goes_on_to_the_end(uninterrupted, folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A disk of so many bytes; asked again, it has as many as are asked for then."""
    place = tmp_path / "disk"
    place.mkdir()

    def size(bytes_: int) -> Path:
        options = f"{'remount,' if place.is_mount() else ''}size={bytes_}"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)
        if done.returncode:
            pytest.skip("nothing can be mounted here")
        return place

    yield size
    if place.is_mount():
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_full_disk_ends_the_session_and_room_lets_it_go_on(
    uninterrupted: Uninterrupted, small_disk: Callable[[int], Path], share: float
) -> None:
    campaign = uninterrupted.campaign
    folder = small_disk(int(share * uninterrupted.bytes_)) / "run"
    assert campaign.session(folder) not in (0, -signal.SIGKILL)
    assert re.search(r"cannot be written \(No space left on device\)", campaign.said), campaign.said
    small_disk(ROOM * uninterrupted.bytes_)
    goes_on_to_the_end(uninterrupted, folder)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_a_disk_that_takes_no_reply_is_no_fault_of_the_model(uninterrupted: Uninterrupted, tmp_path: Path) -> None:
    campaign, folder = uninterrupted.campaign, tmp_path / "run"
    wire = folder / "transcripts" / f"{node_stem('G01', 0, 1, 'openai:good')}.wire"
    wire.parent.mkdir(parents=True)
    wire.symlink_to("/dev/full")
    assert campaign.session(folder) not in (0, -signal.SIGKILL)
    assert re.search(r"cannot be written \(No space left on device\)", campaign.said), campaign.said
    assert sum(campaign.asked().values()) == 1
    assert not list(folder.glob("records/*"))
    wire.unlink()
    goes_on_to_the_end(uninterrupted, folder)


def test_a_grading_cut_while_it_was_put_in_place_is_finished_before_anything_else(
    uninterrupted: Uninterrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign, folder = uninterrupted.campaign, tmp_path / "run"
    assert campaign.session(folder, "-k", "T01") == 0
    cut = [record for record in sorted((folder / "records").iterdir()) if record.unlink() is None]
    program = "import sys, conftest; from pytest_llmbench.cli import main; main(sys.argv[1:])"
    regrade = ["regrade", str(folder), "--items", str(campaign.path / "items")]
    environ = {**os.environ, "PYTHONPATH": ".", "RUN": str(folder), "KILL_IN": str(cut[2])}
    done = subprocess.run([sys.executable, "-c", program, *regrade], cwd=campaign.path, env=environ)
    assert done.returncode == -signal.SIGKILL
    assert campaign.session(folder) == pytest.ExitCode.USAGE_ERROR
    assert f"llmbench regrade {folder}" in campaign.said
    for command in (["report", str(folder)], ["compare", str(folder), str(folder)], ["power", str(folder)]):
        assert main(command) == 1
        assert "which finishes it" in capsys.readouterr().err
    assert main(regrade) == 0
    assert main(["report", str(folder)]) == 0
    assert campaign.session(folder) == 0
    assert not campaign.asked()
    assert {record.name for record in (folder / "records").iterdir()} == {record.name for record in cut}
