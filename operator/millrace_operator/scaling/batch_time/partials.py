"""The number of partial results that combine tasks send to the merge, for other numbers of records or tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..shape import Vector

_BENDS = np.linspace(0.1, 1.0, 10)
_TIMES = 3.0 ** np.arange(-6, 7)
"""The grid that the fit searches: exponents, and multiples of the usual filling."""

_NOISE = 0.03
"""Scatter of the logarithm of partial results from batch to batch."""

_BEND_DEVIATION, _FILLED_DEVIATION, _SPLIT_DEVIATION = 0.3, 4.0, 0.2
"""Standard deviations of the prior: for the exponent, the logarithm of the filling, and ``by_tasks``."""

_GROWTH_DEVIATION = 0.25
"""Standard deviation of the prior for d log partials / d log rows, as a whole."""

_STEADY = 0.05
"""Steps in which rows and tasks change by no more than this, as a logarithm, carry no information."""


@dataclass(frozen=True)
class ObservedPartials:
    """Partial results of a batch with ``rows`` records and ``parallelism`` combine tasks."""

    rows: float
    parallelism: int
    partials: float


@dataclass(frozen=True)
class Partials:
    """A model of partial results by records and tasks, which passes through the newest observation.

    They grow as 1 - exp(-``filled`` * x ** ``bend``), with x the records over those of the newest observation. A
    ``bend`` of 1 is drawing from groups that are all alike. With a small ``filled`` they grow as a power of the
    records, as words in a text do (Heaps' law). ``by_tasks`` is an exponent too: 0 if all records of a key go to one
    task, up to 1 if a partitioner splits every key among all tasks. The deviations are standard deviations of the
    exponents by rows and by tasks.
    """

    newest: ObservedPartials
    filled: float
    bend: float
    by_tasks: float
    growth_deviation: float = 0.0
    split_deviation: float = 0.0

    def deviation(self, rows: Vector, parallelism: Vector) -> Vector:
        """Return the standard deviation of log partial results that comes from distance to the newest observation."""
        by_rows = self.growth_deviation * np.log(np.maximum(rows, 1.0) / self.newest.rows)
        return np.hypot(by_rows, self.split_deviation * np.log(parallelism / self.newest.parallelism))

    def predict(self, rows: Vector, parallelism: Vector) -> Vector:
        """Return the partial results of batches; at most one for each record."""
        grown = np.expm1(-self.filled * (rows / self.newest.rows) ** self.bend) / np.expm1(-self.filled)
        split = (parallelism / self.newest.parallelism) ** self.by_tasks
        partials: Vector = np.minimum(self.newest.partials * grown * split, np.maximum(rows, 0.0))
        return partials


def learn(seen: Sequence[ObservedPartials], hot: float = 0.0) -> Partials:
    """Fit the model to observed batches, oldest first; there is at least one, and all have records.

    Before two rates have been observed, growth is assumed. Without a hot key, groups are taken to be alike. If ``hot``,
    the share of the records that stay together, is 0.3 or more, partial results grow as the square root of the records,
    as with Zipf's exponents of 1.2 to 2. For values in between, growth is in between.

    The fit is to the ratios between each batch and the next, so that a change of the keys themselves counts once and
    not forever. Errors count up to three standard deviations.
    """
    newest = seen[-1]
    rows = np.array([one.rows for one in seen]) / newest.rows
    changes = np.diff(np.log(rows))
    tasks = np.diff(np.log([one.parallelism for one in seen]))
    informative = (np.abs(changes) > _STEADY) | (np.abs(tasks) > _STEADY)
    changes, tasks = changes[informative], tasks[informative]
    steps = np.diff(np.log([max(one.partials, 1.0) for one in seen]))[informative]
    skewed = min(hot / 0.3, 1.0)
    usual_bend, usual_filled = 1 - skewed / 2, _filled_by_equal_groups(newest) ** (1 - skewed) * 0.1**skewed
    bends, filled = _BENDS[:, None], usual_filled * _TIMES
    growth = np.log(-np.expm1(-filled[:, None] * rows ** bends[..., None]))  # shape (bends, filled, seen)
    off = steps - np.diff(growth)[..., informative]
    splits = np.clip(off @ tasks / (tasks @ tasks + (_NOISE / _SPLIT_DEVIATION) ** 2), 0.0, 1.0)
    errors = np.minimum(np.abs(off - splits[..., None] * tasks) / _NOISE, 3.0)
    unusual = ((bends - usual_bend) / _BEND_DEVIATION) ** 2 + (np.log(_TIMES) / _FILLED_DEVIATION) ** 2
    loss = np.sum(errors**2, axis=-1) + unusual + (splits / _SPLIT_DEVIATION) ** 2
    bend, times = np.unravel_index(np.argmin(loss), loss.shape)
    return Partials(
        newest,
        filled=float(filled[times]),
        bend=float(_BENDS[bend]),
        by_tasks=float(splits[bend, times]),
        growth_deviation=1 / math.hypot(1 / _GROWTH_DEVIATION, math.sqrt(changes @ changes) / _NOISE),
        split_deviation=1 / math.hypot(2 / _SPLIT_DEVIATION, math.sqrt(tasks @ tasks) / _NOISE),
    )


def _filled_by_equal_groups(one: ObservedPartials) -> float:
    """Return r / k, the draws per group, if r draws hit k * (1 - exp(-r / k)) of k equal groups; by bisection."""
    share = min(max(one.partials, 1.0) / max(one.rows, 1.0), 0.999)
    low, high = 1e-4, 1 / share + 1
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if -math.expm1(-middle) / middle > share else (low, middle)
    return low
