"""The HTTP endpoint of drivers and operators: ``/metrics`` for Prometheus, probes, and the live page of a run.

The probes are ``/healthz`` and ``/readyz``. A server on the loopback interface answers with pages only where the
request names a local host (``local_hosts``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

from millrace_support.bounded_server import BoundedServer
from millrace_support.local_hosts import is_local

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


class HttpServer(BoundedServer):
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
        super().__init__(host, port, _Handler, "metrics")


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
