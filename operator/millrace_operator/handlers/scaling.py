"""Metrics of running queries, from Prometheus, for scaling."""

from __future__ import annotations

from ..lifecycle.autoscaler import Ask, MetricsError
from ..lifecycle.observe import QueryKey
from ..metrics_source.client import Prometheus, PrometheusError
from ..metrics_source.job_metrics import answer
from ..metrics_source.settings import PrometheusSettings
from ..scaling.observation import Answer


def asks(settings: PrometheusSettings | None) -> Ask | None:
    """Return a function that fetches a query's metrics from Prometheus; None without settings."""
    if settings is None:
        return None
    prometheus = Prometheus(settings)

    def ask(key: QueryKey, now: float, executors: int) -> Answer | None:
        try:
            return answer(prometheus, key.namespace, key.name, now, executors)
        except PrometheusError as error:
            raise MetricsError(str(error)) from None

    return ask
