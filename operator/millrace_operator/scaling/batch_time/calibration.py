"""Calibration: learns what a job's batches cost from its own reports, in bounded memory, and builds the model."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..observation import Observation, Stage
from ..shape import Bounds, Shape
from .batch_model import BatchModel
from .cost_fit import BATCH_NOISE, Equations, Fit, fit_logs, prior_fit
from .costs import NAMES, StageCosts, parts, prior_precision
from .partials import ObservedPartials, Partials, learn
from .skew import Skew, hot_share

Vector = NDArray[np.float64]

_ENOUGH = 3
_HALF_LIFE, _LEAST = 16.0, 0.05
"""Observations after which an older one weighs half, and the least weight: old ones may be all there is of a plan."""

_AFTER_CHANGE = 0.2
"""Weight of the first observation of a plan, whose batches have to warm up."""

_SCATTER, _SCATTER_WEIGHT = 0.06, 4.0
"""Initial scatter of batch times about the model, as a share, and how many observations it counts as."""

_ODD = 0.01
"""Number of tasks by which rounding may lift a mean above the plan's tasks."""

_MOST, _LEAST_SECONDS = 1e12, 1e-3
"""Largest plausible value of any number of a batch, and the least plausible batch time in seconds."""


class Calibration:
    """Observations of one job, and the costs that explain them."""

    def __init__(self, bounds: Bounds, state_partitions: int, prior: StageCosts | None = None) -> None:
        self._bounds = bounds
        self._state_partitions = state_partitions
        self._prior = np.log((prior or StageCosts()).vector)
        self._precision = prior_precision()
        self._parts = parts(bounds.dedicated)
        self._recent = Recent()
        self._start = self._prior
        self._model: BatchModel | None = None

    def add(self, seen: Observation) -> None:
        """Record an observation, unless its numbers are implausible; stages that are of another plan are left out."""
        if _plausible(seen):
            self._recent.add(_without_odd_stages(seen))
            self._model = None

    @property
    def ready(self) -> bool:
        """Whether enough has been seen to predict."""
        return self._recent.count >= _ENOUGH

    def model(self) -> BatchModel:
        """Return the present model; without observations it is the prior."""
        if self._model is None:
            self._model = self._fitted()
        return self._model

    def to_json(self) -> dict[str, Any]:
        """Return all remembered observations, for ``from_json``."""
        return {"observations": self._recent.to_json()}

    @classmethod
    def from_json(
        cls, stored: Mapping[str, Any], bounds: Bounds, state_partitions: int, prior: StageCosts | None = None
    ) -> Calibration:
        """Return a calibration with the observations that another one saved.

        Raises:
            KeyError, TypeError: ``stored`` was not written by ``to_json``.
        """
        calibration = cls(bounds, state_partitions, prior)
        calibration._recent = Recent.from_json(stored["observations"])
        return calibration

    def _fitted(self) -> BatchModel:
        remembered = self._recent.all()
        seen = [one.seen for one in remembered]
        skew = skew_of(same_keys(seen))
        if not seen:
            return self._made(prior_fit(self._prior, self._precision), _SCATTER, skew, seen)
        age = np.array([remembered[-1].number - one.number for one in remembered])
        after_change = np.array([_AFTER_CHANGE if one.first else 1.0 for one in remembered])
        weights = np.maximum(0.5 ** (age / _HALF_LIFE), _LEAST) * after_change
        equations = Equations(seen, self._parts, self._bounds.executor_cores, self._state_partitions)
        fit = fit_logs(equations.residuals, equations.weights(weights), self._prior, self._precision, self._start)
        self._start = fit.logs
        scatter, wider = _scatter(*equations.batch_errors(fit), weights)
        return self._made(Fit(fit.logs, fit.factor * wider), scatter, skew, seen)

    def _made(self, fit: Fit, scatter: float, skew: Skew, seen: list[Observation]) -> BatchModel:
        values = np.exp(fit.logs)
        costs = dict(zip(NAMES, values.tolist(), strict=True))
        alone = np.eye(len(NAMES))[[NAMES.index(name) for name in ("fixed", "schedule", "contention")]]
        each = np.concatenate([alone, self._parts.placed.reshape(-1, len(NAMES))])
        return BatchModel(
            shapes=self._parts.shapes,
            costs=self._parts.placed @ values,
            fixed=costs["fixed"],
            schedule=costs["schedule"],
            contention=costs["contention"],
            spread=(each * values) @ fit.factor,
            scatter=scatter,
            executor_cores=self._bounds.executor_cores,
            state_partitions=self._state_partitions,
            skew=skew,
            partials=partials_of(same_keys(seen)),
            dedicated=pod_seconds(seen),
            keys=last_keys(seen),
        )


