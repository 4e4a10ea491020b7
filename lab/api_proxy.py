"""A proxy before an API server that delays, drops, cuts or refuses responses for tests: see ``ApiProxy``.

It speaks plain HTTP on loopback and TLS to the API server, and forwards watch events as they arrive.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

_ANSWER_SECONDS = 400.0
"""Seconds of silence to accept from the API server. A watch ends before."""

_HOP_BY_HOP = frozenset({"connection", "content-length", "host", "transfer-encoding"})


class Request(NamedTuple):
    """A client's request. ``path`` is without the query string."""

    method: str
    path: str
    watches: bool

    @property
    def changes(self) -> bool:
        """Whether the request changes something other than a Lease."""
        return self.method != "GET" and "/leases" not in self.path

    @property
    def kind(self) -> str:
        """The kind for counting: ``watch``, ``read``, ``change`` or ``lease``."""
        if "/leases" in self.path:
            return "lease"
        return "watch" if self.watches else "change" if self.changes else "read"


@dataclass(frozen=True)
class Refuse:
    """Answer with ``status`` without forwarding the request. ``retry_after`` is in seconds."""

    status: int
    retry_after: int | None = None


@dataclass(frozen=True)
class Delay:
    """Forward the request ``seconds`` later, even if the client has given up by then."""

    seconds: float


@dataclass(frozen=True)
class LoseAnswer:
    """Break the connection after the server's response; with ``half``, in the middle of it or of a watch event."""

    half: bool = False


@dataclass(frozen=True)
class EndWatch:
    """Answer a watch with 200, and ``seconds`` later with an event that its version is too old."""

    seconds: float


@dataclass(frozen=True)
class HoldWatch:
    """Answer a watch with 200, and send nothing until the client gives up or watches are broken."""


Fault = Refuse | Delay | LoseAnswer | EndWatch | HoldWatch
Rule = Callable[[Request], Fault | None]
"""The fault that a request meets, or None to forward the request."""


class ApiProxy:
    """A proxy that forwards requests to an API server and counts them.

    Args:
        port: port to listen on.
        server_port: port of the API server.
        authority: certificate to check the API server's with.
    """

    def __init__(self, port: int, server_port: int, authority: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._server_port = server_port
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._lock = threading.Lock()
        self._rule: Rule = _no_fault
        self._counted: Counter[str] = Counter()
        self._watches: set[socket.socket] = set()
        self._listener = _Listener(self, port)
        threading.Thread(target=self._listener.serve_forever, name="api-proxy", daemon=True).start()

    @property
    def counted(self) -> Counter[str]:
        """Number of requests so far, by kind."""
        with self._lock:
            return self._counted.copy()

    @contextmanager
    def fault(self, rule: Rule) -> Iterator[None]:
        """Apply the faults of a rule to the requests of the ``with`` block. One thread at a time calls the rule."""
        self._rule = rule
        try:
            yield
        finally:
            self._rule = _no_fault

    def break_watches(self) -> None:
        """Break the connections of all current watches."""
        with self._lock:
            broken, self._watches = self._watches, set()
        for connection in broken:
            _shut(connection)

    def close(self) -> None:
        """Stop listening, and break the watches."""
        self._listener.shutdown()
        self._listener.server_close()
        self.break_watches()

    def came(self, request: Request) -> Fault | None:
        """Count a request, and return the fault that it meets."""
        with self._lock:
            self._counted[request.kind] += 1
            return self._rule(request)

    @contextmanager
    def watching(self, client: socket.socket) -> Iterator[None]:
        """Let ``break_watches`` break the connection to the client of a watch while the watch lasts."""
        with self._lock:
            self._watches.add(client)
        try:
            yield
        finally:
            with self._lock:
                self._watches.discard(client)

    @contextmanager
    def server(self) -> Iterator[http.client.HTTPSConnection]:
        """Yield a connection to the API server."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._server_port, timeout=_ANSWER_SECONDS, context=self._tls
        )
        try:
            yield connection
        finally:
            connection.close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: ApiProxy, port: int) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of clients that disconnected."""


class _Handler(BaseHTTPRequestHandler):
    """A handler of the requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def do_GET(self) -> None:
        """Handle a request of any method."""
        parts = urlsplit(self.path)
        request = Request(self.command, parts.path, parse_qs(parts.query).get("watch") == ["true"])
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.proxy.came(request)
        try:
            self._meet(fault, request, body)
        except (OSError, http.client.HTTPException):  # one side has disconnected: disconnect the other
            self._break()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names that the base class looks for

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because a request contains a token."""

    def _meet(self, fault: Fault | None, request: Request, body: bytes) -> None:
        match fault:
            case Refuse(status, retry_after):
                self._begin(status, {} if retry_after is None else {"Retry-After": str(retry_after)})
                self._chunk(_status(status, request.path))
                self._chunk(b"")
            case EndWatch(seconds):
                self._begin(200)
                time.sleep(seconds)
                self._chunk(b'{"type": "ERROR", "object": %s}\n' % _status(410, request.path))
                self._chunk(b"")
            case HoldWatch():
                self._begin(200)
                with self.server.proxy.watching(self.connection):
                    self.rfile.read(1)  # returns when the connection is closed
                self._break()
            case LoseAnswer(half):
                self._lose(request, body, half=half)
            case _:
                if isinstance(fault, Delay):
                    time.sleep(fault.seconds)
                with self._asked(body) as answer:
                    self._pass(answer, request)

    @contextmanager
    def _asked(self, body: bytes) -> Iterator[http.client.HTTPResponse]:
        """Yield the server's response after its headers have arrived."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        with self.server.proxy.server() as server:
            server.request(self.command, self.path, body or None, headers)
            yield server.getresponse()

    def _pass(self, answer: http.client.HTTPResponse, request: Request) -> None:
        self._begin(answer.status, dict(answer.getheaders()))
        if not request.watches:
            self._chunks(answer)
            return
        with self.server.proxy.watching(self.connection):
            self._chunks(answer)

    def _lose(self, request: Request, body: bytes, *, half: bool) -> None:
        with self._asked(body) as answer:
            if half:
                self._begin(answer.status, dict(answer.getheaders()))
                content = answer.read1(1 << 16) if request.watches else answer.read()
                self._chunk(content[: len(content) // 2])
            elif not request.watches:  # a watch has no end
                answer.read()
        self._break()

    def _begin(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunks(self, answer: http.client.HTTPResponse) -> None:
        while part := answer.read1(1 << 16):
            self._chunk(part)
        self._chunk(b"")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))

    def _break(self) -> None:
        self.close_connection = True
        _shut(self.connection)


def _no_fault(request: Request) -> None:
    """Forward every request."""


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _status(code: int, path: str) -> bytes:
    """Return the status object of a refusal, like the API server's."""
    reasons = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 503: "ServiceUnavailable"}
    return json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "code": code,
            "reason": reasons.get(code, "InternalError"),
            "message": f"{path} is refused with {code} by the test",
        }
    ).encode()
