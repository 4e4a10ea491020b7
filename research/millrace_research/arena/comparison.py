"""All policies by name, and the comparison of several in one scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Settings
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Shape
from millrace_research.arena.figures import RunFigures, figures
from millrace_research.arena.known_job import known_job
from millrace_research.arena.policies.ds2 import Ds2Policy
from millrace_research.arena.policies.flink import FlinkPolicy
from millrace_research.arena.policies.hpa import CpuPolicy, LagPolicy
from millrace_research.arena.policies.oracle import ORACLE, FixedPolicy, bound
from millrace_research.arena.policies.prompt import PromptPolicy
from millrace_research.arena.policies.spark_ratio import SparkRatioPolicy
from millrace_research.arena.simulation.record import SimulatedRun
from millrace_research.arena.simulation.run import ScalingPolicy, Scenario, simulate


class MillracePolicy:
    """A policy that sets executors, parallelism and replicas by a model of the job, calibrated while the job runs."""

    name = "millrace"
    period = 5.0

    def __init__(self, bounds: Bounds, state_partitions: int) -> None:
        self._scaler = Scaler(Settings(), bounds, state_partitions)

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the shape that the scaler chooses."""
        return self._scaler.step(answer, situation).plan


def lag_policy(scenario: Scenario, share: float = 1.0) -> LagPolicy:
    """Return KEDA's rule with ``share`` of an executor's capacity over two intervals as its threshold."""
    bounds = scenario.bounds
    largest = replace(scenario.initial, executors=bounds.executors.high)
    capacity = known_job(scenario.job, bounds).capacity(largest, scenario.keys.at(0.0))
    threshold = max(2 * share * scenario.job.interval * capacity / largest.executors, 1.0)
    return LagPolicy(bounds, threshold, scenario.trace.arrived)


def _fixed(name: str, rate: float, scenario: Scenario) -> FixedPolicy:
    job = known_job(scenario.job, scenario.bounds)
    return FixedPolicy(name, job.cheapest(rate, scenario.keys.at(0.0)))


POLICIES: Mapping[str, Callable[[Scenario], ScalingPolicy]] = {
    "millrace": lambda scenario: MillracePolicy(scenario.bounds, scenario.job.state_partitions),
    "prompt": lambda scenario: PromptPolicy(scenario.bounds, scenario.initial.executors, scenario.job.interval),
    "spark-ratio": lambda scenario: SparkRatioPolicy(scenario.bounds, scenario.job.interval),
    "ds2": lambda scenario: Ds2Policy(scenario.bounds, scenario.trace.arrived),
    "flink": lambda scenario: FlinkPolicy(scenario.bounds, scenario.job.state_partitions, scenario.trace.arrived),
    "lag": lag_policy,
    "cpu": lambda scenario: CpuPolicy(scenario.bounds),
    "fixed-mean": lambda scenario: _fixed("fixed-mean", scenario.trace.mean, scenario),
    "fixed-peak": lambda scenario: _fixed("fixed-peak", scenario.trace.peak, scenario),
}
"""Factories of the policies that are simulated, by name, each for the scenario that the policy will run in."""

NAMES = (*POLICIES, ORACLE)
"""Names of all that can be compared: the policies, and the bound of what any of them can do."""

OURS = "millrace"
"""The policy of the operator."""

REAL = tuple(name for name in POLICIES if name not in {"fixed-mean", "fixed-peak"})
"""Names of the policies that use only what a real job can measure."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """A scenario with its run and figures under each policy, in the order of the request."""

    scenario: Scenario
    seed: int
    runs: tuple[SimulatedRun, ...]
    figures: tuple[RunFigures, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the figures and the parameters of the scenario as JSON values."""
        trace, bounds = self.scenario.trace, self.scenario.bounds
        return {
            "trace": self.scenario.name,
            "seconds": trace.duration,
            "records": trace.records,
            "peak_rate": trace.peak,
            "interval_seconds": self.scenario.job.interval,
            "max_executors": bounds.executors.high,
            "executor_cores": bounds.executor_cores,
            "seed": self.seed,
            "policies": [asdict(found) for found in self.figures],
        }


def compare(scenario: Scenario, policies: Sequence[str], seed: int) -> Comparison:
    """Run each of the named policies through the scenario, with the same noise."""
    runs = tuple(run(scenario, name, seed) for name in policies)
    oracle = next((run.core_hours for run in runs if run.policy == ORACLE), None)
    found = tuple(figures(run, scenario.trace, scenario.bounds, oracle) for run in runs)
    return Comparison(scenario, seed, runs, found)


def run(scenario: Scenario, name: str, seed: int) -> SimulatedRun:
    """Run the named policy; the oracle is solved, and not simulated."""
    if name == ORACLE:
        return bound(scenario, known_job(scenario.job, scenario.bounds), seed)
    return run_policy(scenario, POLICIES[name](scenario), seed)


def run_policy(scenario: Scenario, policy: ScalingPolicy, seed: int) -> SimulatedRun:
    """Run a policy from the plan that it chooses before any answer has arrived."""
    initial = scenario.initial
    situation = Situation(0.0, initial, 0, initial.executors, executors_quota=scenario.cluster.quota)
    first = policy.step(None, situation)
    return simulate(replace(scenario, initial=first if isinstance(first, Shape) else initial), policy, seed)
