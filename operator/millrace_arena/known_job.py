"""True capacities of plans, for the policies that know them: the oracle, and fixed plans for a measured job."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

from millrace_arena.simulation.expected import ExpectedSeconds
from millrace_arena.simulation.job import JobProfile
from millrace_arena.simulation.keys import Keys
from millrace_operator.scaling.shape import Bounds, Shape

_SURE = 0.9995
"""Share of ordinary batches that must finish within the interval.

Over all batches it is about 99 %: some are held up, a long batch makes the next one longer, and admission control cuts
batches that come near the interval.
"""
_WAVES = (0.5, 1, 1.5, 2, 3, 4)
"""Tasks per core that are tried for parallelism and replicas."""


class KnownJob:
    """Capacities and cheapest plans of a job whose costs are known and whose replicas run on executors."""

    def __init__(self, profile: JobProfile, bounds: Bounds) -> None:
        self._bounds = bounds
        self._interval = profile.interval
        self._expected = ExpectedSeconds(profile, bounds)
        # Only the lognormal factor of the whole batch matters; the noise of single tasks averages out.
        self._seconds = profile.interval * math.exp(-NormalDist().inv_cdf(_SURE) * profile.noise.batch)
        self.shape = cache(self._shape)

    def capacity(self, plan: Shape, keys: Keys) -> float:
        """Return the records per second at which nearly all ordinary batches finish within the interval."""
        return self._expected.most_rows(plan, plan.executors, self._seconds, keys) / self._interval

    def cheapest(self, rate: float, keys: Keys) -> Shape:
        """Return the smallest plan with a capacity of ``rate`` records per second, or the largest if none has it."""
        executors = self._bounds.executors
        plans = (self.shape(size, keys) for size in range(executors.low, executors.high))
        return next(
            (plan for plan in plans if self.capacity(plan, keys) >= rate),
            self.shape(executors.high, keys),
        )

    def _shape(self, executors: int, keys: Keys) -> Shape:
        """Return the plan with ``executors`` executors whose parallelism and replicas give the most capacity."""
        cores = executors * self._bounds.executor_cores
        counts = [max(round(waves * cores), 1) for waves in _WAVES]
        plans = {self._bounds.nearest(Shape(executors, n, m)) for n in counts for m in counts}
        return max(sorted(plans), key=lambda plan: self.capacity(plan, keys))
