"""A TCP proxy that cuts a client from a server like a broken network: see ``TcpProxy``."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

_CONNECT_SECONDS = 5.0


@dataclass
class _Moment:
    """When to break a connection: as its client says ``text``, after it was said ``before`` times, or as the server
    answers that."""

    text: bytes
    before: int
    answered: bool


class TcpProxy:
    """A proxy that forwards connections on ``port`` to the server, and can drop their data silently, or break them."""

    def __init__(self, port: int, server_port: int) -> None:
        self.port = port
        self._server_port = server_port
        self._lock = threading.Lock()
        self._open: set[_Connection] = set()
        self._dead = False
        self._moment: _Moment | None = None
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def black_hole(self, *, new: bool) -> None:
        """Drop all data on current connections, and with ``new`` on later ones, too."""
        with self._lock:
            self._dead = new
            for connection in self._open:
                connection.dead.set()

    def break_at(self, text: bytes, *, before: int = 0, answered: bool = False) -> None:
        """Break the connection of the client that next says ``text``, not counting the first ``before`` times.

        The server does not get it or, with ``answered``, the client does not get the answer.
        """
        with self._lock:
            self._moment = _Moment(text, before, answered)

    @property
    def has_broken(self) -> bool:
        """Whether the moment of ``break_at`` has come."""
        return self._moment is None

    def heal(self) -> None:
        """Forward new connections. Dropped data, and its connections, stay lost."""
        with self._lock:
            self._dead = False

    def close(self) -> None:
        """Break all connections, and stop listening."""
        with suppress(OSError):  # wakes the thread that accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            connection = _Connection(client, self._server_port, self._breaks_at)
            with self._lock:
                self._open.add(connection)
                if self._dead:
                    connection.dead.set()
            connection.start()

    def _breaks_at(self, part: bytes) -> _Moment | None:
        """Return the moment, if it comes with this part of what a client says."""
        with self._lock:
            moment = self._moment
            if moment is None or moment.text not in part:
                return None
            if moment.before:
                moment.before -= 1
                return None
            self._moment = None
            return moment


class _Connection:
    """A client's connection, and the matching one to the server. If ``dead``, all data is dropped."""

    def __init__(self, client: socket.socket, port: int, breaks_at: Callable[[bytes], _Moment | None]) -> None:
        self.dead = threading.Event()
        self._breaks_at = breaks_at
        self._answer_is_lost = False
        self._client = client
        self._server: socket.socket | None = None
        self._port = port

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        for end in (self._client, self._server):
            if end is not None:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _run(self) -> None:
        if self.dead.is_set():
            return  # accepted by the kernel, and never answered
        try:
            self._server = socket.create_connection(("127.0.0.1", self._port), _CONNECT_SECONDS)
        except OSError:
            self.close()
            return
        self._server.settimeout(None)
        threading.Thread(target=self._forward, args=(self._client, self._server), daemon=True).start()
        self._forward(self._server, self._client)

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(1 << 16):
                if self.dead.is_set():
                    return  # the other end waits forever
                if source is self._client and (moment := self._breaks_at(part)) is not None:
                    self._answer_is_lost = moment.answered
                    if not moment.answered:
                        break
                if source is self._server and self._answer_is_lost:
                    break
                sink.sendall(part)
        if not self.dead.is_set():
            self.close()
