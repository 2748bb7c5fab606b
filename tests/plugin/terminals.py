"""A terminal for the tests: a session in a pseudo-terminal, and every screen that it showed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyte

CTRL_C = b"\x03"
PATIENCE_S = 60


@dataclass
class Terminal:
    """What a program showed on a terminal of so many columns and lines."""

    columns: int
    lines: int
    frames: list[list[str]] = field(default_factory=list)
    """Every state of the screen, each a list of its lines without trailing blanks."""
    raw: bytes = b""
    code: int | None = None

    @property
    def last(self) -> list[str]:
        """The final screen, without the empty lines at its end."""
        lines = list(self.frames[-1])
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def seen(self, text: str) -> list[str]:
        """The different lines with a text in them that were to be seen at any time, in order."""
        return list(dict.fromkeys(row for frame in self.frames for row in frame if text in row))


def run_in_terminal(
    arguments: Sequence[str],
    folder: Path,
    *,
    columns: int = 120,
    lines: int = 40,
    environ: Mapping[str, str] | None = None,
    answer: Callable[[str], bytes | None] = lambda screen: None,
) -> Terminal:
    """Run ``python ARGUMENTS`` in a pseudo-terminal until it ends.

    Args:
        answer: gets the screen after each piece of output; what it gives is typed, once.
    """
    unwanted = {"CI", "BUILD_NUMBER", "COLUMNS", "LINES", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "NO_COLOR"}
    names = {name: value for name, value in os.environ.items() if name not in unwanted}
    process, descriptor = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, *arguments], {**names, "TERM": "xterm", **(environ or {})})
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    screen = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(screen)
    terminal = Terminal(columns, lines)
    until, typed = time.monotonic() + PATIENCE_S, False
    while time.monotonic() < until:
        ready, _, _ = select.select([descriptor], [], [], 1)
        try:
            piece = os.read(descriptor, 65536) if ready else b""
        except OSError:
            break
        if ready and not piece:
            break
        terminal.raw += piece
        stream.feed(piece)
        terminal.frames.append([row.rstrip() for row in screen.display])
        keys = None if typed else answer("\n".join(terminal.frames[-1]))
        if keys is not None:
            os.write(descriptor, keys)
            typed = True
    os.close(descriptor)
    terminal.code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return terminal
