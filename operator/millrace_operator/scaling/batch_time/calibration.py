"""Calibration: learns what a job's batches cost from its own reports, in bounded memory, and builds the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..observation import Observation
from ..plans import Bounds
from .batch_model import BatchModel
from .costs import NAMES, StageCosts, parts, prior_precision
from .equations import BATCH_NOISE, Equations
from .log_fit import Fit, fit_logs, prior_fit
from .recent import Recent
from .skew import Skew
from .workload import last_keys, partials_of, pod_seconds, same_keys, skew_of

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
