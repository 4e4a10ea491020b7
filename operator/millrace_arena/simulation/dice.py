"""Noise of a simulated run, drawn in large blocks because single draws would dominate the simulation time."""

from __future__ import annotations

import numpy as np

from millrace_arena.simulation.job import Noise

_BLOCK = 65_536


class Dice:
    """Random factors and delays of one batch after another.

    Noise of a whole batch depends only on the trigger at which the batch began. It is therefore the same for every
    policy, regardless of how many batches and tasks ran before.

    Attributes:
        batch: factor applied to all times of the current batch.
        delay: time by which the current batch is held up, seconds.
    """

    def __init__(self, noise: Noise, triggers: int, rng: np.random.Generator) -> None:
        """Draw the batch-level noise for ``triggers`` triggers."""
        self._noise = noise
        batches, self._rng = rng.spawn(2)
        scatter = noise.batch * batches.standard_normal(triggers) - noise.batch**2 / 2
        self._batches = np.exp(scatter).tolist()
        slow = batches.random(triggers) < noise.slow
        self._delays = np.where(slow, batches.exponential(noise.slow_seconds, triggers), 0.0).tolist()
        self._fails = (batches.random(triggers) < noise.failing).tolist()
        self._where = batches.random(triggers).tolist()
        self._factors: list[float] = []
        self._used = 0
        self._trigger = 0
        self.batch = 1.0
        self.delay = 0.0

    def next_batch(self, trigger: int) -> None:
        """Move on to the batch that begins at this trigger, or between it and the next one."""
        self._trigger = trigger
        self.batch, self.delay = self._batches[trigger], self._delays[trigger]

    def failing(self, stages: int) -> int:
        """Return the stage, 1 to ``stages``, in which this batch fails; 0 if it does not fail."""
        return int(self._where[self._trigger] * stages) + 1 if self._fails[self._trigger] else 0

    def scatter(self, tasks: list[float], factor: float) -> list[float]:
        """Return the actual seconds of ``tasks``: each one times its own random factor and the common ``factor``."""
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
