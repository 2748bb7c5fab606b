"""Limits that the kernel does not hold by itself: a thread looks at a confined program again and again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pytest_llmbench.sandbox.files import Meter
from pytest_llmbench.sandbox.processes import Process, deleted_bytes, living, memory_bytes

if TYPE_CHECKING:
    from pytest_llmbench.sandbox.jail import Limits

POLL_S: Final = 0.025
"""Seconds between two looks."""


class Watch:
    """Looks after one confined program until it is stopped or a limit fires."""

    def __init__(
        self,
        limits: Limits,
        inside: Callable[[], list[int]],
        tops: Meter,
        errors: int,
        fire: Callable[[str], None],
    ) -> None:
        """``inside`` names the program's processes, ``errors`` is the file of its standard error, and ``fire`` is
        called once, with the name of the limit, from the thread of the watch."""
        self._limits, self._inside, self._meter, self._errors, self._fire = limits, inside, tops, errors, fire
        self._deadline = time.monotonic() + limits.wall_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmbench-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more. When this returns, nothing will fire."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(POLL_S):
            if (limit := self._exceeded()) is not None:
                self._fire(limit)
                return

    def _exceeded(self) -> str | None:
        limits = self._limits
        if time.monotonic() >= self._deadline:
            return "wall_s"
        processes = living(self._inside())
        if sum(process.cpu_s for process in processes) >= limits.cpu_s:
            return "cpu_s"
        if sum(process.threads for process in processes) > limits.processes:
            return "processes"
        if self._too_much_memory(processes):
            return "memory_bytes"
        if os.fstat(self._errors).st_size > limits.output_bytes:
            return "output_bytes"
        size, files = self._meter.measure(limits.files)
        if files > limits.files:
            return "files"
        if size + deleted_bytes([process.pid for process in processes]) > limits.disk_bytes:
            return "disk_bytes"
        return None

    def _too_much_memory(self, processes: list[Process]) -> bool:
        most = self._limits.memory_bytes
        return sum(process.resident_bytes for process in processes) > most and memory_bytes(processes) > most
