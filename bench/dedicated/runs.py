"""Cold runs of the command line at a steady rate, judged by a reader of the sink and by the run's own batches."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.dedicated.arrivals import Arrival, arriving, punctuality
from bench.kafka.topics import create
from bench.peers import judge
from bench.processes import MILLRACE, running
from bench.processor_time import seconds_of, tree_seconds
from lab.kafka import Broker
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.dedicated.coordinator import topics_of

SKEW = "Zipf 1.0"

_BATCH = re.compile(r"^batch=\d+ rows=(\d+) .*?W=(\S+)", re.MULTILINE)
_METRICS = re.compile(r"metrics=(\S+)")
_TASKS = re.compile(r'^millrace_stage_task_seconds_sum\{[^}]*stage="(\w+)"[^}]*\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Turn:
    """One cold run: a query at a rate; ``interval`` and ``seconds`` are in seconds."""

    query: StreamQuery
    source: str
    sink: str
    rate: float
    interval: float
    seconds: float
    folder: Path


@dataclass(frozen=True)
class _Used:
    """Processor seconds of the run and the broker, seconds of tasks by stage, and batches so far."""

    at: float
    run: float
    broker: float
    tasks: dict[str, float]
    batches: int


def run_turn(broker: Broker, turn: Turn, *, is_dedicated: bool) -> dict[str, float]:
    """Run a query while records are produced, and return its figures over the second half of the time."""
    create(broker.bootstrap, turn.source)
    create(broker.bootstrap, turn.sink)
    turn.folder.mkdir(parents=True)
    file, log = turn.folder / "query.json", turn.folder / "log"
    file.write_text(json.dumps(turn.query.to_document()), encoding="utf-8")
    manifests: list[Arrival] = []
    found: list[judge.VisibleLatency] = []
    with running([MILLRACE, "run", file], log) as process, _producing(broker, turn):
        began = time.time()
        until, half = began + turn.seconds - 2, began + turn.seconds / 2

        def watch() -> None:
            """Measure latency in a thread of its own, beside the reader of manifests."""
            found.append(
                judge.latency(broker.bootstrap, turn.sink, until - began, began, lambda: process.poll() is None)
            )

        watching = threading.Thread(target=watch)
        watching.start()
        if is_dedicated:
            collecting = threading.Thread(
                target=_collect, args=(broker, topics_of(turn.query).manifests, until, manifests)
            )
            collecting.start()
        time.sleep(max(half - time.time(), 0))
        if process.poll() is not None:
            raise RuntimeError(f"the run has ended: {log.read_text(encoding='utf-8', errors='replace')[-3000:]}")
        first = _used(broker, process.pid, log)
        time.sleep(max(until - time.time(), 0))
        last = _used(broker, process.pid, log)
        watching.join()
        if is_dedicated:
            collecting.join()
        sizes = _sizes(broker.folder / "data", turn)
    (latency,) = found
    if latency.first is None:
        raise RuntimeError(f"no result came: {log.read_text(encoding='utf-8', errors='replace')[-3000:]}")
    figures = {
        "first s": latency.first,
        "p50 ms": latency.p50,
        "p95 ms": latency.p95,
        "batch ms": batch_milliseconds(log.read_text(encoding="utf-8"), last.batches - first.batches, turn.interval),
        **_differences(first, last, turn.rate),
        **sizes,
    }
    if is_dedicated:
        came = punctuality([each for each in manifests if each.at > half], turn.interval)
        figures |= {"late %": 100 * came.late, "after ms": came.after, "place %": 100 * came.place}
        figures |= {"after95 ms": came.after95, "place95 %": 100 * came.place95}
    return figures


def batch_milliseconds(printed: str, last: int, interval: float) -> float:
    """Return the median milliseconds of the ``last`` batches with records, from what a run prints."""
    loads = [float(load) for rows, load in _BATCH.findall(printed) if int(rows)]
    return statistics.median(loads[-last:]) * interval * 1000


def task_seconds(metrics: str) -> dict[str, float]:
    """Return the seconds of all tasks so far, by stage, from a run's metrics."""
    return {stage: float(seconds) for stage, seconds in _TASKS.findall(metrics)}


def _differences(first: _Used, last: _Used, rate: float) -> dict[str, float]:
    """Return processor seconds per million records, and task milliseconds per batch, between the two."""
    millions = rate * (last.at - first.at) / 1e6
    batches = max(last.batches - first.batches, 1)
    tasks = {
        f"{stage} ms": (last.tasks.get(stage, 0.0) - first.tasks.get(stage, 0.0)) / batches * 1000
        for stage in ("route", "combine")
    }
    run, broker = (last.run - first.run) / millions, (last.broker - first.broker) / millions
    return {**tasks, "run s/M": run, "broker s/M": broker}


def _used(broker: Broker, process: int, log: Path) -> _Used:
    printed = log.read_text(encoding="utf-8", errors="replace")
    url = _METRICS.search(printed)
    if url is None:
        raise RuntimeError(f"the run has no metrics: {printed[-3000:]}")
    with urllib.request.urlopen(url[1], timeout=10) as answer:
        text = answer.read().decode()
    batches = len([rows for rows, _ in _BATCH.findall(printed) if int(rows)])
    return _Used(time.time(), tree_seconds(process), seconds_of(broker.pid), task_seconds(text), batches)


def _collect(broker: Broker, topic: str, until: float, into: list[Arrival]) -> None:
    into.extend(arriving(broker.bootstrap, topic, lambda: time.time() < until))


def _sizes(data: Path, turn: Turn) -> dict[str, float]:
    """Return the bytes on the broker's disk for each record of the turn, by kind of topic."""
    records = turn.rate * turn.seconds
    names = topics_of(turn.query)
    kinds: dict[str, Sequence[str]] = {
        "raw B": [turn.source],
        "placed B": [names.routed, names.manifests, names.control],
        "sink B": [turn.sink],
    }
    return {
        kind: sum(file.stat().st_size for name in topics for file in data.glob(f"{name}-*/*.log")) / records
        for kind, topics in kinds.items()
    }


@contextmanager
def _producing(broker: Broker, turn: Turn) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.kafka.topics", broker.bootstrap, turn.source, SKEW]
    process = subprocess.Popen([*command, str(turn.rate), str(turn.seconds)])
    try:
        yield
    finally:
        process.kill()
        process.wait()
