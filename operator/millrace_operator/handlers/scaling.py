"""What scaling asks of Prometheus."""

from __future__ import annotations

from ..lifecycle.autoscaler import Ask, MetricsError
from ..lifecycle.observe import QueryKey
from ..metrics_source.client import Prometheus
from ..metrics_source.error import PrometheusError
from ..metrics_source.job import answer
from ..metrics_source.settings import PrometheusSettings
from ..scaling.observation import Answer


def asks(settings: PrometheusSettings | None) -> Ask | None:
    """Asks this Prometheus; None where there is none."""
    if settings is None:
        return None
    prometheus = Prometheus(settings)

    def ask(key: QueryKey, now: float, executors: int) -> Answer | None:
        try:
            return answer(prometheus, key.namespace, key.name, now, executors)
        except PrometheusError as error:
            raise MetricsError(str(error)) from None

    return ask
