"""Metrics of the operator: the contract with their readers, and their recording."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAITING = (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5)


@dataclass(frozen=True)
class OperatorMetric:
    """Metric that the operator exports. ``buckets`` are the upper bounds of a histogram, in its unit."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


CONTRACT = (
    OperatorMetric(
        "millrace_operator_reconciles_total",
        "counter",
        "Steps taken for queries. result is success, or error: it is tried again.",
        ("result",),
    ),
    OperatorMetric("millrace_operator_reconcile_seconds", "histogram", "Time that a step took.", buckets=_SECONDS),
    OperatorMetric("millrace_operator_retries_total", "counter", "Queries put back into the queue after an error."),
    OperatorMetric("millrace_operator_queue_depth", "gauge", "Queries that wait to be worked on."),
    OperatorMetric(
        "millrace_operator_queue_seconds",
        "histogram",
        "Time that a query waited for a worker while this operator led.",
        buckets=_WAITING,
    ),
    OperatorMetric(
        "millrace_operator_queries", "gauge", "Queries of this operator, by the phase in their status.", ("phase",)
    ),
    OperatorMetric(
        "millrace_operator_api_requests_total",
        "counter",
        "Requests to the API server, other than kopf's; a watch counts once, when it opens. verb is the HTTP method; "
        "resource is the plural, with a subresource after a slash; code is the HTTP status, or none without an answer.",
        ("verb", "resource", "code"),
    ),
    OperatorMetric(
        "millrace_operator_api_request_seconds",
        "histogram",
        "Time until such a request was answered.",
        ("verb", "resource"),
        _SECONDS,
    ),
    OperatorMetric("millrace_operator_leader", "gauge", "1 where this operator leads, 0 where it stands by."),
    OperatorMetric(
        "millrace_operator_canary_age_seconds",
        "gauge",
        "Time since the watch last showed a touch of the canary; absent before the first.",
    ),
    OperatorMetric(
        "millrace_operator_scaling_decisions_total",
        "counter",
        "Decisions of the autoscaler, by their reason.",
        ("reason",),
    ),
    OperatorMetric(
        "millrace_operator_prediction_error_ratio",
        "histogram",
        "Difference of the predicted and the observed processing time after a change, as a fraction of the latter.",
        buckets=_RATIOS,
    ),
)
"""All exported metrics besides those of the Python process and its garbage collector; no label is a query's name."""


class OperatorMetrics(Collector):
    """Metrics of one operator in a registry of their own. All methods may be called from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._counters = {m.name: Counter(m.name, m.help, m.labels, registry=self.registry) for m in _of("counter")}
        self._histograms = {
            m.name: Histogram(m.name, m.help, m.labels, registry=self.registry, buckets=m.buckets)
            for m in _of("histogram")
        }
        self._gauges: dict[str, Callable[[], float | None]] = {}
        self._phases: Callable[[], Iterable[str]] = tuple
        for result in ("success", "error"):
            self._counters["millrace_operator_reconciles_total"].labels(result)  # at 0, so that rates see the first
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    @contextmanager
    def reconcile(self) -> Iterator[None]:
        """Measure a reconcile step; an exception counts as an error."""
        began, result = time.monotonic(), "error"
        try:
            yield
            result = "success"
        finally:
            self._counters["millrace_operator_reconciles_total"].labels(result).inc()
            self._histograms["millrace_operator_reconcile_seconds"].observe(time.monotonic() - began)

    def waited(self, seconds: float) -> None:
        """Record the seconds that a query waited in the queue."""
        self._histograms["millrace_operator_queue_seconds"].observe(seconds)

    def retried(self) -> None:
        """Count a query put back into the queue after an error."""
        self._counters["millrace_operator_retries_total"].inc()

    def requested(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Record a finished request to the API server and its duration in seconds."""
        self._counters["millrace_operator_api_requests_total"].labels(verb, resource, code).inc()
        self._histograms["millrace_operator_api_request_seconds"].labels(verb, resource).observe(seconds)

    def decided(self, reason: str) -> None:
        """Count a scaling decision; ``reason`` is one of few values."""
        self._counters["millrace_operator_scaling_decisions_total"].labels(reason).inc()

    def predicted(self, error: float) -> None:
        """Record a prediction error of either sign: predicted minus observed, as a fraction of the observed value."""
        self._histograms["millrace_operator_prediction_error_ratio"].observe(abs(error))

    def show(
        self,
        *,
        queue_depth: Callable[[], int],
        phases: Callable[[], Iterable[str]],
        leads: Callable[[], bool],
        canary_age: Callable[[], float | None],
    ) -> None:
        """Set the functions that each scrape reads the gauges from; a canary without an age is not exported."""
        self._phases = phases
        self._gauges = {
            "millrace_operator_queue_depth": queue_depth,
            "millrace_operator_leader": leads,
            "millrace_operator_canary_age_seconds": canary_age,
        }

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauges without values, for the registry."""
        return [GaugeMetricFamily(m.name, m.help, labels=m.labels) for m in _of("gauge")]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield the gauges with their current values, for the registry."""
        for metric in _of("gauge"):
            family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            if metric.labels:
                for phase, count in Tally(self._phases()).items():
                    family.add_metric([phase], count)
            elif metric.name in self._gauges and (value := self._gauges[metric.name]()) is not None:
                family.add_metric([], float(value))
            yield family


def _of(kind: str) -> list[OperatorMetric]:
    return [metric for metric in CONTRACT if metric.kind == kind]
