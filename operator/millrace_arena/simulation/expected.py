"""True mean processing time of a batch, for policies that know the job and for scaling traces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from millrace_arena.simulation.job import JobProfile, SimulatedJob
from millrace_arena.simulation.keys import Keys
from millrace_arena.simulation.schedule import makespans
from millrace_operator.scaling.shape import Bounds, Shape

_ROWS = np.concatenate(([1.0], np.geomspace(1e2, 1e9, 57)))
"""Batch sizes, in records, for which times are computed; between and beyond them, times are linear."""

_DRAWS = 16
"""Draws of task noise over which times are averaged."""


class ExpectedSeconds:
    """Mean processing time of an ordinary batch, for any plan.

    An ordinary batch is neither held up nor fails, and all its executors are warm. Means are over draws of task noise,
    which are the same for all plans and records; their error is about 1 %.

    The first call for a plan, a number of executors and keys takes about a millisecond; later calls use a table.
    """

    def __init__(self, profile: JobProfile, bounds: Bounds) -> None:
        self._job = SimulatedJob(profile, bounds)
        self._tables: dict[tuple[Shape, Keys], NDArray[np.float64]] = {}

    def __call__(self, plan: Shape, executors: int, rows: ArrayLike, keys: Keys) -> NDArray[np.float64]:
        """Return the mean seconds of batches, in the shape of ``rows``.

        Args:
            plan: plan whose parallelism and replicas are used.
            executors: number of ready executors, whatever the plan says.
            rows: records of each batch, of any shape; batches without records are idle.
            keys: keys of the stream.
        """
        table = self._table(replace(plan, executors=executors), keys)
        rows = np.asarray(rows, dtype=np.float64)
        beyond = np.maximum(rows - _ROWS[-1], 0.0) * (table[-1] - table[-2]) / (_ROWS[-1] - _ROWS[-2])
        return np.where(rows > 0, np.interp(rows, _ROWS, table) + beyond, self._job.profile.idle)

    def most_rows(self, plan: Shape, executors: int, seconds: float, keys: Keys) -> float:
        """Return the records of a batch that takes ``seconds`` on average; 0 if even the smallest takes longer."""
        table = self._table(replace(plan, executors=executors), keys)
        return float(np.interp(seconds, np.maximum.accumulate(table), _ROWS, left=0.0))

    def _table(self, plan: Shape, keys: Keys) -> NDArray[np.float64]:
        """Return the seconds at each of ``_ROWS``."""
        table = self._tables.get((plan, keys))
        if table is None:
            table = self._tables[plan, keys] = self._new_table(plan, keys)
        return table

    def _new_table(self, plan: Shape, keys: Keys) -> NDArray[np.float64]:
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
