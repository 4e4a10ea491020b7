"""``cpu``: a HorizontalPodAutoscaler on the CPU utilization of executors, with a target of 70 %.

Rules: ``GetResourceReplicas`` of ``replica_calculator.go`` (kubernetes/kubernetes). Pods are executors, and each
requests its cores. 70 % is the most common target; everything else is the Kubernetes default (``hpa``).
Parallelism and replicas are not scaled: a job keeps those it started with.
"""

from __future__ import annotations

import math
from dataclasses import replace

from millrace_arena.policies.counters import increase, ratio
from millrace_arena.policies.hpa import SYNC_PERIOD, Behavior, is_near
from millrace_arena.simulation.run import ClusterView
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Shape

TARGET = 0.7
"""Target CPU utilization: CPU time over that of the requested cores."""


class Cpu:
    """A policy that sets the executors so that they use 70 % of their cores."""

    name = "cpu"
    period = SYNC_PERIOD

    def __init__(self, bounds: Bounds) -> None:
        self._cores = bounds.executor_cores
        self._behavior = Behavior(bounds.executors)
        self._before: Answer | None = None

    def step(self, answer: Answer | None, now: float, plan: Shape, epoch: int, cluster: ClusterView) -> Shape | None:
        """Return the plan with the executors that the autoscaler requests."""
        before, self._before = self._before, answer
        busy = ratio(increase(before, answer, "busy_core_seconds_total"), increase(before, answer, "time"))
        if busy is None or cluster.executors_ready < 1:
            return None
        usage = busy / (cluster.executors_ready * self._cores) / TARGET
        wanted = recommended(usage, cluster.executors_ready, plan.executors)
        return replace(plan, executors=self._behavior.apply(wanted, plan.executors, now))


def recommended(usage: float, ready: int, current: int) -> int:
    """Return the wanted pods if ``ready`` of the ``current`` pods use ``usage`` times their target.

    When scaling out, pods that are not ready yet count as idle, so that starting pods are not requested twice.
    """
    if usage > 1.0 and ready < current:
        with_idle = usage * ready / current
        return current if is_near(with_idle) or with_idle < 1.0 else math.ceil(with_idle * current)
    return current if is_near(usage) else math.ceil(usage * ready)
