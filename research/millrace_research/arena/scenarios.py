"""Scenarios to compare policies in: synthetic loads of a known shape, and recorded traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.known_job import known_job
from millrace_research.arena.simulation import traces
from millrace_research.arena.simulation.job import JobProfile
from millrace_research.arena.simulation.keys import Keys, KeySchedule, always, growth
from millrace_research.arena.simulation.metrics import MetricsProfile
from millrace_research.arena.simulation.run import Scenario
from millrace_research.arena.simulation.traces import DAY, Trace

KEYS = Keys(distinct=20_000, exponent=0.8)
"""Keys of a load unless it sets its own; the most frequent key has 3 % of the records."""
_HOUR = 3600.0
_LEVELS, _LEVEL_SECONDS = 24, 1200.0
_OF_LARGEST = 0.8
"""Default peak of a load, as a share of the capacity of the largest plan."""
_COARSE_SECONDS = 60.0
"""Median seconds between points above which short-term noise is added to a recorded trace."""
_SCATTER, _SCATTER_SECONDS = 0.05, 10.0
"""Scatter of that noise, and seconds between its draws."""
_TASKS_PER_CORE, _MOST_TASKS_PER_CORE = 2, 4
"""Combine tasks per core at the start, and the maximum of combine tasks, and of replicas, per core.

Many policies never change the number at the start.
"""

Load = tuple[Trace, KeySchedule]
"""The trace of a source, and the keys of its records."""


def _steps(peak: float, seed: int) -> Load:
    """Return random levels of 20 minutes each; consecutive levels differ by more than 20 % of the peak."""
    rng = np.random.default_rng(seed)
    levels = [0.5]
    while len(levels) < _LEVELS:
        level = float(rng.uniform(0.1, 1.0))
        if abs(level - levels[-1]) > 0.2:
            levels.append(level)
    since = [number * _LEVEL_SECONDS for number in range(_LEVELS)]
    return traces.steps([peak * level for level in levels], since, _LEVELS * _LEVEL_SECONDS), always(KEYS)


def _noise(peak: float, seed: int) -> Load:
    return traces.constant(0.5 * peak, 4 * _HOUR).noisy(scatter=0.05, every=10.0, seed=seed), always(KEYS)


def _skew_shift(peak: float, seed: int) -> Load:
    """Return a constant rate with a hot key: a tenth of the records after an hour, on another key after two hours."""
    first, second = (replace(KEYS, hot=0.1, salt=salt) for salt in (1, 2))
    return traces.constant(0.5 * peak, 3 * _HOUR), KeySchedule([(0.0, KEYS), (_HOUR, first), (2 * _HOUR, second)])


def _key_growth(peak: float, seed: int) -> Load:
    """Return a constant rate whose number of keys grows tenfold over an hour."""
    keys = growth(KEYS, 10 * KEYS.distinct, since=_HOUR, until=2 * _HOUR)
    return traces.constant(0.5 * peak, 3 * _HOUR), keys


SYNTHETIC: Mapping[str, Callable[[float, int], Load]] = {
    "constant": lambda peak, seed: (traces.constant(0.5 * peak, 2 * _HOUR), always(KEYS)),
    "noise": _noise,
    "step": lambda peak, seed: (traces.step(0.3 * peak, peak, _HOUR, 2 * _HOUR), always(KEYS)),
    "step-down": lambda peak, seed: (traces.step(peak, 0.3 * peak, _HOUR, 2 * _HOUR), always(KEYS)),
    "steps": _steps,
    "ramp": lambda peak, seed: (traces.ramp(0.2 * peak, peak, _HOUR, 2 * _HOUR, 3 * _HOUR), always(KEYS)),
    "spike": lambda peak, seed: (traces.spike(0.3 * peak, peak, _HOUR, 300.0, 2 * _HOUR), always(KEYS)),
    "sawtooth": lambda peak, seed: (traces.sawtooth(0.2 * peak, peak, _HOUR, 6 * _HOUR), always(KEYS)),
    "diurnal": lambda peak, seed: (traces.diurnal(0.15 * peak, peak), always(KEYS)),
    "skew-shift": _skew_shift,
    "key-growth": _key_growth,
}
"""Loads by name, each made from the peak in records per second and a seed."""


@dataclass(frozen=True)
class ScenarioSetting:
    """Parameters of a scenario.

    Attributes:
        interval: batch interval, seconds.
        max_executors: maximum number of executors.
        peak: highest rate, records per second; None is 80 % of the capacity of the largest plan.
        longest: longest run on a recorded trace, seconds; of a longer trace, the busiest part is used.
        seed: seed of all random draws.
        executor_cores: cores of each executor.
    """

    interval: float = 2.0
    max_executors: int = 8
    peak: float | None = None
    longest: float = DAY
    seed: int = 0
    executor_cores: int = 2


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
    load = part.scaled(_peak(setting, job, bounds)), always(KEYS)
    return _scenario(trace.name, load, job, bounds, setting.seed)


def busiest(trace: Trace, seconds: float) -> Trace:
    """Return the part of the given length, from a point of the trace on, that has the most records.

    A shorter trace is returned whole.
    """
    if trace.duration <= seconds:
        return trace
    starts = trace.times[trace.times <= trace.duration - seconds]
    since = max(starts.tolist(), key=lambda start: trace.arrived(start + seconds) - trace.arrived(start))
    return trace.between(since, since + seconds)


def _job_and_bounds(setting: ScenarioSetting) -> tuple[JobProfile, Bounds]:
    most = _MOST_TASKS_PER_CORE * setting.max_executors * setting.executor_cores
    bounds = Bounds(Range(1, setting.max_executors), Range(2, most), Range(1, most), setting.executor_cores)
    return JobProfile(interval=setting.interval), bounds


def _peak(setting: ScenarioSetting, job: JobProfile, bounds: Bounds) -> float:
    known = known_job(job, bounds)
    largest = known.shape(bounds.executors.high, KEYS)
    return setting.peak or _OF_LARGEST * known.capacity(largest, KEYS)


def _scenario(name: str, load: Load, job: JobProfile, bounds: Bounds, seed: int) -> Scenario:
    """Return a scenario that starts with the executors needed for its first rate.

    For each core of the largest plan there are two combine tasks, as Spark's tuning guide recommends, and one slice of
    the source. Scrapes have a random offset, since batches and policies all count from 0.
    """
    trace, keys = load
    needed = known_job(job, bounds).cheapest(trace.rate(0.0), keys.at(0.0))
    cores = bounds.executors.high * bounds.executor_cores
    initial = bounds.nearest(Shape(needed.executors, _TASKS_PER_CORE * cores, cores))
    first_scrape = float(np.random.default_rng(seed).uniform(0.0, MetricsProfile.scrape_seconds))
    return Scenario(name, trace, keys, bounds, initial, job, metrics=MetricsProfile(first_scrape=first_scrape))
