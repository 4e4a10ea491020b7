"""What is expected of a job's costs before its own batches count: those of a typical job, or of a similar one.

Jobs that do the same on the same cluster differ little in what a batch, a task or a launch takes, and more in what a
record takes: by its length, and by the values that the user's own code gets. So the costs of a job that is well known
are expected of another one, each as uncertain as its own fit says and similar jobs differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..shape import Vector
from .costs import NAMES, PRIOR, prior_precision

_PER_RECORD = ("read", "handover", "route_record", "route_block", "combine_record", "combine_group", "merge_group")
_RECORDS_DIFFER, _TASKS_DIFFER = 0.7, 0.3
"""Standard deviations of a log cost among similar jobs: of what records take, and of everything else.

The first is a factor of two. Recorded jobs differ less in it if they do the same, and less than the second in most of
what is not of records even if they do not (``bench.scaling.points``).
"""

_CONTRADICTED = 9.0
"""Squared distance of a job's costs from the expected ones, in deviations, from which it is another kind of job.

After one plan or two, it is at most 6 for the same recorded or simulated job, also with records twice or half as dear,
and for most jobs whose costs mislead another it is more than 9 (``bench.scaling.donors``).
"""

_FARTHEST = 15.0
"""Largest distance of a log cost from a typical job's, and largest deviation, that a saved prior may have."""


@dataclass(frozen=True)
class CostPrior:
    """The log costs that are expected, in the order of ``NAMES``, and the standard deviation of each."""

    logs: tuple[float, ...]
    deviations: tuple[float, ...]

    @property
    def mean(self) -> Vector:
        """The expected log costs; array ``(costs,)``."""
        return np.array(self.logs)

    @property
    def precision(self) -> Vector:
        """Their inverse covariance; array ``(costs, costs)``."""
        return np.diag(1 / np.array(self.deviations) ** 2)

    def is_contradicted(self, logs: Vector) -> bool:
        """Return whether the log costs that a job's own batches show are too far from the expected ones."""
        return float(np.sum(((logs - self.mean) / np.array(self.deviations)) ** 2)) > _CONTRADICTED

    @property
    def is_plausible(self) -> bool:
        """Whether all logs are near those of a typical job, and all deviations within their bounds."""
        usual = (math.log(each) for each in PRIOR.values())
        near = all(abs(log - each) <= _FARTHEST for log, each in zip(self.logs, usual, strict=True))
        return near and all(_TASKS_DIFFER <= each <= _FARTHEST for each in self.deviations)

    def save(self) -> dict[str, list[float]]:
        """Return log and deviation of each cost in JSON types."""
        return {name: [log, off] for name, log, off in zip(NAMES, self.logs, self.deviations, strict=True)}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> CostPrior | None:
        """Return what ``save`` returned; None if it is of a version with other costs.

        Raises:
            ValueError, TypeError: something in it is not a number, or no plausible one.
        """
        if saved.keys() != PRIOR.keys():
            return None
        found = cls(tuple(saved[name][0] for name in NAMES), tuple(saved[name][1] for name in NAMES))
        if not found.is_plausible:
            raise ValueError(f"the prior is implausible: {saved}")
        return found


@dataclass(frozen=True)
class KnownCosts:
    """What a job's batches have shown of its costs.

    Attributes:
        logs, deviations: log costs, and the standard deviation of each.
        plans, observations: from how many it follows.
        dedicated: whether its replicas ran in pods of their own, so that its batches had no route stage.
    """

    logs: tuple[float, ...]
    deviations: tuple[float, ...]
    plans: int
    observations: int
    dedicated: bool

    @property
    def are_plausible(self) -> bool:
        """Whether something can be expected of them: batches that vary without end show nothing."""
        return self.for_another().is_plausible

    def for_another(self) -> CostPrior:
        """Return what is expected of a similar job: the same, and less certain."""
        differ = [_RECORDS_DIFFER if name in _PER_RECORD else _TASKS_DIFFER for name in NAMES]
        return CostPrior(self.logs, tuple(map(math.hypot, self.deviations, differ)))


def expected(prior: CostPrior | None) -> tuple[Vector, Vector]:
    """Return log costs and their inverse covariance, by ``prior`` or of a typical job."""
    if prior is not None:
        return prior.mean, prior.precision
    return np.log(list(PRIOR.values())), prior_precision()
