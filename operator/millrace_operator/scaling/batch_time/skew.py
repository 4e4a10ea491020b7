"""The imbalance between the tasks of a stage, at numbers of tasks that have not been measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from statistics import NormalDist

import numpy as np

from ..shape import Vector

_NORMAL = NormalDist()


def hot_share(imbalance: float, tasks: int) -> float:
    """Return h, the share of the records that stay together however many tasks there are: those of one hot key.

    The task that has them gets its part of the rest too. So the largest share is h + (1 - h) / tasks, and its load over
    the mean, minus 1, is h * (tasks - 1).
    """
    return min(max(imbalance, 0.0) / (tasks - 1), 1.0) if tasks > 1 else 0.0


def chance(groups: Vector, tasks: Vector) -> Vector:
    """Return the imbalance to expect when a hash places equal groups on tasks: largest over mean, minus 1.

    Loads of n tasks are about normal, with mean g / n and deviation sqrt(g / n). The largest of n normal values is
    expected at the quantile (n - 3/8) / (n + 1/4) (Blom, Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    largest = np.array([_largest(count) for count in tasks.ravel().tolist()]).reshape(tasks.shape)
    return np.where(groups > 0, largest * np.sqrt(tasks / np.maximum(groups, 1.0)), 0.0)


@cache
def _largest(tasks: float) -> float:
    """Return the expected largest of ``tasks`` standard normal values."""
    return _NORMAL.inv_cdf((tasks - 0.375) / (tasks + 0.25))


@dataclass(frozen=True)
class Skew:
    """Imbalance by number of tasks: measured values, and elsewhere a model of one hot key and chance.

    ``keys`` are the distinct keys of a batch, None if unknown. What chance explains of an imbalance grows with the
    square root of the tasks, the rest with the tasks. Between two measurements, the share of the hot key is
    interpolated over the logarithm of the tasks: keys that share a task when tasks are few separate when there are
    more. Where a measured imbalance is below what chance explains, the share is 0, and the largest load expected by
    chance is scaled down to the measured one.
    """

    measured: Mapping[int, float] = field(default_factory=dict)
    keys: float | None = None

    def imbalance(self, tasks: Vector) -> Vector:
        """Return the largest load over the mean, minus 1, in the shape of ``tasks``; 0 if nothing has been measured."""
        if self._known is None:
            return np.zeros(np.shape(tasks))
        known, shares, factors = self._known
        by_chance = chance(np.full(np.shape(tasks), self.keys or 0.0), tasks)
        logs = np.log(tasks)
        uneven = (1 + by_chance) * np.interp(logs, known, factors) - 1 + np.interp(logs, known, shares) * (tasks - 1)
        return np.minimum(np.maximum(uneven, 0.0), tasks - 1)

    @cached_property
    def _known(self) -> tuple[Vector, Vector, Vector] | None:
        """Log numbers of tasks that were measured, with their hot shares and factors of chance; None without any."""
        counts = sorted(count for count in self.measured if count > 1)
        if not counts:
            return None
        tasks, measured = np.array(counts, dtype=np.float64), [self.measured[count] for count in counts]
        expected = chance(np.full(len(counts), self.keys or 0.0), tasks)
        shares = [
            hot_share(seen - usual, count)
            for seen, usual, count in zip(measured, expected.tolist(), counts, strict=True)
        ]
        factors = np.minimum(np.maximum(1 + np.array(measured), 1e-9) / (1 + expected), 1.0)
        return np.log(tasks), np.array(shares), factors
