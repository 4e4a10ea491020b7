"""A query that finds millions of records waiting: batches of the interval's length, bounded memory, nothing lost.

``MILLRACE_BACKLOG`` is the number of records, half a million unless it says otherwise. The work for all of them
together is the same, whatever the number: with fewer records each of them is worth more digests.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lab import topics
from lab.kafka import Broker
from spark.cli import fields

from .faults.job import Job
from .memory import MemoryOf

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow(minutes=6)]

RECORDS = int(os.environ.get("MILLRACE_BACKLOG", "500000"))
DIGESTS = 50_000_000
"""Of all records together; about a minute of one core."""

PARTITIONS = 4
KEYS = 300
INTERVAL = 2.0
WARM_UP = 5
"""Batches in which Spark compiles and the capacity is found out."""

SINGLE = 5
"""Batches of one record at the end."""

PATIENCE = 900.0


def keys_of(seed: int) -> np.ndarray:
    """A key for every record, by Zipf's law."""
    shares = np.cumsum(1.0 / np.arange(1, KEYS + 1))
    return np.searchsorted(shares, np.random.default_rng(seed).random(RECORDS) * shares[-1], side="right")


def document(broker: Broker, topic: str, folder: Path, **source: Any) -> dict[str, Any]:
    """The routed aggregation over the topic."""
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "backlog"},
        "spec": {
            "sources": {
                "events": {
                    "kafka": {"bootstrapServers": broker.bootstrap, "topic": topic} | source,
                    "format": "json",
                    "schema": "key STRING, n BIGINT",
                }
            },
            "query": {
                "python": {
                    "aggregator": "kafka.costly:CostlyCount",
                    "options": {"column": "n", "rounds": max(1, DIGESTS // RECORDS)},
                    "groupBy": ["key"],
                }
            },
            "sink": {"table": {"bootstrapServers": broker.bootstrap, "topic": f"{folder.name}-table"}},
            "batchInterval": f"{INTERVAL:.0f}s",
            "partitioner": {"algorithm": "pkg", "replicas": {"initial": 2}},
            "parallelism": {"initial": 2, "max": 2},
            "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
            "sparkConf": {"spark.driver.memory": "1g"},
        },
    }


@dataclass(frozen=True)
class Batch:
    """What the display says of a batch that had records: ``rate`` is in records per second."""

    rows: int
    lag: int
    rate: int
    seconds: float


def batches_of(job: Job) -> list[Batch]:
    """Those of the newest run so far."""
    lines = (fields(line) for line in job.said.splitlines() if line.startswith("batch="))
    return [
        Batch(int(line["rows"]), int(line["lag"]), int(line["rows_per_s"]), float(line["W"]) * INTERVAL)
        for line in lines
        if int(line["rows"])
    ]


def a_job(folder: Path, document: dict[str, Any]) -> Job:
    """``millrace run`` on this query."""
    folder.mkdir(exist_ok=True)
    file = folder / "query.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return Job(file)


@pytest.mark.timeout(2 * PATIENCE)
def test_a_backlog_is_drained_in_batches_of_the_interval(broker, make_topic, tmp_path, capsys):
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    keys = keys_of(seed)
    topic, table = make_topic(PARTITIONS), f"{tmp_path.name}-table"
    topics.make(broker, table, 1, cleanup_policy="compact")
    topics.fill(broker, topic, (f'{{"key":"k{key}","n":{number}}}' for number, key in enumerate(keys)))

    one_large_batch = rate_of_a_large_batch(broker, topic, tmp_path / "large")
    job = a_job(tmp_path, document(broker, topic, tmp_path))
    job.start()
    with MemoryOf(job.process) as memory:
        wait_until_drained(job)
    batches = batches_of(job)
    fixed = seconds_of_a_single_record(broker, topic, job)
    job.drain()

    with capsys.disabled():
        print(report(batches, memory.samples, one_large_batch, fixed))
    assert_counted_exactly(broker, table, keys)
    assert_paced(batches, max(INTERVAL, 2 * fixed))
    assert_draining_at_capacity(batches, one_large_batch)
    assert_memory_is_bounded(memory.samples)


def wait_until_drained(job: Job) -> None:
    """Until a batch has left nothing waiting."""
    deadline = time.monotonic() + PATIENCE
    while not any(batch.lag == 0 for batch in batches_of(job)):
        assert job.process.status is None, job.report()
        assert time.monotonic() < deadline, job.report()
        time.sleep(0.5)


def rate_of_a_large_batch(broker: Broker, topic: str, folder: Path) -> float:
    """Records per second of the best batch where up to a fifth of all records may be in one.

    The interval is so long that admission only grows, from batch to batch, up to that number.
    """
    ranges = [{"topic": topic, "partition": number, "endingOffset": RECORDS * 3 // 20} for number in range(PARTITIONS)]
    asked = document(broker, topic, folder, partitions=ranges, maxRecordsPerBatch=RECORDS // 5)
    del asked["spec"]["sources"]["events"]["kafka"]["topic"]
    asked["spec"] |= {"batchInterval": "10m", "sink": {"console": {"rows": 1}}}
    job = a_job(folder, asked)
    job.run_to_the_end()
    batches = batches_of(job)
    assert max(batch.rows for batch in batches) >= RECORDS // 10
    return max(batch.rate for batch in batches)


def seconds_of_a_single_record(broker: Broker, topic: str, job: Job) -> float:
    """What a batch takes whatever is in it: the median of ``SINGLE`` batches with one record each."""
    for _ in range(SINGLE):
        topics.fill(broker, topic, ['{"key":"k0","n":0}'])
        assert job.wait_for_batches(), job.report()
    return statistics.median(batch.seconds for batch in batches_of(job)[-SINGLE:])


def assert_counted_exactly(broker: Broker, table: str, keys: np.ndarray) -> None:
    """Every key's records and their sum."""
    keys = np.append(keys, np.zeros(SINGLE, int))
    rows = topics.rows(broker, table)
    records = np.bincount(keys, minlength=KEYS)
    totals = np.zeros(KEYS, np.int64)
    np.add.at(totals, keys[:RECORDS], np.arange(RECORDS))
    expected = {f"k{key}": (records[key], totals[key]) for key in np.flatnonzero(records)}
    assert {row["key"]: (row["records"], row["total"]) for row in rows} == expected


def steady(batches: list[Batch]) -> list[Batch]:
    """The batches that had more waiting than they could take, after the warm-up."""
    return [batch for batch in batches[WARM_UP:] if batch.lag]


def assert_paced(batches: list[Batch], goal: float) -> None:
    """Most batches are near what admission aims at.

    That is the interval; where a batch takes longer than half of that even for a single record, it is twice that time,
    since smaller batches would only fall behind. So a slow machine moves the goal, not the verdict. What others on the
    machine take from one batch to the next no admission can foresee, so single batches may be anything; a quarter of
    them being twice too long would mean that it does not follow. Half the goal at the median means that it lets in
    enough.
    """
    seconds = [batch.seconds for batch in steady(batches)]
    assert len(seconds) >= WARM_UP, "too few batches to say anything"
    assert sum(each > 2 * goal for each in seconds) <= len(seconds) / 4
    assert INTERVAL / 2 <= statistics.median(seconds) <= 1.5 * goal


def assert_draining_at_capacity(batches: list[Batch], one_large_batch: float) -> None:
    """The lag falls with every batch; half of a batch is for its records at least, and the odd one may be lost."""
    assert all(before.lag > after.lag for before, after in pairwise(batches) if before.lag)
    taken = steady(batches)
    rate = sum(batch.rows for batch in taken) / sum(batch.seconds for batch in taken)
    assert rate > 0.35 * one_large_batch


def assert_memory_is_bounded(samples: list[tuple[float, float]]) -> None:
    """In the last third of the run it is what it was in the one before: it goes by the batch, not by the backlog."""
    third = len(samples) // 3
    for kind in range(2):
        before, after = (max(sample[kind] for sample in part) for part in (samples[third:-third], samples[-third:]))
        assert after < 1.3 * before + 100


def report(batches: list[Batch], samples: list[tuple[float, float]], one_large_batch: float, fixed: float) -> str:
    """What came out, for people."""
    lines = [
        f"{RECORDS:,} records; in one large batch {one_large_batch:,.0f} rows/s; a single record takes {fixed:.2f} s",
        "seconds: " + " ".join(f"{batch.seconds:.2f}" for batch in batches),
        "rows:    " + " ".join(f"{batch.rows:,}" for batch in batches),
    ]
    for kind, name in enumerate(("JVM", "Python")):
        step = max(1, len(samples) // 12)
        lines.append(f"{name} MiB: " + " ".join(f"{sample[kind]:.0f}" for sample in samples[::step]))
    return "\n" + "\n".join(lines)
