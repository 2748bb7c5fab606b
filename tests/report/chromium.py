"""A headless Chromium behind its debugging pipe: enough to open a page, ask it things and look at it."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FIRST_FREE = 10
"""Descriptors from here on are in nobody's way while the pipe's ends move to 3 and 4."""


def program() -> str | None:
    """The Chromium of this machine, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


SILENCE_S = 60
"""A browser that says nothing for so long hangs."""


class Page:
    """One open page. Everything it asked for or complained about is kept."""

    def __init__(self, to: int, back: int) -> None:
        self._to = to
        self._back = back
        self._number = 0
        self._session: str | None = None
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._back], [], [], SILENCE_S)[0], "Chromium says nothing more"
            piece = os.read(self._back, 1 << 16)
            assert piece, "Chromium is gone"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def open(self, url: str) -> None:
        """Go to an address and wait until it is loaded and has shown what it has to show."""
        self._load("about:blank")
        self._load(url)
        self.settle()

    def _load(self, url: str) -> None:
        self.events.clear()
        self.send("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def settle(self) -> None:
        """Wait until nothing of what is shown is still being unpacked."""
        self.ask("""new Promise((done) => {
            const look = () => {
                const shown = [...document.querySelectorAll("main > section")].filter((it) => it.offsetParent);
                shown.some((it) => !it.querySelector("h1")) ? setTimeout(look, 10) : setTimeout(done, 50);
            };
            look();
        })""")

    def go(self, fragment: str) -> None:
        """Go to another place of the same page, as a link does."""
        self.ask(f"void (location.hash = {json.dumps(fragment)})")
        self.ask("new Promise((done) => setTimeout(done, 50))")
        self.settle()

    def ask(self, expression: str) -> Any:
        """What an expression gives in the page."""
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Show the page at a size, in light or dark."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is shown as PNG."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    @property
    def complaints(self) -> list[dict[str, Any]]:
        """Errors and console output since the page was opened."""
        kinds = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [event for event in self.events if event.get("method") in kinds]

    @property
    def requests(self) -> list[str]:
        """Every address asked for since the page was opened, itself included, but for what its policy refused."""
        refused = {
            event["params"]["requestId"]
            for event in self.events
            if event.get("method") == "Network.loadingFailed" and event["params"].get("blockedReason") == "csp"
        }
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent" and event["params"]["requestId"] not in refused
        ]


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A Chromium with one empty page; its profile lies in a folder of the caller's."""
    name = program()
    assert name is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, FIRST_FREE) for end in (theirs_in, theirs_out)]

    def at_three_and_four() -> None:
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)

    command = [name, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
    command += ["--disable-dev-shm-usage", "--disable-background-networking", f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        command,
        close_fds=False,
        preexec_fn=at_three_and_four,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for end in (theirs_in, theirs_out, *ends):
        os.close(end)
    try:
        yield Page(ours_out, ours_in)
    finally:
        process.terminate()
        process.wait()
        os.close(ours_out)
        os.close(ours_in)
