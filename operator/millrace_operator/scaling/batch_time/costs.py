"""The costs of a batch, as far as measurements can separate them, and their prior before any measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millrace_support.batch_cost import COMBINE_TASK_SECONDS, FIXED_SECONDS

from ..shape import Vector
from .stage_work import BLOCK, COMBINE, GROUP, MERGE, RECORD, ROUTE, TASK, JobStage

PRIOR = {
    "fixed": FIXED_SECONDS,
    "schedule": 0.01,
    "contention": 0.05,
    "launch": 0.02,
    "read": 0.1e-6,
    "handover": 2e-6,
    "route_task": 0.01,
    "route_record": 0.15e-6,
    "route_block": 1e-4,
    "combine_task": COMBINE_TASK_SECONDS,
    "combine_record": 0.3e-6,
    "combine_group": 3e-6,
    "merge_task": 0.05,
    "merge_group": 5e-6,
}
"""Costs of a job without observations, in seconds of one core, except ``contention``.

- fixed: for a batch, outside its stages: planning, commit, the logs.
- schedule: for the driver to schedule a task, one after the other.
- contention: see ``BatchModel``.
- launch: to start a task, on its core.
- read, handover: for a record before it is routed, and for a partial result between combine and merge.
- route_task, route_record, route_block: to begin to read and route, to route a record, and to send a block.
- combine_task, combine_record, combine_group: of combining, for a task, a record and a partial result.
- merge_task, merge_group: of merging, for a state partition and a partial result.

Stages time what their own code does. Task launches, ``read`` and ``handover`` are only in the batch's time.
"""

NAMES = tuple(PRIOR)

_DEVIATION = {
    "contention": 1.5,
    "handover": 1.0,
    "route_task": 1.5,
    "route_record": 2.0,
    "combine_record": 4.0,
    "combine_group": 1.5,
    "merge_group": 1.5,
}
"""Standard deviations of log costs around the prior, for the costs in which jobs differ most.

What a record costs depends on its format, and on the user's own code: a sum takes a fraction of a microsecond, a call
to a server milliseconds.
"""

_USUAL_DEVIATION, _SPEED_DEVIATION = 0.7, 0.7
"""The same for every other cost, and for all costs together: the machine's speed."""

_UNTIMED = ("launch", "read", "handover")
"""Costs that the clocks of the stages leave out."""


@dataclass(frozen=True, eq=False)
class Parts:
    """The costs that each stage consists of: zeros and ones, arrays ``(stages, 4, costs)``.

    ``placed`` has all of them, ``timed`` only those that the stage's own clock sees.
    """

    stages: tuple[JobStage, ...]
    placed: Vector
    timed: Vector


def parts(dedicated: bool) -> Parts:
    """Return the parts of a job that routes records in its batches, or in ``dedicated`` partitioner pods."""
    stages = (COMBINE, MERGE) if dedicated else (ROUTE, COMBINE, MERGE)
    first = stages[0]
    places = {
        "launch": [(stage, TASK) for stage in stages[:-1]],
        "read": [(first, RECORD)],
        "route_task": [(ROUTE, TASK)],
        "route_record": [(ROUTE, RECORD)],
        "route_block": [(ROUTE, BLOCK)],
        "combine_task": [(COMBINE, TASK)],
        "combine_record": [(COMBINE, RECORD)],
        "combine_group": [(COMBINE, GROUP)],
        "merge_task": [(MERGE, TASK)],
        "merge_group": [(MERGE, GROUP)],
        "handover": [(MERGE, GROUP)],
    }
    placed = np.zeros((len(stages), 4, len(NAMES)))
    for name, where in places.items():
        for stage, kind in where:
            if stage in stages:
                placed[stages.index(stage), kind, NAMES.index(name)] = 1.0
    timed = placed.copy()
    timed[:, :, [NAMES.index(name) for name in _UNTIMED]] = 0.0
    return Parts(stages, placed, timed)


def prior_precision() -> Vector:
    """Return the inverse covariance of the logarithms of the costs; array ``(costs, costs)``."""
    deviations = np.array([_DEVIATION.get(name, _USUAL_DEVIATION) for name in NAMES])
    speed = np.array([_SPEED_DEVIATION if name != "contention" else 0.0 for name in NAMES])
    return np.asarray(np.linalg.inv(np.diag(deviations**2) + np.outer(speed, speed)))
