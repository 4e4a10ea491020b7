"""What the metrics of one query say, as scaling reads it."""

from __future__ import annotations

from collections.abc import Mapping

from ..scaling.answers import MAX_AGE
from ..scaling.observation import Answer
from .client import Prometheus
from .result import Series
from .scrapes import NAMES, whole_scrapes
from .selector import equal, like, literal, one_of, raw_samples

PIECE_SECONDS = 600.0
"""Of the past that are asked for at once: less than 1 MiB, where a job is scraped every second."""

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
    scrapes = whole_scrapes(prometheus.instant(_samples(namespace, query, MAX_AGE), now))
    if not scrapes:
        return None
    newest = scrapes[-1]
    busy = _busy_core_seconds(prometheus, namespace, query, newest.time, executors) if executors else None
    return _answer(newest.time, newest.values, executors, busy)


def history(
    prometheus: Prometheus, namespace: str, query: str, start: float, end: float, executors: int | None = None
) -> list[Answer]:
    """An answer for each whole scrape after ``start`` and up to ``end``, Unix seconds; the oldest first.

    Processor time is left out. ``executors`` are those that were ready all the time, if that is known; the other
    arguments and what is raised are those of ``answer``.
    """
    series: list[Series] = []
    since = start
    while since < end:
        until = min(since + PIECE_SECONDS, end)
        series += prometheus.instant(_samples(namespace, query, until - since), until)
        since = until
    return [_answer(scrape.time, scrape.values, executors) for scrape in whole_scrapes(series)]


def _samples(namespace: str, query: str, seconds: float) -> str:
    return raw_samples([one_of("__name__", NAMES), equal("namespace", namespace), equal("query", query)], seconds)


def _answer(
    time: float, values: Mapping[str, float], executors: int | None = None, busy: float | None = None
) -> Answer:
    return Answer(
        time=time,
        executors=None if executors is None else float(executors),
        busy_core_seconds_total=busy,
        **values,
    )


def _busy_core_seconds(prometheus: Prometheus, namespace: str, query: str, time: float, executors: int) -> float | None:
    """Processor time of all executors so far, as cAdvisor counts it in the kubelet of each node."""
    matchers = [
        equal("__name__", _CPU),
        equal("namespace", namespace),
        equal("container", _EXECUTOR),
        like("pod", literal(f"{query}-exec-") + "[0-9]+"),
    ]
    found = prometheus.instant(raw_samples(matchers, MAX_AGE), time)
    newest = {one.labels["pod"]: one.samples[-1].value for one in found if one.samples}
    return sum(newest.values()) if len(newest) == executors else None
