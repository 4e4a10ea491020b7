"""The costs of a batch, as far as measurements can separate them, and their prior before any measurement."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from .stage_work import BLOCK, COMBINE, GROUP, MERGE, RECORD, ROUTE, TASK, StageShape

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class StageCosts:
    """Costs in seconds of one core, except ``contention``; the defaults are the prior for a job without observations.

    Attributes:
        fixed: for a batch, outside its stages: planning, commit, the logs.
        schedule: for the driver to schedule a task, one after the other.
        contention: see ``BatchModel``.
        launch: to start a task, on its core.
        read, handover: for a record before it is routed, and for a partial result between combine and merge.
        route_record, route_block: to route a record, and to send a block.
        combine_task, combine_record, combine_group: of combining, for a task, a record and a partial result.
        merge_task, merge_group: of merging, for a state partition and a partial result.

    Stages time what their own code does. Task launches, ``read`` and ``handover`` are only in the batch's time.
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
        """The costs as an array, in the order of the fields."""
        return np.array(astuple(self))


NAMES = tuple(field.name for field in fields(StageCosts))

_DOUBT = {"contention": 1.5, "combine_record": 2.0, "combine_group": 1.5, "merge_group": 1.5, "handover": 1.0}
"""Standard deviations of log costs around the prior, for the costs in which aggregators differ most."""

_USUAL_DOUBT = 0.7
_SPEED_DOUBT = 0.7
"""Standard deviation of the logarithm of all costs together: the machine's speed."""

UNTIMED = ("launch", "read", "handover")
"""Costs that the clocks of the stages leave out."""


@dataclass(frozen=True, eq=False)
class Parts:
    """The costs that each stage consists of: matrices of zeros and ones, of shape ``(stages, 4, costs)``.

    ``placed`` has all of them, ``timed`` only those that the stage's own clock sees.
    """

    shapes: tuple[StageShape, ...]
    placed: Vector
    timed: Vector


def parts(dedicated: bool) -> Parts:
    """Return the parts of a job that routes records in its batches, or in ``dedicated`` partitioner pods."""
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
    """Return the inverse covariance of the logarithms of the costs; shape ``(costs, costs)``."""
    doubt = np.array([_DOUBT.get(name, _USUAL_DOUBT) for name in NAMES])
    speed = np.array([_SPEED_DOUBT if name != "contention" else 0.0 for name in NAMES])
    inverse: Vector = np.linalg.inv(np.diag(doubt**2) + np.outer(speed, speed))
    return inverse