def _scatter(errors: Vector, leverages: Vector, weights: Vector) -> tuple[float, float]:
    """Return the scatter of batches about the model, as a share, and the factor by which it widens the costs' doubt.

    The scatter is a standard deviation. Errors beyond three robust deviations (by the median) count as three. A batch
    with influence on the costs lies closer to the model than others will: its ``leverage`` makes up for that. Few
    observations determine a deviation badly: Student's distribution, instead of the normal one, has its 90 % within
    about 1 + 0.93 / degrees times as much.
    """
    usual = float(np.median(np.abs(errors))) / 0.6745
    clipped = np.clip(errors, -3 * max(usual, _SCATTER), 3 * max(usual, _SCATTER))
    degrees = float(weights @ (1 - leverages)) + _SCATTER_WEIGHT
    squares = float(weights @ clipped**2) + _SCATTER_WEIGHT * _SCATTER**2
    deviation = math.sqrt(squares / degrees) * (1 + 0.93 / degrees)
    return deviation, max(deviation / BATCH_NOISE, 1.0)


def _plausible(seen: Observation) -> bool:
    """Return whether all numbers are within plausible limits."""
    stages = [stage for stage in (seen.route, seen.combine) if stage is not None]
    needed = [
        seen.seconds,
        seen.rows,
        seen.interval,
        *(value for stage in stages for value in (stage.tasks, stage.seconds)),
    ]
    known = [
        value
        for value in (seen.keys, seen.partials, seen.updates, seen.imbalance, seen.merge_seconds, seen.dedicated_busy)
        if value is not None
    ]
    return all(0 <= value <= _MOST for value in needed + known) and seen.seconds >= _LEAST_SECONDS


def _without_odd_stages(seen: Observation) -> Observation:
    """Drop the clocks of stages that report more tasks than the plan has: these are repeated, or of another plan."""
    route, combine = seen.route, seen.combine
    return replace(
        seen,
        route=route if route is not None and route.tasks <= seen.plan.replicas + _ODD else None,
        combine=combine if combine is not None and combine.tasks <= seen.plan.parallelism + _ODD else None,
    )


PLANS = 32
"""Number of plans that are remembered; the one that ran least recently is forgotten first."""

PER_PLAN = 16
"""Number of observations that are remembered of each plan."""


@dataclass(frozen=True)
class NumberedObservation:
    """An observation, the number of observations before it, and whether it is the first after a change of plan."""

    number: int
    first: bool
    seen: Observation


