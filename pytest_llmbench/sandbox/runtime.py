"""What a confined Python needs of this machine: interpreter, its standard library, shared libraries; no packages."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import zoneinfo
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

FLAGS: Final = ("-s", "-P", "-S", "-B")
"""No packages, no current directory, no bytecode. The environment is ours, and with ``-E`` or ``-I`` the interpreter
would not take its fixed hash seed from there."""
ELF_HEAD_BYTES: Final = 8_192
"""Bytes at the start of the interpreter in which the name of its loader stands."""
SURVEY_S: Final = 60
"""Seconds within which the interpreter has to load its own extension modules."""
_LOADER: Final = re.compile(rb"\0(/[\x21-\x7e]*/ld[\x21-\x7e]*)\0")
_PACKAGES: Final = ("site-packages", "dist-packages")
_SURVEY: Final = """
import os, sys, warnings
warnings.simplefilter("ignore")
sys.path = [os.path.realpath(path) for path in sys.path]
for folder in sys.path:
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        module = name.partition(".")[0]
        if name.endswith(".so") and not module.startswith(("_test", "_ctypes_test", "xx", "_xx", "_tkinter")):
            try:
                __import__(module)
            except Exception:
                pass
try:
    import ctypes
    ctypes.CDLL("libgcc_s.so.1")
except Exception:
    pass
print(*sys.path, sep="\\n")
print()
try:
    with open("/proc/self/maps") as maps:
        lines = [line.rstrip("\\n").split(None, 5) for line in maps]
    print(*sorted({line[5] for line in lines if len(line) > 5 and ".so" in line[5]}), sep="\\n")
except OSError:
    pass
"""


@dataclass(frozen=True)
class Runtime:
    """The interpreter that confined programs run in. All paths are real paths but the loader's."""

    executable: str
    loader: str | None
    """The path that the kernel loads the interpreter with."""
    library: tuple[str, ...]
    """Folders and archives of the standard library."""
    shared: tuple[str, ...]
    """Shared libraries that the interpreter or one of its extension modules needs, the loader included."""
    data: tuple[str, ...]
    """Other files and folders that exist: cache of the loader, time zones."""

    def library_entries(self) -> list[str]:
        """Everything in the standard library but installed packages."""
        entries: list[str] = []
        for path in self.library:
            if os.path.isdir(path):
                entries += [entry.path for entry in os.scandir(path) if entry.name not in _PACKAGES]
            else:
                entries.append(path)
        return entries

    def package_folders(self) -> list[str]:
        """Folders of installed packages inside of the standard library, or of a folder with shared libraries."""
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        tops = {*self.library, *(os.path.join(top, version) for top in self.shared_folders())}
        found = (os.path.join(top, name) for top in sorted(tops) for name in _PACKAGES)
        return [path for path in found if os.path.isdir(path) and not os.path.islink(path)]

    def shared_folders(self) -> list[str]:
        """The folders that the shared libraries lie in."""
        inside = tuple(path + os.sep for path in self.library)
        return sorted({os.path.dirname(path) for path in self.shared if not path.startswith(inside)})

    def unreachable(self) -> str | None:
        """A path of the interpreter that other users of this machine cannot read, if there is one."""
        needed = (self.executable, *self.library, *self.shared)
        return next((path for path in needed if not readable_by_all(path)), None)


def readable_by_all(path: str) -> bool:
    """Whether any user of this machine can read an existing path; one that does not exist hinders nobody."""
    try:
        wanted = stat.S_IROTH | (stat.S_IXOTH if os.path.isdir(path) else 0)
        if os.stat(path).st_mode & wanted != wanted:
            return False
        return all(parent.stat().st_mode & stat.S_IXOTH for parent in Path(path).parents)
    except FileNotFoundError:
        return True
    except OSError:
        return False


@cache
def runtime() -> Runtime:
    """The interpreter below this one, without any virtual environment; looked at once a process.

    Raises:
        OSError, subprocess.SubprocessError: where it does not start.
    """
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    told = subprocess.run(
        [executable, *FLAGS, "-c", _SURVEY],
        env={"LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=SURVEY_S,
        check=True,
    ).stdout
    library, _, shared = os.fsdecode(told).partition("\n\n")
    zones = next((path for path in zoneinfo.TZPATH if os.path.isdir(path)), None)
    data = ("/etc/ld.so.cache", os.path.realpath(zones) if zones else "")
    existing = [path for path in library.splitlines() if os.path.exists(path)]
    nested = tuple(path + os.sep for path in existing)
    return Runtime(
        executable=executable,
        loader=_loader(executable),
        library=tuple(path for path in existing if not path.startswith(nested)),
        shared=tuple(path for path in shared.splitlines() if not path.startswith(nested)),
        data=tuple(path for path in data if path and os.path.exists(path)),
    )


def _loader(executable: str) -> str | None:
    with open(executable, "rb") as file:
        found = _LOADER.search(file.read(ELF_HEAD_BYTES))
    return os.fsdecode(found[1]) if found else None
