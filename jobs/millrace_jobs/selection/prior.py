"""What stages cost before they are measured, in seconds of one core, from the figures of docs/benchmarks.md.

Only the ratios matter once a batch was measured: the rest is the machine's speed, which it tells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TASK_SECONDS = 0.04
"""What Spark takes for a task that has nothing to do, of one core."""

REST_SECONDS = 0.3
"""What of a batch is no stage's work: planning, commit, the logs."""


@dataclass(frozen=True, eq=False)
class Prior:
    """``combine`` is for a task, a record and a partial result; ``merge`` for a batch and a partial result.

    ``route`` is for a record and includes projection and cutting into blocks. ``slice_record`` is what Spark's own
    plan takes for a record in the source's tasks; None where replicas combine their slices with the same code
    as workers. ``windows`` is the number of windows that a record is in.
    """

    route: float
    combine: NDArray[np.float64]
    merge: NDArray[np.float64]
    slice_record: float | None
    windows: int


def sql_prior(windows: int) -> Prior:
    """For SQL whose records are in ``windows`` windows each, which workers put together from partial results."""
    return Prior(
        route=0.35e-6,
        combine=np.array([0.01, 0.1e-6, 0.5e-6 + 0.1e-6 * windows]),
        merge=np.array([0.05, 4e-6 + 0.5e-6 * windows]),
        slice_record=0.5e-6 + 0.12e-6 * windows,
        windows=windows,
    )


def python_prior() -> Prior:
    """For Python aggregators, whose costs differ most: they count as medium ones until they are measured."""
    return Prior(
        route=0.35e-6,
        combine=np.array([0.01, 0.6e-6, 15e-6]),
        merge=np.array([0.05, 25e-6]),
        slice_record=None,
        windows=1,
    )
