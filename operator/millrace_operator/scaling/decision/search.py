"""Search among the shapes near the present one for the cheapest that is predicted to meet the demand.

``batch_time.batch_model`` predicts; ``steps`` chooses among what was found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..batch_time.batch_model import BatchLoad, BatchModel, Prediction
from ..shape import Bounds, Range, Shape, Vector
from ..zones import LoadDriver

NETWORK = "network"
"""Name of the bottleneck if an executor's network is busier than its cores."""

_EXECUTORS, _REPLICAS = 40, 6
"""Most numbers of executors, and of replicas in their own pods, that a search compares."""

_TASKS_PER_CORE, _SLICES_PER_CORE = (1, 2, 3), (1, 2)
"""Combine tasks per core, and slices per core, that a search compares."""

REPLICAS = "replicas"
"""Name of the bottleneck if partitioner pods are busier than batches are long."""

ALIKE = 0.03
"""Share by which the W of two shapes may differ for both to be equally good."""

WIDE = 0.4
"""Largest share by which the upper end of an interval may exceed the prediction when cores are released."""

SPEEDUP = 0.7
"""Exponent of the usual speedup: twice the cores divide the batch time by 2 to the power of this."""

TRIAL_MARGIN = 0.05
"""Margin below the required mean W that the usual effect of cores has to reach, because some jobs gain less."""

_RATES = 8
"""Rates between which the capacity of a plan is interpolated."""

