"""``lag``: KEDA's Kafka scaler, which gives each executor a share of the backlog.

Rules: ``pkg/scalers/kafka_scaler.go`` of kedacore/keda, whose metric goes to a HorizontalPodAutoscaler as an average
value (``GetExternalPerPodMetricReplicas`` of ``replica_calculator.go``, kubernetes/kubernetes): desired =
ceil(lag / lagThreshold), unless the lag is within 10 % of what the present executors stand for.

KEDA polls every 30 s, but only to wake a workload that was scaled to zero. Its cool-down of 300 s only delays scaling
to zero, which a streaming query never does. With one executor or more, the HorizontalPodAutoscaler polls every 15 s,
and its stabilisation of 300 s delays scale-in (``hpa``). The lag is the broker's: records arrived less records of
finished batches. KEDA's default threshold of 10 records is meant for consumers that take seconds per record. Here the
threshold is the capacity of an executor over two intervals. That is the largest lag of an executor that just keeps up:
the records of its running batch and those that arrive meanwhile.
Parallelism and replicas are not scaled: a job keeps those it started with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from millrace_arena.policies.hpa import SYNC_PERIOD, Behavior, is_near
from millrace_arena.simulation.run import ClusterView
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Shape


class Lag:
    """A policy that sets the executors so that no more than ``threshold`` records wait for each."""

    name = "lag"
    period = SYNC_PERIOD

    def __init__(self, bounds: Bounds, threshold: float, arrived: Callable[[float], float]) -> None:
        """Read arrivals from a broker that received ``arrived(time)`` records until ``time``, seconds."""
        self._threshold = threshold
        self._arrived = arrived
        self._behavior = Behavior(bounds.executors)

    def step(self, answer: Answer | None, now: float, plan: Shape, epoch: int, cluster: ClusterView) -> Shape | None:
        """Return the plan with the executors that the autoscaler requests."""
        if answer is None or answer.rows_total is None or not math.isfinite(answer.rows_total):
            return None
        lag = self._arrived(answer.time) - answer.rows_total
        wanted = recommended(lag, self._threshold, plan.executors)
        return replace(plan, executors=self._behavior.apply(wanted, plan.executors, now))


def recommended(lag: float, threshold: float, current: int) -> int:
    """Return the wanted pods for ``lag`` records at ``threshold`` records per pod, with ``current`` pods so far."""
    return current if is_near(lag / (threshold * current)) else math.ceil(lag / threshold)
