"""A proxy before a broker, by which a test cuts the network, also at a moment of the protocol that it names.

It forwards whole frames of Kafka's protocol. What follows the length of a request is its kind, the kind's version, and
a number that its answer begins with.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

KINDS = {
    "Produce": 0,
    "Fetch": 1,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
}
"""Requests that a moment can be named by."""

_CONNECT_SECONDS = 5.0


class _Action(Enum):
    """What happens to a request."""

    PASS = "pass"
    CUT = "cut before the broker gets it"
    LOSE_ANSWER = "cut when the broker has answered it"
    HOLD = "hold it back"


class _Moment(NamedTuple):
    kind: int
    action: _Action


class Proxy:
    """Leads connections to ``port`` on to the broker."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self._broker_port = broker_port
        self._moment: _Moment | None = None
        self._come = threading.Event()
        self._released = threading.Event()
        self._whole = True
        self._connections: set[_Connection] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections, and refuse new ones until ``heal``."""
        with self._lock:
            self._whole = False
            broken, self._connections = self._connections, set()
        for connection in broken:
            connection.close()

    def cut_at(self, request: str, *, delivered: bool) -> None:
        """Cut when a request of this kind comes: before the broker gets it, or when only its answer is outstanding."""
        self._await(request, _Action.LOSE_ANSWER if delivered else _Action.CUT)

    def hold_at(self, request: str) -> None:
        """Hold back the next request of this kind, and what follows on its connection, until ``heal``."""
        self._released.clear()
        self._await(request, _Action.HOLD)

    def wait_for_moment(self, seconds: float) -> bool:
        """Whether the moment of ``cut_at`` or ``hold_at`` has come within so many seconds."""
        return self._come.wait(seconds)

    def heal(self) -> None:
        """Let everything through again; forget a moment that has not come."""
        with self._lock:
            self._moment = None
            self._whole = True
        self._released.set()

    def close(self) -> None:
        """Break all connections, and listen no more."""
        self.cut()
        self._released.set()
        with suppress(OSError):  # wakes the thread that accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def pass_request(self, kind: int) -> _Action:
        """Called with each request: what happens to it; returns when it may go on, if it may."""
        with self._lock:
            moment = self._moment
            if moment is None or moment.kind != kind:
                return _Action.PASS
            self._moment = None
        if moment.action is _Action.CUT:
            self.cut()
        if moment.action is not _Action.LOSE_ANSWER:
            self._come.set()
        if moment.action is _Action.HOLD:
            self._released.wait()
        return moment.action

    def lose_answer(self) -> None:
        """Called when the answer of the awaited request is there, in place of passing it."""
        self.cut()
        self._come.set()

    def _await(self, request: str, action: _Action) -> None:
        self._come.clear()
        with self._lock:
            self._moment = _Moment(KINDS[request], action)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker_port), _CONNECT_SECONDS)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            connection = _Connection(self, client, broker)
            with self._lock:
                whole = self._whole
                if whole:
                    self._connections.add(connection)
            if whole:
                connection.start()
            else:
                connection.close()


class _Connection:
    """One connection of a client, and the one to the broker that belongs to it."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._lost: int | None = None
        """Number of the request whose answer shall not arrive."""
        for end in (client, broker):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for target in (self._forward_requests, self._forward_answers):
            threading.Thread(target=target, daemon=True).start()

    def close(self) -> None:
        for end in (self._client, self._broker):
            with suppress(OSError):  # wakes the thread that reads from it
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _forward_requests(self) -> None:
        with suppress(OSError):
            while frame := _frame(self._client):
                kind, _, number = struct.unpack_from(">hhi", frame, 4)
                action = self._proxy.pass_request(kind)
                if action is _Action.CUT:
                    break
                if action is _Action.LOSE_ANSWER:
                    self._lost = number
                self._broker.sendall(frame)
        self.close()

    def _forward_answers(self) -> None:
        with suppress(OSError):
            while frame := _frame(self._broker):
                (number,) = struct.unpack_from(">i", frame, 4)
                if number == self._lost:
                    self._proxy.lose_answer()
                    break
                self._client.sendall(frame)
        self.close()


def _frame(end: socket.socket) -> bytes | None:
    """The next frame with its length before it; None where the connection has ended."""
    length = _exactly(end, 4)
    if length is None:
        return None
    rest = _exactly(end, *struct.unpack(">i", length))
    return None if rest is None else length + rest


def _exactly(end: socket.socket, count: int) -> bytes | None:
    content = bytearray()
    while len(content) < count:
        part = end.recv(min(count - len(content), 1 << 16))
        if not part:
            return None
        content += part
    return bytes(content)
