"""The noise of a run: drawn in large blocks, since single draws would take most of the time of a simulation."""

from __future__ import annotations

import math

import numpy as np

from .job import Noise

_BLOCK = 65_536


class Dice:
    """Factors and delays of batch after batch.

    Attributes:
        batch: factor of all times of this batch.
        delay: by how much this batch is held up, seconds.
    """

    def __init__(self, noise: Noise, rng: np.random.Generator) -> None:
        self._noise = noise
        self._rng = rng
        self._factors: list[float] = []
        self._used = 0
        self.batch = 1.0
        self.delay = 0.0

    def next_batch(self) -> None:
        """Draw ``batch`` and ``delay``."""
        if self._noise.batch:
            self.batch = math.exp(self._noise.batch * self._rng.standard_normal() - self._noise.batch**2 / 2)
        slow = self._noise.slow and self._rng.random() < self._noise.slow
        self.delay = self._rng.exponential(self._noise.slow_seconds) if slow else 0.0

    def failing(self, stages: int) -> int:
        """The stage, 1 to ``stages``, in which this batch fails; 0 if it does not."""
        if self._noise.failing and self._rng.random() < self._noise.failing:
            return int(self._rng.integers(1, stages + 1))
        return 0

    def scatter(self, tasks: list[float], factor: float) -> list[float]:
        """Seconds that ``tasks`` really take: each times a factor of its own, and all times ``factor``."""
        if not self._noise.task:
            return [task * factor for task in tasks]
        end = self._used + len(tasks)
        if end > len(self._factors):
            scatter = self._noise.task
            draws = self._rng.standard_normal(max(_BLOCK, len(tasks)))
            self._factors = np.exp(scatter * draws - scatter**2 / 2).tolist()
            self._used, end = 0, len(tasks)
        factors = self._factors[self._used : end]
        self._used = end
        return [task * own * factor for task, own in zip(tasks, factors, strict=True)]
