"""Recording of the operator's metrics, which ``contract`` declares."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from heapq import nlargest
from operator import itemgetter
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from millrace_support.metric import Metric

from .contract import CONTRACT, OF_QUERIES
from .query_metrics import QueryRow, query_families
from .watches import Watches

_READ_AT_SCRAPE = (*(metric.name for metric in OF_QUERIES), "millrace_operator_informer_errors_total")
"""Metrics beside the gauges that each scrape computes."""

_SHOWN = (
    "millrace_operator_queue_depth",
    "millrace_operator_leader",
    "millrace_operator_canary_age_seconds",
    "millrace_operator_canary_path_seconds",
)
"""Gauges of the whole operator, each with a function that ``show`` sets."""

_NAMESPACES_SHOWN = 10
"""Number of namespaces whose kept bytes are shown."""

_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files with the memory limit of a container: of cgroup v2, and of v1."""

_NO_LIMIT = 1 << 60
"""Least number that means no limit in v1, where it is the largest multiple of a page."""


class OperatorMetrics(Collector):
    """Metrics of one operator in a registry of their own. All methods may be called from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._counters = {
            m.name: Counter(m.name, m.help, m.labels, registry=self.registry)
            for m in _of("counter")
            if m.name not in _READ_AT_SCRAPE
        }
        self._histograms = {
            m.name: Histogram(m.name, m.help, m.labels, registry=self.registry, buckets=m.buckets)
            for m in _of("histogram")
        }
        limit = memory_limit()
        self._gauges: dict[str, Callable[[], float | None]] = dict.fromkeys(_SHOWN, _unknown)
        self._gauges["millrace_operator_memory_limit_bytes"] = lambda: limit
        self._phases: Callable[[], Iterable[str]] = tuple
        self._kept_bytes: Callable[[], Mapping[str, int]] = dict
        self._queries: Callable[[], Iterable[QueryRow]] = tuple
        self.watches = Watches()
        """The watches of this operator, which report their health here."""
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
        queries: Callable[[], Iterable[QueryRow]],
        leads: Callable[[], bool],
        canary_age: Callable[[], float | None],
        canary_path: Callable[[], float | None],
        kept_bytes: Callable[[], Mapping[str, int]],
    ) -> None:
        """Set the functions that each scrape reads the gauges from.

        A gauge whose function returns None is not exported, nor is any metric of a query where this operator does not
        lead.
        """
        self._phases, self._kept_bytes = phases, kept_bytes
        self._queries = lambda: queries() if leads() else ()
        self._gauges |= zip(_SHOWN, (queue_depth, leads, canary_age, canary_path), strict=True)

    def describe(self) -> Iterable[Family]:
        """Return the metrics that are computed at each scrape, without values, for the registry."""
        return [_family(metric) for metric in CONTRACT if metric.kind == "gauge" or metric.name in _READ_AT_SCRAPE]

    def collect(self) -> Iterable[Family]:
        """Yield the metrics that are computed at each scrape, for the registry."""
        yield from self._of_operator()
        yield from self._of_watches()
        yield from query_families(self._queries())

    def _of_operator(self) -> Iterator[Family]:
        phases = _family(_METRICS["millrace_operator_queries"])
        for phase, count in Tally(self._phases()).items():
            phases.add_metric([phase], count)
        yield phases
        for name, read in self._gauges.items():
            family = _family(_METRICS[name])
            if (value := read()) is not None:
                family.add_metric([], float(value))
            yield family
        kept = _family(_METRICS["millrace_operator_kept_bytes"])
        for namespace, size in nlargest(_NAMESPACES_SHOWN, self._kept_bytes().items(), key=itemgetter(1)):
            kept.add_metric([namespace], size)
        yield kept

    def _of_watches(self) -> Iterator[Family]:
        names = ("age_seconds", "errors_total", "objects")
        ages, errors, objects = (_family(_METRICS[f"millrace_operator_informer_{name}"]) for name in names)
        for resource, watches in self.watches.by_resource().items():
            ages.add_metric([resource], max(each.age for each in watches))
            errors.add_metric([resource], sum(each.errors for each in watches))
            objects.add_metric([resource], sum(each.objects for each in watches))
        refused = _family(_METRICS["millrace_operator_refused_namespace"])
        for namespace in self.watches.refused:
            refused.add_metric([namespace], 1)
        yield from (ages, errors, objects, refused)


_METRICS = {metric.name: metric for metric in CONTRACT}


def _unknown() -> float | None:
    """Return no value: nothing is shown yet."""
    return None


def _of(kind: str) -> list[Metric]:
    return [metric for metric in CONTRACT if metric.kind == kind]


def _family(metric: Metric) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.help, labels=metric.labels)


def memory_limit(files: tuple[Path, ...] = _MEMORY_LIMITS) -> int | None:
    """Return the memory limit of this container in bytes; None without one, or outside of control groups."""
    for file in files:
        try:
            limit = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(limit) if limit.isdecimal() and int(limit) < _NO_LIMIT else None
    return None
