"""The metrics of one replica; docs/reference has the contract with dashboards and alerts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from millrace_jobs.partitioners.base import Hashes, Workers

_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

_EXACT = 1 << 14
"""Records up to which the placement of an interval is counted exactly; of more, a sample of the keys is."""


@dataclass(frozen=True)
class IntervalReport:
    """What a replica did in one interval.

    Attributes:
        records: raw records.
        size: bytes of the decoded records.
        epoch: epoch of the plan.
        place_seconds: time from the end of the intake to the commit.
        busy_seconds: time not spent waiting for records, or processor time over the cores that the process may use;
            whichever is more.
        margin: early release: the time before the end of the interval at which the intake ended, in seconds.
        lag: raw records that wait in the replica's partitions.
        pack_records: most records of a pack (b_out of paper 002).
    """

    records: int
    size: int
    epoch: int
    place_seconds: float
    busy_seconds: float
    margin: float
    lag: int
    pack_records: int


class ReplicaMetrics:
    """The metrics of replica ``index`` of a query."""

    def __init__(self, query: str, index: int, interval: float) -> None:
        self.registry = CollectorRegistry()
        labels = {"query": query, "replica": str(index)}

        def counter(name: str, about: str) -> Counter:
            return Counter(f"millrace_partitioner_{name}", about, list(labels), registry=self.registry).labels(**labels)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"millrace_partitioner_{name}", about, list(labels), registry=self.registry).labels(**labels)

        self._records = counter("records_total", "Raw records that the replica has placed.")
        self._bytes = counter("bytes_total", "Bytes of these records in memory, decoded.")
        self._batches = counter("batches_total", "Intervals that the replica has written.")
        self._busy = counter("busy_seconds_total", "Time without a wait, or processor time over the CPU limit.")
        self._paused = counter("paused_seconds_total", "Time that the replica waited for the job (back pressure).")
        self._aborted = counter("aborted_batches_total", "Intervals that were given up, and came again.")
        self._place = Histogram(
            "millrace_partitioner_place_seconds",
            "Time from the end of an interval's intake to its commit.",
            list(labels),
            buckets=_BUCKETS,
            registry=self.registry,
        ).labels(**labels)
        gauge("interval_seconds", "The batch interval.").set(interval)
        self._margin = gauge("release_margin_seconds", "How long before the end of an interval its intake ends.")
        self._imbalance = gauge("load_imbalance_ratio", "Largest load of a worker over the mean, less 1.")
        self._split = gauge("key_split_ratio", "Workers per key, on average.")
        self._lag = gauge("lag_rows", "Raw records that wait in the replica's partitions.")
        self._epoch = gauge("plan_epoch", "Epoch of the plan that the last interval was placed under.")
        self._pack = gauge("pack_records", "Most records of a pack.")

    def wrote(self, report: IntervalReport, keys: Hashes, ids: Workers, workers: int) -> None:
        """Record a written interval, whose records with these key hashes went to these workers. Shapes ``(rows,)``."""
        self._records.inc(report.records)
        self._bytes.inc(report.size)
        self._batches.inc()
        self._busy.inc(report.busy_seconds)
        self._place.observe(report.place_seconds)
        self._margin.set(report.margin)
        self._lag.set(report.lag)
        self._epoch.set(report.epoch)
        self._pack.set(report.pack_records)
        if len(ids):
            loads = np.bincount(ids, minlength=workers)
            self._imbalance.set(float(loads.max() / loads.mean() - 1))
            self._split.set(key_split_ratio(keys, ids, workers))

    def aborted(self) -> None:
        """Record an interval that was given up."""
        self._aborted.inc()

    def paused(self, seconds: float) -> None:
        """Record a wait for the job."""
        self._paused.inc(seconds)


def key_split_ratio(keys: Hashes, ids: Workers, workers: int) -> float:
    """Return on how many workers a key is, on average: exactly, or of a sample of keys if there are many records."""
    if len(ids) > _EXACT:
        every = np.uint64(len(ids) // _EXACT + 1)
        sampled = (keys >> np.uint64(7)) % every == 0
        keys, ids = keys[sampled], ids[sampled]
    if not len(ids):
        return 1.0
    distinct, codes = np.unique(keys, return_inverse=True)
    return len(np.unique(codes * workers + ids)) / len(distinct)
