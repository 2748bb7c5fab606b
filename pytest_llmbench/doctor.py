"""What this machine offers for the confinement of programs, and what is left open: ``llmbench doctor``."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pytest_llmbench.sandbox import landlock
from pytest_llmbench.sandbox.jail import Limits
from pytest_llmbench.sandbox.layers import ADVICE, Layer, survey
from pytest_llmbench.sandbox.runtime import runtime

VERSION_S: Final = 10
"""Seconds within which a tool has to tell its version."""
SETTINGS: Final = (
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
)
"""What can forbid user namespaces, where the kernel has it."""


def examine(limits: Limits, workroot: Path | None = None) -> dict[str, object]:
    """Try every layer of confinement of this platform.

    Args:
        limits: what the programs of the probe may use.
        workroot: where their work directories are made.

    Returns:
        Values of builtin types: ``layer``, the one that would be used, or None; ``layers``, each with ``name``,
        ``confines``, ``reason`` and ``open``; ``machine``, facts that explain it; ``advice``, what to do where no layer
        confines, else None. Nothing in it names the machine or its user.
    """
    layers = survey(limits, workroot)
    chosen = next((layer for layer in layers if layer.failure is None), None)
    return {
        "layer": chosen.name if chosen is not None else None,
        "layers": [_told(layer) for layer in layers],
        "machine": _machine(),
        "advice": None if chosen is not None else ADVICE.get(sys.platform, f"nothing is known about {sys.platform}"),
    }


def _told(layer: Layer) -> dict[str, object]:
    confines = layer.failure is None
    return {"name": layer.name, "confines": confines, "reason": layer.failure, "open": list(layer.open)}


def _machine() -> dict[str, object]:
    facts: dict[str, object] = {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    if sys.platform == "linux":
        reachable = runtime().unreachable() is None
        facts |= {
            "root": os.geteuid() == 0,
            "bwrap": _version("bwrap"),
            "libseccomp": importlib.util.find_spec("pyseccomp") is not None,
            "landlock_abi": landlock.abi(),
            "interpreter_readable_by_all": reachable,
            "user_namespaces": {Path(name).name: _setting(name) for name in SETTINGS},
        }
    return facts


def _version(tool: str) -> str | None:
    path = shutil.which(tool)
    if path is None:
        return None
    try:
        told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not start: {error}"
    return told.stdout.strip() or f"exit code {told.returncode}"


def _setting(name: str) -> int | None:
    try:
        return int(Path(name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def tell(report: Mapping[str, object]) -> str:
    """The report of ``examine`` in lines for a terminal."""
    layers, machine = report["layers"], report["machine"]
    assert isinstance(layers, list)
    assert isinstance(machine, Mapping)
    lines = [f"programs of a model run in: {report['layer'] or 'nothing, they are not run'}"]
    for layer in layers:
        lines.append(f"  {layer['name']}: {'confines' if layer['confines'] else layer['reason']}")
        lines += [f"    open: {words}" for words in layer["open"]]
    lines += [f"{name.replace('_', ' ')}: {_plain(value)}" for name, value in machine.items()]
    if report["advice"]:
        lines.append(str(report["advice"]))
    return "\n".join(lines)


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
    if value is None:
        return "not there"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
