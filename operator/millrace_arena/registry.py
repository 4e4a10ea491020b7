"""Registry of all policies by name, each with a factory for the scenario it will run in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from millrace_arena.known_job import KnownJob
from millrace_arena.policies.cpu import Cpu
from millrace_arena.policies.ds2 import Ds2
from millrace_arena.policies.fixed import Fixed
from millrace_arena.policies.flink import Flink
from millrace_arena.policies.lag import Lag
from millrace_arena.policies.millrace import Millrace
from millrace_arena.policies.oracle import Oracle
from millrace_arena.policies.prompt import PromptPolicy
from millrace_arena.policies.spark_ratio import SparkRatio
from millrace_arena.simulation.job import JobProfile
from millrace_arena.simulation.run import ScalingPolicy, Scenario
from millrace_operator.scaling.shape import Bounds


@cache
def known_job(profile: JobProfile, bounds: Bounds) -> KnownJob:
    """Return the true capacities of a job, computed once per profile and bounds."""
    return KnownJob(profile, bounds)


def _lag(scenario: Scenario) -> Lag:
    bounds = scenario.bounds
    largest = replace(scenario.initial, executors=bounds.executors.high)
    capacity = known_job(scenario.job, bounds).capacity(largest, scenario.keys.at(0.0))
    threshold = max(2 * scenario.job.interval * capacity / largest.executors, 1.0)
    return Lag(bounds, threshold, scenario.trace.arrived)


def _fixed(name: str, rate: float, scenario: Scenario) -> Fixed:
    job = known_job(scenario.job, scenario.bounds)
    return Fixed(name, job.cheapest(rate, scenario.keys.at(0.0)))


POLICIES: Mapping[str, Callable[[Scenario], ScalingPolicy]] = {
    "millrace": lambda scenario: Millrace(scenario.bounds, scenario.job.state_partitions),
    "prompt": lambda scenario: PromptPolicy(scenario.bounds, scenario.initial.executors, scenario.job.interval),
    "spark-ratio": lambda scenario: SparkRatio(scenario.bounds, scenario.job.interval),
    "ds2": lambda scenario: Ds2(scenario.bounds, scenario.trace.arrived),
    "flink": lambda scenario: Flink(scenario.bounds, scenario.job.state_partitions, scenario.trace.arrived),
    "lag": _lag,
    "cpu": lambda scenario: Cpu(scenario.bounds),
    "fixed-mean": lambda scenario: _fixed("fixed-mean", scenario.trace.mean, scenario),
    "fixed-peak": lambda scenario: _fixed("fixed-peak", scenario.trace.peak, scenario),
    "oracle": lambda scenario: Oracle(scenario, known_job(scenario.job, scenario.bounds)),
}

OURS = "millrace"
"""The policy of the operator."""

REAL = tuple(name for name in POLICIES if name not in {"oracle", "fixed-mean", "fixed-peak"})
"""Names of the policies that use only what a real job can measure."""
