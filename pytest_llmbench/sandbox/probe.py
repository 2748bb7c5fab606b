"""What runs in a layer to find out whether it confines: ``probe.py SECRET VICTIM PORT``.

It says that it is there, tries what must not work, and tells what worked all the same.
"""

from __future__ import annotations

import sys

TOUCH = "touched by the probe"
FIRST_LINE, LAST_LINE = "inside", "done"
CONNECT_S = 1.0
"""Seconds to wait for a listener that must not answer."""


def read(path: str) -> None:
    """Read a file."""
    with open(path, encoding="utf-8") as file:
        file.read()


def write(path: str) -> None:
    """Write to a file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(TOUCH)


def connect(port: str) -> None:
    """Reach a listener of this machine."""
    import socket

    socket.create_connection(("127.0.0.1", int(port)), CONNECT_S).close()


def main() -> None:
    """Try everything."""
    print(FIRST_LINE)
    for attempt, target in zip((read, write, connect), sys.argv[1:], strict=True):
        try:
            attempt(target)
        except OSError:
            continue
        print(attempt.__name__)
    print(LAST_LINE)


if __name__ == "__main__":
    main()
