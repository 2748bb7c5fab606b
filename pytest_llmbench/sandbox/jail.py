"""Running a program of ours, and the model's code with it, confined: limits, endings, the jail itself."""

from __future__ import annotations

import math
import os
import select
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

from pytest_llmbench.sandbox import kernel as k
from pytest_llmbench.sandbox.files import Meter, remove_tree
from pytest_llmbench.sandbox.launch import Launch, Running, launch
from pytest_llmbench.sandbox.names import safe_path
from pytest_llmbench.sandbox.processes import await_end, descendants, has_ended, living
from pytest_llmbench.sandbox.watch import Watch

Profile = Literal["pure", "tool"]
"""``pure``: no fork and no exec, threads stay; ``tool``: fork and exec under the process limit."""

WALL_PER_CPU: Final = 4
"""The wall limit is at least so many times the CPU limit, or a loaded machine would turn one into the other."""
CHUNK_BYTES: Final = 65_536
"""What is read from a program at once."""
GRACE_S: Final = 0.25
"""Seconds that a program has to end by itself after it has closed its standard output."""
KILL_S: Final = 5.0
"""Seconds within which a tree that is killed again and again has to be gone."""
KILL_PAUSE_S: Final = 0.001
"""Seconds between two rounds of killing."""
DRAIN_S: Final = 1.0
"""Seconds in which what is left in a dead program's pipe is read."""
ENDED_CHECK_S: Final = 0.05
"""Seconds between two looks whether a program has ended that left its standard output open."""
MS_PER_S: Final = 1_000
STATUS_BYTES: Final = 64


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
    """Processes and threads."""
    open_files: int
    file_bytes: int
    disk_bytes: int
    files: int
    output_bytes: int

    def __post_init__(self) -> None:
        if self.wall_s < WALL_PER_CPU * self.cpu_s:
            raise ValueError(f"wall_s {self.wall_s:g} is less than {WALL_PER_CPU} times cpu_s {self.cpu_s:g}")


