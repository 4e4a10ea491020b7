"""The job's metrics: the contract with their consumers, and the recording of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from millrace_jobs.partitioners.placement_sketch import PlacementSketch
from millrace_jobs.pipeline.progress import STEPS, BatchReport, placement_of
from millrace_jobs.selection.selector import SwitchOutcome
from millrace_jobs.selection.switch import REASONS, Switch

# The buckets of batches cover intervals from 0.1 s to several minutes; neighbors differ by at most a factor of 2.
_BATCH_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600)
_TASK_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120)


@dataclass(frozen=True)
class JobMetric:
    """One metric that the job exports; ``buckets`` are the upper bounds of a histogram, in its unit."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ("query",)
    buckets: tuple[float, ...] = ()


_BY_STAGE = ("query", "stage")

CONTRACT = (
    JobMetric("millrace_batches_total", "counter", "Batches finished."),
    JobMetric(
        "millrace_batch_processing_seconds",
        "histogram",
        "Processing time of a batch, from its trigger to its commit.",
        buckets=_BATCH_BUCKETS,
    ),
    JobMetric(
        "millrace_batch_step_seconds_total",
        "counter",
        f"Time that the steps of batches took. step is {', '.join(STEPS)}, as Spark names them; tasks run in addBatch.",
        ("query", "step"),
    ),
    JobMetric("millrace_batch_interval_seconds", "gauge", "The batch interval: processing time should stay below it."),
    JobMetric("millrace_input_rows_total", "counter", "Records read from the sources."),
    JobMetric("millrace_input_bytes_total", "counter", "Size of these records in memory, once they are decoded."),
    JobMetric("millrace_routed_rows_total", "counter", "Records that passed the filter and were sent to workers."),
    JobMetric(
        "millrace_stage_output_bytes_total",
        "counter",
        "Size of what the tasks of a stage sent to the next stage, before compression: blocks of records by route, "
        "partial results by combine.",
        _BY_STAGE,
    ),
    JobMetric(
        "millrace_rejected_rows_total",
        "counter",
        "Records that were dropped or dead-lettered because they could not be decoded.",
    ),
    JobMetric("millrace_late_rows_total", "counter", "Records behind the watermark, which no result counts."),
    JobMetric("millrace_source_lag_rows", "gauge", "Records the sources had left when the last batch was planned."),
    JobMetric(
        "millrace_distinct_keys",
        "gauge",
        "Distinct keys in the last batch: exact up to 256, else an estimate with a standard error of up to 7 %.",
    ),
    JobMetric(
        "millrace_load_imbalance_ratio",
        "gauge",
        "Largest load of a worker less the average one, as a fraction of the average, in the last batch; "
        "absent while no record is routed. stage is combine.",
        _BY_STAGE,
    ),
    JobMetric(
        "millrace_cardinality_imbalance_ratio",
        "gauge",
        "Most distinct keys of a worker less the average number, as a fraction of the average, in the last batch; "
        "absent while no record is routed. stage is combine.",
        _BY_STAGE,
    ),
    JobMetric(
        "millrace_aggregation_cost_keys",
        "gauge",
        "Distinct keys of each worker, summed over the workers, in the last batch; absent while no record is routed.",
    ),
    JobMetric(
        "millrace_replication_factor_ratio",
        "gauge",
        "Workers a key was sent to, on average, in the last batch; absent while no record is routed.",
    ),
    JobMetric(
        "millrace_moved_keys_ratio",
        "gauge",
        "Share of the keys that went to other workers than in the batch before, in a sample of the keys of both; "
        "absent while no record is routed, and where the sample is empty.",
    ),
    JobMetric(
        "millrace_stage_task_seconds",
        "histogram",
        "Time of each task of a stage. stage is route or combine; Spark reports the merge's only as a sum, see "
        "millrace_merge_task_seconds_total.",
        _BY_STAGE,
        _TASK_BUCKETS,
    ),
    JobMetric(
        "millrace_merge_task_seconds_total",
        "counter",
        "Time spent on updating and committing state, summed over the tasks of the merge.",
    ),
    JobMetric(
        "millrace_partial_results_total",
        "counter",
        "Partial results of combine: one for each key and pane of a task.",
    ),
    JobMetric("millrace_state_updates_total", "counter", "Results whose state changed."),
    JobMetric("millrace_state_partitions", "gauge", "State partitions, each of which is a task of the merge."),
    JobMetric("millrace_plan_epoch", "gauge", "Epoch of the plan that the last batch ran under."),
    JobMetric("millrace_plan_workers", "gauge", "Workers (n) in the plan of the last batch."),
    JobMetric("millrace_plan_replicas", "gauge", "Partitioner replicas (m) in the plan of the last batch."),
    JobMetric(
        "millrace_plan_info",
        "gauge",
        "Always 1; the label algorithm names the partitioner in the plan of the last batch.",
        ("query", "algorithm"),
    ),
    JobMetric(
        "millrace_auto_switches_total",
        "counter",
        "Switches of algorithm auto. reason is imbalance, aggregation cost, routing, measured or trial.",
        ("query", "reason"),
    ),
    JobMetric(
        "millrace_auto_prediction_error_ratio",
        "gauge",
        "Batch time that algorithm auto last predicted less the one that was then observed, as a fraction of the "
        "latter; absent before anything was predicted.",
    ),
    JobMetric(
        "millrace_watermark_delay_seconds",
        "gauge",
        "Event time by which the watermark of the last batch was behind the newest record seen.",
    ),
    JobMetric(
        "millrace_state_rows",
        "gauge",
        "Rows in the state after the last batch; of operators on tables, those in buckets processed since the start.",
    ),
    JobMetric("millrace_state_bytes", "gauge", "Memory that the state store used after the last batch."),
)
"""Everything the job exports; each series has the label ``query``."""


