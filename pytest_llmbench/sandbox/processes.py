"""A process and all that descend from it, as the system sees them: who they are, what they use together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

from pytest_llmbench.sandbox import kernel as k

ZOMBIE: Final = "Z"


@dataclass(frozen=True)
class Process:
    """One process, at one moment."""

    pid: int
    state: str
    threads: int
    cpu_s: float
    """Its own CPU time and that of its children that have ended and were waited for."""
    resident_bytes: int


@cache
def _linux() -> bool:
    return sys.platform == "linux" and os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")


def look(pid: int) -> Process | None:
    """What a process is now; None where it is gone."""
    if not _linux():
        return _look_by_psutil(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    cpu_s = sum(int(fields[place]) for place in k.STAT_CPU) / os.sysconf("SC_CLK_TCK")
    resident = int(fields[k.STAT_RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    return Process(pid, fields[0].decode(), int(fields[k.STAT_THREADS]), cpu_s, resident)


def _look_by_psutil(pid: int) -> Process | None:
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        with process.oneshot():
            state = ZOMBIE if process.status() == psutil.STATUS_ZOMBIE else "R"
            times = process.cpu_times()
            cpu_s = times.user + times.system + times.children_user + times.children_system
            return Process(pid, state, process.num_threads(), cpu_s, process.memory_info().rss)
    return None


def descendants(pid: int) -> list[int]:
    """Ids of all processes below this one, parents first, zombies included."""
    if not _linux():
        import psutil

        with suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        return []
    found: list[int] = []
    queue = [pid]
    while queue:
        children = list(_children(queue.pop()))
        found += children
        queue += children
    return found


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                yield from map(int, file.read().split())


def memory_bytes(processes: list[Process]) -> int:
    """Memory of all of them: what several share is counted once where the system tells."""
    return sum(_shared_out(process) for process in processes)


def _shared_out(process: Process) -> int:
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            lines = [line.split() for line in file]
    except OSError:
        return process.resident_bytes
    sizes = [int(line[1]) for line in lines if line[0] in (b"Pss:", b"SwapPss:")]
    return sum(sizes) * k.KIB if sizes else process.resident_bytes


def deleted_bytes(pids: list[int]) -> int:
    """Space of files that no folder holds any more, and that these processes have open or mapped."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    found = os.stat(f"/proc/{pid}/fd/{name}")
                    if not found.st_nlink:
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * k.BLOCK_BYTES
        with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
            for line in maps:
                if line.endswith(b"(deleted)\n"):
                    words = line.split()
                    start, end = (int(part, k.MAPS_BASE) for part in words[0].split(b"-"))
                    major, minor = (int(part, k.MAPS_BASE) for part in words[k.MAPS_DEVICE].split(b":"))
                    key = os.makedev(major, minor), int(words[k.MAPS_INODE])
                    sizes[key] = max(sizes.get(key, 0), end - start)
    return sum(sizes.values())


def living(pids: list[int]) -> list[Process]:
    """Those of them that run."""
    return [process for pid in pids if (process := look(pid)) is not None and process.state != ZOMBIE]


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child of ours has ended. It is not waited for where the system allows to look without that, so its
    number cannot be used again meanwhile."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def await_end(process: subprocess.Popen[bytes]) -> None:
    """Wait until a child of ours has ended; the same holds."""
    if process.returncode is None and hasattr(os, "waitid"):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()
