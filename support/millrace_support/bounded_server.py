"""A TCP server with a fixed number of threads, of which no client holds one for longer than ``CONNECTION_SECONDS``."""

from __future__ import annotations

import logging
import socket
import sys
import time
from contextlib import suppress
from ipaddress import ip_address
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import BoundedSemaphore, Thread
from typing import Any

from millrace_api.errors import MillraceError, Problem

MAX_CONNECTIONS = 8
"""Maximum number of connections served at the same time, one thread each; further ones get 503."""

ALL_ADDRESSES = "::"
"""Host that stands for all addresses of this machine, those of IPv4 included."""

CONNECTION_SECONDS = 10.0
"""Total time limit of a connection in seconds, so that a slow client cannot hold its thread."""

_POLL_SECONDS = 0.1
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

_log = logging.getLogger(__name__)


class BoundedServer(ThreadingTCPServer):
    """Server that listens on creation and answers from ``start`` to ``close``.

    Args:
        host: address of this machine to listen on, IPv4 or IPv6, or ``ALL_ADDRESSES``.
        port: port to listen on; 0 takes a free one.
        handler: what answers a connection.
        served: what is served, for the message of an error.

    Raises:
        MillraceError: the server cannot listen on the address, for example because the port is taken.
    """

    allow_reuse_address = True
    daemon_threads = True
    header_seconds = float("inf")
    """Time limit in seconds until a handler calls ``headers_received``, for servers whose handlers do."""

    def __init__(self, host: str, port: int, handler: type[BaseRequestHandler], served: str) -> None:
        self._slots = BoundedSemaphore(MAX_CONNECTIONS)
        self._since: dict[socket.socket, float] = {}
        self._with_headers: set[socket.socket] = set()
        self._thread: Thread | None = None
        if host == ALL_ADDRESSES and not socket.has_dualstack_ipv6():
            host = "0.0.0.0"  # noqa: S104 - where the machine has no IPv6
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise MillraceError(
                Problem(
                    f"cannot serve {served} on {host}:{port}: {reason[:1].lower()}{reason[1:].rstrip('.')}",
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
            self._with_headers.discard(request)
            self._slots.release()

    def headers_received(self, request: socket.socket) -> None:
        """Note that the request line and the headers of a connection have arrived; called on its thread."""
        self._with_headers.add(request)

    def service_actions(self) -> None:
        """Cut connections that are open for too long; called ten times a second."""
        now = time.monotonic()
        for connection, since in list(self._since.items()):
            limit = CONNECTION_SECONDS
            if connection not in self._with_headers:
                limit = min(limit, self.header_seconds)
            if now - since > limit:
                with suppress(OSError):  # the connection has just ended by itself
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a failed request on one line: at DEBUG level if the client disconnected, else as a warning."""
        error = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(error, OSError) else logging.WARNING
        _log.log(level, "request from %s failed: %r", client_address[0], error)
