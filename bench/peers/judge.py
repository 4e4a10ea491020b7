"""The contenders judged from outside: by a consumer that reads only committed messages, and by their batch times."""

from __future__ import annotations

import json
import re
import statistics
import time
import urllib.request
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

_AT_ONCE = 5_000
_WAIT = 0.05
_PATIENCE = 60.0


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
class VisibleLatency:
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


def latency(servers: str, sink: str, seconds: float, began: float, is_running: Callable[[], bool]) -> VisibleLatency:
    """Watch the results for ``seconds`` seconds, and return the latency over the second half of them."""
    seen: list[float] = []
    first = None
    for update in _updates(servers, sink, began + seconds, is_running):
        first = update.seen - began if first is None else first
        if update.seen > began + seconds / 2:
            seen.append((update.seen - update.latest) * 1000)
    found = np.quantile(seen, (0.5, 0.95, 0.99)) if seen else np.full(3, np.nan)
    return VisibleLatency(first, len(seen), *map(float, found))


def backlog(
    servers: str, sink: str, records: int, seconds: float, began: float, is_running: Callable[[], bool]
) -> Backlog:
    """Watch until the newest results of all keys and windows cover ``records`` records together."""
    newest: dict[tuple[str, str], int] = {}
    total, first = 0, None
    for update in _updates(servers, sink, began + seconds, is_running):
        first = update.seen - began if first is None else first
        before = newest.get((update.window, update.key), 0)
        if update.records > before:
            newest[update.window, update.key] = update.records
            total += update.records - before
        if total >= records:
            return Backlog(first, update.seen - began)
    return Backlog(first, None)


def visible(
    servers: str, sink: str, until: float, is_running: Callable[[], bool]
) -> Generator[tuple[float, list[bytes]], None, None]:
    """Yield the values of committed messages as they become visible, each time with the seconds since 1970.

    It also yields when nothing has come for a moment, with no values.
    """
    settings = {"group.id": uuid.uuid4().hex, "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, "fetch.wait.max.ms": 10} | settings)
    try:
        numbers = consumer.list_topics(sink, _PATIENCE).topics[sink].partitions
        # no subscription: a consumer that has to join its group again reads everything a second time
        consumer.assign([TopicPartition(sink, number, OFFSET_BEGINNING) for number in numbers])
        while time.time() < until and is_running():
            messages = consumer.consume(_AT_ONCE, _WAIT)
            now = time.time()
            yield now, [bytes(value) for each in messages if not each.error() and (value := each.value()) is not None]
    finally:
        consumer.close()


def _updates(servers: str, sink: str, until: float, is_running: Callable[[], bool]) -> Iterator[Update]:
    for seen, values in visible(servers, sink, until, is_running):
        for row in map(json.loads, values):
            if row.get("diff", 1) < 0:  # Pathway takes back a result before it writes the next
                continue
            since = row.get("since") or row["window_start"]  # a Python aggregator's window has a name of its own
            yield Update(str(since), row["key"], row["n"], seconds_of(row["latest"]), seen)


def seconds_of(moment: float | str) -> float:
    """Convert milliseconds since 1970, or a time in ISO 8601, to seconds since 1970."""
    if isinstance(moment, str):
        return datetime.fromisoformat(moment).timestamp()
    return moment / 1000


_METRICS = re.compile(r" metrics=(\S+)")
_SUM = re.compile(r'^millrace_batch_step_seconds_total\{[^}]*step="(\w+)"[^}]*\} (\S+)$', re.MULTILINE)
_BATCHES = re.compile(r"^millrace_batch_processing_seconds_count(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Steps:
    """The number of finished batches, and the milliseconds of each step over all of them."""

    batches: int
    milliseconds: Mapping[str, float]

    def since(self, before: Steps) -> Mapping[str, float]:
        """Return the mean milliseconds of each step in the batches since ``before``."""
        batches = max(self.batches - before.batches, 1)
        return {
            step: (total - before.milliseconds.get(step, 0.0)) / batches for step, total in self.milliseconds.items()
        }


def of_plain_spark(log: Path) -> Steps:
    """Read the steps from the lines that the plain job prints."""
    batches: list[dict[str, float]] = [entry["steps"] for entry in _plain_batches(log)]
    names = dict.fromkeys(name for batch in batches for name in batch)
    return Steps(len(batches), {name: sum(batch.get(name, 0.0) for batch in batches) for name in names})


def of_millrace(log: Path) -> Steps:
    """Read the steps from Millrace's metrics."""
    url = _METRICS.search(log.read_text(encoding="utf-8"))
    if url is None:
        return Steps(0, {})
    with urllib.request.urlopen(url[1], timeout=10) as answer:
        text = answer.read().decode()
    batches = sum(float(count) for count in _BATCHES.findall(text))
    return Steps(int(batches), {step: float(total) * 1000 for step, total in _SUM.findall(text)})


def median_plain(log: Path, last: int, *, empty: bool = False) -> float:
    """Return the median milliseconds of the ``last`` batches with records, or of the ``last`` empty batches."""
    times = [float(entry["steps"]["triggerExecution"]) for entry in _plain_batches(log) if bool(entry["rows"]) != empty]
    return statistics.median(times[-last:])


def median_millrace(log: Path, last: int, interval: int, *, empty: bool = False) -> float:
    """Return the same median for Millrace, which prints W: processing time over the interval."""
    lines = re.findall(r"^batch=\d+ rows=(\d+) .*?W=(\S+)", log.read_text(encoding="utf-8"), re.MULTILINE)
    return statistics.median([float(w) * interval for rows, w in lines if bool(int(rows)) != empty][-last:])


def _plain_batches(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith('{"rows"')]
