"""``oracle``, ``fixed-mean`` and ``fixed-peak``: policies that know the load and the capacity of every plan.

In each slot of ten seconds, the oracle has the fewest executors, in the best shape, with which about 99 % of the
batches at the slot's highest rate are within the interval. It requests them ahead of time, so that all but the slowest
to start are ready, and keeps executors that it would soon request again. No policy that keeps as many batches within
their interval can do with much less. It is not a strict bound: a policy can save by long batches that it makes up for
later, and by plans that the oracle does not try (parallelism and replicas other than some multiples of the cores).

A fixed plan for the mean load of the trace, or for its peak, is the choice of a user who has measured the job and knows
the load. The plan for the peak keeps batches within the interval as long as the keys do not change. The plan for the
mean is the cheapest that can ever catch up.
"""

from __future__ import annotations

import math

import numpy as np

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.known_job import KnownJob
from millrace_research.arena.simulation.run import Scenario

_SLOT = 10.0
"""Seconds of a slot."""
_HOLD = 30.0
"""Seconds of look-ahead in which needed executors are kept, because each change makes a few batches longer."""
_SLOWEST = 2.5
"""Standard deviations above the median start time that are allowed for; one executor in 160 takes longer."""


class OraclePolicy:
    """A policy that uses the cheapest plan for the upcoming load."""

    name = "oracle"
    period = _SLOT

    def __init__(self, scenario: Scenario, job: KnownJob) -> None:
        # From the request for executors until they are ready and a batch has begun.
        cluster = scenario.cluster
        lead = cluster.start_seconds * math.exp(_SLOWEST * cluster.start_scatter) + scenario.job.interval
        ahead = math.ceil((lead + _HOLD) / _SLOT)
        cheapest = _cheapest(scenario, job)
        self._plans = [
            max(cheapest[slot : slot + ahead + 1], key=lambda plan: plan.executors) for slot in range(len(cheapest))
        ]

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the plan for the slot that begins now and for the slots to prepare for."""
        return self._plans[min(round(situation.now / _SLOT), len(self._plans) - 1)]


def _cheapest(scenario: Scenario, job: KnownJob) -> list[Shape]:
    """Return the cheapest plan for each slot on its own."""
    trace, plans = scenario.trace, []
    for since in np.arange(0.0, trace.duration, _SLOT):
        # A batch has the records of the interval before it began.
        slot = trace.between(max(since - scenario.job.interval, 0.0), since + _SLOT)
        plans.append(job.cheapest(slot.peak, scenario.keys.at(since)))
    return plans


class FixedPolicy:
    """A policy that keeps one plan throughout."""

    period = 60.0

    def __init__(self, name: str, plan: Shape) -> None:
        self.name = name
        self._plan = plan

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the fixed plan; it changes a job only once, if the job started with another plan."""
        return self._plan
