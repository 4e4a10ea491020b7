"""How uneven the tasks of a stage are at a number of tasks that has not been measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_NORMAL = NormalDist()


def hot_share(imbalance: float, tasks: int) -> float:
    """Share h of the records that stay together however many tasks there are: those of one hot key.

    The task that has them gets its part of the rest too: the largest share is h + (1 - h) / tasks, and its load over
    the mean one, less 1, is h * (tasks - 1).
    """
    return min(max(imbalance, 0.0) / (tasks - 1), 1.0) if tasks > 1 else 0.0


def chance(groups: Vector, tasks: Vector) -> Vector:
    """Imbalance to expect of so many equal groups that a hash places on tasks: largest over mean, less 1.

    Loads of n tasks are about normal, with mean g / n and deviation sqrt(g / n); the largest of n normal values is
    expected at the quantile (n - 3/8) / (n + 1/4) (Blom, Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    different, where = np.unique(tasks, return_inverse=True)
    largest = np.array([_NORMAL.inv_cdf((n - 0.375) / (n + 0.25)) for n in different.tolist()])[where]
    deviation = np.sqrt(tasks / np.maximum(groups, 1.0))
    return np.where(groups > 0, largest.reshape(np.shape(tasks)) * deviation, 0.0)


@dataclass(frozen=True)
class Skew:
    """Measured imbalances by number of tasks; between and beyond them, of one hot key and of chance.

    ``keys`` are the distinct keys of a batch, None if unknown. What chance explains of an imbalance grows with the
    square root of the tasks, the rest with the tasks. Between two measurements the share of the hot key goes with
    the logarithm of the tasks: keys that share a task at few tasks part at more.
    """

    measured: Mapping[int, float] = field(default_factory=dict)
    keys: float | None = None

    def imbalance(self, tasks: Vector) -> Vector:
        """Largest load over the mean one, less 1; shape of ``tasks``. 0 where nothing has been measured."""
        known = sorted(count for count in self.measured if count > 1)
        if not known:
            return np.zeros(np.shape(tasks))
        by_chance = chance(np.full(np.shape(tasks), self.keys or 0.0), tasks)
        shares = [hot_share(self.measured[count] - self._chance(count), count) for count in known]
        lucky = [max(1 + self.measured[count], 1e-9) / (1 + self._chance(count)) for count in known]
        share = np.interp(np.log(tasks), np.log(known), shares)
        factor = np.interp(np.log(tasks), np.log(known), np.minimum(lucky, 1.0))
        uneven = (1 + by_chance) * factor - 1 + share * (tasks - 1)
        return np.clip(uneven, 0.0, tasks - 1)

    def _chance(self, tasks: int) -> float:
        return float(chance(np.array(self.keys or 0.0), np.array(float(tasks))))
