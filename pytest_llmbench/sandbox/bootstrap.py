"""The first thing that runs inside: it takes the process into confinement and then runs the program in its place.

It is compiled outside and handed in by a descriptor, so that nothing of it has to be readable inside. It is on the road
of every start: it imports what is built in or costs next to nothing, and reaches the C library through ``_ctypes``;
``ctypes`` on top of it takes half as long to import as the interpreter takes to start.
"""

from __future__ import annotations

import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypedDict

    class Order(TypedDict):
        """What the process has to do to itself."""

        kernel: dict[str, int]
        rlimits: list[tuple[int, int, int]]
        """Resource, soft and hard limit."""
        user: int
        """User and group to become; negative: stay."""
        keep_search: bool
        """Keep the capability to read what belongs to others, where the rules allow the path."""
        ruleset: int
        """Descriptor of the Landlock rules; negative: none."""
        filter: bytes
        """seccomp program; empty: none."""
        status: int
        """Descriptor to tell the end of the main process on; negative: no process beside it."""
        dies_with_parent: bool
        program: bytes
        """Marshalled code."""
        arguments: list[str]
        """``sys.argv``."""


FAILED_CODE = 120
"""Exit code where the confinement could not be put on; the reason stands on standard error."""
FIRST_FREE = 3
"""First descriptor behind the standard streams."""
LAST_DESCRIPTOR = 65_536
STANDARD_STREAMS = (0, 1, 2)

KERNEL: dict[str, int] = {}
"""The numbers of ``kernel.py``, handed in with the order."""


def c_function(name: str) -> Callable[..., None]:
    """A function of the C library that takes whole registers and raises OSError where it fails."""
    from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, _SimpleCData, dlopen, dlsym, get_errno

    class Long(_SimpleCData):  # type: ignore[type-arg]
        _type_ = "l"

    class Function(CFuncPtr):
        _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
        _restype_ = Long

    function = Function(dlsym(dlopen(None, 0), name))  # type: ignore[arg-type]

    def call(*arguments: int | bytes) -> None:
        if function(*(Long(a) if isinstance(a, int) else a for a in arguments)) < 0:
            raise OSError(get_errno(), f"{name} {arguments[0]!r}: {posix.strerror(get_errno())}")

    return call


def address_of(data: bytes) -> bytes:
    """The address of the data as the bytes of a pointer."""
    from _ctypes import _SimpleCData

    class Pointer(_SimpleCData):  # type: ignore[type-arg]
        _type_ = "z"

    return bytes(memoryview(Pointer(data)))


def limit(rlimits: list[tuple[int, int, int]]) -> None:
    """Set the resource limits, none higher than what is allowed already."""
    from resource import RLIM_INFINITY, getrlimit, setrlimit

    for resource, soft, hard in rlimits:
        highest = getrlimit(resource)[1]
        if highest != RLIM_INFINITY:
            soft, hard = min(soft, highest), min(hard, highest)
        setrlimit(resource, (soft, hard))


def become(user: int, keep_search: bool) -> None:
    """Become a user without rights, for good."""
    prctl = c_function("prctl")
    if keep_search:
        prctl(KERNEL["PR_SET_KEEPCAPS"], 1, 0, 0, 0)
    posix.setgroups([])
    posix.setresgid(user, user, user)
    posix.setresuid(user, user, user)
    if keep_search:
        kept = 1 << KERNEL["CAP_DAC_READ_SEARCH"]
        parts = (KERNEL["CAP_VERSION_3"], 0), (kept, kept, kept, 0, 0, 0)
        size = KERNEL["CAP_WORD_BYTES"]
        head, sets = (b"".join(word.to_bytes(size, sys.byteorder) for word in part) for part in parts)
        c_function("capset")(head, sets)
        prctl(KERNEL["PR_CAP_AMBIENT"], KERNEL["PR_CAP_AMBIENT_RAISE"], KERNEL["CAP_DAC_READ_SEARCH"], 0, 0)


def confine(order: Order) -> None:
    """Put the confinement on. What follows cannot take it off."""
    if order["user"] >= 0:
        become(order["user"], order["keep_search"])
    if order["dies_with_parent"]:
        from _signal import SIGKILL  # type: ignore[import-not-found]

        c_function("prctl")(KERNEL["PR_SET_PDEATHSIG"], SIGKILL, 0, 0, 0)
    if order["ruleset"] >= 0 or order["filter"]:
        c_function("prctl")(KERNEL["PR_SET_NO_NEW_PRIVS"], 1, 0, 0, 0)
    if order["ruleset"] >= 0:
        c_function("syscall")(KERNEL["SYS_LANDLOCK_RESTRICT_SELF"], order["ruleset"], 0)
    posix.closerange(FIRST_FREE, LAST_DESCRIPTOR)
    if order["filter"]:
        size = KERNEL["BPF_INSTRUCTION_BYTES"]
        # A length of two bytes, padded to the size of the pointer that follows.
        program = (len(order["filter"]) // size).to_bytes(size, "little") + address_of(order["filter"])
        c_function("prctl")(KERNEL["PR_SET_SECCOMP"], KERNEL["SECCOMP_MODE_FILTER"], program, 0, 0)


def supervise(main: int, status: int) -> None:
    """Stay outside of the confinement: tell how the main process ended and bury all others, until none is left."""
    for stream in STANDARD_STREAMS:
        posix.close(stream)
    while True:
        try:
            ended, code = posix.wait()
        except ChildProcessError:
            posix._exit(0)
        if ended == main:
            posix.write(status, b"%d" % posix.waitstatus_to_exitcode(code))
            posix.close(status)


def apart(status: int) -> None:
    """Go on in a new process; this one stays behind as the one that all orphans come back to."""
    from _signal import SIG_DFL, SIGINT, signal

    if sys.platform == "linux":
        c_function("prctl")(KERNEL["PR_SET_CHILD_SUBREAPER"], 1, 0, 0, 0)
    main = posix.fork()
    if main:
        signal(SIGINT, SIG_DFL)
        supervise(main, status)


def enter(order: Order) -> None:
    """Confine this process and run the program in it."""
    try:
        KERNEL.update(order["kernel"])
        limit(order["rlimits"])
        if order["status"] >= 0:
            apart(order["status"])
        confine(order)
    except BaseException as error:
        posix.write(2, f"the confinement could not be put on: {error!r}\n".encode())
        posix._exit(FAILED_CODE)
    # bwrap adds it to the environment.
    posix.environ.pop(b"PWD", None)
    posix.unsetenv(b"PWD")
    sys.argv[:] = order["arguments"]
    names = sys.modules["__main__"].__dict__
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]
    names["__file__"] = order["arguments"][0]
    exec(marshal.loads(order["program"]), names)
