"""The results as a reader sees them: a consumer that reads only committed messages."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from confluent_kafka import Consumer

_AT_ONCE = 5_000
_WAIT = 0.05


@dataclass(frozen=True)
class Update:
    """A result when it becomes visible: the number of records of a key in a window.

    ``latest`` is the time of the newest of these records, and ``seen`` when the result became visible. Both are in
    seconds since 1970.
    """

    window: str
    key: str
    records: int
    latest: float
    seen: float


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the time of the newest record in an update until the update is visible.

    ``first`` is the seconds from the start of the contender to its first result, or None if none came.
    """

    first: float | None
    updates: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Backlog:
    """Seconds from the start of the contender until the first result, and the results of all records, are visible."""

    first: float | None
    all: float | None


def latency(servers: str, sink: str, seconds: float, began: float, goes_on: Callable[[], bool]) -> Latency:
    """Watch the results for ``seconds`` seconds, and return the latency over the second half of them."""
    seen: list[float] = []
    first = None
    for update in _updates(servers, sink, began + seconds, goes_on):
        first = update.seen - began if first is None else first
        if update.seen > began + seconds / 2:
            seen.append((update.seen - update.latest) * 1000)
    found = np.quantile(seen, (0.5, 0.95, 0.99)) if seen else np.full(3, np.nan)
    return Latency(first, len(seen), *map(float, found))


def backlog(
    servers: str, sink: str, records: int, seconds: float, began: float, goes_on: Callable[[], bool]
) -> Backlog:
    """Watch until the newest results of all keys and windows cover ``records`` records together."""
    newest: dict[tuple[str, str], int] = {}
    total, first = 0, None
    for update in _updates(servers, sink, began + seconds, goes_on):
        first = update.seen - began if first is None else first
        before = newest.get((update.window, update.key), 0)
        if update.records > before:
            newest[update.window, update.key] = update.records
            total += update.records - before
        if total >= records:
            return Backlog(first, update.seen - began)
    return Backlog(first, None)


def _updates(servers: str, sink: str, until: float, goes_on: Callable[[], bool]) -> Iterator[Update]:
    settings = {"group.id": uuid.uuid4().hex, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    quick = {"fetch.wait.max.ms": 10, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers} | settings | quick)
    consumer.subscribe([sink])
    try:
        while time.time() < until and goes_on():
            messages = consumer.consume(_AT_ONCE, _WAIT)
            now = time.time()
            for message in messages:
                if message.error() is None and (value := message.value()) is not None:
                    row = json.loads(value)
                    yield Update(str(row["since"]), row["key"], row["n"], _seconds(row["latest"]), now)
    finally:
        consumer.close()


def _seconds(time_of: float | str) -> float:
    """Convert milliseconds since 1970, or a time in ISO 8601, to seconds since 1970."""
    if isinstance(time_of, str):
        return datetime.fromisoformat(time_of).timestamp()
    return time_of / 1000
