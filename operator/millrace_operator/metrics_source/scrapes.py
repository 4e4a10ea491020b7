"""Scrapes of a job's endpoint, reassembled from the series that Prometheus stored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .result import Series

FIELDS: Mapping[tuple[str, str], str] = {
    ("millrace_batches_total", ""): "batches_total",
    ("millrace_input_rows_total", ""): "rows_total",
    ("millrace_batch_processing_seconds_sum", ""): "processing_seconds_total",
    ("millrace_stage_task_seconds_count", "route"): "route_tasks_total",
    ("millrace_stage_task_seconds_sum", "route"): "route_seconds_total",
    ("millrace_stage_task_seconds_count", "combine"): "combine_tasks_total",
    ("millrace_stage_task_seconds_sum", "combine"): "combine_seconds_total",
    ("millrace_merge_task_seconds_total", ""): "merge_seconds_total",
    ("millrace_partial_results_total", ""): "partials_total",
    ("millrace_state_updates_total", ""): "updates_total",
    ("millrace_batch_interval_seconds", ""): "interval_seconds",
    ("millrace_source_lag_rows", ""): "lag_rows",
    ("millrace_distinct_keys", ""): "keys",
    ("millrace_load_imbalance_ratio", "combine"): "imbalance",
    ("millrace_plan_epoch", ""): "epoch",
    ("millrace_plan_workers", ""): "parallelism",
    ("millrace_plan_replicas", ""): "replicas",
}
"""Field of an ``Answer`` by metric name and ``stage`` label; other metrics of the job are not queried."""

CREATED = "millrace_batches_created"
"""Metric with the creation time of the driver's counters, in seconds since 1970.

The client library exports one with each counter.
"""

NAMES = (*dict.fromkeys(name for name, _ in FIELDS), CREATED)

_COUNTERS = frozenset({"batches_total", "rows_total", "merge_seconds_total", "partials_total", "updates_total"})
"""Counters that a driver exports from its start; other fields come and go with the batches."""


@dataclass(frozen=True)
class Scrape:
    """Values by ``Answer`` field, all scraped at ``time`` from a driver started at ``begun``; Unix seconds.

    If the driver does not export its start time, ``begun`` is when its target was first seen.
    """

    time: float
    begun: float
    values: Mapping[str, float]


def whole_scrapes(series: Iterable[Series]) -> list[Scrape]:
    """Return all complete scrapes of a query's newest driver, and of earlier drivers until it started; oldest first.

    All samples of a scrape have the same time. Series with the same labels form a target. A scrape is complete if it
    has all counters that its target has at other times: counters stay, while gauges are absent if the last batch had no
    value.
    """
    targets: dict[tuple[tuple[str, str], ...], dict[float, dict[str, float]]] = {}
    for one in series:
        name, stage = one.labels.get("__name__", ""), one.labels.get("stage", "")
        field = CREATED if name == CREATED else FIELDS.get((name, stage))
        if field is None:
            continue
        target = tuple(sorted((k, v) for k, v in one.labels.items() if k not in ("__name__", "stage")))
        times = targets.setdefault(target, {})
        for sample in one.samples:
            times.setdefault(sample.time, {})[field] = sample.value
    found = [scrape for times in targets.values() for scrape in _whole(times)]
    return _newest_driver(sorted(found, key=lambda scrape: (scrape.time, scrape.begun)))


def _whole(times: Mapping[float, dict[str, float]]) -> Iterable[Scrape]:
    """Yield the complete scrapes of a target."""
    counters = _COUNTERS & {field for values in times.values() for field in values}
    first = min(times, default=math.inf)
    for time, values in times.items():
        if counters <= values.keys():
            begun = values.get(CREATED, first)
            yield Scrape(time, begun, {field: value for field, value in values.items() if field != CREATED})


def _newest_driver(scrapes: Iterable[Scrape]) -> list[Scrape]:
    """Drop scrapes of a driver after a newer one was scraped; a driver is still scraped for a while as it ends."""
    kept, newest = [], -math.inf
    for scrape in scrapes:
        if scrape.begun >= newest:
            newest = scrape.begun
            kept.append(scrape)
    return kept
