"""What plans can do in truth, for policies that are told: the oracle, and plans of users who measured their job."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

from ..scaling.plans import Bounds, Shape
from ..simulation.expected import ExpectedSeconds
from ..simulation.job import JobProfile
from ..simulation.keys import Keys

_SURE = 0.9995
"""Share of ordinary batches that are to be within the interval. Others are held up, one that is long makes the next one
longer, and admission control cuts batches that come near the interval: with these, it is about 99 %."""
_WAVES = (0.5, 1, 1.5, 2, 3, 4)
"""Tasks over cores that are tried for parallelism and replicas."""


class KnownJob:
    """Capacities and cheapest plans of a job whose costs are known; for replicas that are tasks of executors."""

    def __init__(self, profile: JobProfile, bounds: Bounds) -> None:
        self._bounds = bounds
        self._interval = profile.interval
        self._expected = ExpectedSeconds(profile, bounds)
        # Batches differ by a common factor with lognormal scatter; what else differs averages out over tasks.
        self._seconds = profile.interval * math.exp(-NormalDist().inv_cdf(_SURE) * profile.noise.batch)
        self.shape = cache(self._shape)

    def capacity(self, plan: Shape, keys: Keys) -> float:
        """Records per second at which nearly all ordinary batches are within the interval."""
        return self._expected.most_rows(plan, plan.executors, self._seconds, keys) / self._interval

    def cheapest(self, rate: float, keys: Keys) -> Shape:
        """The least plan with a capacity of ``rate`` records per second; the largest plan where none has that."""
        executors = self._bounds.executors
        plans = (self.shape(size, keys) for size in range(executors.low, executors.high))
        return next(
            (plan for plan in plans if self.capacity(plan, keys) >= rate),
            self.shape(executors.high, keys),
        )

    def _shape(self, executors: int, keys: Keys) -> Shape:
        """The plan with so many executors whose parallelism and replicas give it the most capacity."""
        cores = executors * self._bounds.executor_cores
        counts = [max(round(waves * cores), 1) for waves in _WAVES]
        plans = {self._bounds.nearest(Shape(executors, n, m)) for n in counts for m in counts}
        return max(sorted(plans), key=lambda plan: self.capacity(plan, keys))
