"""Duration of a stage whose tasks run in order, each on the first free core (list scheduling, Graham 1966)."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace

import numpy as np
from numpy.typing import NDArray


def makespan(tasks: Sequence[float], cores: int, gap: float = 0.0) -> float:
    """Return the seconds until the last of ``tasks`` is done on ``cores`` cores; 0 without tasks.

    Task times are in seconds. The driver launches tasks one by one, ``gap`` seconds apart, the first after one gap.
    """
    if len(tasks) <= cores:
        return max([number * gap + task for number, task in enumerate(tasks, 1)], default=0.0)
    free = [0.0] * cores
    handed_out = 0.0
    for task in tasks:
        handed_out += gap
        first = free[0]
        heapreplace(free, (first if first > handed_out else handed_out) + task)
    return max(free)


def makespans(tasks: NDArray[np.float64], cores: int, gap: float = 0.0) -> NDArray[np.float64]:
    """Return ``makespan`` for many stages at once: seconds of shape (..., tasks) in, of shape (...) out."""
    count = tasks.shape[-1]
    free = np.zeros((*tasks.shape[:-1], min(cores, count)))
    for task in range(count):
        first = free.argmin(axis=-1)[..., np.newaxis]
        start = np.maximum(np.take_along_axis(free, first, axis=-1), (task + 1) * gap)
        np.put_along_axis(free, first, start + tasks[..., task, np.newaxis], axis=-1)
    last: NDArray[np.float64] = free.max(axis=-1, initial=0.0)
    return last