class Recent:
    """The remembered observations, at most ``PLANS`` times ``PER_PLAN``."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Shape, deque[NumberedObservation]] = OrderedDict()
        self._newest: Observation | None = None
        self.count = 0

    def add(self, seen: Observation) -> None:
        """Remember an observation; this may drop the plan that ran least recently."""
        before = self._newest
        first = before is not None and (seen.epoch, seen.plan) != (before.epoch, before.plan)
        self._keep(NumberedObservation(self.count, first, seen))

    def _keep(self, one: NumberedObservation) -> None:
        self._plans.setdefault(one.seen.plan, deque(maxlen=PER_PLAN)).append(one)
        self._plans.move_to_end(one.seen.plan)
        if len(self._plans) > PLANS:
            self._plans.popitem(last=False)
        self._newest = one.seen
        self.count = one.number + 1

    def all(self) -> list[NumberedObservation]:
        """Return all remembered observations, oldest first."""
        return sorted((one for plan in self._plans.values() for one in plan), key=lambda one: one.number)

    def to_json(self) -> list[dict[str, Any]]:
        """Return all remembered observations for ``from_json``, oldest first."""
        return [asdict(one) for one in self.all()]

    @classmethod
    def from_json(cls, stored: list[Mapping[str, Any]]) -> Recent:
        """Return the memory that ``to_json`` wrote.

        Raises:
            KeyError, TypeError: ``stored`` was not written by ``to_json``.
        """
        recent = cls()
        for one in stored:
            recent._keep(NumberedObservation(one["number"], one["first"], _observation(one["seen"])))
        return recent


def _observation(stored: Mapping[str, Any]) -> Observation:
    stages = {name: None if stored[name] is None else Stage(**stored[name]) for name in ("route", "combine")}
    return Observation(**{**stored, **stages, "plan": Shape(**stored["plan"])})


_OTHER_KEYS, _SAME_RATE = 0.25, 0.1
"""Change of imbalance or partial results that cannot be chance, and width of equal rates; both as logarithms."""

_PARTIALS = 32
"""Observations from which the number of partial results is learned."""

_POD_MEASUREMENTS = 16
"""Observations from which the load of partitioner pods is learned."""


def same_keys(seen: Sequence[Observation]) -> Sequence[Observation]:
    """Return the observations, oldest first, since the keys last changed in number or in skew.

    A change shows when the same parallelism at about the same rate has a different imbalance, or different partial
    results. What was observed in between counts as after the change.
    """
    begins = 0
    reported: dict[tuple[str, int, int], tuple[int, float]] = {}
    for index, one in enumerate(seen):
        rate = round(math.log(max(one.rows, 1.0)) / _SAME_RATE)
        numbers = {"imbalance": one.imbalance, "partials": one.partials}
        for name, number in numbers.items():
            if number is not None:
                place = (name, one.plan.parallelism, rate)
                before, value = reported.get(place, (-1, number))
                if before >= begins and abs(math.log((1 + number) / (1 + value))) > _OTHER_KEYS:
                    begins = before + 1
                reported[place] = index, number
    return seen[begins:]


def skew_of(seen: Sequence[Observation]) -> Skew:
    """Return the imbalance last measured at each parallelism, and the keys; observations are oldest first."""
    measured = {one.plan.parallelism: one.imbalance for one in seen if one.imbalance is not None}
    return Skew(measured, last_keys(seen))


def partials_of(seen: Sequence[Observation]) -> Partials | None:
    """Fit partial results to the observations that report them, oldest first; None if none does."""
    reported = [
        ObservedPartials(one.rows, one.plan.parallelism, one.partials) for one in seen if one.partials and one.rows >= 1
    ]
    hot = [hot_share(one.imbalance, one.plan.parallelism) for one in seen if one.imbalance and one.plan.parallelism > 1]
    return learn(reported[-_PARTIALS:], hot[-1] if hot else 0.0) if reported else None


def last_keys(seen: Sequence[Observation]) -> float | None:
    """Return the distinct keys of a batch, as last reported; None if they never were."""
    return next((one.keys for one in reversed(seen) if one.keys is not None), None)


def pod_seconds(seen: Sequence[Observation]) -> float | None:
    """Return the busy seconds of a partitioner pod for a record: the median of the observations that report it."""
    reported = [
        one.dedicated_busy * one.plan.replicas * one.interval / one.rows
        for one in seen
        if one.dedicated_busy is not None and one.rows >= 1
    ]
    return float(np.median(reported[-_POD_MEASUREMENTS:])) if reported else None
