"""A load of look-ups at a steady rate, by a process that is small and yields to everything else on the machine.

    python -m bench.lookups.load URL RATE SECONDS KEYS FILE

It asks for random keys among KEYS, which are ``key-0``, ``key-1`` and so on, one per request, over connections that
stay open. The rate does not depend on the answers, so a look-up's time counts from when it was due. FILE gets one line
for each look-up, as ``LookupAnswer`` has it. Standard output gets the processor seconds of this process, as JSON. It
imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlsplit

CONNECTIONS = 16

_NICENESS = 19
_LONGEST = 1 << 16
_PATIENCE = 30.0
_PAUSE = 0.004
"""Seconds between two looks at the connections: as a process that wakes up for each answer, it would cost much more."""


class ReceivedAnswer(NamedTuple):
    """An answer as it came; it is read only after the period, so as to take no time from the query."""

    key: str
    content: bytes
    seconds: float


@dataclass(frozen=True)
class LookupAnswer:
    """One look-up: the key, and the batch, value and HTTP status of the answer, with its time in milliseconds.

    ``batch`` and ``n`` are empty where the answer has none: without a row, or before the first batch.
    """

    key: str
    batch: int | None
    n: int | None
    status: int
    milliseconds: float

    @classmethod
    def of(cls, received: ReceivedAnswer) -> Self:
        """Return a look-up from what was received."""
        head, _, body = received.content.partition(b"\r\n\r\n")
        status, found = int(head.split(b" ", 2)[1]), json.loads(body)
        row = found.get("rows", [None])[0]
        batch, n = found.get("batch"), None if row is None else row["n"]
        return cls(received.key, batch, n, status, received.seconds * 1000)

    @property
    def line(self) -> str:
        """The fields as a line of CSV."""
        batch, n = ("" if value is None else str(value) for value in (self.batch, self.n))
        return f"{self.key},{batch},{n},{self.status},{self.milliseconds:.3f}\n"


class _KeptConnection:
    """A connection with at most one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), _PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._key, self._due, self._received = "", 0.0, b""

    def ask(self, key: str, due: float) -> None:
        """Send a request that was due at this time."""
        self._key, self._due, self._received = key, due, b""
        self.socket.sendall(f"GET /table?key={key} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def receive(self) -> ReceivedAnswer | None:
        """Receive what has come; return the answer once it is complete."""
        received = self.socket.recv(_LONGEST)
        if not received:
            raise ConnectionError("the server has closed a connection")
        self._received += received
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return None
        _, _, length = head.partition(b"Content-Length: ")
        if len(body) < int(length.split(b"\r\n", 1)[0]):
            return None
        return ReceivedAnswer(self._key, self._received, time.perf_counter() - self._due)


def run(url: str, rate: float, seconds: float, keys: int) -> list[LookupAnswer]:
    """Send look-ups for some seconds, those that are due every few milliseconds, and return the answers."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    clients = {
        client.socket.fileno(): client
        for client in (_KeptConnection(parts.hostname, parts.port) for _ in range(CONNECTIONS))
    }
    idle, answers, sent = deque(clients.values()), list[ReceivedAnswer](), 0
    events = select.epoll()
    for number in clients:
        events.register(number, select.EPOLLIN)
    began, total = time.perf_counter(), int(rate * seconds)
    while len(answers) < total:
        while sent < total and idle and (due := began + sent / rate) <= time.perf_counter():
            idle.popleft().ask(f"key-{random.randrange(keys)}", due)
            sent += 1
        time.sleep(_PAUSE)
        wait = 0.0 if idle and sent < total else _PATIENCE
        ready = events.poll(wait)
        if not ready and wait:
            raise TimeoutError(f"the server has not answered for {_PATIENCE:.0f} s")
        for number, _ in ready:
            answer = clients[number].receive()
            if answer is not None:
                answers.append(answer)
                idle.append(clients[number])
    return [LookupAnswer.of(answer) for answer in answers]


def main() -> None:
    """Run the load that the command line describes."""
    url, rate, seconds, keys, file = sys.argv[1:]
    os.nice(_NICENESS)
    answers = run(url, float(rate), float(seconds), int(keys))
    used = time.process_time()
    with Path(file).open("w", encoding="utf-8") as lines:
        lines.writelines(answer.line for answer in answers)
    print(json.dumps({"processor_seconds": used}))


if __name__ == "__main__":
    main()
