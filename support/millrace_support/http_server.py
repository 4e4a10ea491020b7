"""The HTTP endpoint of drivers and operators: ``/metrics`` for Prometheus, probes, and the live page of a run.

The probes are ``/healthz`` and ``/readyz``. A server on the loopback interface answers with pages only where the
request names a local host (``local_hosts``).

It has a fixed number of threads, and no client holds one of them for longer than ``CONNECTION_SECONDS``.
"""

from __future__ import annotations

import logging
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from ipaddress import ip_address
from socketserver import ThreadingTCPServer
from threading import BoundedSemaphore, Thread
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

from millrace_api.errors import MillraceError, Problem
from millrace_support.local_hosts import is_local

MAX_CONNECTIONS = 8
"""Maximum number of connections served at the same time, one thread each; further ones get 503."""

ALL_ADDRESSES = "::"
"""Host that stands for all addresses of this machine, those of IPv4 included."""

CONNECTION_SECONDS = 10.0
"""Total time limit of a connection in seconds, so that a slow client cannot hold its thread."""

_POLL_SECONDS = 0.1
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

_log = logging.getLogger(__name__)


class ProbeResult(NamedTuple):
    """The answer to a probe; ``text`` is one sentence for people, the reason if not ``ok``."""

    ok: bool
    text: str


Probe = Callable[[], ProbeResult]


class Page(NamedTuple):
    """The answer to a request for a page, with headers beside those of its type and length."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})


PageSource = Callable[[str], Page]
"""Function that returns the page for the query part of a URL."""


class HttpServer(ThreadingTCPServer):
    """HTTP server that listens on creation and answers from ``start`` to ``close``.

    Args:
        registry: metrics of ``/metrics``.
        liveness: check of ``/healthz``.
        readiness: check of ``/readyz``.
        host: address of this machine to listen on, IPv4 or IPv6, or ``ALL_ADDRESSES``.
        port: port to listen on; 0 takes a free one.
        pages: sources of the pages, by path.

    Raises:
        MillraceError: the server cannot listen on the address, for example because the port is taken.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self,
        registry: CollectorRegistry,
        liveness: Probe,
        readiness: Probe,
        host: str = "127.0.0.1",
        port: int = 0,
        pages: Mapping[str, PageSource] = MappingProxyType({}),
    ) -> None:
        self.registry = registry
        self.probes: Mapping[str, Probe] = {"/healthz": liveness, "/readyz": readiness}
        self.pages = pages
        self._slots = BoundedSemaphore(MAX_CONNECTIONS)
        self._since: dict[socket.socket, float] = {}
        self._thread: Thread | None = None
        if host == ALL_ADDRESSES and not socket.has_dualstack_ipv6():
            host = "0.0.0.0"  # noqa: S104 - where the machine has no IPv6
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise MillraceError(
                Problem(
                    f"cannot serve metrics on {host}:{port}: {reason[:1].lower()}{reason[1:].rstrip('.')}",
                    "choose another port from 1024 to 65535, or 0 for a free one, and an address of this machine",
                )
            ) from None

    def server_bind(self) -> None:
        """Take the address; IPv6's ``::`` takes IPv4 connections, too, whatever the machine's default is."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        host = str(self.server_address[0])
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        return ip_address(str(self.server_address[0])).is_loopback

    def start(self) -> None:
        """Start answering, in background threads."""
        self._thread = Thread(target=self.serve_forever, args=(_POLL_SECONDS,), name="millrace-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering and listening; a second call does nothing."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()

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
                with suppress(OSError):  # the connection has just ended by itself
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a failed request on one line: at DEBUG level if the client disconnected, else as a warning."""
        error = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(error, OSError) else logging.WARNING
        _log.log(level, "request from %s failed: %r", client_address[0], error)


class _Handler(MetricsHandler):
    """Handler of one request; prometheus_client writes the metrics themselves."""

    server: HttpServer

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
        path = parameters = ""
        with suppress(ValueError):  # not a URL
            path, parameters = urlsplit(self.path)[2:4]
        if path == "/metrics":
            self._metrics()
        elif path in self.server.probes:
            result = self.server.probes[path]()
            self._answer(HTTPStatus.OK if result.ok else HTTPStatus.SERVICE_UNAVAILABLE, result.text)
        elif path in self.server.pages:
            self._page(self.server.pages[path], parameters)
        else:
            page = "the page /, " if "/" in self.server.pages else ""
            self._answer(HTTPStatus.NOT_FOUND, f"there are {page}/metrics, /healthz and /readyz")

    def _page(self, source: PageSource, parameters: str) -> None:
        if self.server.is_local and not is_local(self.headers.get("Host", "localhost")):
            text = "this host name is not local: write 127.0.0.1 or localhost in the URL"
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, text)
            return
        try:
            page = source(parameters)
        except Exception as error:  # probes and metrics go on, and the log has the reason
            _log.exception("the page cannot be rendered")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"the page cannot be rendered: {type(error).__name__}")
            return
        self._send(page.status, page.content_type, page.body, page.headers)

    def _metrics(self) -> None:
        try:
            super().do_GET()
        except OSError:  # the client disconnected
            raise
        except Exception as error:  # nothing was sent yet; a version in Accept that is no number, for example
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"the metrics cannot be written: {error!r}")

    def _answer(self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{text}\n".encode(), headers or {})

    def _send(self, status: HTTPStatus, content_type: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
