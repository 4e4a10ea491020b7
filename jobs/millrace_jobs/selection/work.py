"""The work of a stage: what each of its tasks has to do, and how long cores take for all of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Task:
    """What one combine task did: its records, its partial results by key and pane, and the seconds it took."""

    rows: int
    groups: int
    seconds: float


@dataclass(frozen=True, eq=False)
class TaskLoads:
    """What combine tasks would get of a batch in which ``read`` records are read.

    ``rows``, which the filter lets through, and ``groups``, partial results, have shape ``(tasks,)``.
    """

    rows: NDArray[np.float64]
    groups: NDArray[np.float64]
    read: float

    def scaled(self, read: float) -> TaskLoads:
        """The loads of a batch of another size."""
        return TaskLoads(self.rows * (read / self.read), self.groups * (read / self.read), read)

    @property
    def imbalance(self) -> float:
        """Eq. 1 of paper 000 as a fraction: the largest load over the mean, less 1."""
        mean = float(self.rows.mean())
        return float(self.rows.max()) / mean - 1 if mean else 0.0


def makespan(seconds: Iterable[float], cores: int) -> float:
    """Seconds until tasks that last ``seconds`` are done, each begun in order on the core that is free first."""
    free = [0.0] * cores
    for length in seconds:
        heapq.heapreplace(free, free[0] + length)
    return max(free)
