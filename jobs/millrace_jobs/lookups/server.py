"""The server of look-ups: a process that reads a store and answers ``GET /table`` with JSON.

    python -m millrace_jobs.lookups.server FOLDER PORT    # started by the driver, see ``process``

It listens on 127.0.0.1, so that nothing but this machine, or this pod, reaches it. A browser there reaches it too,
hence it answers only requests to a local host name (against DNS rebinding). Where the query asks for it, it also
listens for other pods, at an address of their network (``service``). It takes GET without a body, keeps connections
open, and limits their number, their silence, and the sizes of requests and answers.

The parameters are those of ``lookups.requests``. What the server cannot see in the store is what its standard input
says, one JSON object a line (``Notice``); it ends when that input ends, which is when the driver does.

HTTP is read and written here, not by a library. With 16 connections, aiohttp takes 2.2 times as much processor time for
a look-up; it needs 13 MiB more memory and starts 0.2 s later, and limits neither connections nor the time until a first
request. httptools saves no time, and leaves limits and the order of answers to its caller all the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path

from millrace_jobs.lookups.keys import BadRequestError, KeyColumn
from millrace_jobs.lookups.requests import UnavailableError, answer, parse_request
from millrace_jobs.lookups.service import STRANGER_SECONDS, LookupService, ServiceSettings
from millrace_jobs.lookups.store import TableReader
from millrace_support.local_hosts import is_local

HOST = "127.0.0.1"
MAX_CONNECTIONS = 64
"""Connections from this machine that are served at the same time; further ones get 503."""

MAX_HEAD = 1 << 16
"""Longest request line with headers, in bytes."""

SILENCE_SECONDS = 30.0
"""Seconds after which a connection without a whole request is closed."""

GATHERING_SECONDS = 0.005
"""Seconds between two looks at the connections while there are requests from several."""

NICENESS = 19
"""The lowest priority: where the driver and its tasks need all cores, look-ups wait, not the batch."""

_LATER = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
_SWEEP_SECONDS = 1.0
_is_local = lru_cache(maxsize=16)(is_local)


class GatheringSelector(selectors.DefaultSelector):
    """A selector that lets requests gather for a moment while they come from several connections.

    Most of what a small request costs is that a process wakes up for it. A client that asks alone does not wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ready: frozenset[int] = frozenset()
        self._several = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; see ``selectors.BaseSelector``."""
        if self._several:
            time.sleep(GATHERING_SECONDS)
        found = super().select(timeout)
        ready = frozenset(key.fd for key, _ in found)
        self._several = bool(ready) and ready != self._ready
        self._ready = ready or self._ready
        return found


class LookupServer:
    """The connections of a server, and what it answers them from; ``service`` is for those of other pods."""

    def __init__(
        self, reader: TableReader, query: str, columns: list[KeyColumn], service: LookupService | None = None
    ) -> None:
        self.connections: set[ClientConnection] = set()
        self.service = service
        self.notice = ""
        """Why there are no look-ups at present; empty if there are."""
        self._reader = reader
        self._query = query
        self._columns = columns

    def respond(self, method: str, target: str, host: str | None) -> tuple[HTTPStatus, bytes]:
        """Return status and JSON body of the answer to a request; ``host`` is None where it may be any."""
        try:
            if method != "GET":
                return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is allowed: look-ups change nothing")
            if host is not None and not _is_local(host):
                text = f"the host {host[:80]!r} is not local: write 127.0.0.1 or localhost in the URL"
                return _refusal(HTTPStatus.MISDIRECTED_REQUEST, text)
            path, _, parameters = target.partition("?")
            if path != "/table":
                return _refusal(HTTPStatus.NOT_FOUND, f"there is no {path[:80]!r}: the rows are at /table")
            if self.notice:
                raise UnavailableError(self.notice)
            request = parse_request(parameters, self._columns)
            return HTTPStatus.OK, answer(request, self._reader, self._query, self._columns)
        except UnavailableError as error:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except (BadRequestError, ValueError) as error:
            return _refusal(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:  # a bug must not take the connections of other clients with it
            print(f"look-up failed: {error!r}", file=sys.stderr, flush=True)
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the look-up failed: the driver's log has the reason")

    async def serve(self, port: int, ready: Callable[[int], None]) -> None:
        """Listen and answer forever; ``ready`` is called with the port on this machine."""
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: ClientConnection(self, loop.time), HOST, port, reuse_address=True)
        service, known = self.service, self.connections
        if service is not None:
            await loop.create_server(
                lambda: ClientConnection(self, loop.time, service),
                service.settings.host,
                service.settings.port,
                reuse_address=True,
            )
        ready(listening.sockets[0].getsockname()[1])
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for connection in [*known, *(() if service is None else (*service.strangers, *service.readers))]:
                connection.close_if_silent(loop.time())
            if service is not None:
                service.refresh()


class ClientConnection(asyncio.Protocol):
    """One client, of the service or of this machine; requests that arrive together are answered in their order."""

    def __init__(self, server: LookupServer, clock: Callable[[], float], service: LookupService | None = None) -> None:
        self._server, self._service = server, service
        self._patience = SILENCE_SECONDS if service is None else STRANGER_SECONDS
        self._clock = clock
        self._received = b""
        self._since = clock()
        self._writable = True
        self._transport: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the client, or turn it away if there are too many; those of the service are counted before TLS."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._service is not None:
            self._service.connect(self)
            if self._service.tls is not None:
                self._writable = False
                transport.pause_reading()
                self._handshake = asyncio.create_task(self._secure(transport, self._service.tls))
        elif len(self._server.connections) < MAX_CONNECTIONS:
            self._server.connections.add(self)
        else:
            self._send(*_TOO_MANY, keep=False)

    def connection_lost(self, _: Exception | None) -> None:
        """Forget the client."""
        if self._service is None:
            self._server.connections.discard(self)
        else:
            self._service.forget(self)

    def data_received(self, data: bytes) -> None:
        """Answer the requests that are complete."""
        self._received += data
        self._answer_received()

    def pause_writing(self) -> None:
        """Answer nothing while the client does not read what it has asked for."""
        self._writable = False
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Answer again."""
        self._writable = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._answer_received()

    def close_if_silent(self, now: float) -> None:
        """Close a connection that has sent no whole request, or has read no answer, for too long."""
        if now - self._since > self._patience:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once, also during its handshake."""
        if self._transport is not None:
            self._transport.abort()

    async def _secure(self, plain: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Shake hands. Until that is done nothing is answered, because an answer would pass unencrypted."""
        secured = None
        if not plain.is_closing():
            with suppress(OSError):  # the client has no place for long, and nothing of it is logged
                secured = await asyncio.get_running_loop().start_tls(
                    plain,
                    self,
                    tls,
                    server_side=True,
                    ssl_handshake_timeout=STRANGER_SECONDS,
                    ssl_shutdown_timeout=STRANGER_SECONDS,
                )
        if secured is None:
            self.connection_lost(None)  # asyncio does not report it during a handshake
            return
        self._transport = secured
        self.resume_writing()

    def _answer_received(self) -> None:
        assert self._transport is not None
        while self._writable and not self._transport.is_closing():
            head, separator, rest = self._received.partition(b"\r\n\r\n")
            if len(head) > MAX_HEAD:
                text = f"a request has at most {MAX_HEAD} bytes: ask for fewer keys at a time"
                self._send(*_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text), keep=False)
            elif separator:
                self._received = rest
                self._since = self._clock()
                self._answer(head)
            else:
                return

    def _answer(self, head: bytes) -> None:
        line, *fields = head.decode("latin-1").split("\r\n")
        method, _, rest = line.partition(" ")
        target, _, version = rest.rpartition(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        if self._service is not None and not self._service.admits(headers):
            self._send(*_refusal(HTTPStatus.UNAUTHORIZED, "a valid bearer token is needed"), keep=False)
            return
        if self._service is not None and not self._service.promote(self):
            self._send(*_TOO_MANY, keep=False)
            return
        if version not in ("HTTP/1.1", "HTTP/1.0") or not target.startswith("/"):
            refusal = _refusal(HTTPStatus.BAD_REQUEST, "this is not a request of HTTP/1.1")
            self._send(*refusal, keep=False)
            return
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            refusal = _refusal(HTTPStatus.BAD_REQUEST, "a request has no body: write parameters in the URL")
            self._send(*refusal, keep=False)
            return
        self._patience = SILENCE_SECONDS
        if self._service is not None and not self._service.has_room():
            self._send(*_refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many requests: try again"), keep=True)
            return
        closing = headers.get("connection", "").lower()
        keep = closing != "close" and (version == "HTTP/1.1" or closing == "keep-alive")
        host = headers.get("host", "") if self._service is None else None
        self._send(*self._server.respond(method, target, host), keep=keep, head=method == "HEAD")

    def _send(self, status: HTTPStatus, body: bytes, *, keep: bool, head: bool = False) -> None:
        assert self._transport is not None
        extra = "Allow: GET\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
        extra += "Retry-After: 1\r\n" if status in _LATER else ""
        extra += "WWW-Authenticate: Bearer\r\n" if status is HTTPStatus.UNAUTHORIZED else ""
        extra += "" if keep else "Connection: close\r\n"
        start = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
            f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        )
        self._transport.write(start.encode() + (b"" if head else body))
        if not keep:
            self._transport.close()


def _refusal(status: HTTPStatus, text: str) -> tuple[HTTPStatus, bytes]:
    return status, json.dumps({"error": text}).encode() + b"\n"


_TOO_MANY = _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections: try again")


def _follow_driver(server: LookupServer) -> None:
    """Take over the driver's notices; end with the driver."""
    for line in sys.stdin:
        server.notice = json.loads(line)["notice"]
    os._exit(0)


def main() -> None:
    """Serve the store in a folder until standard input ends; its first line describes the table."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # the driver decides when look-ups end: after its last batch
    with suppress(OSError):
        os.nice(NICENESS)
    about = json.loads(sys.stdin.readline())
    columns = [KeyColumn(**column) for column in about["columns"]]
    try:
        asked = about["service"]
        service = None if asked is None else LookupService(ServiceSettings(**asked), time.monotonic)
        server = LookupServer(TableReader.open(folder), about["query"], columns, service)
        server.notice = about["notice"]
        threading.Thread(target=_follow_driver, args=(server,), daemon=True).start()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(GatheringSelector())) as runner:
            runner.run(server.serve(port, lambda taken: print(json.dumps({"port": taken}), flush=True)))
    except ssl.SSLError:
        print(json.dumps({"error": "certificate and key are none, or do not belong together"}), flush=True)
        sys.exit(1)
    except OSError as error:
        print(json.dumps({"error": os.strerror(error.errno or 0)}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
