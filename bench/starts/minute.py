"""The first minutes of a query: the time of its batches without records, by which Spark closes windows."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.control_groups import process_account
from bench.processes import running
from bench.starts.turns import RECORDS, StartFailedError, Variant
from lab.kafka import Broker

PERIOD = 15.0
"""Seconds over which the median of batches is taken."""

_EVERY = 3
"""Batch intervals from one batch with records to the next: a batch without records comes after each."""

_BATCH = re.compile(r"^batch=\d+ rows=(\d+) .*?W=(\S+)", re.MULTILINE)
_INTERVAL_MS = 1000
_LOOK_SECONDS = 0.2
_PATIENCE = 180.0


@dataclass(frozen=True)
class EmptyBatch:
    """A batch without records; ``at``: seconds after the query's first batch, ``milliseconds``: how long it took."""

    at: float
    milliseconds: float


def first_minutes(variant: Variant, query: Path, broker: Broker, topic: str, seconds: float) -> Mapping[int, float]:
    """Run a query from a topic for some seconds after its first batch; return what ``medians`` does.

    Raises:
        StartFailedError: it has ended, or has had no batch in time.
    """
    log = query.with_name("log")
    with (
        process_account() as account,
        running(account.command(variant.command(query)), log) as process,
        _producing(broker, topic, seconds + _PATIENCE),
    ):
        account.started(process.pid)
        began, first, seen = time.monotonic(), None, 0
        empty = list[EmptyBatch]()
        while first is None or time.monotonic() < first + seconds:
            if process.poll() is not None or (first is None and time.monotonic() > began + _PATIENCE):
                raise StartFailedError(log.read_text(encoding="utf-8", errors="replace")[-3000:])
            batches, now = batches_in(log.read_text(encoding="utf-8", errors="replace")), time.monotonic()
            first = now if first is None and batches else first
            if first is not None:
                empty += [EmptyBatch(now - first, took) for rows, took in batches[seen:] if not rows]
            seen = len(batches)
            time.sleep(_LOOK_SECONDS)
    return medians(empty)


def batches_in(text: str) -> Sequence[tuple[int, float]]:
    """Return the number of records of each batch that a run has printed, and its milliseconds to the nearest 10."""
    return [(int(rows), float(w) * _INTERVAL_MS) for rows, w in _BATCH.findall(text)]


def medians(batches: Sequence[EmptyBatch]) -> dict[int, float]:
    """Return the median milliseconds of batches without records, by period of PERIOD seconds after the first batch."""
    periods = sorted({int(each.at // PERIOD) for each in batches})
    return {p: statistics.median(each.milliseconds for each in batches if each.at // PERIOD == p) for p in periods}


@contextmanager
def _producing(broker: Broker, topic: str, seconds: float) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.kafka.topics", broker.bootstrap, topic, "uniform"]
    process = subprocess.Popen([*command, *map(str, (RECORDS / _EVERY, seconds, _EVERY))])
    try:
        yield
    finally:
        process.kill()
        process.wait()
