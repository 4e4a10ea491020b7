"""The operator's HTTP endpoint: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for probes."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from threading import BoundedSemaphore, Thread, Timer
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

from millrace_api.errors import MillraceError, Problem

MAX_CONNECTIONS = 8
"""Maximum number of concurrent connections, each with a thread; further ones are rejected."""

CONNECTION_SECONDS = 10.0
"""Total time limit of a connection in seconds, so that a slow client cannot hold its thread."""

_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

Probe = Callable[[], str]
"""Health check that returns what is wrong; empty if healthy."""

log = logging.getLogger(__name__)


class OperatorServer(ThreadingHTTPServer):
    """HTTP server that listens on creation and answers from ``start`` to ``stop``.

    Args:
        host: address of this machine to listen on.
        port: port to listen on; 0 takes a free one.
        registry: metrics of ``/metrics``.
        healthy: check of ``/healthz``.
        ready: check of ``/readyz``.

    Raises:
        MillraceError: the server cannot listen on the address.
    """

    daemon_threads = True

    def __init__(self, host: str, port: int, registry: CollectorRegistry, healthy: Probe, ready: Probe) -> None:
        self.registry = registry
        self.probes = {"/healthz": healthy, "/readyz": ready}
        self._slots = BoundedSemaphore(MAX_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _OperatorHandler)
        except (OSError, OverflowError) as error:
            raise MillraceError(
                Problem(
                    f"cannot serve metrics on {host}:{port}: {error}",
                    "choose another port, or 0 for a free one, and an address of this machine",
                )
            ) from None

    def start(self) -> None:
        """Start answering, in background threads."""
        log.info("metrics and probes are on port %d", self.server_address[1])
        Thread(target=self.serve_forever, name="http", daemon=True).start()

    def stop(self) -> None:
        """Stop answering and close the socket."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve the connection in a thread, or reject it if all threads are busy."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            request.sendall(_BUSY)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the connection in its thread, and cut it off after its time limit."""
        overdue = Timer(CONNECTION_SECONDS, _cut, (request,))
        overdue.daemon = True
        overdue.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            overdue.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a failed request at DEBUG level, so that bad clients cannot fill the log."""
        log.debug("a request from %s failed", client_address[0], exc_info=True)


class _OperatorHandler(MetricsHandler):
    """Handler of one request; prometheus_client writes the metrics."""

    server: OperatorServer

    @property
    def registry(self) -> CollectorRegistry:  # type: ignore[override]
        return self.server.registry

    def do_GET(self) -> None:  # noqa: N802
        """Answer a GET request by its path."""
        path = urlsplit(self.path).path
        if path == "/metrics":
            super().do_GET()
        elif path in self.server.probes:
            wrong = self.server.probes[path]()
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK, wrong or "ok")
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz")

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # the connection has just ended
        connection.shutdown(socket.SHUT_RDWR)
