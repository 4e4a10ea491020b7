"""Calibration: learns what a job's batches cost from its own reports, in bounded memory, and builds the model."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from millrace_support.batch_cost import MEDIAN_ERROR

from ..observation import Observation, Stage
from ..shape import Bounds, Shape, Vector
from .batch_model import BatchModel
from .cost_fit import BATCH_NOISE, Equations, Fit, fit_logs, prior_fit
from .cost_prior import CostPrior, KnownCosts, expected
from .costs import NAMES, parts
from .partials import ObservedPartials, Partials, learn
from .record_sizes import sizes_of
from .skew import Skew, hot_share

SHAPES, PER_SHAPE = 32, 16
"""Numbers of shapes, and of observations of each, that are remembered; the shape that ran least recently goes first."""

_MIN_OBSERVATIONS = 3
_HALF_LIFE, _MIN_WEIGHT = 16.0, 0.05
"""Observations after which an older one weighs half, and the minimum weight: a shape may have only old ones."""

_AFTER_CHANGE = 0.2
"""Weight of the first observation of a plan, whose batches have to warm up."""

_SCATTER, _SCATTER_WEIGHT = 0.06, 4.0
"""Initial scatter of batch times about the model, as a share, and how many observations it counts as."""

_FEW_PLANS = {1: 3.6, 2: 2.9, 3: 1.8}
"""Factors by which costs are less certain than their fit says after one plan, two, or three.

The fit trusts the model, and what the model leaves out shows only in other plans. With these, 90 % intervals hold
88 % or more of the points of each of the jobs that ``bench.scaling.prediction.TUNED`` names.
"""

_WITH_PRIOR = 2.2
"""The largest of these factors for a job that begins with the costs of another: see ``bench.scaling.donors``."""

_TASK_ROUNDING = 0.01
"""Number of tasks by which rounding may lift a mean above the plan's tasks."""

_MAX_PLAUSIBLE, _MIN_SECONDS = 1e12, 1e-3
"""Largest plausible value of any number of a batch, and the shortest plausible batch time in seconds."""

_OTHER_KEYS, _SAME_RATE = 0.25, 0.1
"""Change of imbalance or partial results that cannot be chance, and width of equal rates; both as logarithms."""

_REFIT, _AS_BEFORE = 4, 0.25
"""Observations after which a plan that has run for long is fitted again, and the change of any number of a batch, as a
logarithm, after which it is fitted at once."""

_PARTIALS, _POD_MEASUREMENTS = 32, 16
"""Observations from which the number of partial results is learned, and the load of partitioner pods."""


@dataclass(frozen=True)
class _Remembered:
    """An observation, the number of observations before it, and whether it is the first after a change of plan."""

    number: int
    first: bool
    seen: Observation


