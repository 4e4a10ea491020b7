"""Runs of several policies in the same scenario, and the figures of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from millrace_arena.figures import Figures, figures
from millrace_arena.registry import POLICIES, known_job
from millrace_arena.simulation.job import JobProfile
from millrace_arena.simulation.keys import always
from millrace_arena.simulation.metrics import MetricsProfile
from millrace_arena.simulation.run import ClusterView, Run, ScalingPolicy, Scenario, simulate
from millrace_arena.simulation.traces import DAY, Trace
from millrace_arena.synthetic import KEYS, SYNTHETIC, SyntheticLoad
from millrace_operator.scaling.shape import Bounds, Range, Shape

_OF_LARGEST = 0.8
"""Default peak of a load, as a share of the capacity of the largest plan."""
_COARSE_SECONDS = 60.0
"""Median seconds between points above which short-term noise is added to a recorded trace."""
_SCATTER, _SCATTER_SECONDS = 0.05, 10.0
"""Scatter of that noise, and seconds between its draws."""
_CORES = 2
"""Cores of an executor."""
_TASKS_PER_CORE, _MOST_TASKS_PER_CORE = 2, 4
"""Combine tasks per core at the start, which many policies never change, and most combine tasks or slices per core."""


@dataclass(frozen=True)
class ScenarioSetting:
    """Parameters of a scenario.

    Attributes:
        interval: batch interval, seconds.
        max_executors: most executors, of two cores each.
        peak: highest rate, records per second; None is 80 % of the capacity of the largest plan.
        longest: longest run on a recorded trace, seconds; of a longer trace, the busiest part is used.
        seed: seed of all random draws.
    """

    interval: float = 2.0
    max_executors: int = 8
    peak: float | None = None
    longest: float = DAY
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Comparison:
    """A scenario with its run and figures under each policy, in the order of the request."""

    scenario: Scenario
    seed: int
    runs: tuple[Run, ...]
    figures: tuple[Figures, ...]

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


def synthetic(name: str, setting: ScenarioSetting) -> Scenario:
    """Return the scenario of one of the synthetic loads."""
    job, bounds = _job_and_bounds(setting)
    return _scenario(name, SYNTHETIC[name](_peak(setting, job, bounds), setting.seed), job, bounds, setting.seed)


def recorded(trace: Trace, setting: ScenarioSetting) -> Scenario:
    """Return the scenario of a recorded trace, or of its busiest part, scaled to the peak."""
    job, bounds = _job_and_bounds(setting)
    part = busiest(trace, setting.longest)
    if np.median(np.diff(part.times)) > _COARSE_SECONDS:
        part = part.noisy(_SCATTER, _SCATTER_SECONDS, setting.seed)
    load = SyntheticLoad(part.scaled(peak=_peak(setting, job, bounds)), always(KEYS))
    return _scenario(trace.name, load, job, bounds, setting.seed)


def compare(scenario: Scenario, policies: Sequence[str], seed: int) -> Comparison:
    """Run each of the named policies through the scenario, with the same noise."""
    runs = tuple(_run(scenario, POLICIES[name](scenario), seed) for name in policies)
    oracle = next((run.core_hours for run in runs if run.policy == "oracle"), None)
    found = tuple(figures(run, scenario.trace, scenario.bounds, oracle) for run in runs)
    return Comparison(scenario, seed, runs, found)


def busiest(trace: Trace, seconds: float) -> Trace:
    """Return the part of a trace of the given length with the most records; a shorter trace is returned whole."""
    if trace.duration <= seconds:
        return trace
    starts = trace.times[trace.times <= trace.duration - seconds]
    since = max(starts.tolist(), key=lambda start: trace.arrived(start + seconds) - trace.arrived(start))
    return trace.between(since, since + seconds)


def _run(scenario: Scenario, policy: ScalingPolicy, seed: int) -> Run:
    """Run a policy from the plan that it chooses before any answer has arrived."""
    initial = scenario.initial
    view = ClusterView(initial.executors, None, scenario.cluster.quota)
    first = policy.step(None, 0.0, initial, 0, view) or initial
    return simulate(replace(scenario, initial=first), policy, seed)


def _job_and_bounds(setting: ScenarioSetting) -> tuple[JobProfile, Bounds]:
    most = _MOST_TASKS_PER_CORE * setting.max_executors * _CORES
    bounds = Bounds(Range(1, setting.max_executors), Range(2, most), Range(1, most), _CORES)
    return JobProfile(interval=setting.interval), bounds


def _peak(setting: ScenarioSetting, job: JobProfile, bounds: Bounds) -> float:
    known = known_job(job, bounds)
    largest = known.shape(bounds.executors.high, KEYS)
    return setting.peak or _OF_LARGEST * known.capacity(largest, KEYS)


def _scenario(name: str, load: SyntheticLoad, job: JobProfile, bounds: Bounds, seed: int) -> Scenario:
    """Return a scenario that starts with the executors needed for its first rate.

    For each core of the largest plan there are two combine tasks, as Spark's tuning guide recommends, and one slice of
    the source.
    """
    needed = known_job(job, bounds).cheapest(load.trace.rate(0.0), load.keys.at(0.0))
    cores = bounds.executors.high * bounds.executor_cores
    initial = bounds.nearest(Shape(needed.executors, _TASKS_PER_CORE * cores, cores))
    return Scenario(name, load.trace, load.keys, bounds, initial, job, metrics=_metrics(seed))


def _metrics(seed: int) -> MetricsProfile:
    """Return scrapes with a random offset, since batches and policies all count from 0."""
    usual = MetricsProfile()
    return replace(usual, first_scrape=float(np.random.default_rng(seed).uniform(0.0, usual.scrape_seconds)))
