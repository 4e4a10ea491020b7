"""Metrics of one query in the form that scaling reads: the newest scrape of its driver, and what its other pods report.

Prometheus stores series. This module groups their samples back into scrapes, whose values belong together.
``lifecycle.autoscaling.autoscaler`` asks for them, for ``scaling.answers`` to read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millrace_api.model.streamquery import EXECUTOR

from ..scaling.answers import MAX_AGE
from ..scaling.observation import Answer
from .client import Prometheus
from .result import Sample, Series

FIELDS: Mapping[tuple[str, str], str] = {
    ("millrace_batches_total", ""): "batches_total",
    ("millrace_input_rows_total", ""): "rows_total",
    ("millrace_input_bytes_total", ""): "input_bytes_total",
    ("millrace_routed_rows_total", ""): "routed_total",
    ("millrace_stage_output_bytes_total", "route"): "route_bytes_total",
    ("millrace_stage_output_bytes_total", "combine"): "combine_bytes_total",
    ("millrace_batch_processing_seconds_sum", ""): "processing_seconds_total",
    ("millrace_stage_task_seconds_count", "route"): "route_tasks_total",
    ("millrace_stage_task_seconds_sum", "route"): "route_seconds_total",
    ("millrace_stage_task_seconds_count", "combine"): "combine_tasks_total",
    ("millrace_stage_task_seconds_sum", "combine"): "combine_seconds_total",
    ("millrace_merge_task_seconds_total", ""): "merge_seconds_total",
    ("millrace_longest_slice_seconds_total", ""): "longest_slice_seconds_total",
    ("millrace_batch_step_seconds_total", "latestOffset"): "latest_offset_seconds_total",
    ("millrace_batch_step_seconds_total", "getBatch"): "get_batch_seconds_total",
    ("millrace_batch_step_seconds_total", "walCommit"): "wal_commit_seconds_total",
    ("millrace_batch_step_seconds_total", "commitOffsets"): "commit_seconds_total",
    ("millrace_batch_step_seconds_total", "queryPlanning"): "planning_seconds_total",
    ("millrace_sink_seconds_total", ""): "sink_seconds_total",
    ("millrace_partial_results_total", ""): "partials_total",
    ("millrace_state_updates_total", ""): "updates_total",
    ("millrace_batch_interval_seconds", ""): "interval_seconds",
    ("millrace_source_lag_rows", ""): "lag_rows",
    ("millrace_last_progress_time_seconds", ""): "progress_time",
    ("millrace_distinct_keys", ""): "keys",
    ("millrace_load_imbalance_ratio", "combine"): "imbalance",
    ("millrace_hottest_key_ratio", ""): "hottest_key",
    ("millrace_largest_slice_ratio", ""): "largest_slice",
    ("millrace_plan_epoch", ""): "epoch",
    ("millrace_plan_workers", ""): "parallelism",
    ("millrace_plan_replicas", ""): "replicas",
    ("millrace_state_partitions", ""): "state_partitions",
}
"""Field of an ``Answer`` by metric name and label ``stage`` or ``step``; other metrics of the job are not queried."""

CREATED = "millrace_batches_created"
"""Metric with the creation time of the driver's counters, in seconds since 1970; the client library exports it."""

REPLICA_FIELDS: Mapping[str, str] = {
    "millrace_partitioner_busy_seconds_total": "dedicated_busy_seconds_total",
    "millrace_partitioner_paused_seconds_total": "dedicated_paused_seconds_total",
    "millrace_partitioner_lag_rows": "dedicated_lag_rows",
}
"""Field of an ``Answer`` by metric name, for the metrics of partitioner replicas in pods of their own: a sum of all."""

NAMES = (*dict.fromkeys(name for name, _ in FIELDS), CREATED, *REPLICA_FIELDS)

_PARTS = ("__name__", "stage", "step")
"""Labels in which the series of one target differ."""

_COUNTERS = frozenset(
    {
        "batches_total",
        "rows_total",
        "input_bytes_total",
        "routed_total",
        "route_bytes_total",
        "combine_bytes_total",
        "merge_seconds_total",
        "longest_slice_seconds_total",
        "sink_seconds_total",
        "partials_total",
        "updates_total",
    }
)
"""Counters that a driver exports from its start; other fields come and go with the batches."""


@dataclass(frozen=True)
class Scrape:
    """Values by ``Answer`` field, all scraped at ``time`` from a driver started at ``started``; Unix seconds.

    If the driver does not export its start time, ``started`` is when its target was first seen.
    """

    time: float
    started: float
    values: Mapping[str, float]


