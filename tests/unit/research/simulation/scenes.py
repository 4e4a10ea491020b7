"""Scenarios whose batch times can be worked out by hand, and policies that follow a script."""

from __future__ import annotations

import math
from dataclasses import replace

from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.simulation.cluster import ClusterProfile
from millrace_research.arena.simulation.job import QUIET, JobProfile, StageCost
from millrace_research.arena.simulation.keys import Keys, always
from millrace_research.arena.simulation.placement import SimulatedPartitioner
from millrace_research.arena.simulation.run import Scenario
from millrace_research.arena.simulation.traces import trace

BOUNDS = Bounds(Range(1, 8), Range(1, 16), Range(1, 4), executor_cores=2)
PROMPT_CLUSTER = ClusterProfile(start_seconds=20, start_scatter=0, drain_slowdown=0, warm_up_seconds=0)

# Seconds of a batch on one executor of two cores, with n = 2 and m = 1: 0.1 fixed + rows * 1 ms + 0.2 for the merge.


class Unlimited:
    """Admission of all waiting records."""

    def __init__(self, interval):
        pass

    def limit(self, waiting):
        return None

    def finished(self, rows, seconds, work, plan):
        pass


EASY = JobProfile(
    interval=2.0,
    fixed=0.1,
    schedule=0.0,
    contention=0.0,
    route=StageCost(task=0.0, row=0.0),
    combine=StageCost(task=0.0, row=2e-3),
    merge=StageCost(task=0.1),
    state_partitions=4,
    partitioner=SimulatedPartitioner.SHUFFLE,
    noise=QUIET,
    admission=Unlimited,
)


def rates(*points):
    """Return a trace through points of seconds and records per second."""
    return trace("by hand", points)


def scene(arrivals=None, **others):
    parts = {
        "name": "scene",
        "trace": arrivals if arrivals is not None else rates((0, 100), (60, 100)),
        "keys": always(Keys(1000)),
        "bounds": BOUNDS,
        "initial": Shape(1, 2, 1),
        "job": EASY,
        "cluster": PROMPT_CLUSTER,
    }
    return Scenario(**(parts | others))


def dedicated(**others):
    """Return a scenario with dedicated partitioner replicas, each routing 100 records per second."""
    job = replace(EASY, route=StageCost(task=0.0, row=0.01))
    return scene(bounds=replace(BOUNDS, replica_cores=1.0), job=job, **others)


class Patient:
    """A policy that never changes anything."""

    name = "patient"

    def __init__(self, period=math.inf):
        self.period = period

    def step(self, answer, situation):
        return None


class Planned:
    """A policy that requests plans at known times, and records its calls."""

    name = "planned"

    def __init__(self, plans, period=1.0):
        self.period = period
        self.plans = plans
        self.calls = []

    def step(self, answer, situation):
        self.calls.append((answer, situation))
        return self.plans.get(situation.now)
