"""``oracle``: a policy that knows the future load and the capacity of every plan, at about the lowest possible cost.

In each slot of ten seconds it has the fewest executors, in the best shape, with which about 99 % of the batches at the
slot's highest rate are within the interval. It requests them ahead of time, so that all but the slowest to start are
ready, and keeps executors that it would soon request again. No policy that keeps as many batches within their interval
can do with much less. It is not a strict bound: a policy can save by long batches that it makes up for later, and by
plans that the oracle does not try (parallelism and replicas other than some multiples of the cores).
"""

from __future__ import annotations

import math

import numpy as np

from millrace_arena.known_job import KnownJob
from millrace_arena.simulation.cluster import ClusterProfile
from millrace_arena.simulation.run import ClusterView, Scenario
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Shape

_SLOT = 10.0
"""Seconds of a slot."""
_HOLD = 30.0
"""Seconds of look-ahead in which needed executors are kept, because each change makes a few batches longer."""
_SLOWEST = 2.5
"""Standard deviations above the median start time that are allowed for; one executor in 160 takes longer."""


class Oracle:
    """A policy that uses the cheapest plan for the upcoming load."""

    name = "oracle"
    period = _SLOT

    def __init__(self, scenario: Scenario, job: KnownJob) -> None:
        ahead = math.ceil((_lead_seconds(scenario.cluster, scenario.job.interval) + _HOLD) / _SLOT)
        cheapest = _cheapest(scenario, job)
        self._plans = [_largest(cheapest[slot : slot + ahead + 1]) for slot in range(len(cheapest))]

    def step(self, answer: Answer | None, now: float, plan: Shape, epoch: int, cluster: ClusterView) -> Shape | None:
        """Return the plan for the slot that begins at ``now`` and for the slots to prepare for."""
        return self._plans[min(round(now / _SLOT), len(self._plans) - 1)]


def _lead_seconds(cluster: ClusterProfile, interval: float) -> float:
    """Return the seconds from the request for executors until they are ready and a batch has begun."""
    return cluster.start_seconds * math.exp(_SLOWEST * cluster.start_scatter) + interval


def _cheapest(scenario: Scenario, job: KnownJob) -> list[Shape]:
    """Return the cheapest plan for each slot on its own."""
    trace, plans = scenario.trace, []
    for since in np.arange(0.0, trace.duration, _SLOT):
        # A batch has the records of the interval before it began.
        slot = trace.between(max(since - scenario.job.interval, 0.0), since + _SLOT)
        plans.append(job.cheapest(slot.peak, scenario.keys.at(since)))
    return plans


def _largest(plans: list[Shape]) -> Shape:
    return max(plans, key=lambda plan: plan.executors)
