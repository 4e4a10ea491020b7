"""True mean times and capacities of plans, for the policies that know them and for scaling traces."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from millrace_operator.scaling.shape import Bounds, Shape
from millrace_research.arena.simulation.job import JobProfile, SimulatedJob, makespans
from millrace_research.arena.simulation.keys import Keys

_ROWS = np.concatenate(([1.0], np.geomspace(1e2, 1e9, 57)))
"""Batch sizes, in records, for which times are computed; between and beyond them, times are linear."""
_DRAWS = 16
"""Draws of task noise over which times are averaged."""
_CONFIDENCE = 0.9995
"""Share of ordinary batches that must finish within the interval.

Over all batches it is about 99 %: some are held up, a long batch makes the next one longer, and admission control cuts
batches that come near the interval.
"""
_WAVES = (0.5, 1, 1.5, 2, 3, 4)
"""Tasks per core that are tried for parallelism and replicas."""


class KnownJob:
    """Times, capacities and cheapest plans of a job whose costs are known and whose replicas run on executors.

    They are those of ordinary batches, which are neither held up nor fail and whose executors are all warm. Means are
    over draws of task noise, which are the same for all plans and records; their error is about 1 %. The first call
    for a plan and keys takes about a millisecond; later ones use a table.
    """

    def __init__(self, profile: JobProfile, bounds: Bounds) -> None:
        self._bounds = bounds
        self._interval = profile.interval
        self._job = SimulatedJob(profile, bounds)
        # Only the lognormal factor of the whole batch matters; the noise of single tasks averages out.
        self._seconds = profile.interval * math.exp(-NormalDist().inv_cdf(_CONFIDENCE) * profile.noise.batch)
        self._table = cache(self._new_table)
        self.shape = cache(self._shape)
        self.plans = cache(self._plans)

    def seconds(self, plan: Shape, rows: ArrayLike, keys: Keys) -> NDArray[np.float64]:
        """Return the mean seconds of batches with ``rows`` records, in the shape of ``rows``."""
        table = self._table(plan, keys)
        rows = np.asarray(rows, dtype=np.float64)
        beyond = np.maximum(rows - _ROWS[-1], 0.0) * (table[-1] - table[-2]) / (_ROWS[-1] - _ROWS[-2])
        return np.where(rows > 0, np.interp(rows, _ROWS, table) + beyond, 0.0)

    def most_rows(self, plan: Shape, seconds: float, keys: Keys) -> float:
        """Return the records of a batch that takes ``seconds`` on average; 0 if even the smallest takes longer."""
        return float(np.interp(seconds, np.maximum.accumulate(self._table(plan, keys)), _ROWS, left=0.0))

    def capacity(self, plan: Shape, keys: Keys) -> float:
        """Return the records per second at which nearly all ordinary batches finish within the interval."""
        return self.most_rows(plan, self._seconds, keys) / self._interval

    def cheapest(self, rate: float, keys: Keys) -> Shape:
        """Return the smallest plan with a capacity of ``rate`` records per second, or the largest if none has it."""
        executors = self._bounds.executors
        plans = (self.shape(size, keys) for size in range(executors.low, executors.high))
        enough = next((plan for plan in plans if self.capacity(plan, keys) >= rate), None)
        return enough or self.shape(executors.high, keys)

    def _shape(self, executors: int, keys: Keys) -> Shape:
        """Return the plan with ``executors`` executors whose parallelism and replicas give the most capacity."""
        return max(self.plans(executors), key=lambda plan: self.capacity(plan, keys))

    def _plans(self, executors: int) -> list[Shape]:
        """Return the plans with ``executors`` executors whose parallelism and replicas are multiples of the cores."""
        cores = executors * self._bounds.executor_cores
        counts = [max(round(waves * cores), 1) for waves in _WAVES]
        return sorted({self._bounds.nearest(Shape(executors, n, m)) for n in counts for m in counts})

    def _new_table(self, plan: Shape, keys: Keys) -> NDArray[np.float64]:
        """Return the mean seconds at each of ``_ROWS``."""
        job, noise = self._job, self._job.profile.noise
        cores = plan.executors * job.executor_cores
        rng = np.random.default_rng(0)
        partials = np.array([job.partials(plan.parallelism, keys, rows) for rows in _ROWS])
        seconds = np.full(len(_ROWS), job.profile.fixed)
        for stage in job.work(plan.parallelism, plan.replicas, keys).stages:
            tasks = np.array(stage.constant) + np.outer(_ROWS, stage.per_row) + np.outer(partials, stage.per_partial)
            factors = np.exp(noise.task * rng.standard_normal((_DRAWS, 1, tasks.shape[1])) - noise.task**2 / 2)
            tasks = tasks * factors * job.slowdown(tasks.shape[1], cores)
            seconds += makespans(tasks, cores, job.profile.schedule).mean(axis=0)
        return seconds


known_job = cache(KnownJob)
"""The known job of a profile and bounds, made once for each."""