class JobMetrics(Collector):
    """The metrics of one query, on a registry of their own.

    Gauges describe the last batch only: a value that it did not have is absent, not stale. A scrape sees a batch as a
    whole or not at all, so a processing time never stands beside the epoch of another plan.
    """

    def __init__(self, query: str) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._query = query
        self._newest: datetime | None = None
        self._before: PlacementSketch | None = None
        self._lock = Lock()
        self._counters = {m.name: Counter(m.name, m.help, m.labels, registry=None) for m in _of_kind("counter")}
        self._gauges = {m.name: Gauge(m.name, m.help, m.labels, registry=None) for m in _of_kind("gauge")}
        self._histograms = {
            m.name: Histogram(m.name, m.help, m.labels, registry=None, buckets=m.buckets) for m in _of_kind("histogram")
        }
        for metric in _of_kind("counter"):
            if metric.labels == ("query",):
                self._counters[metric.name].labels(query)  # start at 0, or Prometheus would miss the first increase
        for stage in ("route", "combine"):
            self._counters["millrace_stage_output_bytes_total"].labels(query, stage)
        for step in STEPS:
            self._counters["millrace_batch_step_seconds_total"].labels(query, step)
        for reason in REASONS:
            self._counters["millrace_auto_switches_total"].labels(query, reason)
        self.registry.register(self)

    def record(self, report: BatchReport) -> None:
        """Record a finished batch; safe to call while the metrics are scraped."""
        with self._lock:
            self._count(report)
            for gauge in self._gauges.values():
                gauge.clear()
            self._show_batch(report)
            self._show_plan(report)
            self._show_placement(report)

    def record_choice(self, outcomes: Sequence[SwitchOutcome], switch: Switch | None) -> None:
        """Record the prediction error and the switch of ``algorithm: auto`` after the last recorded batch."""
        with self._lock:
            if outcomes:
                self._set("millrace_auto_prediction_error_ratio", outcomes[-1].error)
            if switch is not None:
                self._add("millrace_auto_switches_total", 1, switch.reason)

    def collect(self) -> Iterable[Family]:
        """Return all families as of one batch, in the order of the contract (the registry's hook)."""
        everything = self._counters | self._gauges | self._histograms
        with self._lock:
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
        self._add("millrace_merge_task_seconds_total", report.merge_seconds)
        self._add("millrace_partial_results_total", sum(task.groups for task in report.combined))
        self._add("millrace_state_updates_total", report.state_updates)
        self._observe("millrace_batch_processing_seconds", report.seconds)
        for step, seconds in report.steps.items():
            self._add("millrace_batch_step_seconds_total", seconds, step)
        for stage, times in (("route", report.route), ("combine", report.combine)):
            for seconds in times:
                self._observe("millrace_stage_task_seconds", seconds, stage)

    def _show_batch(self, report: BatchReport) -> None:
        self._set("millrace_batch_interval_seconds", report.interval)
        self._set("millrace_source_lag_rows", report.waiting)
        self._set("millrace_state_partitions", report.state_partitions)
        self._set("millrace_state_rows", report.state_rows)
        self._set("millrace_state_bytes", report.state_bytes)
        self._set("millrace_distinct_keys", report.distinct_keys)
        self._set("millrace_watermark_delay_seconds", self._watermark_delay(report))

    def _show_plan(self, report: BatchReport) -> None:
        pin = report.pin
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

    def _watermark_delay(self, report: BatchReport) -> float | None:
        """Return the seconds behind the newest event time, not behind the clock: a recording may be years old."""
        times = [time for time in (self._newest, report.max_event_time, report.watermark) if time is not None]
        self._newest = max(times, default=None)
        if self._newest is None or report.watermark is None:
            return None
        return (self._newest - report.watermark).total_seconds()

    def _add(self, name: str, amount: float, *labels: str) -> None:
        self._counters[name].labels(self._query, *labels).inc(amount)

    def _observe(self, name: str, value: float, *labels: str) -> None:
        self._histograms[name].labels(self._query, *labels).observe(value)

    def _set(self, name: str, value: float | None, *labels: str) -> None:
        if value is not None:
            self._gauges[name].labels(self._query, *labels).set(value)


def _of_kind(kind: str) -> list[JobMetric]:
    return [metric for metric in CONTRACT if metric.kind == kind]
