"""Constants and scheduling arithmetic shared by the operator's and the job's cost models (docs/cost-models.md)."""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapreplace

FIXED_SECONDS = 0.3
"""Seconds of a batch outside its stages, before any is measured: planning, commit, the logs (docs/benchmarks.md)."""

COMBINE_TASK_SECONDS = 0.01
"""Seconds of one core for a combine task besides its records, before any is measured (docs/benchmarks.md)."""

HUBER = 1.345
"""Standard deviations from which an error counts linearly in a robust fit.

The source is Huber, Robust Estimation of a Location Parameter, Annals of Mathematical Statistics 1964.
"""

MEDIAN_ERROR = 0.6745
"""Median absolute error of normal errors with a standard deviation of 1."""


def fitted_tasks(tasks: int, planned: int, ready: int) -> int:
    """Return the tasks that take no more waves on the ``ready`` cores than ``tasks`` would on the ``planned`` ones.

    24 tasks take two waves on 12 cores, and three on 10, where 20 take two. ``tasks`` stay as they are if all planned
    cores are there, or none, and if they need no further wave.
    """
    if not 0 < ready < planned:
        return tasks
    waves = -(-tasks // planned)
    return min(tasks, waves * ready)


def makespan(tasks: Collection[float], cores: int, gap: float = 0.0) -> float:
    """Return the seconds until the last of ``tasks`` is done on ``cores`` cores; 0 without tasks.

    Tasks run in order, each on the core that is free first (list scheduling: Graham, Bounds on Multiprocessing Timing
    Anomalies, 1969). Task times are in seconds. The driver launches tasks one by one, ``gap`` seconds apart, the first
    after one gap.
    """
    if len(tasks) <= cores:
        return max([number * gap + task for number, task in enumerate(tasks, 1)], default=0.0)
    free = [0.0] * cores
    launched = 0.0
    for task in tasks:
        launched += gap
        first = free[0]
        heapreplace(free, (first if first > launched else launched) + task)
    return max(free)
