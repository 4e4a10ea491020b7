"""Several policies in the same scenario, and how well each did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..scaling.plans import Bounds, Range, Shape
from ..simulation.job import JobProfile
from ..simulation.keys import always
from ..simulation.metrics import MetricsProfile
from ..simulation.run import ClusterView, Run, ScalingPolicy, Scenario, simulate
from ..simulation.traces import DAY, Trace
from .figures import Figures, figures
from .registry import POLICIES, known_job
from .synthetic import KEYS, SYNTHETIC, SyntheticLoad

_OF_LARGEST = 0.8
"""Share of what the largest plan can do that the peak of a load is, where no peak is given."""
_COARSE_SECONDS = 60.0
"""A trace with fewer points says nothing of the short term: such noise is added."""
_SCATTER, _SCATTER_SECONDS = 0.05, 10.0
_CORES = 2
"""Of an executor."""
_TASKS_PER_CORE, _MOST_TASKS_PER_CORE = 2, 4
"""Combine tasks to begin with, which many policies never change, and how many of them, and slices, there may be."""


@dataclass(frozen=True)
class ScenarioSetting:
    """What a scenario is made for.

    Attributes:
        interval: batch interval, seconds.
        max_executors: of two cores each.
        peak: highest rate, records per second; None is 80 % of what the largest plan can do.
        longest: of a recorded trace, seconds; of one that takes longer, its busiest part.
        seed: of all that is random.
    """

    interval: float = 2.0
    max_executors: int = 8
    peak: float | None = None
    longest: float = DAY
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Comparison:
    """A scenario and what became of it under each policy, in the order in which they were asked for."""

    scenario: Scenario
    seed: int
    runs: tuple[Run, ...]
    figures: tuple[Figures, ...]

    def to_json(self) -> dict[str, Any]:
        """The figures, with what they are of."""
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
    """The scenario of one of the synthetic loads."""
    job, bounds = _job_and_bounds(setting)
    return _scenario(name, SYNTHETIC[name](_peak(setting, job, bounds), setting.seed), job, bounds, setting.seed)


def recorded(trace: Trace, setting: ScenarioSetting) -> Scenario:
    """The scenario of a recorded trace, or of its busiest part, scaled to the peak."""
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
    """The part of a trace, so long, with the most records; all of a shorter one."""
    if trace.duration <= seconds:
        return trace
    starts = trace.times[trace.times <= trace.duration - seconds]
    since = max(starts.tolist(), key=lambda start: trace.arrived(start + seconds) - trace.arrived(start))
    return trace.between(since, since + seconds)


def _run(scenario: Scenario, policy: ScalingPolicy, seed: int) -> Run:
    """Run a policy from the plan that it would begin with, before there is any answer."""
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
    """Begin with the executors that the first rate needs.

    There are two combine tasks for each core that there may be, as Spark's tuning guide has it, and one slice of the
    source.
    """
    needed = known_job(job, bounds).cheapest(load.trace.rate(0.0), load.keys.at(0.0))
    cores = bounds.executors.high * bounds.executor_cores
    initial = bounds.nearest(Shape(needed.executors, _TASKS_PER_CORE * cores, cores))
    return Scenario(name, load.trace, load.keys, bounds, initial, job, metrics=_metrics(seed))


def _metrics(seed: int) -> MetricsProfile:
    """Scrapes out of step with batches and policies, which all count from 0."""
    usual = MetricsProfile()
    return replace(usual, first_scrape=float(np.random.default_rng(seed).uniform(0.0, usual.scrape_seconds)))
