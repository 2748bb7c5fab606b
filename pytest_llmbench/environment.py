"""What a run folder says of the machine."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

import psutil


def environment() -> dict[str, object]:
    """The machine and the software, without names of hosts, users or folders."""
    packages = ("pytest", "pytest-xdist", "httpx", "pydantic", "markdown-it-py", "xllamacpp")
    return {
        "schema": "llmbench.environment/1",
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "processors": psutil.cpu_count(),
        "memory_mb": round(psutil.virtual_memory().total / 2**20),
        "byteorder": sys.byteorder,
        "packages": {name: _version(name) for name in packages},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
