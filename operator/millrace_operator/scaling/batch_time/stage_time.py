"""When the tasks of a stage are done that share the cores of a job: in closed form, for many plans at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def finishing(tasks: Vector, cores: Vector, hot_ratio: Vector) -> tuple[Vector, Vector]:
    """Shares of an ordinary task's seconds u and of the hot task's h in the time of a stage, ``a * u + b * h``.

    Cores take the next task when they are free (list scheduling: Graham, Bounds on Multiprocessing Timing Anomalies,
    1969). Tasks take u each but for one, which takes h, and which is as likely to be launched first as last. Cores
    launch in waves while tasks are alike, and the hot one is in wave q of Q = ceil(tasks / cores) with probability
    cores / tasks (the rest falls to the last wave). The stage ends with it, at q * u + h, or with the others: Q waves,
    the hot task's excess being spread over all cores. The expectation over q is a sum of few terms.

    The time is homogeneous in u and h, so a and b are its derivatives too (Euler).

    Args:
        tasks: at least 1.
        cores: at least 1.
        hot_ratio: h / u, at least 1. All have one shape, which is that of a and b.
    """
    waves = np.ceil(tasks / cores)
    share = cores / tasks
    others = waves + (hot_ratio - 1) / cores
    late = np.clip(np.floor(others - hot_ratio + 1e-9) + 1, 0, waves)
    before = np.minimum(late * share, 1.0)
    full = _sum_below(waves - 1) - _sum_below(np.minimum(late, waves - 1))
    start = share * full + np.where(late < waves, (waves - 1) * (1 - (waves - 1) * share), 0.0)
    return before * (waves - 1 / cores) + start, before / cores + (1 - before)


def _sum_below(high: Vector) -> Vector:
    """0 + 1 + ... + (high - 1)."""
    return high * (high - 1) / 2
