"""Starting a program under one of the layers: its rules, its view of the machine, its command line."""

from __future__ import annotations

import itertools
import marshal
import math
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_llmbench.sandbox import bootstrap, landlock, syscalls
from pytest_llmbench.sandbox import kernel as k
from pytest_llmbench.sandbox.files import give
from pytest_llmbench.sandbox.landlock import Rule
from pytest_llmbench.sandbox.processes import look
from pytest_llmbench.sandbox.runtime import FLAGS, readable_by_all, runtime

if TYPE_CHECKING:
    from pytest_llmbench.sandbox.jail import Limits, Profile

FIRST_USER: Final = 1_900_000_000
"""First user id of confined programs where the tests run as root: a range that systemd leaves to nobody."""
USERS: Final = 200_000_000
FIRST_USER_NARROW: Final = 50_000
"""The same where the machine is itself a container with 65,536 ids."""
USERS_NARROW: Final = 10_000
USERS_PER_RUNNER: Final = 50
"""Ids that one process uses in turn: so many programs of it never share their count of processes."""
STACK_BYTES: Final = 8_388_608
"""Stack of the main thread, and of each further one."""
CORE_BYTES: Final = 1
"""Size of a core dump. At one byte the kernel gives nothing to a program that collects dumps either."""
CPU_MARGIN_S: Final = 2
"""Seconds by which the kernel's own limit lies above the one that is watched and named."""
SHARED_COUNT_FACTOR: Final = 4
"""Where the kernel counts all processes of a user together, a program that can only make threads gets so many times its
limit, so that a neighbour that uses up its own does not stop it; the watch holds the limit itself."""
MASK_BYTES: Final = 4_096
"""Size of the empty file systems that hide folders of packages."""
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/urandom")
_LINKED_TOPS: Final = ("/lib", "/lib32", "/lib64", "/libx32")
_STUB: Final = (
    "import marshal,posix;o=marshal.loads(posix.pread({0},{1},0));n={{'__name__':'bootstrap'}};"
    "exec(marshal.loads(o['bootstrap']),n);n['enter'](o)"
)
_SEATBELT: Final = """(version 1)
(deny default)
(allow process-exec (literal "{executable}"))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* {readable})
(allow file-write-data (literal "/dev/null"))
(allow file-read* file-write* (subpath "{workdir}") (subpath "{temporary}"))
{processes}"""
"""Profile for ``sandbox-exec``; never tried on a Mac."""


@dataclass(frozen=True)
class Launch:
    """What is to be started."""

    layer: str
    limits: Limits
    profile: Profile
    program: Path
    arguments: Sequence[str]
    workdir: Path
    temporary: Path
    readable: Sequence[Path]

    @property
    def supervised(self) -> bool:
        """Whether a process of ours stays between the program and its runner, to bury what the program leaves."""
        return self.profile == "tool" or self.layer == "unconfined"


@dataclass(frozen=True)
class Running:
    """What was started. Whoever gets it closes its descriptors."""

    process: subprocess.Popen[bytes]
    errors: int
    """A file that standard error goes to."""
    status: int | None
    """The main process's exit code can be read here, in digits, when there is a supervisor."""


def launch(start: Launch) -> Running:
    """Start the program.

    Raises:
        OSError, ImportError, RuntimeError: where something that the layer needs is not there.
    """
    user = _fresh_user() if _drops_user(start.layer) else None
    if user is not None:
        give(start.workdir, user)
        give(start.temporary, user)
    with ExitStack() as stack:
        ruleset = None
        if start.layer == "landlock" or (start.layer == "bubblewrap" and landlock.abi()):
            ruleset = stack.enter_context(landlock.ruleset(_rules(start)))
        status, told = os.pipe() if start.supervised else (None, None)
        if told is not None:
            stack.callback(os.close, told)
        errors = _scratch_file()
        try:
            order = _order(start, user, ruleset, told)
            payload = stack.enter_context(_payload(order))
            inherited = [descriptor for descriptor in (payload, ruleset, told) if descriptor is not None]
            stub = _STUB.format(payload, os.fstat(payload).st_size)
            process = subprocess.Popen(
                [*_wrapper(start, user), runtime().executable, *FLAGS, "-c", stub],
                cwd="/" if start.layer == "bubblewrap" else start.workdir,
                env=_environment(start),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=inherited,
                bufsize=0,
                start_new_session=True,
            )
        except BaseException:
            os.close(errors)
            if status is not None:
                os.close(status)
            raise
    return Running(process, errors, status)


