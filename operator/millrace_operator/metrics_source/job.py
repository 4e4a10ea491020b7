"""What the metrics of one query say, as scaling reads it."""

from __future__ import annotations

from ..scaling.answers import MAX_AGE
from ..scaling.observation import Answer
from .client import Prometheus
from .scrapes import NAMES, whole_scrapes
from .selector import equal, like, literal, one_of, raw_samples

_CPU = "container_cpu_usage_seconds_total"
_EXECUTOR = "executor"
"""The container of executors' pods that Spark runs in."""


def answer(
    prometheus: Prometheus, namespace: str, query: str, now: float, executors: int | None = None
) -> Answer | None:
    """The newest whole scrape of a query's driver, with its own time; None without any in the last ``MAX_AGE`` s.

    Series that the scrape did not have are None; numbers are as they came. ``busy_core_seconds_total`` is there where
    Prometheus knows of exactly as many executors' containers as are ready, or else the sum would not be of the same
    ones each time. Its parts are not of the scrape, but of the newest ones of the nodes before it.

    Args:
        prometheus: has for each series the label ``namespace``, that of the pod it is from.
        namespace: of the query.
        query: its name.
        now: seconds since 1970; samples of later times are not seen.
        executors: that are ready, which the job's metrics do not say.

    Raises:
        PrometheusError: there is no answer, or none that can be relied on.
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
    """Processor time of all executors so far, as cAdvisor counts it in the kubelet of each node."""
    matchers = [
        equal("__name__", _CPU),
        equal("namespace", namespace),
        equal("container", _EXECUTOR),
        like("pod", literal(f"{query}-") + "[0-9a-f]{6}-exec-[0-9]+"),
    ]
    found = prometheus.instant(raw_samples(matchers, MAX_AGE), time)
    newest = {one.labels["pod"]: one.samples[-1].value for one in found if one.samples}
    return sum(newest.values()) if len(newest) == executors else None
