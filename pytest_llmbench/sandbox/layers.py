"""Which layer of confinement this machine offers: found by trying, once a process."""

from __future__ import annotations

import os
import platform
import secrets
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_llmbench.sandbox import kernel as k
from pytest_llmbench.sandbox import landlock, probe
from pytest_llmbench.sandbox.files import remove_tree
from pytest_llmbench.sandbox.jail import Limits, Sandbox, Unconfinable
from pytest_llmbench.sandbox.runtime import runtime

UNCONFINED: Final = "unconfined"
LAYERS: Final = {"linux": ("bubblewrap", "landlock"), "darwin": ("seatbelt",)}
"""Layers by platform, the best first."""
OUTSIDE_MODE: Final = 0o777
"""The probe's targets are open to everybody: only confinement can keep it from them."""
ADVICE: Final = {
    "linux": (
        "Install what is missing, for instance: apt-get install bubblewrap libseccomp2 (dnf install bubblewrap "
        "libseccomp; apk add bubblewrap libseccomp), and pip install pyseccomp. Bubblewrap needs user namespaces; "
        "without them a kernel with Landlock ABI 3 (Linux 6.2) or later is enough."
    ),
    "darwin": "sandbox-exec is part of macOS; it has to work for this user.",
    "win32": "Windows cannot confine programs in this way: run the tests in WSL2.",
}
_ESCAPES: Final = {
    "read": "a planted secret could be read",
    "write": "a file outside could be written",
    "connect": "a listener on loopback could be reached",
}


@dataclass(frozen=True)
class Layer:
    """A layer as it was found on this machine."""

    name: str
    failure: str | None
    """Why it does not confine; None where it does."""
    open: tuple[str, ...] = ()
    """What it leaves open, in words."""


_found: dict[tuple[str, Path | None], Layer] = {}


def survey(limits: Limits, workroot: Path | None = None, only: Sequence[str] | None = None) -> list[Layer]:
    """Every layer of this platform, tried once a process, the best first."""
    names = LAYERS.get(sys.platform, ())
    return [_layer(name, limits, workroot) for name in names if only is None or name in only]


def choose(
    limits: Limits,
    allow_unconfined: bool = False,
    workroot: Path | None = None,
    only: Sequence[str] | None = None,
) -> Sandbox:
    """The best layer that confines here.

    Args:
        limits: what every program may use where its start does not say otherwise.
        allow_unconfined: where nothing confines, run programs unconfined; the layer is then called ``unconfined``.
        workroot: where work directories are made.
        only: names of the layers to consider.

    Raises:
        Unconfinable: where nothing confines; the message holds the reasons and what to install.
    """
    layers = survey(limits, workroot, only)
    for layer in layers:
        if layer.failure is None:
            return Sandbox(layer.name, limits, layer.open, workroot)
    if allow_unconfined and sys.platform in LAYERS:
        everything = ("everything: files, network and other processes of this user",)
        return Sandbox(UNCONFINED, limits, everything, workroot)
    reasons = [f"{layer.name}: {layer.failure}" for layer in layers]
    advice = ADVICE.get(sys.platform, f"Programs cannot be confined on {sys.platform}.")
    raise Unconfinable("; ".join(["no confinement of programs works on this machine", *reasons, advice]))


def _layer(name: str, limits: Limits, workroot: Path | None) -> Layer:
    key = name, workroot
    if key not in _found:
        failure = _not_offered(name) or _failure(Sandbox(name, limits, (), workroot))
        _found[key] = Layer(name, failure, tuple(_left_open(name)) if failure is None else ())
    return _found[key]


def _not_offered(name: str) -> str | None:
    if sys.platform == "linux" and platform.machine() not in k.KNOWN_MACHINES:
        return f"numbers of system calls on {platform.machine()} are not known"
    if name == "landlock" and landlock.abi() < k.ABI_TRUNCATE:
        return f"the kernel has Landlock ABI {landlock.abi()}, {k.ABI_TRUNCATE} is needed"
    return None


def _failure(sandbox: Sandbox) -> str | None:
    """What the probe reached; None where it reached nothing."""
    outside = Path(tempfile.mkdtemp(prefix="llmbench-outside-", dir=sandbox.workroot)).resolve()
    try:
        secret, victim = outside / "secret", outside / "victim"
        for path in (secret, victim):
            path.write_text(secrets.token_hex(), encoding="utf-8")
            path.chmod(OUTSIDE_MODE)
        outside.chmod(OUTSIDE_MODE)
        before = victim.read_bytes()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            arguments = [str(secret), str(victim), str(listener.getsockname()[1])]
            with sandbox.workdir({}) as workdir:
                ending = sandbox.run(Path(probe.__file__), arguments, workdir)
            knock = select.poll()
            knock.register(listener, select.POLLIN)
            knocked = bool(knock.poll(0))
        first, *reached, last = ending.output.decode(errors="replace").split() or ["", ""]
        if (first, last) != (probe.FIRST_LINE, probe.LAST_LINE):
            said = ending.errors.decode(errors="replace").strip() or str(ending)
            return f"a program does not run in it: {said}"
        escapes = {_ESCAPES.get(word, word) for word in reached}
        escapes |= {_ESCAPES["connect"]} if knocked else set()
        escapes |= {_ESCAPES["write"]} if victim.read_bytes() != before else set()
        return ", ".join(sorted(escapes)) or None
    except (OSError, ImportError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        remove_tree(outside)


def _left_open(name: str) -> list[str]:
    words = []
    if platform.machine() not in k.TESTED_MACHINES:
        words.append(f"never tried on {platform.machine()}")
    if name == "bubblewrap" and not landlock.abi():
        words.append("no Landlock: every file in the system's folders of shared libraries can be read")
    if name == "landlock":
        words.append("existence, size and times of files outside can be seen, and where links lead")
        words.append("in profile tool, a program outlives a test run that is killed, until it ends by itself")
        if runtime().package_folders():
            words.append("names of installed packages' files can be listed")
        if os.geteuid() == 0 and runtime().unreachable() is not None:
            words.append("also where only root may look, for the interpreter lies in such a place")
        elif os.geteuid() != 0:
            words.append("changing modes and times of files succeeds without effect, inside too")
            words.append("programs in profile tool that run at the same time share one count of processes")
    if name == "seatbelt":
        words.append("never tried on a Mac; memory, disk and processes are watched, the kernel limits less")
    return words
