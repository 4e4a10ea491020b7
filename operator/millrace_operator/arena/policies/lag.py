"""``lag``: KEDA's Kafka scaler, which gives each executor a share of the records that wait.

Rules: ``pkg/scalers/kafka_scaler.go`` of kedacore/keda, whose metric goes to a HorizontalPodAutoscaler as an average
value (``GetExternalPerPodMetricReplicas`` of ``replica_calculator.go``, kubernetes/kubernetes): desired =
ceil(lag / lagThreshold), unless the lag is within 10 % of what the present executors stand for.

KEDA polls each 30 s, but only to wake what was scaled to zero, and its cool-down of 300 s only delays going there,
which a streaming query never does. With one executor or more it is the HorizontalPodAutoscaler that asks, each 15 s,
and its stabilisation of 300 s that delays scale-in (``hpa``). The lag is the broker's: what has arrived, less what the
finished batches had. KEDA's default threshold of 10 records is meant for consumers that take seconds for each. Here it
is what an executor does in two intervals, since that is what waits at most for one that just keeps up: the records of
the batch it is at, and those that gather meanwhile.
It knows nothing of parallelism and replicas: a job keeps those it started with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ...scaling.observation import Answer
from ...scaling.plans import Bounds, Shape
from ...simulation.run import ClusterView
from .hpa import SYNC_PERIOD, Behavior, is_near


class Lag:
    """Executors so that no more than ``threshold`` records wait for each."""

    name = "lag"
    period = SYNC_PERIOD

    def __init__(self, bounds: Bounds, threshold: float, arrived: Callable[[float], float]) -> None:
        """Ask a broker that got ``arrived(time)`` records until ``time``, in seconds."""
        self._threshold = threshold
        self._arrived = arrived
        self._behavior = Behavior(bounds.executors)

    def step(self, answer: Answer | None, now: float, plan: Shape, epoch: int, cluster: ClusterView) -> Shape | None:
        """The plan with as many executors as the autoscaler asks for."""
        if answer is None or answer.rows_total is None or not math.isfinite(answer.rows_total):
            return None
        lag = self._arrived(answer.time) - answer.rows_total
        wanted = recommended(lag, self._threshold, plan.executors)
        return replace(plan, executors=self._behavior.apply(wanted, plan.executors, now))


def recommended(lag: float, threshold: float, current: int) -> int:
    """Pods for ``lag`` records at ``threshold`` for each, where there are ``current`` ones."""
    return current if is_near(lag / (threshold * current)) else math.ceil(lag / threshold)
