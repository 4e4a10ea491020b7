"""The driver's HTTP endpoint: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for probes."""

from __future__ import annotations

import logging
import socket
import socketserver
import sys
import time
from http import HTTPStatus
from threading import BoundedSemaphore, Thread
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.run.health import Health, Verdict

MAX_CONNECTIONS = 8
"""Connections served at the same time, each by a thread; one more is turned away."""

CONNECTION_SECONDS = 10.0
"""How long a connection may take as a whole, so that a slow client cannot keep its thread."""

_POLL_SECONDS = 0.1
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

_log = logging.getLogger(__name__)


class JobServer:
    """A running endpoint."""

    def __init__(self, listener: _Listener) -> None:
        self._listener = listener
        self._thread = Thread(target=listener.serve_forever, args=(_POLL_SECONDS,), name="millrace-http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.server_address[1])

    @property
    def url(self) -> str:
        """Where it is, without a path."""
        host = str(self._listener.server_address[0])
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def close(self) -> None:
        """Stop listening; a second call does nothing."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()


def start_server(registry: CollectorRegistry, health: Health, host: str = "127.0.0.1", port: int = 0) -> JobServer:
    """Serve metrics and probes on a thread of their own until ``close``.

    Args:
        registry: what ``/metrics`` shows.
        health: what ``/healthz`` and ``/readyz`` say.
        host: address of this machine to listen on.
        port: 0 takes a free one.

    Raises:
        MillraceError: the address cannot be listened on, for example because the port is taken.
    """
    try:
        return JobServer(_Listener((host, port), registry, health))
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise MillraceError(
            Problem(
                f"cannot serve metrics on {host}:{port}: {reason[:1].lower()}{reason[1:].rstrip('.')}",
                "choose another port from 1024 to 65535, or 0 for a free one, and an address of this machine",
            )
        ) from None


class _Listener(socketserver.ThreadingTCPServer):
    """Accepts connections, few at a time, and ends those that take too long."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, health: Health) -> None:
        self.registry = registry
        self.health = health
        self._slots = BoundedSemaphore(MAX_CONNECTIONS)
        self._since: dict[socket.socket, float] = {}
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _JobHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection to a thread, where one is free."""
        if self._slots.acquire(blocking=False):
            self._since[request] = time.monotonic()
            super().process_request(request, client_address)
        else:
            request.sendall(_BUSY)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the connection in its thread, and free the thread's place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._since.pop(request)
            self._slots.release()

    def service_actions(self) -> None:
        """Called ten times a second: cut connections that are open for too long."""
        now = time.monotonic()
        for connection, since in list(self._since.items()):
            if now - since > CONNECTION_SECONDS:
                _cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's concern; anything else is one line in the log."""
        error = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(error, OSError) else logging.WARNING
        _log.log(level, "request from %s failed: %r", client_address[0], error)


class _JobHandler(MetricsHandler):
    """Answers one request; the metrics themselves are written by prometheus_client."""

    server: _Listener

    @property
    def registry(self) -> CollectorRegistry:  # type: ignore[override]
        return self.server.registry

    def parse_request(self) -> bool:
        """Read the request; methods other than GET, for which the base class has 501, are refused with 405."""
        if not super().parse_request():
            return False
        if self.command != "GET":
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is allowed", {"Allow": "GET"})
            return False
        return True

    def do_GET(self) -> None:  # noqa: N802
        """Answer by path."""
        path = urlsplit(self.path).path
        if path == "/metrics":
            self._metrics()
        elif path == "/healthz":
            self._probe(self.server.health.liveness())
        elif path == "/readyz":
            self._probe(self.server.health.readiness())
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz")

    def _metrics(self) -> None:
        try:
            super().do_GET()
        except OSError:  # the client went away
            raise
        except Exception as error:  # before anything was sent, such as for a version in Accept that is no number
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"the metrics cannot be written: {error!r}")

    def _probe(self, verdict: Verdict) -> None:
        self._answer(HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE, verdict.text)

    def _answer(self, status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        _log.debug("a connection ended by itself just before its time was over")
