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
"""Connections served at the same time, each by a thread; one more is turned away."""

CONNECTION_SECONDS = 10.0
"""How long a connection may take as a whole, so that a slow client cannot keep its thread."""

_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

Probe = Callable[[], str]
"""What is wrong; empty where all is well."""

log = logging.getLogger(__name__)


class OperatorServer(ThreadingHTTPServer):
    """Listens from the beginning, and answers from ``start`` to ``stop``.

    Args:
        host: address of this machine to listen on.
        port: 0 takes a free one.
        registry: what ``/metrics`` shows.
        healthy: what ``/healthz`` says.
        ready: what ``/readyz`` says.

    Raises:
        MillraceError: the address cannot be listened on.
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
        """Answer, in threads of its own."""
        log.info("metrics and probes are on port %d", self.server_address[1])
        Thread(target=self.serve_forever, name="http", daemon=True).start()

    def stop(self) -> None:
        """Listen no more."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection to a thread, where there may be one more."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            request.sendall(_BUSY)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the connection in its thread, for as long as it may take."""
        overdue = Timer(CONNECTION_SECONDS, _cut, (request,))
        overdue.daemon = True
        overdue.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            overdue.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's concern; nor may a bad one fill the log."""
        log.debug("a request from %s failed", client_address[0], exc_info=True)


class _OperatorHandler(MetricsHandler):
    """Answers one request; the metrics themselves are written by prometheus_client."""

    server: OperatorServer

    @property
    def registry(self) -> CollectorRegistry:  # type: ignore[override]
        return self.server.registry

    def do_GET(self) -> None:  # noqa: N802
        """Answer by path."""
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
    with suppress(OSError):  # it has just ended by itself
        connection.shutdown(socket.SHUT_RDWR)
