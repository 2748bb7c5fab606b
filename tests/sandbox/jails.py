"""A world around a jail that an attack could reach: files, listeners, a bystander; and what became of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pytest_llmbench.sandbox.files import remove_tree
from pytest_llmbench.sandbox.jail import Limits, Sandbox, Unconfinable
from pytest_llmbench.sandbox.layers import choose

SECRET = "SECRET of the golden solution"
LAYERS = ("bubblewrap", "landlock")
LIMITS = Limits(
    cpu_s=1,
    wall_s=6,
    memory_bytes=512 * 2**20,
    processes=32,
    open_files=64,
    file_bytes=16 * 2**20,
    disk_bytes=64 * 2**20,
    files=500,
    output_bytes=2**20,
)
DRIVER = """
import os, sys
sys.path.append(os.getcwd())
print("the jail is up", flush=True)
exec(compile(open(sys.argv[1], "rb").read(), sys.argv[1], "exec"), {"__name__": "__main__"})
"""


@cache
def _layer(name: str) -> Sandbox | str:
    try:
        return choose(LIMITS, only=(name,))
    except Unconfinable as reason:
        return str(reason)


def sandbox_of(name: str, workroot: Path | None = None) -> Sandbox:
    """The named layer, where this machine offers it; the test is skipped elsewhere."""
    found = _layer(name)
    if isinstance(found, str):
        pytest.skip(found)
    return replace(found, workroot=workroot)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can read and write: whatever is safe in it is safe by confinement."""
    folder = Path(tempfile.mkdtemp(prefix="world-", dir="/tmp")).resolve()
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        remove_tree(folder)


@contextmanager
def driver(text: str = DRIVER) -> Iterator[Path]:
    """A program of ours as a file."""
    with open_folder() as folder:
        path = folder / "driver.py"
        path.write_text(text, encoding="utf-8")
        yield path


@dataclass
class World:
    """What stands around the jail."""

    top: Path
    tag: str
    facts: dict[str, Any]
    listeners: dict[str, socket.socket]
    witness: subprocess.Popen[bytes]
    signals: list[int]

    @property
    def victim(self) -> Path:
        """A file that everybody may write to."""
        return Path(self.facts["victim"])

    def damage(self) -> list[str]:
        """Everything that an attack did outside."""
        found = [f"{name} was reached" for name, listener in self.listeners.items() if _heard(listener)]
        if self.victim.read_bytes() != b"untouched" or _state(self.victim) != self.facts["victim_state"]:
            found.append("the victim was changed")
        if self.witness.poll() is not None or _priority(self.witness.pid) != self.facts["priority"]:
            found.append("the bystander was touched")
        if self.signals:
            found.append("the runner was signalled")
        dropped = [*Path("/tmp").glob("*sbxdrop*"), *Path("/var/tmp").glob("*sbxdrop*"), *Path("/dev/shm").glob("sbx*")]
        dropped += self.top.rglob("*sbxdrop*")
        found += [f"{path} was left" for path in dropped]
        found += [f"{path} was left" for path in (self.top / "work").iterdir()]
        found += [f"process {pid} survived" for pid in survivors(self.top / "work")]
        return found


def survivors(workroot: Path) -> list[int]:
    """Living processes that were started for a jail below ``workroot``: their environment names it."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and str(workroot).encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


@contextmanager
def world() -> Iterator[World]:
    """Build it, and take it down."""
    with ExitStack() as stack:
        top = stack.enter_context(open_folder())
        root, site = top / "repository", top / "site"
        for folder in (root, site, top / "work"):
            folder.mkdir()
            folder.chmod(0o777)
        golden, victim = root / "golden.py", top / "victim"
        golden.write_text(SECRET, encoding="utf-8")
        victim.write_bytes(b"untouched")
        victim.chmod(0o666)
        leak = os.open(golden, os.O_RDONLY)
        stack.callback(os.close, leak)
        os.set_inheritable(leak, True)
        tag = top.name
        listeners = {
            "tcp": socket.create_server(("127.0.0.1", 0)),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "sock": socket.socket(socket.AF_UNIX),
            "dgram": socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
            "abstract": socket.socket(socket.AF_UNIX),
        }
        for listener in listeners.values():
            stack.callback(listener.close)
        listeners["udp"].bind(("127.0.0.1", 0))
        for name in ("sock", "dgram"):
            listeners[name].bind(str(top / name))
            (top / name).chmod(0o777)
        listeners["abstract"].bind("\0" + tag)
        for name in ("sock", "abstract"):
            listeners[name].listen()
        with socket.create_server(("127.0.0.1", 0)) as free:
            bindport = free.getsockname()[1]
        witness = stack.enter_context(subprocess.Popen(["sleep", "600"], start_new_session=True))
        stack.callback(witness.kill)
        signals: list[int] = []

        def note(number: int, _: FrameType | None) -> None:
            signals.append(number)

        stack.callback(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, note))
        facts = {
            "golden": str(golden),
            "root": str(root),
            "site": str(site),
            "victim": str(victim),
            "victim_state": _state(victim),
            "tag": tag,
            "runner_pid": os.getpid(),
            "runner_group": os.getpgrp(),
            "witness": witness.pid,
            "witness_addr": int(Path(f"/proc/{witness.pid}/maps").read_text().split("-")[0], 16),
            "priority": _priority(witness.pid),
            "tcp": listeners["tcp"].getsockname()[1],
            "udp": listeners["udp"].getsockname()[1],
            "sock": str(top / "sock"),
            "dgram": str(top / "dgram"),
            "abstract": tag,
            "bindport": bindport,
        }
        yield World(top, tag, facts, listeners, witness, signals)


def _state(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_mode, status.st_uid, status.st_mtime_ns, status.st_nlink]


def _priority(pid: int) -> list[int]:
    return [os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid), len(os.sched_getaffinity(pid))]


def _heard(listener: socket.socket) -> bool:
    listener.setblocking(False)
    try:
        listener.recv(1) if listener.type == socket.SOCK_DGRAM else listener.accept()
    except BlockingIOError:
        return False
    return True


@contextmanager
def knocking(port: int) -> Iterator[list[str]]:
    """Try again and again to reach a port of this machine; the list names what answered."""
    answered: list[str] = []
    over = threading.Event()

    def knock() -> None:
        while not over.wait(0.02):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                answered.append("a port of the jail can be reached")

    thread = threading.Thread(target=knock)
    thread.start()
    try:
        yield answered
    finally:
        over.set()
        thread.join()


def attack_files(source: str, facts: dict[str, Any]) -> dict[str, str]:
    """A workdir for an attack."""
    return {"_world.json": json.dumps(facts), "attack.py": source}
