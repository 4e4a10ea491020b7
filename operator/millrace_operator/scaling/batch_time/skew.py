"""The imbalance between the tasks of a stage, at numbers of tasks that have not been measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    distinct, where = np.unique(tasks, return_inverse=True)
    largest = np.array([_NORMAL.inv_cdf((n - 0.375) / (n + 0.25)) for n in distinct.tolist()])[where]
    deviation = np.sqrt(tasks / np.maximum(groups, 1.0))
    return np.where(groups > 0, largest.reshape(np.shape(tasks)) * deviation, 0.0)


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
        known = sorted(count for count in self.measured if count > 1)
        if not known:
            return np.zeros(np.shape(tasks))
        by_chance = chance(np.full(np.shape(tasks), self.keys or 0.0), tasks)
        shares = [hot_share(self.measured[count] - self._chance(count), count) for count in known]
        of_chance = [max(1 + self.measured[count], 1e-9) / (1 + self._chance(count)) for count in known]
        share = np.interp(np.log(tasks), np.log(known), shares)
        factor = np.interp(np.log(tasks), np.log(known), np.minimum(of_chance, 1.0))
        uneven = (1 + by_chance) * factor - 1 + share * (tasks - 1)
        return np.clip(uneven, 0.0, tasks - 1)

    def _chance(self, tasks: int) -> float:
        return float(chance(np.array(self.keys or 0.0), np.array(float(tasks))))