def newest_answer(
    prometheus: Prometheus,
    namespace: str,
    query: str,
    pods: str,
    now: float,
    executors: int | None = None,
) -> Answer | None:
    """Return the newest complete scrape of a query's driver; None without one in the last ``MAX_AGE`` seconds.

    The answer has the time of the scrape. Series that the scrape lacks are None; numbers are unchanged.
    ``busy_core_seconds_total`` is set only if Prometheus knows exactly as many executor containers as are ready;
    otherwise the sum would cover different containers each time. Its parts come from the nodes' newest scrapes before
    this one. The same holds for the sums over partitioner replicas in pods of their own.

    Args:
        prometheus: server whose series have the label ``namespace`` of their pod.
        namespace: namespace of the query.
        query: name of the query.
        pods: regular expression of the names of the query's own pods. Series with the label ``pod`` of another one do
            not count, since any pod may export metrics of these names.
        now: seconds since 1970; later samples are ignored.
        executors: number of ready executors, which the job's metrics do not include.

    Raises:
        PrometheusError: there is no answer, or no reliable one.
    """
    own = like("pod", f"{pods}|")
    matchers = [one_of("__name__", NAMES), equal("namespace", namespace), equal("query", query), own]
    series = prometheus.instant(raw_samples(matchers, MAX_AGE), now)
    scrapes = whole_scrapes(series)
    if not scrapes:
        return None
    newest = scrapes[-1]
    busy = _busy_core_seconds(prometheus, namespace, query, newest.time, executors) if executors else None
    return Answer(
        time=newest.time,
        executors=None if executors is None else float(executors),
        busy_core_seconds_total=busy,
        **newest.values,
        **of_replicas(series, newest),
    )


def _busy_core_seconds(prometheus: Prometheus, namespace: str, query: str, time: float, executors: int) -> float | None:
    """Return the CPU seconds of all executors so far, as counted by cAdvisor in each node's kubelet."""
    matchers = [
        equal("__name__", "container_cpu_usage_seconds_total"),
        equal("namespace", namespace),
        equal("container", EXECUTOR),
        like("pod", re.escape(f"{query}-") + "[0-9a-f]{6}-exec-[0-9]+"),
    ]
    found = prometheus.instant(raw_samples(matchers, MAX_AGE), time)
    newest = {one.labels["pod"]: one.samples[-1].value for one in found if one.samples}
    return sum(newest.values()) if len(newest) == executors else None


def of_replicas(series: Iterable[Series], scrape: Scrape) -> dict[str, float]:
    """Return the sums over partitioner replicas in pods of their own, as last scraped before a scrape of the driver.

    A sum is left out unless Prometheus knows exactly the replicas of the batch's plan. A replica is one by its number,
    whichever pod it is in.
    """
    newest: dict[str, dict[str, Sample]] = {}
    for one in series:
        field = REPLICA_FIELDS.get(one.labels.get("__name__", ""))
        known = [sample for sample in one.samples if sample.time <= scrape.time]
        if field is not None and known:
            of_field, number = newest.setdefault(field, {}), one.labels.get("replica", "")
            if number not in of_field or of_field[number].time < known[-1].time:
                of_field[number] = known[-1]
    expected = scrape.values.get("replicas")
    return {
        field: sum(sample.value for sample in samples.values())
        for field, samples in newest.items()
        if len(samples) == expected
    }


def whole_scrapes(series: Iterable[Series]) -> list[Scrape]:
    """Return all complete scrapes of a query's newest driver, and of earlier drivers until it started; oldest first.

    All samples of a scrape have the same time. Series with the same labels form a target. A scrape is complete if it
    has all counters that its target has at other times: counters stay, while gauges are absent if the last batch had no
    value.
    """
    targets: dict[tuple[tuple[str, str], ...], dict[float, dict[str, float]]] = {}
    for one in series:
        name, part = one.labels.get("__name__", ""), one.labels.get("stage", one.labels.get("step", ""))
        field = CREATED if name == CREATED else FIELDS.get((name, part))
        if field is None:
            continue
        target = tuple(sorted((k, v) for k, v in one.labels.items() if k not in _PARTS))
        times = targets.setdefault(target, {})
        for sample in one.samples:
            times.setdefault(sample.time, {})[field] = sample.value
    found = [scrape for times in targets.values() for scrape in _whole(times)]
    return _newest_driver(sorted(found, key=lambda scrape: (scrape.time, scrape.started)))


def _whole(times: Mapping[float, dict[str, float]]) -> Iterable[Scrape]:
    """Yield the complete scrapes of a target."""
    counters = _COUNTERS & {field for values in times.values() for field in values}
    first = min(times, default=math.inf)
    for time, values in times.items():
        if counters <= values.keys():
            started = values.get(CREATED, first)
            yield Scrape(time, started, {field: value for field, value in values.items() if field != CREATED})


def _newest_driver(scrapes: Iterable[Scrape]) -> list[Scrape]:
    """Drop scrapes of a driver after a newer one was scraped; a driver is still scraped for a while as it ends."""
    kept, newest = [], -math.inf
    for scrape in scrapes:
        if scrape.started >= newest:
            newest = scrape.started
            kept.append(scrape)
    return kept


def raw_samples(matchers: Iterable[str], seconds: float) -> str:
    """Return a query for raw samples of the last ``seconds``, rounded to milliseconds, before its evaluation time."""
    return f"{{{','.join(matchers)}}}[{max(round(seconds * 1000), 1)}ms]"


def equal(label: str, value: str) -> str:
    """Return a matcher for one value."""
    return f"{label}={quoted(value)}"


def one_of(label: str, values: Iterable[str]) -> str:
    """Return a matcher for any of the values."""
    return like(label, "|".join(map(re.escape, values)))


def like(label: str, expression: str) -> str:
    """Return a matcher for values that a regular expression matches in full."""
    return f"{label}=~{quoted(expression)}"


def quoted(text: str) -> str:
    """Return a PromQL string. PromQL uses Go's escapes, which include JSON's, except for surrogates."""
    return json.dumps(text, ensure_ascii=False)
