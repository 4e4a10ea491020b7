"""The recording of a job's metrics, which ``metrics_contract`` declares."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import MappingProxyType

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from millrace_jobs.partitioners.placement_sketch import PlacementSketch
from millrace_jobs.pipeline.arrivals import RecordLatencies
from millrace_jobs.pipeline.progress import BatchReport, placement_of
from millrace_jobs.pipeline.watermark_delay import WatermarkDelay
from millrace_jobs.plan.control import Pin
from millrace_jobs.run.automatic_snapshots import SnapshotFigures
from millrace_jobs.run.memory_use import Readings
from millrace_jobs.run.metrics_contract import CONTRACT
from millrace_jobs.run.table_refresh import TableState
from millrace_jobs.selection.selector import SwitchOutcome
from millrace_jobs.selection.switch import Switch
from millrace_jobs.stores.requests import DIRECTIONS
from millrace_support.metric import Metric

MOST_WORKERS = 64
"""Most series of workers; with more workers, neighbors share one."""

_LATENCY = "millrace_record_latency_seconds"
CHECKPOINT_FAILURES, RUN_RESTARTS = "millrace_checkpoint_failures_total", "millrace_run_restarts_total"
REFRESH_FAILURES = "millrace_table_refresh_failures_total"
SNAPSHOT_FAILURES = "millrace_snapshot_failures_total"


class LatencyHistogram(Collector):
    """A histogram that observes many records at once; absent until the first."""

    def __init__(self, metric: Metric, *labels: str) -> None:
        self._metric, self._labels = metric, labels
        self._bounds = np.array(metric.buckets)
        self._counts = np.zeros(len(metric.buckets) + 1, np.int64)
        self._sum = 0.0

    def observe(self, latencies: RecordLatencies) -> None:
        """Add the latencies of a batch."""
        buckets = np.searchsorted(self._bounds, latencies.seconds)  # a bound belongs to its bucket
        self._counts += np.bincount(buckets, latencies.records, len(self._counts)).astype(np.int64)
        self._sum += float(latencies.seconds @ latencies.records)

    def collect(self) -> Iterable[Family]:
        """Return the family, without a series before the first record."""
        family = HistogramMetricFamily(self._metric.name, self._metric.help, labels=self._metric.labels)
        if self._counts.any():
            bounds = [*map(floatToGoString, self._metric.buckets), "+Inf"]
            cumulative = np.cumsum(self._counts).tolist()
            family.add_metric(self._labels, list(zip(bounds, cumulative, strict=True)), self._sum)
        return [family]


class JobMetrics(Collector):
    """The metrics of one query, on a registry of their own.

    Gauges describe the last batch only: a value that it did not have is absent, not stale. A scrape sees a batch as a
    whole or not at all, so a processing time stands beside the epoch of its own plan. Only an idle query shows a later
    plan, and the first lag: it has no next batch that could report them, and could not be scaled otherwise.

    Args:
        query: name of the query.
        counts: functions that return what some counters have counted so far, by the name of the metric.
        checkpoint: folder of the checkpoint, whose volume is shown; None for none.
        tables: returns the state of the static tables that are read in the background.
        snapshots: returns the state of the automatic snapshots.
        interval: the batch interval in seconds, shown before the first batch to a query that has nothing to do.
    """

    def __init__(
        self,
        query: str,
        counts: Mapping[str, Callable[[], int]] = MappingProxyType({}),
        checkpoint: Path | None = None,
        tables: Callable[[], Mapping[str, TableState]] = dict,
        snapshots: Callable[[], SnapshotFigures] = SnapshotFigures,
        interval: float | None = None,
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._query, self._checkpoint, self._tables, self._snapshots = query, checkpoint, tables, snapshots
        self._interval, self._has_batch = interval, False
        self._watermark_delay = WatermarkDelay()
        self._before: PlacementSketch | None = None
        self._memory: Mapping[str, Readings] = {}
        self._lock = Lock()
        self._counters = {m.name: Counter(m.name, m.help, m.labels, registry=None) for m in _of_kind("counter")}
        self._gauges = {m.name: Gauge(m.name, m.help, m.labels, registry=None) for m in _of_kind("gauge")}
        self._histograms = {
            m.name: Histogram(m.name, m.help, m.labels, registry=None, buckets=m.buckets)
            for m in _of_kind("histogram")
            if m.name != _LATENCY
        }
        self._latency = LatencyHistogram(next(m for m in CONTRACT if m.name == _LATENCY), query)
        self._counts = counts
        self._counted = dict.fromkeys(counts, 0)
        for metric in _of_kind("counter"):  # start at 0, or Prometheus would miss the first increase
            for values in itertools.product(*(label.values for label in metric.dimensions[1:])):
                self._counters[metric.name].labels(query, *values)
        self.registry.register(self)

    def record(self, report: BatchReport) -> None:
        """Record a finished batch; safe to call while the metrics are scraped."""
        volume = self._volume()
        with self._lock:
            self._count(report)
            self._has_batch = True
            for gauge in self._gauges.values():
                gauge.clear()
            self._show_progress(volume)
            self._show_batch(report)
            self._show_plan(report.pin)
            self._show_placement(report)
            self._show_workers(report.worker_rows)

    def record_idle(self, pin: Pin) -> None:
        """Record that the query has nothing to do, and that its next batch will run under ``pin``."""
        volume = self._volume()
        with self._lock:
            self._show_progress(volume)
            self._gauges["millrace_plan_info"].clear()
            self._show_plan(pin)
            if not self._has_batch:
                self._histograms["millrace_batch_processing_seconds"].labels(self._query)
                self._set("millrace_batch_interval_seconds", self._interval)
                self._set("millrace_source_lag_rows", 0)

    def record_gc(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds that the JVMs of each role spent on garbage collection."""
        with self._lock:
            for role, more in seconds.items():
                self._add("millrace_gc_seconds_total", more, role)

    def record_memory(self, used: Mapping[str, Readings]) -> None:
        """Record the memory in use, by role; without any, what was recorded last stays."""
        with self._lock:
            self._memory = used or self._memory

    def record_store_traffic(self, traffic: Mapping[str, Mapping[str, int]]) -> None:
        """Add the requests of object stores and the bytes that each client made and moved."""
        with self._lock:
            for client, counts in traffic.items():
                for what, more in counts.items():
                    kind = "bytes" if what in DIRECTIONS else "requests"
                    self._add(f"millrace_store_{kind}_total", more, client, what)

    def record_choice(self, outcomes: Sequence[SwitchOutcome], switch: Switch | None) -> None:
        """Record the prediction error and the switch of ``algorithm: auto`` after the last recorded batch."""
        with self._lock:
            if outcomes:
                self._set("millrace_auto_prediction_error_ratio", outcomes[-1].error)
            if switch is not None:
                self._add("millrace_auto_switches_total", 1, switch.reason)

    def collect(self) -> Iterable[Family]:
        """Return all families as of one batch, in the order of the contract (the registry's hook)."""
        everything = self._counters | self._gauges | self._histograms | {_LATENCY: self._latency}
        with self._lock:
            for name, count in self._counts.items():
                now = count()
                self._add(name, now - self._counted[name])
                self._counted[name] = now
            for table, state in self._tables().items():  # at any time, not only after a batch
                self._set("millrace_table_current_time_seconds", state.current_at, table)
                self._set("millrace_table_refresh_interval_seconds", state.interval, table)
                self._set("millrace_table_rows", state.rows, table)
            snapshots = self._snapshots()
            self._set("millrace_snapshot_current_time_seconds", snapshots.current_at)
            self._set("millrace_snapshot_interval_seconds", snapshots.interval)
            self._set("millrace_snapshot_seconds", snapshots.seconds)
            for name in ("millrace_memory_used_bytes", "millrace_memory_limit_bytes"):
                self._gauges[name].clear()  # an executor that has ended uses none
            for role, readings in self._memory.items():
                for part, (used, limit) in readings.items():
                    self._set("millrace_memory_used_bytes", used, role, part)
                    self._set("millrace_memory_limit_bytes", limit, role, part)
            return [family for metric in CONTRACT for family in everything[metric.name].collect()]

    def _count(self, report: BatchReport) -> None:
        self._add("millrace_batches_total", 1)
        self._add("millrace_input_rows_total", report.rows)
        self._add("millrace_input_bytes_total", report.bytes)
        self._add("millrace_routed_rows_total", report.routed)
        self._add("millrace_stage_output_bytes_total", report.routed_bytes, "route")
        self._add("millrace_stage_output_bytes_total", report.partial_bytes, "combine")
        self._add("millrace_rejected_rows_total", report.rejected)
        self._add("millrace_late_rows_total", report.late)
        self._add("millrace_incomplete_rows_total", report.incomplete)
        self._add("millrace_merge_task_seconds_total", report.merge_seconds)
        self._add("millrace_partial_results_total", sum(task.groups for task in report.combined))
        self._add("millrace_state_updates_total", report.state_updates)
        self._add("millrace_sink_seconds_total", report.sink_seconds)
        self._add("millrace_longest_slice_seconds_total", max(report.slice_seconds, default=0.0))
        self._observe("millrace_batch_processing_seconds", report.seconds)
        self._observe("millrace_checkpoint_write_seconds", report.checkpoint_seconds)
        self._latency.observe(report.latencies)
        for step, seconds in report.steps.items():
            self._add("millrace_batch_step_seconds_total", seconds, step)
        for stage, times in (("route", report.route), ("combine", report.combine)):
            for seconds in times:
                self._observe("millrace_stage_task_seconds", seconds, stage)

    def _volume(self) -> os.statvfs_result | None:
        """Return the sizes of the checkpoint's file system; None if they cannot be read, as batches will report.

        A file system that does not answer makes this wait, so it is not called under the lock.
        """
        try:
            return None if self._checkpoint is None else os.statvfs(self._checkpoint)
        except OSError:
            return None

    def _show_progress(self, volume: os.statvfs_result | None) -> None:
        self._set("millrace_last_progress_time_seconds", time.time())
        if volume is not None:
            self._set("millrace_checkpoint_volume_size_bytes", volume.f_blocks * volume.f_frsize)
            self._set("millrace_checkpoint_volume_free_bytes", volume.f_bavail * volume.f_frsize)

    def _show_batch(self, report: BatchReport) -> None:
        self._set("millrace_batch_interval_seconds", report.interval)
        self._set("millrace_source_lag_rows", report.waiting)
        for names, rows in report.behind.items():
            self._set("millrace_source_partition_lag_rows", rows, *names)
        self._set("millrace_state_partitions", report.state_partitions)
        self._set("millrace_state_rows", report.state_rows)
        self._set("millrace_state_bytes", report.state_bytes)
        self._set("millrace_distinct_keys", report.distinct_keys)
        self._set("millrace_hottest_key_ratio", report.hottest_key_share)
        self._set("millrace_largest_slice_ratio", report.largest_slice_share)
        self._set("millrace_watermark_delay_seconds", self._watermark_delay.after(report))

    def _show_plan(self, pin: Pin | None) -> None:
        if pin is None:
            return
        self._set("millrace_plan_epoch", pin.epoch)
        self._set("millrace_plan_workers", pin.workers)
        self._set("millrace_plan_replicas", pin.replicas)
        self._set("millrace_plan_info", 1, pin.algorithm)

    def _show_placement(self, report: BatchReport) -> None:
        cost = placement_of(report)
        moved = report.placement.moved_since(self._before) if report.placement and self._before else None
        if report.rows:
            self._before = report.placement
        if cost is None:
            return
        self._set("millrace_load_imbalance_ratio", cost.load_imbalance_ratio, "combine")
        self._set("millrace_cardinality_imbalance_ratio", cost.cardinality_imbalance_ratio, "combine")
        self._set("millrace_aggregation_cost_keys", cost.aggregation_cost)
        self._set("millrace_replication_factor_ratio", cost.replication_factor)
        self._set("millrace_moved_keys_ratio", moved.share if moved is not None and moved.keys else None)

    def _show_workers(self, rows: Sequence[int]) -> None:
        if not sum(rows):
            return
        size = -(-len(rows) // MOST_WORKERS)
        for first in range(0, len(rows), size):
            last = min(first + size, len(rows)) - 1
            worker = str(first) if first == last else f"{first}-{last}"
            self._set("millrace_worker_rows", sum(rows[first : last + 1]), worker)

    def _add(self, name: str, amount: float, *labels: str) -> None:
        self._counters[name].labels(self._query, *labels).inc(amount)

    def _observe(self, name: str, value: float, *labels: str) -> None:
        self._histograms[name].labels(self._query, *labels).observe(value)

    def _set(self, name: str, value: float | None, *labels: str) -> None:
        if value is not None:
            self._gauges[name].labels(self._query, *labels).set(value)


def _of_kind(kind: str) -> list[Metric]:
    return [metric for metric in CONTRACT if metric.kind == kind]
