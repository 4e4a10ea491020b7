"""The plans that a query needs before it is deployed, from costs that were measured on another machine.

The model is the operator's own (``scaling.batch_time``). It is fitted to batches with executors of one core, since the
cores of a machine are what a calibration run varies, and predicts for the executors of the spec.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..scaling.batch_time.batch_model import BatchLoad, BatchModel
from ..scaling.batch_time.calibration import Calibration
from ..scaling.batch_time.stage_work import GROUP, RECORD, TASK
from ..scaling.decision.search import Forecast, Need, Search
from ..scaling.observation import Observation
from ..scaling.shape import Bounds, Range, Shape, Vector

_BISECTIONS = 40
_MOST_RATE = 1e9
"""Records per second that no query carries."""

_BEYOND = 8
"""Multiple of the bounds of executors, parallelism and replicas within which a plan beyond them is looked for."""

_TASK_COUNTS = 24
"""Numbers of tasks, at most, among which the shortest batch is looked for."""

_LADDER = (0.125, 0.25, 0.5, 1.0)
"""Rates that are reported where none is asked for, as shares of the highest one that the bounds carry."""

_STRETCH = 1.25
"""Multiple of what was measured from which a prediction is an extrapolation."""


@dataclass(frozen=True)
class LearnedCost:
    """A cost of batches in seconds, with its 90 % interval; ``of`` says what it is the cost of."""

    of: str
    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class RateForecast:
    """What a rate takes.

    Attributes:
        rate: records per second.
        plan: the smallest plan of which W is predicted to stay below the target; None if no plan within bounds does.
        sure: the smallest plan of which even the upper end of the interval does; None likewise.
        beyond: the smallest plan outside of the bounds, if none within does; None if there is none at all.
        nearest: the plan within bounds with the lowest W.
        shortest: seconds of a batch that no number of executors goes below.
        cause: the stage that takes most of these, or ``fixed``.
        extrapolates: what of the load and the plan is more than was measured, in words.
    """

    rate: float
    plan: Forecast | None
    sure: Forecast | None
    beyond: Forecast | None
    nearest: Forecast
    shortest: float
    cause: str
    extrapolates: tuple[str, ...]


@dataclass(frozen=True)
class Deployment:
    """A query that is to be deployed, and the observations that its costs follow from.

    Attributes:
        observations: batches under several plans, whose shapes have executors of one core.
        measured_partitions: state partitions of these.
        bounds: the bounds of the spec, with its executors.
        present: the first plan of the query.
        interval: batch interval in seconds.
        target: W that plans have to stay below.
        state_partitions: state partitions that the query will have.
    """

    observations: Sequence[Observation]
    measured_partitions: int
    bounds: Bounds
    present: Shape
    interval: float
    target: float
    state_partitions: int

    @cached_property
    def calibration(self) -> Calibration:
        """The calibration that has seen the observations."""
        found = Calibration(replace(self.bounds, executor_cores=1, replica_cores=0.0), self.measured_partitions)
        for seen in self.observations:
            found.add(seen)
        return found

    @cached_property
    def model(self) -> BatchModel:
        """The model for the executors and the state partitions of the spec."""
        learned = self.calibration.model()
        return replace(learned, executor_cores=self.bounds.executor_cores, state_partitions=self.state_partitions)

    def rates(self) -> list[float]:
        """Return some rates that the bounds carry, the highest one last, in round numbers."""
        low, high = 1.0, _MOST_RATE
        if not self._search(low, self.bounds, 0.0).likely.any():
            return [low]
        for _ in range(_BISECTIONS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._search(middle, self.bounds, 0.0).likely.any() else (low, middle)
        return list(dict.fromkeys(_rounded_down(low * share) for share in _LADDER))

    def forecast(self, rate: float) -> RateForecast:
        """Return what a rate takes."""
        search = self._search(rate, self.bounds, 1.0)
        chosen, sure = search.cheapest(search.likely), search.cheapest(search.fits)
        nearest = search.forecast(int(np.argmin(search.middle)))
        plan = None if chosen is None else search.forecast(chosen)
        shortest, cause = self._shortest(rate)
        beyond = None
        if plan is None and shortest <= self.target * self.interval:
            wider = self._search(rate, self._widened(), 1.0)
            index = wider.cheapest(wider.likely)
            beyond = None if index is None else wider.forecast(index)
        shown = plan or beyond or nearest
        return RateForecast(
            rate=rate,
            plan=plan,
            sure=None if sure is None else search.forecast(sure),
            beyond=beyond,
            nearest=nearest,
            shortest=shortest,
            cause=cause,
            extrapolates=tuple(self._extrapolated(rate, shown.plan)),
        )

    def costs(self) -> list[LearnedCost]:
        """Return the costs that were learned, as users know the parts of a batch."""
        model, names = self.model, [stage.name for stage in self.model.stages]
        sizes = len(names) * 4

        def part(stage: str, kind: int) -> Vector:
            chosen = np.zeros(3 + sizes)
            chosen[3 + names.index(stage) * 4 + kind] = 1.0
            return chosen

        def alone(place: int) -> Vector:
            return np.asarray(np.eye(3 + sizes)[place])

        combined = part("combine", GROUP) + part("merge", GROUP)
        shown = {
            "a batch, whatever it has": alone(0),
            "a task, to schedule": alone(1),
            "a task that reads or combines, to start": part("route", TASK),
            "a state partition": part("merge", TASK),
            "a record that is read, and routed": part("route", RECORD),
            "a record that is combined": part("combine", RECORD),
            "a partial result, to combine and to merge": combined,
        }
        return [LearnedCost(name, *model.cost_interval(chosen)) for name, chosen in shown.items()]

    @property
    def contention(self) -> float:
        """The share by which each further busy core slows all of them."""
        return self.model.contention

    def _search(self, rate: float, bounds: Bounds, caution: float) -> Search:
        need = Need(BatchLoad(rate * self.interval, self.interval), self.target, self.target, caution)
        present = bounds.nearest(replace(self.present, executors=bounds.executors.low))
        return Search(self.model, bounds, present, bounds.executors, need)

    def _widened(self) -> Bounds:
        bounds = self.bounds
        executors = Range(bounds.executors.low, bounds.executors.high * _BEYOND)
        tasks = executors.high * bounds.executor_cores
        return replace(
            bounds,
            executors=executors,
            parallelism=Range(bounds.parallelism.low, max(bounds.parallelism.high, tasks)),
            replicas=Range(bounds.replicas.low, max(bounds.replicas.high, tasks)),
        )

    def _shortest(self, rate: float) -> tuple[float, str]:
        """Return the seconds of the shortest batch that the spec's tasks allow, and what takes most of it."""
        bounds = self.bounds
        counts = [_spaced(allowed) for allowed in (bounds.parallelism, bounds.replicas)]
        shapes = [
            Shape(math.ceil(max(n, m, self.state_partitions) / bounds.executor_cores), n, m)
            for n in counts[0]
            for m in counts[1]
        ]
        found = self.model.predict(shapes, BatchLoad(rate * self.interval, self.interval))
        best = int(np.argmin(found.seconds))
        return float(found.seconds[best]), found.bottleneck(best)

    def _extrapolated(self, rate: float, plan: Shape) -> list[str]:
        rows = max(seen.rows for seen in self.observations)
        cores = max(seen.plan.executors for seen in self.observations)
        found = []
        if rate * self.interval > _STRETCH * rows:
            found.append(f"batches of {rate * self.interval:,.0f} records, of {rows:,.0f} measured")
        if self.bounds.cores(plan) > _STRETCH * cores:
            found.append(f"{self.bounds.cores(plan):g} cores, of {cores} measured")
        return found


def _spaced(allowed: Range) -> list[int]:
    spaced = np.geomspace(allowed.low, allowed.high, _TASK_COUNTS)
    return sorted({allowed.nearest(round(float(value))) for value in spaced})


def _rounded_down(rate: float) -> float:
    """Return a rate with two digits, and never above itself."""
    if rate < 10:
        return max(math.floor(rate), 1)
    step = 10 ** (math.floor(math.log10(rate)) - 1)
    return float(math.floor(rate / step) * step)