class Calibration:
    """Observations of one job, and the costs that explain them."""

    def __init__(self, bounds: Bounds, state_partitions: int, prior: CostPrior | None = None) -> None:
        """Begin without observations; ``prior`` is what is expected of the costs, by default those of a typical job.

        It is dropped once the job's own batches contradict it.
        """
        self._bounds = bounds
        self._state_partitions = state_partitions
        self._prior = prior
        self._parts = parts(bounds.dedicated)
        self._remembered: OrderedDict[Shape, deque[_Remembered]] = OrderedDict()
        self._newest: _Remembered | None = None
        self._fitted: _Remembered | None = None
        self._start, _ = expected(prior)
        self._known: KnownCosts | None = None
        self._model: BatchModel | None = None

    @property
    def state_partitions(self) -> int:
        """State partitions of the job."""
        return self._state_partitions

    def add(self, seen: Observation) -> None:
        """Record an observation, unless its numbers are implausible; stages that are of another plan are left out."""
        if _plausible(seen):
            before = self._newest.seen if self._newest is not None else seen
            first = (seen.epoch, seen.plan) != (before.epoch, before.plan)
            self._remember(_Remembered(self._count, first, _without_foreign_stages(seen)))

    @property
    def newest(self) -> Observation | None:
        """The last observation; None before the first."""
        return self._newest.seen if self._newest is not None else None

    @property
    def ready(self) -> bool:
        """Whether there are enough observations to predict."""
        return self._count >= _MIN_OBSERVATIONS

    @property
    def executors(self) -> frozenset[int]:
        """Numbers of executors that the remembered batches ran on."""
        return frozenset(shape.executors for shape in self._remembered)

    @property
    def known(self) -> KnownCosts | None:
        """The costs as last fitted; None before the first fit. It is safe to read from another thread."""
        return self._known

    def model(self) -> BatchModel:
        """Return the current model; without observations it is the prior.

        It is fitted to every observation of a plan until that has as many as are remembered of it. Then it is fitted to
        every fourth, since a fit takes milliseconds; and to one that is unlike the last that it was fitted to.
        """
        if self._model is None or self._outdated:
            self._model, self._fitted = self._fit(), self._newest
        return self._model

    @property
    def _outdated(self) -> bool:
        newest, fitted = self._newest, self._fitted
        if newest is fitted:
            return False
        if newest is None or fitted is None or newest.first:
            return True
        if (newest.seen.epoch, newest.seen.plan) != (fitted.seen.epoch, fitted.seen.plan):
            return True
        if newest.number - fitted.number >= _REFIT or len(self._remembered[newest.seen.plan]) < PER_SHAPE:
            return True
        return _unlike(newest.seen, fitted.seen)

    def save(self) -> dict[str, Any]:
        """Return all remembered observations in JSON types, oldest first, and the prior if it is of another job."""
        prior = {} if self._prior is None else {"prior": self._prior.save()}
        return {"observations": [asdict(one) for one in self._all()]} | prior

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned."""
        self._prior = CostPrior.restored(saved["prior"]) if "prior" in saved else None  # earlier versions had none
        self._start, _ = expected(self._prior)
        for one in saved["observations"]:
            self._remember(_Remembered(one["number"], one["first"], _observation(one["seen"])))

    @property
    def _count(self) -> int:
        return self._newest.number + 1 if self._newest is not None else 0

    def _remember(self, one: _Remembered) -> None:
        self._remembered.setdefault(one.seen.plan, deque(maxlen=PER_SHAPE)).append(one)
        self._remembered.move_to_end(one.seen.plan)
        if len(self._remembered) > SHAPES:
            self._remembered.popitem(last=False)
        self._newest = one

    def _all(self) -> list[_Remembered]:
        return sorted((one for of_shape in self._remembered.values() for one in of_shape), key=lambda one: one.number)

    def _fit(self) -> BatchModel:
        remembered = self._all()
        seen = [one.seen for one in remembered]
        prior, precision = expected(self._prior)
        if not seen:
            return self._build(prior_fit(prior, precision), _SCATTER, seen)
        age = np.array([remembered[-1].number - one.number for one in remembered])
        after_change = np.array([_AFTER_CHANGE if one.first else 1.0 for one in remembered])
        weights = np.maximum(0.5 ** (age / _HALF_LIFE), _MIN_WEIGHT) * after_change
        equations = Equations(seen, self._parts, self._bounds.executor_cores, self._state_partitions)
        start, of_residuals = equations.raised(self._start), equations.weights(weights)
        fit = fit_logs(equations.residuals, of_residuals, prior, precision, start)
        if self._prior is not None and self.ready and self._prior.is_contradicted(fit.logs):
            self._prior = None
            self._start, _ = expected(None)
            return self._fit()
        self._start = fit.logs
        scatter, wider = _scatter(*equations.batch_errors(fit), weights)
        fit = Fit(fit.logs, fit.factor * wider)
        self._known = self._as_known(fit, len(seen))
        return self._build(fit, scatter, seen)

    @property
    def _few_plans(self) -> float:
        factor = _FEW_PLANS.get(len(self._remembered), 1.0)
        return factor if self._prior is None else min(factor, _WITH_PRIOR)

    def _as_known(self, fit: Fit, observations: int) -> KnownCosts:
        deviations = np.linalg.norm(fit.factor, axis=1) * self._few_plans
        of_costs = tuple(fit.logs.tolist()), tuple(deviations.tolist())
        return KnownCosts(*of_costs, len(self._remembered), observations, self._bounds.dedicated)

    def _build(self, fit: Fit, scatter: float, seen: Sequence[Observation]) -> BatchModel:
        values = np.exp(fit.logs)
        costs = dict(zip(NAMES, values.tolist(), strict=True))
        alone = np.eye(len(NAMES))[[NAMES.index(name) for name in ("fixed", "schedule", "contention")]]
        each = np.concatenate([alone, self._parts.placed.reshape(-1, len(NAMES))])
        alike = same_keys(seen)
        return BatchModel(
            stages=self._parts.stages,
            costs=self._parts.placed @ values,
            fixed=costs["fixed"],
            schedule=costs["schedule"],
            contention=costs["contention"],
            spread=(each * values) @ fit.factor,
            scatter=scatter,
            executor_cores=self._bounds.executor_cores,
            state_partitions=self._state_partitions,
            skew=skew_of(alike),
            partials=partials_of(alike),
            dedicated=pod_seconds(seen),
            keys=last_keys(seen),
            sizes=sizes_of(alike),
            few_plans=self._few_plans,
        )


def _scatter(errors: Vector, leverages: Vector, weights: Vector) -> tuple[float, float]:
    """Return the scatter of batches about the model, as a share, and the factor by which it widens intervals of costs.

    The scatter is a standard deviation. Errors beyond three robust deviations (by the median) count as three. A batch
    with influence on the costs lies closer to the model than others will: its ``leverage`` makes up for that. Few
    observations determine a deviation badly: Student's distribution, instead of the normal one, has its 90 % within
    about 1 + 0.93 / degrees times as much.
    """
    usual = float(np.median(np.abs(errors))) / MEDIAN_ERROR
    clipped = np.clip(errors, -3 * max(usual, _SCATTER), 3 * max(usual, _SCATTER))
    degrees = float(weights @ (1 - leverages)) + _SCATTER_WEIGHT
    squares = float(weights @ clipped**2) + _SCATTER_WEIGHT * _SCATTER**2
    deviation = math.sqrt(squares / degrees) * (1 + 0.93 / degrees)
    return deviation, max(deviation / BATCH_NOISE, 1.0)


def _unlike(one: Observation, other: Observation) -> bool:
    """Return whether two observations of a plan differ in what the model takes from the newest ones."""
    pairs = [(one.rows, other.rows), (one.seconds * 1000, other.seconds * 1000)]
    optional = ("imbalance", "partials", "keys", "dedicated_busy", "input_bytes", "route_bytes", "combine_bytes")
    pairs += [(getattr(one, name) or 0.0, getattr(other, name) or 0.0) for name in optional]
    return any(abs(math.log((1 + first) / (1 + second))) > _AS_BEFORE for first, second in pairs)


def _plausible(seen: Observation) -> bool:
    stages = [value for stage in (seen.route, seen.combine) if stage for value in (stage.tasks, stage.seconds)]
    optional = (seen.keys, seen.partials, seen.updates, seen.imbalance, seen.merge_seconds, seen.dedicated_busy)
    sizes = (seen.routed, seen.input_bytes, seen.route_bytes, seen.combine_bytes)
    known = [value for value in (*optional, *sizes) if value is not None]
    numbers = (seen.seconds, seen.rows, seen.interval, *stages, *known)
    return all(0 <= value <= _MAX_PLAUSIBLE for value in numbers) and seen.seconds >= _MIN_SECONDS


def _without_foreign_stages(seen: Observation) -> Observation:
    """Drop the clocks of stages that report more tasks than the plan has: these are repeated, or of another plan."""
    route, combine = seen.route, seen.combine
    return replace(
        seen,
        route=route if route is not None and route.tasks <= seen.plan.replicas + _TASK_ROUNDING else None,
        combine=combine if combine is not None and combine.tasks <= seen.plan.parallelism + _TASK_ROUNDING else None,
    )


def _observation(stored: Mapping[str, Any]) -> Observation:
    stages = {name: None if stored[name] is None else Stage(**stored[name]) for name in ("route", "combine")}
    return Observation(**{**stored, **stages, "plan": Shape(**stored["plan"])})


def same_keys(seen: Sequence[Observation]) -> Sequence[Observation]:
    """Return the observations, oldest first, since the keys last changed in number or in skew.

    A change shows when the same parallelism at about the same rate has a different imbalance, or different partial
    results. What was observed in between counts as after the change.
    """
    begins = 0
    reported: dict[tuple[str, int, int], tuple[int, float]] = {}
    for index, one in enumerate(seen):
        rate = round(math.log(max(one.rows, 1.0)) / _SAME_RATE)
        for name, number in (("imbalance", one.imbalance), ("partials", one.partials)):
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
        one.dedicated_busy * one.plan.replicas * one.cycle / one.rows
        for one in seen
        if one.dedicated_busy is not None and one.rows >= 1
    ]
    return float(np.median(reported[-_POD_MEASUREMENTS:])) if reported else None
