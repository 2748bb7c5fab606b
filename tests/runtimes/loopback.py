"""A real HTTP server on loopback that answers by a script: what a runtime meets in the field, made repeatable."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Die:
    """Cut the connection in the middle, with a TCP reset."""


@dataclass(frozen=True)
class Hang:
    """Hold the connection open and say nothing, at most until the server stops or the client goes away."""


@dataclass(frozen=True)
class Say:
    """One answer: pieces of the body in turn, numbers between them are seconds to wait."""

    pieces: tuple[bytes | float | Die | Hang, ...]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


def js(value: object, status: int = 200) -> Say:
    return Say((json.dumps(value).encode(),), status)


def ndjson(*lines: object, status: int = 200) -> Say:
    return Say(tuple(x if isinstance(x, float | Die | Hang) else json.dumps(x).encode() + b"\n" for x in lines), status)


def sse(*events: object, done: bool = True) -> Say:
    pieces = [x if isinstance(x, float | Die | Hang) else b"data: " + json.dumps(x).encode() + b"\n\n" for x in events]
    return Say((*pieces, b"data: [DONE]\n\n") if done else tuple(pieces))


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


Script = Say | Callable[[Seen], Say]


@dataclass
class Loopback:
    """``on[path]`` is what a path answers; what is not there gives 404. ``seen`` are the requests so far."""

    on: dict[str, Script] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    closed_by_client: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def sent(self, path: str) -> list[Any]:
        return [seen.body for seen in self.seen if seen.path == path]


def _handler(loopback: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            seen = Seen(self.command, self.path, dict(self.headers), json.loads(raw) if raw else None)
            loopback.seen.append(seen)
            script = loopback.on.get(self.path, js({"error": "nothing here"}, 404))
            say = script if isinstance(script, Say) else script(seen)
            try:
                self._say(say)
            except OSError:
                loopback.closed_by_client.set()
            self.close_connection = True

        def _say(self, say: Say) -> None:
            head = False
            for piece in say.pieces:
                if isinstance(piece, float):
                    self._wait(piece)
                elif isinstance(piece, Hang):
                    self._wait(60.0)
                elif isinstance(piece, Die):
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                    return
                else:
                    if not head:
                        head = True
                        self._head(say)
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    self.wfile.flush()
            if not head:
                self._head(say)
            self.wfile.write(b"0\r\n\r\n")

        def _head(self, say: Say) -> None:
            self.send_response(say.status)
            self.send_header("Transfer-Encoding", "chunked")
            for name, value in say.headers:
                self.send_header(name, value)
            self.end_headers()

        def _wait(self, seconds: float) -> None:
            until = time.monotonic() + seconds
            while time.monotonic() < until and not loopback.stopping.is_set():
                self.connection.settimeout(min(0.02, seconds))
                try:
                    if self.connection.recv(1, socket.MSG_PEEK) == b"":
                        raise ConnectionResetError("the client went away")
                except TimeoutError:
                    pass
            self.connection.settimeout(None)

        do_GET = do_POST = _answer  # noqa: N815

    return Handler


@contextmanager
def serving(on: dict[str, Script] | None = None) -> Iterator[Loopback]:
    loopback = Loopback(dict(on or {}))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(loopback))
    server.daemon_threads = True
    server.handle_error = lambda *args: None  # type: ignore[method-assign]
    loopback.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield loopback
    finally:
        loopback.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


def words(count: int) -> Iterable[str]:
    return (f"word{index} " for index in range(count))
