"""The metrics of one partitioner replica in a process of its own: their contract, and their recording."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_support.metric import QUERY, Label, Metric, Unit

_EXACT = 1 << 14
"""Records up to which the placement of an interval is counted exactly; of more, a sample of the keys is."""

_PREFIX = "millrace_partitioner_"
_LABELS = (QUERY, Label("replica", pattern="[0-9]+", bound="the replicas m of the plan"))


def _counter(name: str, unit: Unit, help: str) -> Metric:
    return Metric(f"{_PREFIX}{name}_total", "counter", unit, help, _LABELS)


def _gauge(name: str, unit: Unit, help: str) -> Metric:
    return Metric(f"{_PREFIX}{name}", "gauge", unit, help, _LABELS)


_PLACE = Metric(
    f"{_PREFIX}place_seconds",
    "histogram",
    "seconds",
    "Time from the end of an interval's intake to its commit.",
    _LABELS,
    (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
)

CONTRACT = (
    _counter("records", "number", "Raw records that the replica has placed."),
    _counter("bytes", "bytes", "Bytes of these records in memory, decoded."),
    _counter("batches", "number", "Intervals that the replica has written."),
    _counter("busy_seconds", "seconds", "Time without a wait, or processor time over the CPU limit."),
    _counter("paused_seconds", "seconds", "Time that the replica waited for the job (back pressure)."),
    _counter("aborted_batches", "number", "Intervals that were given up, and came again."),
    _PLACE,
    _gauge("interval_seconds", "seconds", "The batch interval."),
    _gauge("release_margin_seconds", "seconds", "How long before the end of an interval its intake ends."),
    _gauge("load_imbalance_ratio", "ratio", "Largest load of a worker over the mean, less 1."),
    _gauge("key_split_ratio", "ratio", "Workers per key, on average."),
    _gauge("lag_rows", "rows", "Raw records that wait in the replica's partitions."),
    _gauge("plan_epoch", "number", "Epoch of the plan that the last interval was placed under."),
    _gauge("pack_records", "number", "Most records of a pack."),
)
"""All metrics of a replica."""


@dataclass(frozen=True)
class IntervalReport:
    """What a replica did in one interval.

    Attributes:
        size: bytes of the decoded records.
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
        self.registry = registry = CollectorRegistry()
        labels = (query, str(index))
        self._counters = {
            each.name: Counter(each.name, each.help, each.labels, registry=registry).labels(*labels)
            for each in CONTRACT
            if each.kind == "counter"
        }
        self._gauges = {
            each.name: Gauge(each.name, each.help, each.labels, registry=registry).labels(*labels)
            for each in CONTRACT
            if each.kind == "gauge"
        }
        place = Histogram(_PLACE.name, _PLACE.help, _PLACE.labels, registry=registry, buckets=_PLACE.buckets)
        self._place = place.labels(*labels)
        self._set("interval_seconds", interval)

    def wrote(self, report: IntervalReport, keys: Hashes, ids: Workers, workers: int) -> None:
        """Record a written interval, whose records with these key hashes went to these workers. Shapes ``(rows,)``."""
        self._add("records", report.records)
        self._add("bytes", report.size)
        self._add("batches", 1)
        self._add("busy_seconds", report.busy_seconds)
        self._place.observe(report.place_seconds)
        self._set("release_margin_seconds", report.margin)
        self._set("lag_rows", report.lag)
        self._set("plan_epoch", report.epoch)
        self._set("pack_records", report.pack_records)
        if len(ids):
            loads = np.bincount(ids, minlength=workers)
            self._set("load_imbalance_ratio", float(loads.max() / loads.mean() - 1))
            self._set("key_split_ratio", key_split_ratio(keys, ids, workers))

    def aborted(self) -> None:
        """Record an interval that was given up."""
        self._add("aborted_batches", 1)

    def paused(self, seconds: float) -> None:
        """Record a wait for the job."""
        self._add("paused_seconds", seconds)

    def _add(self, name: str, amount: float) -> None:
        self._counters[f"{_PREFIX}{name}_total"].inc(amount)

    def _set(self, name: str, value: float) -> None:
        self._gauges[f"{_PREFIX}{name}"].set(value)


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
