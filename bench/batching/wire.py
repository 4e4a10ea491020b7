"""Batches over TCP connections: a header with the number of records and bytes, then the bytes."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

_HEADER = struct.Struct("<II")
_CHUNK = 1 << 16


class Frame(NamedTuple):
    """A batch that has arrived: the number of its records, and the bytes that ``encode`` made of them."""

    records: int
    data: bytes


def listener(queue: int | None) -> socket.socket:
    """Return a socket that accepts connections on a free port of the loopback; ``queue`` as in ``connected``."""
    server = socket.socket()
    if queue:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, queue)
    server.bind(("127.0.0.1", 0))
    server.listen(64)
    return server


def connected(server: socket.socket, queue: int | None, timeout: float) -> socket.socket:
    """Return a connection to a listener, on which sending fails after ``timeout`` seconds, much longer than any wait.

    ``queue`` is how many bytes each side holds before a sender has to wait; None leaves it to the system.
    """
    connection = socket.socket()
    if queue:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, queue)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(timeout)
    connection.connect(server.getsockname())
    return connection


def send(connection: socket.socket, records: int, data: pa.Buffer) -> None:
    """Send a batch; wait while the receiver's queue is full."""
    connection.sendall(b"".join((_HEADER.pack(records, data.size), data)))


class Inbox:
    """The batches of several connections, in the order in which they arrive.

    Args:
        connections: the connections to producers.
        pause: seconds until the receiver looks again if it has found nothing, like the back-off of a Kafka consumer.
    """

    def __init__(self, connections: Sequence[socket.socket], pause: float) -> None:
        self._pause = pause
        self._selector = selectors.DefaultSelector()
        for connection in connections:
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, bytearray())
        self._ready: deque[Frame] = deque()

    @property
    def waiting(self) -> bool:
        """Whether a batch is here already."""
        return bool(self._ready)

    def next(self) -> Frame | None:
        """Return the next batch; None, after a pause, if none is there."""
        if not self._ready:
            for key, _ in self._selector.select(0):
                self._read(key)
        if self._ready:
            return self._ready.popleft()
        time.sleep(self._pause)
        return None

    def _read(self, key: selectors.SelectorKey) -> None:
        assert isinstance(key.fileobj, socket.socket)
        try:
            came = key.fileobj.recv(_CHUNK)
        except ConnectionResetError:
            came = b""
        if not came:
            self._selector.unregister(key.fileobj)
            return
        held: bytearray = key.data
        held += came
        begin = 0
        while len(held) - begin >= _HEADER.size:
            records, size = _HEADER.unpack_from(held, begin)
            end = begin + _HEADER.size + size
            if end > len(held):
                break
            self._ready.append(Frame(records, bytes(held[begin + _HEADER.size : end])))
            begin = end
        del held[:begin]
