"""``cpu`` and ``lag``: the Kubernetes HorizontalPodAutoscaler (HPA), on CPU utilization or on KEDA's Kafka lag.

Rules and defaults: ``pkg/controller/podautoscaler`` (``horizontal.go``, ``replica_calculator.go``) and
``pkg/apis/autoscaling/v2/defaults.go`` of kubernetes/kubernetes, and the flags of kube-controller-manager. Pods are
executors, and each requests its cores. Parallelism and replicas are not scaled: a job keeps those it started with.

``cpu`` is ``GetResourceReplicas`` of ``replica_calculator.go`` with a target of 70 %, the most common one.

``lag`` is ``pkg/scalers/kafka_scaler.go`` of kedacore/keda, which gives each executor a share of the backlog. Its
metric goes to an HPA as an average value (``GetExternalPerPodMetricReplicas`` of ``replica_calculator.go``): desired =
ceil(lag / lagThreshold), unless the lag is within 10 % of what the present executors stand for. KEDA polls every 30 s,
but only to wake a workload that was scaled to zero. Its cool-down of 300 s only delays scaling to zero, which a
streaming query never does. With one executor or more, the HPA polls. The lag is the broker's: records arrived less
records of finished batches. KEDA's default threshold of 10 records is meant for consumers that take seconds per record.
Here the threshold is the capacity of an executor over two intervals. That is the largest lag of an executor that just
keeps up: the records of its running batch and those that arrive meanwhile.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.simulation.metrics import increase, ratio

CPU_TARGET = 0.7
"""Target CPU utilization: CPU time over that of the requested cores."""
_SYNC_PERIOD = 15.0
"""Seconds between two evaluations: ``--horizontal-pod-autoscaler-sync-period``."""
_TOLERANCE = 0.1
"""Distance of usage over target from 1 up to which nothing changes: ``--horizontal-pod-autoscaler-tolerance``."""
_STABILISATION = 300.0
"""Seconds of recommendations whose highest one limits a scale-in; a scale-out is not delayed."""
_PERIOD = 15.0
"""Seconds over which a scale-out is limited to the larger of the next two; a scale-in is limited to 100 %."""
_PODS_PER_PERIOD = 4
_TIMES_PER_PERIOD = 2


class CpuPolicy:
    """A policy that sets the executors so that they use a ``target`` share of their cores."""

    name = "cpu"
    period = _SYNC_PERIOD

    def __init__(self, bounds: Bounds, target: float = CPU_TARGET) -> None:
        self._cores, self._target = bounds.executor_cores, target
        self._behavior = Behavior(bounds.executors)
        self._before: Answer | None = None

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the plan with the executors that the autoscaler requests."""
        before, self._before = self._before, answer
        busy = ratio(increase(before, answer, "busy_core_seconds_total"), increase(before, answer, "time"))
        ready, current = situation.executors_ready, situation.plan.executors
        if busy is None or ready < 1:
            return None
        wanted = recommended_by_cpu(busy / (ready * self._cores) / self._target, ready, current)
        return replace(situation.plan, executors=self._behavior.apply(wanted, current, situation.now))


def recommended_by_cpu(usage: float, ready: int, current: int) -> int:
    """Return the wanted pods if ``ready`` of the ``current`` pods use ``usage`` times their target.

    When scaling out, pods that are not ready yet count as idle, so that starting pods are not requested twice.
    """
    if usage > 1.0 and ready < current:
        with_idle = usage * ready / current
        return current if _is_near(with_idle) or with_idle < 1.0 else math.ceil(with_idle * current)
    return current if _is_near(usage) else math.ceil(usage * ready)


class LagPolicy:
    """A policy that sets the executors so that no more than ``threshold`` records wait for each."""

    name = "lag"
    period = _SYNC_PERIOD

    def __init__(self, bounds: Bounds, threshold: float, arrived: Callable[[float], float]) -> None:
        """Read arrivals from a broker that received ``arrived(time)`` records until ``time``, seconds."""
        self._threshold = threshold
        self._arrived = arrived
        self._behavior = Behavior(bounds.executors)

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the plan with the executors that the autoscaler requests."""
        if answer is None or answer.rows_total is None or not math.isfinite(answer.rows_total):
            return None
        lag, current = self._arrived(answer.time) - answer.rows_total, situation.plan.executors
        wanted = recommended_by_lag(lag, self._threshold, current)
        return replace(situation.plan, executors=self._behavior.apply(wanted, current, situation.now))


def recommended_by_lag(lag: float, threshold: float, current: int) -> int:
    """Return the wanted pods for ``lag`` records at ``threshold`` records per pod, with ``current`` pods so far."""
    return current if _is_near(lag / (threshold * current)) else math.ceil(lag / threshold)


def _is_near(usage: float) -> bool:
    """Return whether usage, as a multiple of its target, is near enough to 1 to leave the pods as they are."""
    return abs(1.0 - usage) <= _TOLERANCE


class Behavior:
    """The default ``behavior`` of an autoscaler, for pods within ``bounds``."""

    def __init__(self, bounds: Range) -> None:
        self._bounds = bounds
        self._recommended: deque[tuple[float, int]] = deque()
        self._added: deque[tuple[float, int]] = deque()

    def apply(self, recommended: int, current: int, now: float) -> int:
        """Return the pods to request at ``now``, given those the metric recommends and those requested so far."""
        pods = self._limited(self._stabilised(self._bounds.nearest(recommended), current, now), current, now)
        if pods > current:
            self._added.append((now, pods - current))
        return pods

    def _stabilised(self, recommended: int, current: int, now: float) -> int:
        _forget(self._recommended, now - _STABILISATION)
        self._recommended.append((now, recommended))
        return max(pods for _, pods in self._recommended) if recommended < current else recommended

    def _limited(self, recommended: int, current: int, now: float) -> int:
        _forget(self._added, now - _PERIOD)
        start = current - sum(pods for _, pods in self._added)
        most = max(start + _PODS_PER_PERIOD, start * _TIMES_PER_PERIOD, current)
        return min(recommended, most)


def _forget(events: deque[tuple[float, int]], until: float) -> None:
    while events and events[0][0] <= until:
        events.popleft()
