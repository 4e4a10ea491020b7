"""The work of a stage: what each of its tasks has to do, and how long the cores take for all tasks."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Task:
    """Work of one combine task: its records, its partial results by key and pane, and the seconds it took."""

    rows: int
    groups: int
    seconds: float


@dataclass(frozen=True, eq=False)
class TaskLoads:
    """Loads that combine tasks would have in a batch of which ``read`` records are read.

    ``rows`` are the records that pass the filter and ``groups`` the partial results, both of shape ``(tasks,)``.
    """

    rows: NDArray[np.float64]
    groups: NDArray[np.float64]
    read: float

    def scaled(self, read: float) -> TaskLoads:
        """Return the loads of a batch of another size."""
        return TaskLoads(self.rows * (read / self.read), self.groups * (read / self.read), read)

    @property
    def imbalance(self) -> float:
        """Imbalance as a fraction: the largest load over the mean, less 1 (paper 000, Eq. 1)."""
        mean = float(self.rows.mean())
        return float(self.rows.max()) / mean - 1 if mean else 0.0


def makespan(seconds: Iterable[float], cores: int) -> float:
    """Return the seconds until all tasks are done, each started in order on the core that is free first."""
    free = [0.0] * cores
    for length in seconds:
        heapq.heapreplace(free, free[0] + length)
    return max(free)
