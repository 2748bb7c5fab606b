"""What all tests need of their process."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Ctrl-C reaches the sessions that tests start, even where this one was started in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
