"""``oracle``: knows what will come and what every plan can do, and so costs about the least that can be spent.

In each slot of ten seconds it has the least executors, in the best shape, with which about 99 % of the batches at the
slot's highest rate are within the interval. It asks for them ahead, so that all but the slowest to start are there in
time, and keeps those that it would have to ask for again soon. No policy that keeps as many batches within their
interval can do with much less. It is not a strict bound: a policy saves by long batches which it makes up for later,
and by plans that the oracle does not try (parallelism and replicas other than some multiples of the cores).
"""

from __future__ import annotations

import math

import numpy as np

from ...scaling.observation import Answer
from ...scaling.plans import Shape
from ...simulation.cluster import ClusterProfile
from ...simulation.run import ClusterView, Scenario
from ..known_job import KnownJob

_SLOT = 10.0
"""Seconds."""
_HOLD = 30.0
"""Seconds for which executors are kept that would be asked for again: each change makes a few batches longer."""
_SLOWEST = 2.5
"""Standard deviations above the median of the time to start; of 160 executors, one takes longer."""


class Oracle:
    """The cheapest plan for what is about to come."""

    name = "oracle"
    period = _SLOT

    def __init__(self, scenario: Scenario, job: KnownJob) -> None:
        ahead = math.ceil((_lead_seconds(scenario.cluster, scenario.job.interval) + _HOLD) / _SLOT)
        cheapest = _cheapest(scenario, job)
        self._plans = [_largest(cheapest[slot : slot + ahead + 1]) for slot in range(len(cheapest))]

    def step(self, answer: Answer | None, now: float, plan: Shape, epoch: int, cluster: ClusterView) -> Shape | None:
        """The plan for the slot that begins ``now``, and for those that have to be prepared for."""
        return self._plans[min(round(now / _SLOT), len(self._plans) - 1)]


def _lead_seconds(cluster: ClusterProfile, interval: float) -> float:
    """From when executors are asked for until they are there, and a batch has begun."""
    return cluster.start_seconds * math.exp(_SLOWEST * cluster.start_scatter) + interval


def _cheapest(scenario: Scenario, job: KnownJob) -> list[Shape]:
    """The cheapest plan for each slot on its own."""
    trace, plans = scenario.trace, []
    for since in np.arange(0.0, trace.duration, _SLOT):
        # A batch has the records of the interval before it began.
        slot = trace.between(max(since - scenario.job.interval, 0.0), since + _SLOT)
        plans.append(job.cheapest(slot.peak, scenario.keys.at(since)))
    return plans


def _largest(plans: list[Shape]) -> Shape:
    return max(plans, key=lambda plan: plan.executors)
