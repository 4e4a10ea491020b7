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
"""Maximum number of connections served at the same time, one thread each; further ones get 503."""

CONNECTION_SECONDS = 10.0
"""Maximum duration of a connection in seconds, so that a slow client cannot hold its thread."""

_POLL_SECONDS = 0.1
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

_log = logging.getLogger(__name__)


class JobServer:
    """A running HTTP endpoint."""

    def __init__(self, listener: _Listener) -> None:
        self._listener = listener
        self._thread = Thread(target=listener.serve_forever, args=(_POLL_SECONDS,), name="millrace-http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that the endpoint listens on."""
        return int(self._listener.server_address[1])

    @property
    def url(self) -> str:
        """The URL of the endpoint, without a path."""
        host = str(self._listener.server_address[0])
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def close(self) -> None:
        """Stop listening; a second call does nothing."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()


def start_server(registry: CollectorRegistry, health: Health, host: str = "127.0.0.1", port: int = 0) -> JobServer:
    """Serve metrics and probes on a separate thread until ``close``.

    Args:
        registry: the metrics behind ``/metrics``.
        health: the state behind ``/healthz`` and ``/readyz``.
        host: address of this machine to listen on.
        port: port to listen on; 0 takes a free one.

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
    """A server that accepts a few connections at a time, and cuts those that take too long."""

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
        """Serve the connection on a thread if one is free, else answer 503."""
        if self._slots.acquire(blocking=False):
            self._since[request] = time.monotonic()
            super().process_request(request, client_address)
        else:
            request.sendall(_BUSY)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the connection on its thread, then free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._since.pop(request)
            self._slots.release()

    def service_actions(self) -> None:
        """Cut connections that are open for too long; called ten times a second."""
        now = time.monotonic()
        for connection, since in list(self._since.items()):
            if now - since > CONNECTION_SECONDS:
                _cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a failed request on one line: at debug level if the client disconnected, else as a warning."""
        error = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(error, OSError) else logging.WARNING
        _log.log(level, "request from %s failed: %r", client_address[0], error)


class _JobHandler(MetricsHandler):
    """A handler of one request; prometheus_client writes the metrics themselves."""

    server: _Listener

    @property
    def registry(self) -> CollectorRegistry:  # type: ignore[override]
        return self.server.registry

    def parse_request(self) -> bool:
        """Read the request; refuse methods other than GET with 405, not with the base class's 501."""
        if not super().parse_request():
            return False
        if self.command != "GET":
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is allowed", {"Allow": "GET"})
            return False
        return True

    def do_GET(self) -> None:  # noqa: N802
        """Answer a GET request by its path."""
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
        except OSError:  # the client disconnected
            raise
        except Exception as error:  # nothing was sent yet; a version in Accept that is no number, for example
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
