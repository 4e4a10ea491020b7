"""A proxy before a broker that cuts the network, at once or at a chosen request of the protocol.

It forwards whole frames of Kafka's protocol. After its length, a request has its kind (API key), the version, and a
correlation id with which the response begins.
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
"""Requests at which the network can be cut or held."""

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
    """A proxy that forwards connections on ``port`` to the broker."""

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
        """Cut the network at the next such request, before it reaches the broker or before its response."""
        self._await(request, _Action.LOSE_ANSWER if delivered else _Action.CUT)

    def hold_at(self, request: str) -> None:
        """Hold back the next such request, and what follows it on its connection, until ``heal``."""
        self._released.clear()
        self._await(request, _Action.HOLD)

    def wait_for_moment(self, seconds: float) -> bool:
        """Return whether the request of ``cut_at`` or ``hold_at`` came within ``seconds``."""
        return self._come.wait(seconds)

    def heal(self) -> None:
        """Forward everything again, and cancel a cut that has not happened."""
        with self._lock:
            self._moment = None
            self._whole = True
        self._released.set()

    def close(self) -> None:
        """Break all connections, and stop listening."""
        self.cut()
        self._released.set()
        with suppress(OSError):  # wakes the thread that accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def pass_request(self, kind: int) -> _Action:
        """Wait until a request may proceed, and return what happens to it."""
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
        """Cut the network instead of delivering the response to the awaited request."""
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
    """A client's connection, and the matching one to the broker."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._lost: int | None = None
        """Number of the request whose response is not delivered."""
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
    """Return the next frame with its length before it, or None if the connection has ended."""
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
