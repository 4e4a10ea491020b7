"""Metrics of one query in the form that scaling reads."""

from __future__ import annotations

from ..scaling.answers import MAX_AGE
from ..scaling.observation import Answer
from .client import Prometheus
from .scrapes import NAMES, whole_scrapes
from .selector import equal, like, literal, one_of, raw_samples

_CPU = "container_cpu_usage_seconds_total"
_EXECUTOR = "executor"
"""Name of Spark's container in executor pods."""


def answer(
    prometheus: Prometheus, namespace: str, query: str, now: float, executors: int | None = None
) -> Answer | None:
    """Return the newest complete scrape of a query's driver; None without one in the last ``MAX_AGE`` seconds.

    The answer has the time of the scrape. Series that the scrape lacks are None; numbers are unchanged.
    ``busy_core_seconds_total`` is set only if Prometheus knows exactly as many executor containers as are ready;
    otherwise the sum would cover different containers each time. Its parts come from the nodes' newest scrapes before
    this one.

    Args:
        prometheus: server whose series have the label ``namespace`` of their pod.
        namespace: namespace of the query.
        query: name of the query.
        now: seconds since 1970; later samples are ignored.
        executors: number of ready executors, which the job's metrics do not include.

    Raises:
        PrometheusError: there is no answer, or no reliable one.
    """
    matchers = [one_of("__name__", NAMES), equal("namespace", namespace), equal("query", query)]
    scrapes = whole_scrapes(prometheus.instant(raw_samples(matchers, MAX_AGE), now))
    if not scrapes:
        return None
    newest = scrapes[-1]
    busy = _busy_core_seconds(prometheus, namespace, query, newest.time, executors) if executors else None
    return Answer(
        time=newest.time,
        executors=None if executors is None else float(executors),
        busy_core_seconds_total=busy,
        **newest.values,
    )


def _busy_core_seconds(prometheus: Prometheus, namespace: str, query: str, time: float, executors: int) -> float | None:
    """Return the CPU seconds of all executors so far, as counted by cAdvisor in each node's kubelet."""
    matchers = [
        equal("__name__", _CPU),
        equal("namespace", namespace),
        equal("container", _EXECUTOR),
        like("pod", literal(f"{query}-") + "[0-9a-f]{6}-exec-[0-9]+"),
    ]
    found = prometheus.instant(raw_samples(matchers, MAX_AGE), time)
    newest = {one.labels["pod"]: one.samples[-1].value for one in found if one.samples}
    return sum(newest.values()) if len(newest) == executors else None