def _drops_user(layer: str) -> bool:
    return layer in ("bubblewrap", "landlock") and os.geteuid() == 0


_turn = itertools.count()


def _fresh_user() -> int:
    number = os.getpid() * USERS_PER_RUNNER + next(_turn) % USERS_PER_RUNNER
    if _maps_user(FIRST_USER):
        return FIRST_USER + number % USERS
    return FIRST_USER_NARROW + number % USERS_NARROW


@cache
def _maps_user(user: int) -> bool:
    with open("/proc/self/uid_map", encoding="ascii") as file:
        ranges = [[int(word) for word in line.split()] for line in file]
    return any(first <= user and user + USERS <= first + length for first, _, length in ranges)


def _environment(start: Launch) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(start.temporary),
        "TMPDIR": str(start.temporary),
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Without it every thread reserves so much address space that honest programs meet the memory limit.
        "MALLOC_ARENA_MAX": "1",
    }


def _order(start: Launch, user: int | None, ruleset: int | None, told: int | None) -> dict[str, object]:
    confined = start.layer in ("bubblewrap", "landlock")
    return {
        "bootstrap": _compiled(Path(bootstrap.__file__), 0),
        "kernel": {name: value for name, value in vars(k).items() if name.isupper() and isinstance(value, int)},
        "rlimits": _rlimits(start, user),
        "user": -1 if user is None else user,
        "keep_search": user is not None and start.layer == "landlock" and not _readable_by_all(start),
        "ruleset": -1 if ruleset is None else ruleset,
        "filter": syscalls.program(start.profile, _freedom(start.layer)) if confined else b"",
        "status": -1 if told is None else told,
        "dies_with_parent": sys.platform == "linux",
        "program": _compiled(start.program, start.program.stat().st_mtime_ns),
        "arguments": [str(start.program), *start.arguments],
    }


@cache
def _compiled(path: Path, changed: int) -> bytes:
    return marshal.dumps(compile(path.read_bytes(), str(path), "exec", dont_inherit=True))


def _freedom(layer: str) -> syscalls.Freedom:
    apart = layer == "bubblewrap" or os.geteuid() == 0
    return syscalls.Freedom(signals=apart or landlock.abi() >= k.ABI_SCOPE, modes=apart)


def _readable_by_all(start: Launch) -> bool:
    paths = [start.workdir.parent, start.temporary.parent, *start.readable]
    return runtime().unreachable() is None and all(readable_by_all(os.path.realpath(path)) for path in paths)


def _rlimits(start: Launch, user: int | None) -> list[tuple[int, int, int]]:
    limits = start.limits
    cpu_s = math.ceil(limits.cpu_s) + CPU_MARGIN_S
    values = {
        "CPU": cpu_s,
        "AS": limits.memory_bytes,
        "NPROC": _most_processes(start, user),
        "NOFILE": limits.open_files,
        "FSIZE": limits.file_bytes,
        "CORE": CORE_BYTES,
        "STACK": STACK_BYTES,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "RTPRIO": 0,
    }
    numbers = {name: getattr(resource, f"RLIMIT_{name}", None) for name in values}
    later = {"CPU": 1}
    return [
        (number, values[name], values[name] + later.get(name, 0))
        for name, number in numbers.items()
        if number is not None
    ]


def _most_processes(start: Launch, user: int | None) -> int:
    """The kernel counts all processes of a user, or of a user in a namespace."""
    if user is not None:
        return start.limits.processes
    if start.layer == "bubblewrap" and _kernel_version() >= k.KERNEL_OF_NPROC_BY_NAMESPACE:
        return start.limits.processes + start.supervised
    factor = SHARED_COUNT_FACTOR if start.profile == "pure" else 1
    return factor * start.limits.processes + start.supervised + _tasks_of_user()


def _kernel_version() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])


def _tasks_of_user() -> int:
    total = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                process = look(int(name))
                total += process.threads if process is not None else 0
    return total


def _scratch_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("llmbench")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@contextmanager
def _payload(order: dict[str, object]) -> Iterator[int]:
    descriptor = _scratch_file()
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(marshal.dumps(order))
        yield descriptor
    finally:
        os.close(descriptor)


