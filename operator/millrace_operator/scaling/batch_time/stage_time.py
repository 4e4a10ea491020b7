"""The time of a stage whose tasks share the cores of a job, in closed form and for many plans at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def finishing(tasks: Vector, cores: Vector, hot_ratio: Vector) -> tuple[Vector, Vector]:
    """Return a and b, the weights of an ordinary and of the hot task in the time of a stage, ``a * u + b * h``.

    u is the seconds of an ordinary task, h those of the hot task. Cores take the next task when they are free (list
    scheduling: Graham, Bounds on Multiprocessing Timing Anomalies, 1969). Every task takes u except one, which takes h
    and is as likely to be launched first as last. Cores launch in waves while tasks are alike. The hot task is in wave
    q of Q = ceil(tasks / cores) with probability cores / tasks; the last wave gets the rest. The stage ends with the
    hot task, at q * u + h, or with the others: after Q waves, with the hot task's excess spread over all cores. The
    expectation over q is a sum of few terms.

    The time is homogeneous in u and h, so a and b are its derivatives too (Euler).

    Args:
        tasks: number of tasks, at least 1.
        cores: number of cores, at least 1.
        hot_ratio: h / u, at least 1. All arguments have one shape, which is also the shape of a and b.
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
    """Return 0 + 1 + ... + (high - 1)."""
    return high * (high - 1) / 2
