"""Costs of stages before they are measured, in seconds of one core, from the figures of docs/benchmarks.md.

Once a batch has been measured, only their ratios matter: the batch reveals the speed of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TASK_SECONDS = 0.04
"""Seconds of one core that Spark takes for a task that has nothing to do."""

REST_SECONDS = 0.3
"""Seconds of a batch outside its stages: planning, commit, the logs."""


@dataclass(frozen=True, eq=False)
class Prior:
    """Costs of the stages before they are measured, in seconds of one core.

    ``combine`` is per task, per record and per partial result; ``merge`` is per batch and per partial result.
    ``route`` is per record and includes projection and cutting into blocks. ``slice_record`` is what Spark's own plan
    takes per record in the source's tasks; it is None if replicas combine their slices with the same code as workers.
    ``windows`` is the number of windows that a record is in.
    """

    route: float
    combine: NDArray[np.float64]
    merge: NDArray[np.float64]
    slice_record: float | None
    windows: int


def sql_prior(windows: int) -> Prior:
    """Return the prior for SQL with ``windows`` windows per record, which workers assemble from partial results."""
    return Prior(
        route=0.35e-6,
        combine=np.array([0.01, 0.1e-6, 0.5e-6 + 0.1e-6 * windows]),
        merge=np.array([0.05, 4e-6 + 0.5e-6 * windows]),
        slice_record=0.5e-6 + 0.12e-6 * windows,
        windows=windows,
    )


def python_prior() -> Prior:
    """Return the prior for Python aggregators, whose costs vary most: medium costs until they are measured."""
    return Prior(
        route=0.35e-6,
        combine=np.array([0.01, 0.6e-6, 15e-6]),
        merge=np.array([0.05, 25e-6]),
        slice_record=None,
        windows=1,
    )
