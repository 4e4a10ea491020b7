"""The design of a calibration run: which plans it runs, and on how many records.

Costs of a batch can be separated by what they grow with: records, partial results, tasks, and busy cores. So plans
differ in each of these, with the others about equal. On two cores they are the plans that the model was tried with
(``bench.scaling.points``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millrace_api.model.deployment import Parallelism, Replicas

BATCHES_OF_POINT = 3
"""Batches of each point: of a new plan, the first one has to warm up, and counts less."""

_STEP = 3.0
"""Ratio of the records of large, medium and small batches."""

LEAST_ROWS = 50
"""Records of the smallest batch."""


@dataclass(frozen=True, order=True)
class DesignedPlan:
    """A plan: the cores that run tasks, the parallelism, and the replicas."""

    cores: int
    parallelism: int
    replicas: int

    def __str__(self) -> str:
        cores = f"{self.cores} cores" if self.cores > 1 else "1 core"
        return f"{cores}, parallelism {self.parallelism}, replicas {self.replicas}"


@dataclass(frozen=True)
class DesignedPoint:
    """A plan, and the records of its batches."""

    plan: DesignedPlan
    rows: int


def designed_plans(cores: int, parallelism: Parallelism, replicas: Replicas) -> list[DesignedPlan]:
    """Return the usual plan for all cores, one with few cores, and both with more tasks; those that differ."""
    few = max(1, cores // 4)
    wanted = [(cores, 2 * cores, cores), (few, 2 * few, few), (cores, 4 * cores, cores), (few, 4 * cores, cores)]
    plans = [DesignedPlan(count, _allowed(n, parallelism), _allowed(m, replicas)) for count, n, m in wanted]
    return list(dict.fromkeys(plans))


def _allowed(tasks: int, bounds: Parallelism | Replicas) -> int:
    return max(bounds.min, min(tasks, bounds.max))


def designed_points(plans: Sequence[DesignedPlan], large: int) -> list[DesignedPoint]:
    """Return the points of one round, the most telling ones first, in case that time is short.

    Args:
        plans: the plans, the usual one first.
        large: records of a large batch. Medium and small ones have a third and a ninth of them.
    """
    medium, small = (max(round(large / _STEP**power), LEAST_ROWS) for power in (1, 2))
    usual, others = plans[0], plans[1:]
    points = [DesignedPoint(plan, medium) for plan in (usual, *others)]
    points[2:2] = [DesignedPoint(usual, max(large, LEAST_ROWS))]
    points += [DesignedPoint(plan, small) for plan in (usual, *others)]
    return list(dict.fromkeys(points))
