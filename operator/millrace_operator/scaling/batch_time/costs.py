"""What batches cost, as far as their measurements can tell it apart, and what to expect of it before there are any."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from .stage_work import BLOCK, COMBINE, GROUP, MERGE, RECORD, ROUTE, TASK, StageShape

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class StageCosts:
    """Seconds of one core, but for ``contention``; the values are what is expected of a job that nobody has seen.

    Attributes:
        fixed: of a batch, beside its stages: planning, commit, the logs.
        schedule: of the driver for a task, one after the other.
        contention: see ``BatchModel``.
        launch: to start a task, on its core.
        read, handover: of a record before it is routed, and of a partial result between combine and merge.
        route_record, route_block: to route a record, and to send a block.
        combine_task, combine_record, combine_group: of combining, for a task, a record and a partial result.
        merge_task, merge_group: of merging, for a state partition and a partial result.

    Stages time what their own code does: tasks' launches, ``read`` and ``handover`` are only in the batch's time.
    """

    fixed: float = 0.3
    schedule: float = 0.01
    contention: float = 0.05
    launch: float = 0.02
    read: float = 0.1e-6
    handover: float = 2e-6
    route_record: float = 0.15e-6
    route_block: float = 1e-4
    combine_task: float = 0.01
    combine_record: float = 0.3e-6
    combine_group: float = 3e-6
    merge_task: float = 0.05
    merge_group: float = 5e-6

    @property
    def vector(self) -> Vector:
        """In the order of the fields."""
        return np.array(astuple(self))


NAMES = tuple(field.name for field in fields(StageCosts))

_DOUBT = {"contention": 1.5, "combine_record": 2.0, "combine_group": 1.5, "merge_group": 1.5, "handover": 1.0}
"""Where aggregators differ most: standard deviation of the logarithm of a cost about the prior's."""

_USUAL_DOUBT = 0.7
_SPEED_DOUBT = 0.7
"""The same of all costs together: the machine's speed."""

UNTIMED = ("launch", "read", "handover")
"""What the clocks of the stages leave out."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Which costs are part of what a stage costs: ones, in matrices of shape ``(stages, 4, costs)``.

    ``timed`` has only those that the stage's own clock sees.
    """

    shapes: tuple[StageShape, ...]
    placed: Vector
    timed: Vector


def parts(dedicated: bool) -> Parts:
    """Of a job whose batches route their records themselves, or read records that were routed in pods beside it."""
    shapes = (COMBINE, MERGE) if dedicated else (ROUTE, COMBINE, MERGE)
    first = shapes[0]
    places = {
        "launch": [(shape, TASK) for shape in shapes[:-1]],
        "read": [(first, RECORD)],
        "route_record": [(ROUTE, RECORD)],
        "route_block": [(ROUTE, BLOCK)],
        "combine_task": [(COMBINE, TASK)],
        "combine_record": [(COMBINE, RECORD)],
        "combine_group": [(COMBINE, GROUP)],
        "merge_task": [(MERGE, TASK)],
        "merge_group": [(MERGE, GROUP)],
        "handover": [(MERGE, GROUP)],
    }
    placed = np.zeros((len(shapes), 4, len(NAMES)))
    for name, where in places.items():
        for shape, kind in where:
            if shape in shapes:
                placed[shapes.index(shape), kind, NAMES.index(name)] = 1.0
    timed = placed.copy()
    timed[:, :, [NAMES.index(name) for name in UNTIMED]] = 0.0
    return Parts(shapes, placed, timed)


def prior_precision() -> Vector:
    """Inverse covariance of the logarithms of the costs; shape ``(costs, costs)``."""
    doubt = np.array([_DOUBT.get(name, _USUAL_DOUBT) for name in NAMES])
    speed = np.array([_SPEED_DOUBT if name != "contention" else 0.0 for name in NAMES])
    inverse: Vector = np.linalg.inv(np.diag(doubt**2) + np.outer(speed, speed))
    return inverse