_WORTH = 0.1
"""Percent by which 1 % more cores must shorten batches, when no plan makes them short enough."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Forecast:
    """The prediction for a plan: W with its 90 % interval, and what limits it: the longest stage, or ``REPLICAS``."""

    plan: Shape
    utilization: float
    low: float
    high: float
    bottleneck: str


@dataclass(frozen=True)
class Need:
    """The requirement on a plan: process ``load`` at a mean W of at most ``mean``, and certainly within ``limit``.

    A plan is certainly within ``limit`` if W does not exceed it at ``caution`` of the way from the prediction to the
    upper end of its interval.
    """

    load: BatchLoad
    mean: float
    limit: float
    caution: float

    @property
    def rate(self) -> float:
        """The load in records per second."""
        return self.load.rows / self.load.interval


def _thinned(values: Range, most: int) -> list[int]:
    """Return at most ``most`` numbers of a range: all of them, or steps of equal ratio."""
    if values.high - values.low < most:
        return list(range(values.low, values.high + 1))
    return sorted({round(value) for value in np.geomspace(values.low, values.high, most)})


def candidates(bounds: Bounds, present: Shape, executors: Range, enough: int = 1) -> list[Shape]:
    """Return the shapes to compare, at most about a thousand: the present one first, then those within ``executors``.

    Parallelism and replicas are those that fill the cores evenly, and those of the present plan if they fill them.
    Replicas in pods of their own are also the number that is ``enough`` for their load.
    """
    counts = {*_thinned(executors, _EXECUTORS), present.executors, bounds.executors.low, bounds.executors.high}
    pods = {*_thinned(bounds.replicas, _REPLICAS), *map(bounds.replicas.nearest, (present.replicas, enough))}
    shapes = {present: None}
    for count in sorted(counts & set(range(executors.low, executors.high + 1))):
        cores = count * bounds.executor_cores
        parallelism = _filling(cores, _TASKS_PER_CORE, present.parallelism, bounds.parallelism)
        slices = _filling(cores, _SLICES_PER_CORE, present.replicas, bounds.replicas)
        replicas = pods if bounds.dedicated else slices
        shapes.update((Shape(count, n, m), None) for n in sorted(parallelism) for m in sorted(replicas))
    return list(shapes)


def _filling(cores: int, per_core: Sequence[int], present: int, allowed: Range) -> set[int]:
    """Return numbers of tasks that leave no core idle, as far as ``allowed`` permits."""
    tasks = {factor * cores for factor in per_core} | ({present} if present >= cores else set())
    return {allowed.nearest(count) for count in tasks}


class Search:
    """The candidate shapes with their predictions under one need; the present one is the first.

    One prediction serves any number of queries. Arrays have the shape ``(candidates,)``.

    Attributes:
        shapes: the candidates.
        need: the requirement.
        executors, cores: what each candidate takes.
        middle, cautious: W as predicted, and W as far up in the interval as the need says.
        usual: W if cores have their usual effect on that of the present plan.
        wide: whether the interval is too wide to rely on.
        network: the busy share of an executor's network in the direction that is busier, which counts like W; 0 if its
            capacity or the size of records is unknown.
        likely, fits: whether the need is met, by the prediction alone, and also with the required caution.
    """

    def __init__(
        self, model: BatchModel, bounds: Bounds, present: Shape, executors: Range, need: Need, bias: float = 1.0
    ) -> None:
        """Predict the candidates within ``executors``; batches take ``bias`` times what the model says."""
        enough = math.ceil(float(model.partitioner_load(np.ones(1), need.rate)[0]) / need.mean)
        self.shapes, self.need, self._bias = candidates(bounds, present, executors, enough), need, bias
        self._model = model
        self._prediction = model.predict(self.shapes, need.load)
        factor = bias / need.load.interval
        self.middle, high = self._prediction.seconds * factor, self._prediction.most * factor
        self.cautious: Vector = self.middle + need.caution * (high - self.middle)
        self.wide: Mask = high > self.middle * (1 + WIDE)
        self.executors: NDArray[np.int64] = np.array([shape.executors for shape in self.shapes])
        self.cores: Vector = np.array([bounds.cores(shape) for shape in self.shapes])
        self._busy: Vector | None = None
        if bounds.dedicated:
            self._busy = model.partitioner_load(np.array([shape.replicas for shape in self.shapes]), need.rate)
            self.middle, self.cautious = np.maximum(self.middle, self._busy), np.maximum(self.cautious, self._busy)
        self.network: Vector = _network(model, bounds, self.shapes, need.load)
        self.middle, self.cautious = (np.maximum(each, self.network) for each in (self.middle, self.cautious))
        self.usual: Vector = self.middle[0] * (self.cores[0] / self.cores) ** SPEEDUP
        self.likely: Mask = self.middle <= need.mean
        self.fits: Mask = self.likely & (self.cautious <= need.limit)

    def forecast(self, index: int) -> Forecast:
        """Return the forecast for a candidate, with the network as the bottleneck if it is busier than the cores.

        Its W is never that of partitioner pods, also where they are the bottleneck.
        """
        found = forecast(self.shapes, self._prediction, index, self.need.load.interval, self._bias)
        network = float(self.network[index])
        if network > found.utilization:
            found = Forecast(found.plan, network, network, max(found.high, network), NETWORK)
        limited = self._busy is not None and self._busy[index] > found.utilization
        return replace(found, bottleneck=REPLICAS) if limited else found

    def capacity(self, index: int, target: float, highest: float) -> float:
        """Return the records per second, between those of the need and ``highest``, at which W reaches ``target``.

        It is either end if W of the candidate is above or below that in all of it.
        """
        load, rate = self.need.load, self.need.rate
        rates = np.linspace(rate, max(highest, rate), _RATES)
        seconds = self._model.seconds(self.shapes[index], (rates * load.interval).tolist()).seconds
        other = max(float(self.network[index]), float(self._busy[index]) if self._busy is not None else 0.0)
        utilization = np.maximum(seconds * self._bias / load.interval, other * rates / rate)
        return float(np.interp(target, np.maximum.accumulate(utilization), rates))

    def why_unfit(self, index: int) -> str:
        """Return why a candidate does not fit, with the numbers."""
        network, cautious, limit = self.network[index], self.cautious[index], self.need.limit
        if network > limit and network >= cautious:
            return f"an executor's network would be busy for {network:.2f} of the time, above {limit:.2f}"
        return f"W {cautious:.2f} is above {limit:.2f}"

    def cheapest(self, among: Mask, drivers: frozenset[LoadDriver] = frozenset()) -> int | None:
        """Return the best candidate among those with the fewest cores; None if there are no candidates.

        Ties go to a W that is about the lowest, then to the fewest changes of parallelism and replicas, then to changes
        only of what the drivers ask for.
        """
        if not among.any():
            return None
        return self._lowest(np.flatnonzero(among & (self.cores == self.cores[among].min())).tolist(), drivers)

    def proportional(self, among: Mask) -> int:
        """Return the cheapest candidate that suffices if cores have their usual effect, or the largest if none does.

        Predictions only decide between candidates with equally many cores.
        """
        enough = among & (self.usual <= self.need.mean - TRIAL_MARGIN)
        cores = self.cores[enough].min() if enough.any() else self.cores[among].max()
        return self._lowest(np.flatnonzero(among & (self.cores == cores)).tolist())

    def surest(self, among: Mask) -> int | None:
        """Return the candidate with the lowest W; None if there are no candidates."""
        if not among.any():
            return None
        equals = np.flatnonzero(among).tolist()
        return self._best(equals, self.cautious[equals], frozenset())

    def nearest(self, among: Mask) -> int:
        """Return the best of candidates that all miss the need: one with a low W for few cores.

        The present plan stays if the others are hardly better.
        """
        score = np.where(among, self.middle * self.cores**_WORTH, np.inf)
        best = int(np.argmin(score))
        return best if score[best] < score[0] * (1 - ALIKE) else 0

    def next_cheaper(self, index: int) -> int | None:
        """Return the candidate with the lowest W among those with the next fewer cores; None if none has fewer."""
        cheaper = self.cores < self.cores[index]
        if not cheaper.any():
            return None
        return self._lowest(np.flatnonzero(cheaper & (self.cores == self.cores[cheaper].max())).tolist())

    def _lowest(self, indices: list[int], drivers: frozenset[LoadDriver] = frozenset()) -> int:
        """Return the candidate with about the lowest W."""
        return self._best(indices, self.cautious[indices], drivers)

    def _best(self, indices: list[int], rank: Vector, drivers: frozenset[LoadDriver]) -> int:
        alike = [index for index, value in zip(indices, rank, strict=True) if value <= rank.min() * (1 + ALIKE)]
        return min(alike, key=lambda index: (*self._changes(index, drivers), self.cautious[index]))

    def _changes(self, index: int, drivers: frozenset[LoadDriver]) -> tuple[int, int]:
        """Count the changes of replicas, for a rate, and parallelism, for keys; and those that no driver asks for."""
        shape, present = self.shapes[index], self.shapes[0]
        changed = {LoadDriver.RATE} if shape.replicas != present.replicas else set()
        changed |= {LoadDriver.KEYS} if shape.parallelism != present.parallelism else set()
        return len(changed), len(changed - drivers)


def _network(model: BatchModel, bounds: Bounds, shapes: Sequence[Shape], load: BatchLoad) -> Vector:
    traffic = model.traffic(shapes, load) if bounds.network is not None else None
    if bounds.network is None or traffic is None:
        return np.zeros(len(shapes))
    received, sent = traffic
    return np.maximum(received / bounds.network.receives, sent / bounds.network.sends)


def forecast(
    shapes: Sequence[Shape], prediction: Prediction, index: int, interval: float, bias: float = 1.0
) -> Forecast:
    """Return the forecast for one of ``shapes`` at an ``interval`` in seconds; batches take ``bias`` times as long."""
    seconds = (prediction.seconds, prediction.low, prediction.high)
    middle, low, high = (float(array[index]) * bias / interval for array in seconds)
    return Forecast(shapes[index], middle, low, high, prediction.bottleneck(index))


def predicted(model: BatchModel, shape: Shape, rows: float, interval: float) -> Forecast:
    """Return the forecast for one plan with batches of ``rows`` records."""
    return forecast([shape], model.predict([shape], BatchLoad(rows, interval)), 0, interval)
