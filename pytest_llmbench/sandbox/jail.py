"""Running a program of ours, and the model's code with it, confined: limits, endings, the jail itself."""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

Profile = Literal["pure", "tool"]
"""``pure``: no fork and no exec, threads stay; ``tool``: fork and exec under the process limit."""


class Unconfinable(Exception):
    """No confinement works on this machine; the message says why and what to install."""


@dataclass(frozen=True)
class Limits:
    """What one confined program may use. A field's name is the name that an ending gives when it fired."""

    cpu_s: float
    wall_s: float
    memory_bytes: int
    """Of all its processes together, shared memory included."""
    processes: int
    open_files: int
    file_bytes: int
    disk_bytes: int
    files: int
    output_bytes: int


@dataclass(frozen=True)
class Ending:
    """How a confined program ended."""

    code: int | None
    """Exit code, or minus the number of the signal that ended it."""
    limit: str | None = None
    """Name of the limit that ended it, such as ``cpu_s``."""
    output: bytes = b""
    """What it wrote to standard output and was not read before, up to the output limit."""
    errors: bytes = b""
    """What it wrote to standard error, up to the output limit."""
    left_processes: int = 0
    """Processes that were still there when its main process had ended; they were killed."""


class Ended(Exception):
    """The confined program is over; nothing more can be read from it."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.limit or f"exit code {ending.code}")
        self.ending = ending


class TooLate(Exception):
    """No line came before the deadline; the program still runs."""


class Jail:
    """One running confined program. Use it as a context manager: leaving it kills the whole process tree."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits) -> None:
        self._process, self._limits = process, limits
        self._buffer = bytearray()
        self._deadline = time.monotonic() + limits.wall_s
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._limit: str | None = None
        self._ending: Ending | None = None

    def send(self, data: bytes) -> None:
        """Write to the program's standard input.

        Raises:
            Ended: where it is over.
        """
        try:
            self._stdin.write(data)
            self._stdin.flush()
        except OSError:
            raise Ended(self.end()) from None

    def read_line(self, deadline_s: float, longest: int) -> bytes:
        """The next line of its standard output without the line end.

        Raises:
            TooLate: where no whole line came in ``deadline_s`` seconds.
            Ended: where the program is over, a limit fired, or the line is longer than ``longest`` bytes
                (limit ``output_bytes``).
        """
        stop = min(time.monotonic() + deadline_s, self._deadline)
        while b"\n" not in self._buffer:
            if len(self._buffer) > longest:
                self._limit = "output_bytes"
                raise Ended(self.end())
            left = stop - time.monotonic()
            if left <= 0 or not select.select([self._stdout], [], [], left)[0]:
                if time.monotonic() >= self._deadline:
                    self._limit = "wall_s"
                    raise Ended(self.end())
                raise TooLate
            chunk = os.read(self._stdout.fileno(), 65536)
            if not chunk:
                raise Ended(self.end())
            self._buffer += chunk
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return line

    def end(self) -> Ending:
        """Kill what is left and say how it ended. Can be called again."""
        if self._ending is None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            code = self._process.wait()
            if code == -signal.SIGXCPU:
                self._limit = "cpu_s"
            self._ending = Ending(code, self._limit, bytes(self._buffer), b"")
            self._stdin.close()
            self._stdout.close()
        return self._ending

    def wait(self) -> Ending:
        """Wait for the program's own end, or for the limit that fires first."""
        while self._ending is None:
            if time.monotonic() >= self._deadline:
                self._limit = "wall_s"
                break
            if select.select([self._stdout], [], [], 0.05)[0]:
                chunk = os.read(self._stdout.fileno(), 65536)
                self._buffer += chunk
                if len(self._buffer) > self._limits.output_bytes:
                    self._limit = "output_bytes"
                    break
                if not chunk:
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(0.5)
                    break
            elif self._process.poll() is not None:
                break
        return self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()


@dataclass(frozen=True)
class Sandbox:
    """The confinement of a session: one layer, chosen by a functional probe, and the limits it runs under."""

    layer: str
    """``bubblewrap``, ``landlock``, ``seatbelt`` or ``unconfined``."""
    limits: Limits
    open: tuple[str, ...] = ()
    """What this layer leaves open, in words."""

    @property
    def confined(self) -> bool:
        """Whether a score formed here may stand in a ranking."""
        return self.layer != "unconfined"

    @contextmanager
    def workdir(self, files: Mapping[str, str | bytes]) -> Iterator[Path]:
        """A fresh directory that holds ``files`` (relative names), removed at the end whatever is in it."""
        folder = Path(tempfile.mkdtemp(prefix="llmbench-"))
        try:
            for name, content in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.encode() if isinstance(content, str) else content)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def start(
        self,
        program: Path,
        arguments: Sequence[str],
        workdir: Path,
        *,
        profile: Profile = "pure",
        limits: Limits | None = None,
        readable: Sequence[Path] = (),
    ) -> Jail:
        """Start ``python -I -S program arguments`` with ``workdir`` as its current directory, confined before
        ``program``'s first line. ``program`` is ours, needs the standard library only, and puts the workdir on
        ``sys.path`` itself. ``readable``: further paths it may read."""
        chosen = limits or self.limits

        def restrict() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (int(chosen.cpu_s) + 1, int(chosen.cpu_s) + 2))
            resource.setrlimit(resource.RLIMIT_AS, (chosen.memory_bytes, chosen.memory_bytes))

        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), *arguments],
            cwd=workdir,
            env={"PATH": "/usr/bin:/bin", "TZ": "UTC", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=restrict,
        )
        return Jail(process, chosen)

    def run(
        self,
        program: Path,
        arguments: Sequence[str],
        workdir: Path,
        *,
        profile: Profile = "pure",
        limits: Limits | None = None,
        readable: Sequence[Path] = (),
        stdin: bytes = b"",
    ) -> Ending:
        """Start, feed, and wait for the end."""
        with self.start(program, arguments, workdir, profile=profile, limits=limits, readable=readable) as jail:
            if stdin:
                jail.send(stdin)
            return jail.wait()
