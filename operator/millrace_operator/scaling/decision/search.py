"""Searches the plans around the present one for the cheapest that is predicted to do what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..batch_time.batch_model import BatchLoad, BatchModel, Prediction
from ..plans import Bounds, Range, Shape
from ..zones import Driver

_EXECUTORS, _REPLICAS = 40, 6
_TASKS_PER_CORE = (1, 2, 3)
_SLICES_PER_CORE = (1, 2)

ALIKE = 0.03
"""Plans whose W differ by no more than this share are equally good."""

WIDE = 0.4
"""Share by which the upper end of an interval may be above the prediction that cores are given back by."""

SPEEDUP = 0.7
"""Twice the cores usually bring batches down by 2 to the power of this."""

TRIAL_MARGIN = 0.05
"""How far under the mean W that is needed the usual effect of cores has to come, for some jobs gain less."""

_WORTH = 0.1
"""One percent more cores has to make batches shorter by so many percent, where no plan makes them short enough."""

Mask = NDArray[np.bool_]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Forecast:
    """What is predicted of a plan: W with its 90 % interval, and the stage that takes longest."""

    plan: Shape
    utilization: float
    low: float
    high: float
    bottleneck: str


@dataclass(frozen=True)
class Need:
    """What a plan has to do: process ``load`` at a mean W of at most ``mean``, and to be certain of ``limit``.

    That is: W is at most ``limit`` when it is taken ``caution`` of the way from the prediction up to the end of its
    interval.
    """

    load: BatchLoad
    mean: float
    limit: float
    caution: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.load.rows / self.load.interval


def _thinned(values: Range, most: int) -> list[int]:
    """At most about ``most`` numbers of a range: all, or steps of equal ratio."""
    if values.high - values.low < most:
        return list(range(values.low, values.high + 1))
    return sorted({round(value) for value in np.geomspace(values.low, values.high, most)})


def candidates(bounds: Bounds, present: Shape, executors: Range) -> list[Shape]:
    """Plans to compare, about a thousand at most, with so many executors; before them the present one.

    Parallelism and replicas are those that fill the cores evenly, and those of the present plan if they fill them.
    """
    counts = {*_thinned(executors, _EXECUTORS), present.executors, bounds.executors.low, bounds.executors.high}
    pods = {*_thinned(bounds.replicas, _REPLICAS), bounds.replicas.nearest(present.replicas)}
    plans = {present: None}
    for count in sorted(counts & set(range(executors.low, executors.high + 1))):
        cores = count * bounds.executor_cores
        parallelism = _filling(cores, _TASKS_PER_CORE, present.parallelism, bounds.parallelism)
        slices = _filling(cores, _SLICES_PER_CORE, present.replicas, bounds.replicas)
        replicas = pods if bounds.dedicated else slices
        plans.update((Shape(count, n, m), None) for n in sorted(parallelism) for m in sorted(replicas))
    return list(plans)


def _filling(cores: int, per_core: Sequence[int], present: int, allowed: Range) -> set[int]:
    """Numbers of tasks that leave no core idle, as far as that is allowed."""
    tasks = {factor * cores for factor in per_core} | ({present} if present >= cores else set())
    return {allowed.nearest(count) for count in tasks}


class Search:
    """Candidates with what is predicted of them under one need; the present plan is the first of them.

    One prediction serves any number of questions. Arrays have the shape ``(candidates,)``.

    Attributes:
        plans: the candidates.
        need: what they have to do.
        executors, cores: what they take.
        middle, cautious: their W, as predicted and as far up in the interval as the need says.
        usual: their W if cores have their usual effect on that of the present plan.
        wide: whether the interval is too wide to rely on.
        likely, fits: whether they meet the need, for what is predicted only and with the caution that is asked for.
    """

    def __init__(
        self, model: BatchModel, bounds: Bounds, present: Shape, executors: Range, need: Need, bias: float = 1.0
    ) -> None:
        """Predict the candidates with so many executors; batches take ``bias`` times what the model says."""
        self.plans, self.need, self._bias = candidates(bounds, present, executors), need, bias
        self._model = model
        self._prediction = model.predict(self.plans, need.load)
        factor = bias / need.load.interval
        self.middle, high = self._prediction.seconds * factor, self._prediction.high * factor
        self.cautious: Vector = self.middle + need.caution * (high - self.middle)
        self.wide: Mask = high > self.middle * (1 + WIDE)
        self.executors: NDArray[np.int64] = np.array([plan.executors for plan in self.plans])
        self.cores: Vector = np.array([bounds.cores(plan) for plan in self.plans])
        if bounds.dedicated:
            busy = model.partitioner_load(np.array([plan.replicas for plan in self.plans]), need.rate)
            self.middle, self.cautious = np.maximum(self.middle, busy), np.maximum(self.cautious, busy)
        self.usual: Vector = self.middle[0] * (self.cores[0] / self.cores) ** SPEEDUP
        self.likely: Mask = self.middle <= need.mean
        self.fits: Mask = self.likely & (self.cautious <= need.limit)

    def forecast(self, index: int) -> Forecast:
        """What is predicted of a candidate."""
        return forecast(self.plans, self._prediction, index, self.need.load.interval, self._bias)

    def cheapest(self, among: Mask, drivers: frozenset[Driver] = frozenset()) -> int | None:
        """The best of candidates that are equally good but for their price; None if there are none.

        It has the fewest cores; among equals a W that is about the lowest, then the fewest changes of parallelism and
        replicas, then changes only of what the drivers ask for. Where batches are within the interval as yet, it is
        the W until executors come that counts: afterwards it is low enough with all of these.
        """
        if not among.any():
            return None
        equals = np.flatnonzero(among & (self.cores == self.cores[among].min())).tolist()
        waits = self.executors[equals[0]] > self.executors[0] and self.middle[0] <= 1 and self.fits[equals].all()
        return self._best(equals, self._meanwhile(equals) if waits else self.cautious[equals], drivers)

    def proportional(self, among: Mask) -> int:
        """What is enough if cores have their usual effect, whatever is predicted; if nothing is, the most cores."""
        enough = among & (self.usual <= self.need.mean - TRIAL_MARGIN)
        cores = self.cores[enough].min() if enough.any() else self.cores[among].max()
        return self._lowest(among & (self.cores == cores))

    def surest(self, among: Mask) -> int | None:
        """The one with the lowest W; None if there are none."""
        return self._lowest(among) if among.any() else None

    def nearest(self, among: Mask) -> int:
        """The best of candidates of which none meets the need: one that has a low W for few cores.

        The present one stays where others are hardly better.
        """
        score = np.where(among, self.middle * self.cores**_WORTH, np.inf)
        best = int(np.argmin(score))
        return best if score[best] < score[0] * (1 - ALIKE) else 0

    def next_cheaper(self, index: int) -> int | None:
        """The one with the lowest W of those that take fewer cores than a candidate, but not much fewer."""
        cheaper = self.cores < self.cores[index]
        if not cheaper.any():
            return None
        return self._lowest(cheaper & (self.cores == self.cores[cheaper].max()))

    def _meanwhile(self, indices: list[int]) -> Vector:
        """W with the parallelism and replicas of candidates as long as only the present executors are there."""
        executors = self.plans[0].executors
        plans = [Shape(executors, self.plans[i].parallelism, self.plans[i].replicas) for i in indices]
        return self._model.predict(plans, self.need.load).seconds

    def _lowest(self, equals: Mask) -> int:
        indices = np.flatnonzero(equals).tolist()
        return self._best(indices, self.cautious[indices], frozenset())

    def _best(self, indices: list[int], rank: Vector, drivers: frozenset[Driver]) -> int:
        alike = [index for index, value in zip(indices, rank, strict=True) if value <= rank.min() * (1 + ALIKE)]
        return min(alike, key=lambda index: (*self._changes(index, drivers), self.cautious[index]))

    def _changes(self, index: int, drivers: frozenset[Driver]) -> tuple[int, int]:
        """How many of parallelism and replicas change, and how many of them though no driver asks for it.

        A rate asks for replicas, keys ask for parallelism.
        """
        plan, present = self.plans[index], self.plans[0]
        changed = {Driver.RATE: plan.replicas != present.replicas, Driver.KEYS: plan.parallelism != present.parallelism}
        return sum(changed.values()), sum(changes for driver, changes in changed.items() if driver not in drivers)


def forecast(
    plans: Sequence[Shape], prediction: Prediction, index: int, interval: float, bias: float = 1.0
) -> Forecast:
    """What is predicted of one of ``plans`` at a batch interval, seconds, if batches take ``bias`` times as long."""
    seconds = (prediction.seconds, prediction.low, prediction.high)
    middle, low, high = (float(array[index]) * bias / interval for array in seconds)
    return Forecast(plans[index], middle, low, high, prediction.bottleneck(index))


def predicted(model: BatchModel, plan: Shape, rows: float, interval: float) -> Forecast:
    """What is predicted of one plan for batches of ``rows`` records."""
    return forecast([plan], model.predict([plan], BatchLoad(rows, interval)), 0, interval)