@dataclass(frozen=True)
class Ending:
    """How a confined program ended."""

    code: int | None
    """Exit code, or minus the number of the signal that ended it."""
    limit: str | None = None
    """Name of the limit that ended it, such as ``cpu_s``. A limit that only made a call inside fail is not told."""
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
    """One running confined program. Use it as a context manager: leaving it kills the whole process tree.

    To be used by one thread, the one that started it, which has to live as long as the jail does.
    """

    def __init__(self, running: Running, start: Launch) -> None:
        self._process, self._limits, self._start = running.process, start.limits, start
        self._errors, self._status = running.errors, running.status
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._readable = select.poll()
        self._readable.register(self._stdout, select.POLLIN)
        self._told = select.poll()
        if self._status is not None:
            self._told.register(self._status, select.POLLIN)
        self._buffer = bytearray()
        self._searched = 0
        self._closed = False
        self._limit: str | None = None
        self._code: int | None = None
        self._ending: Ending | None = None
        self._killing = threading.Lock()
        meter = Meter((start.workdir, start.temporary))
        self._watch = Watch(start.limits, self._inside, meter, self._errors, self._fire)

    def send(self, data: bytes) -> None:
        """Write to the program's standard input, all of it. What the program writes meanwhile is kept.

        Raises:
            Ended: where it is over.
        """
        if self._ending is not None:
            raise Ended(self._ending)
        view = memoryview(data)
        try:
            view = view[os.write(self._stdin, view) :]
        except BlockingIOError:
            pass
        except OSError:
            raise Ended(self.end()) from None
        if view:
            self._send_rest(view)

    def _send_rest(self, view: memoryview) -> None:
        both = select.poll()
        both.register(self._stdin, select.POLLOUT)
        both.register(self._stdout, select.POLLIN)
        try:
            while view:
                ready = dict(both.poll())
                if self._stdin in ready:
                    with suppress(BlockingIOError):
                        view = view[os.write(self._stdin, view) :]
                if self._stdout in ready:
                    if not self._read_chunk():
                        both.unregister(self._stdout)
                    if len(self._buffer) > self._limits.output_bytes:
                        self._fire("output_bytes")
        except OSError:
            raise Ended(self.end()) from None

    def read_line(self, deadline_s: float, longest: int) -> bytes:
        """The next line of its standard output without the line end.

        Raises:
            TooLate: where no whole line came in ``deadline_s`` seconds.
            Ended: where the program is over, a limit fired, or the line is longer than ``longest`` bytes
                (limit ``output_bytes``).
        """
        if self._ending is not None:
            raise Ended(self._ending)
        stop = time.monotonic() + deadline_s
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if max(end, len(self._buffer) if end < 0 else 0) > longest:
                self._fire("output_bytes")
                raise Ended(self.end())
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._buffer)
            left = stop - time.monotonic()
            if not self._readable.poll(max(0, math.ceil(left * MS_PER_S))):
                raise TooLate
            if not self._read_chunk():
                raise Ended(self.end())

    def _read_chunk(self) -> bool:
        """Take what is there; False at the end of the output."""
        with suppress(BlockingIOError):
            chunk = os.read(self._stdout, CHUNK_BYTES)
            self._buffer += chunk
            self._closed = not chunk
        return not self._closed

    def wait(self) -> Ending:
        """Close the program's standard input and wait for its own end, or for the limit that fires first."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        while self._ending is None and not self._main_ended():
            if self._closed:
                self._wait_without_output()
            elif self._readable.poll(ENDED_CHECK_S * MS_PER_S):
                self._read_chunk()
                if len(self._buffer) > self._limits.output_bytes:
                    self._fire("output_bytes")
        return self.end()

    def _wait_without_output(self) -> None:
        if self._status is None:
            await_end(self._process)
        else:
            self._told.poll()

    def _main_ended(self) -> bool:
        """Whether the program itself is over; what it started may still run."""
        if self._status is not None and self._told.poll(0):
            return True
        return self._top_ended()

    def _top_ended(self) -> bool:
        return self._code is not None or has_ended(self._process)

    def end(self) -> Ending:
        """Kill what is left and say how it ended. Can be called again."""
        if self._ending is None:
            if self._closed and self._limit is None:
                self._let_end()
            self._watch.stop()
            left = len(living(self._inside())) if self._main_ended() and self._limit is None else 0
            self._kill()
            self._code = self._told_code()
            self._drain()
            errors = os.pread(self._errors, self._limits.output_bytes, 0)
            output = bytes(self._buffer[: self._limits.output_bytes])
            self._close()
            self._ending = Ending(self._code, self._limit, output, errors, left)
        return self._ending

    def _let_end(self) -> None:
        stop = time.monotonic() + GRACE_S
        while not self._main_ended() and time.monotonic() < stop:
            time.sleep(KILL_PAUSE_S)

    def _told_code(self) -> int | None:
        """Exit code of the main process; its parent is waited for here, so its number may be used again from now on."""
        with self._killing:
            code = self._process.wait()
            self._code = code
        if self._status is not None:
            told = os.read(self._status, STATUS_BYTES)
            return int(told) if told else -signal.SIGKILL
        if self._start.layer == "bubblewrap" and code > k.SHELL_SIGNAL:
            return k.SHELL_SIGNAL - code
        return code

    def _drain(self) -> None:
        stop = time.monotonic() + DRAIN_S
        while not self._closed and len(self._buffer) <= self._limits.output_bytes and time.monotonic() < stop:
            self._readable.poll(ENDED_CHECK_S * MS_PER_S)
            self._read_chunk()

    def _close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        os.close(self._errors)
        if self._status is not None:
            os.close(self._status)
        remove_tree(self._start.temporary)

    def _inside(self) -> list[int]:
        """Processes of the program, zombies included, without those of ours around it."""
        below = descendants(self._process.pid)
        if self._start.layer == "bubblewrap":
            return below[1:] if self._start.supervised else below
        return below if self._start.supervised else [self._process.pid, *below]

    def _fire(self, limit: str) -> None:
        with self._killing:
            if self._limit is None and self._code is None:
                self._limit = limit
        self._kill()

    def _kill(self) -> None:
        """Kill everything inside until the outermost process, which outlives all others, has ended too.

        Processes that are new since the last look are stopped first: while stopped ones fill the limit, no others can
        be made, so the looks come to an end. The first process of a namespace takes all others with it.
        """
        spaced, supervised = self._start.layer == "bubblewrap", self._start.supervised
        known: set[int] = set()
        stop = time.monotonic() + KILL_S
        with self._killing:
            while not self._top_ended():
                below = descendants(self._process.pid)
                pids = set(below[:1]) if spaced else {process.pid for process in living(self._inside())}
                sign = signal.SIGKILL if spaced or pids <= known else signal.SIGSTOP
                known = pids
                if time.monotonic() > stop or not (spaced or supervised):
                    pids, sign = {*pids, self._process.pid}, signal.SIGKILL
                for pid in pids:
                    with suppress(OSError):
                        os.kill(pid, sign)
                time.sleep(KILL_PAUSE_S)

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
    workroot: Path | None = None
    """Where work directories are made; None: where the system keeps temporary files."""

    @property
    def confined(self) -> bool:
        """Whether a score formed here may stand in a ranking."""
        return self.layer != "unconfined"

    @contextmanager
    def workdir(self, files: Mapping[str, str | bytes]) -> Iterator[Path]:
        """A fresh directory that holds ``files`` (relative names), removed at the end whatever is in it.

        Raises:
            UnsafeName: for a name that leaves the directory or does not mean the same everywhere.
        """
        folder = self._fresh("llmbench-")
        try:
            for name, content in files.items():
                path = safe_path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
            yield folder
        finally:
            remove_tree(folder)

    def _fresh(self, prefix: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self.workroot)).resolve()

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
        """Start ``program arguments`` in a bare Python with ``workdir`` as its current directory, confined before
        ``program``'s first line. ``program`` is ours, needs the standard library only, and puts the workdir on
        ``sys.path`` itself. It may read the standard library, the workdir and ``readable``, and write to the workdir
        and to a folder for temporary files that is its own; that is all it sees. Where the tests run as root, the
        workdir belongs to the program's user from then on.

        Raises:
            OSError, ImportError, RuntimeError: where the layer does not work any more.
        """
        temporary = self._fresh("llmbench-tmp-")
        start = Launch(self.layer, limits or self.limits, profile, program, arguments, workdir, temporary, readable)
        try:
            return Jail(launch(start), start)
        except BaseException:
            remove_tree(temporary)
            raise

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
                with suppress(Ended):
                    jail.send(stdin)
            return jail.wait()