def _rules(start: Launch) -> list[Rule]:
    run = landlock.RUN if start.profile == "tool" else landlock.READ
    write = landlock.WRITE | (run & k.FS_EXECUTE)
    machine = runtime()
    loader = os.path.realpath(machine.loader) if machine.loader else machine.executable
    return [
        *_library_rules(start.layer),
        *(Rule(path, landlock.READ) for path in (*machine.shared, *machine.data)),
        *(Rule(path, run) for path in (machine.executable, loader)),
        *(Rule(os.path.realpath(path), run) for path in start.readable),
        *(Rule(path, landlock.DEVICE) for path in DEVICES),
        *(Rule(os.path.realpath(path), write) for path in (start.workdir, start.temporary)),
    ]


@cache
def _library_rules(layer: str) -> tuple[Rule, ...]:
    """The standard library without installed packages. A rule for a folder holds for all below it, so packages have to
    be hidden by the layer, or every other entry gets a rule of its own."""
    machine = runtime()
    if layer == "bubblewrap" or not machine.package_folders():
        return tuple(Rule(path, landlock.READ) for path in machine.library)
    folders = (Rule(path, k.FS_READ_DIR) for path in machine.library)
    return (*folders, *(Rule(path, landlock.READ) for path in machine.library_entries()))


def _wrapper(start: Launch, user: int | None) -> list[str]:
    if start.layer == "bubblewrap":
        return _bubblewrap(start, user)
    if start.layer == "seatbelt":
        return _seatbelt(start)
    return []


def _bubblewrap(start: Launch, user: int | None) -> list[str]:
    program = shutil.which("bwrap")
    if program is None:
        raise FileNotFoundError("bwrap is not installed")
    rights = ["--unshare-user"] if user is None else ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    own = [os.path.realpath(path) for path in (start.workdir, start.temporary)]
    extra = [os.path.realpath(path) for path in start.readable]
    return [
        program,
        *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
        *("--die-with-parent", "--as-pid-1", "--unsetenv", "PWD"),
        *rights,
        *_machine_view(),
        *_parents([*extra, *own]),
        *_each("--ro-bind", extra),
        *_each("--bind", own),
        *("--remount-ro", "/", "--chdir", own[0]),
    ]


@cache
def _machine_view() -> tuple[str, ...]:
    machine = runtime()
    bound = [*machine.library, *machine.shared_folders(), *machine.data, machine.executable]
    bound = sorted(path for path in set(bound) if not path.startswith(tuple(other + os.sep for other in bound)))
    links = [path for path in _LINKED_TOPS if os.path.islink(path)]
    view = [*_parents([*bound, *DEVICES])]
    for link in links:
        view += ["--symlink", os.readlink(link), link]
    view += _each("--ro-bind", bound)
    if machine.loader:
        loader = os.path.join(os.path.realpath(os.path.dirname(machine.loader)), os.path.basename(machine.loader))
        if not loader.startswith(tuple(path + os.sep for path in bound)):
            view += [*_parents([loader]), "--ro-bind", os.path.realpath(machine.loader), loader]
    for packages in machine.package_folders():
        view += ["--size", str(MASK_BYTES), "--tmpfs", packages, "--remount-ro", packages]
    view += _each("--dev-bind", [path for path in DEVICES if os.path.exists(path)])
    return tuple(view)


def _parents(paths: Iterable[str]) -> list[str]:
    """Folders above these paths; left to itself, bwrap makes them for their owner only."""
    above = {str(parent) for path in paths for parent in Path(path).parents} - {"/"}
    return [word for folder in sorted(above) for word in ("--perms", "0755", "--dir", folder)]


def _each(option: str, paths: Iterable[str]) -> list[str]:
    return [word for path in paths for word in (option, path, path)]


def _seatbelt(start: Launch) -> list[str]:
    machine = runtime()
    folders = [*machine.library, "/usr/lib", "/System/Library", *map(str, start.readable)]
    readable = [f'(subpath "{path}")' for path in folders]
    readable += [f'(literal "{path}")' for path in (machine.executable, *DEVICES)]
    profile = _SEATBELT.format(
        executable=machine.executable,
        readable=" ".join(readable),
        workdir=os.path.realpath(start.workdir),
        temporary=os.path.realpath(start.temporary),
        processes="(allow process-fork)\n(allow process-exec)" if start.profile == "tool" else "",
    )
    return ["/usr/bin/sandbox-exec", "-p", profile]
