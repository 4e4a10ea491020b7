"""The fit of a job's costs to its observations: the equations that they give, and their robust solution.

An observation gives one equation for the time of its batch, and one for each clock of its stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from millrace_support.batch_cost import HUBER

from ..observation import Observation
from ..shape import Vector
from .costs import NAMES, Parts
from .stage_work import batch_work

BATCH_NOISE, _CLOCK_NOISE = 0.06, 0.15
"""Usual error of the model, as a share: for a batch's time, and for the stages' own clocks."""

_FLOOR = 0.02
"""Seconds by which a clock may be off, whatever it reads."""

_FIXED, _SCHEDULE, _CONTENTION = (NAMES.index(name) for name in ("fixed", "schedule", "contention"))

ResidualFunction = Callable[[Vector], tuple[Vector, Vector]]
"""Function from log costs, shape ``(costs,)``, to residuals, shape ``(measurements,)``, and their derivatives."""

_STEPS = 20
_LONGEST, _SMALL = 1.0, 3e-3
"""The longest step of a logarithm, and the step that ends the search."""

_FARTHEST = 15.0
"""Largest distance of a log cost from the prior: a factor of three million."""

_NONE = 1e-9
"""An amount of work that counts as none."""

_NOTICEABLE = 0.03
"""Share of a stage's clock from which the slope by a cost is steep enough for the search to find where it belongs."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The logarithms of the costs, shape ``(costs,)``, and a factor of their covariance."""

    logs: Vector
    factor: Vector


class Equations:
    """The residuals of one or more observations, as functions of the logarithms of the costs."""

    def __init__(self, seen: Sequence[Observation], parts: Parts, executor_cores: int, partitions: int) -> None:
        def column(values: Sequence[float | None]) -> Vector:
            return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

        self._parts = parts
        self._seconds = column([one.seconds for one in seen])
        clocks = {
            "route": column([None if one.route is None else one.route.seconds for one in seen]),
            "combine": column([None if one.combine is None else one.combine.seconds for one in seen]),
            "merge": column([one.merge_seconds for one in seen]),
        }
        self._clocks = np.stack([clocks[stage.name] for stage in parts.stages], axis=1)
        self._timed = np.isfinite(self._clocks)
        shapes = [(one.plan.executors, one.plan.parallelism, one.plan.replicas) for one in seen]
        self._work = batch_work(
            parts.stages,
            np.array(shapes, dtype=np.float64),
            executor_cores,
            partitions,
            column([one.rows for one in seen]),
            np.nan_to_num(column([one.partials for one in seen])),
            np.nan_to_num(column([one.imbalance for one in seen])),
        )

    def raised(self, logs: Vector) -> Vector:
        """Return the log costs, each raised to where it is a noticeable part of what the clock of its stage says.

        A cost that is far below has next to no slope by its logarithm: a search that begins there leaves it where it
        is, and takes another cost for it.
        """
        costs = np.exp(logs)
        totals = np.maximum(self._work.amounts * self._work.tasks[..., None], _NONE)
        for stage, timed in enumerate(self._parts.timed):
            for kind, name in zip(*np.nonzero(timed), strict=True):
                amounts = totals[:, stage, kind]
                counted = self._timed[:, stage] & (amounts > _NONE)
                if counted.any():
                    each = float(np.median(self._clocks[counted, stage] / amounts[counted]))
                    costs[name] = max(costs[name], _NOTICEABLE * each)
        return np.asarray(np.log(costs))

    def weights(self, observations: Vector) -> Vector:
        """Return the weights of residuals, given the weights of observations."""
        return np.concatenate([observations, np.broadcast_to(observations[:, None], self._timed.shape)[self._timed]])

    def batch_errors(self, fit: Fit) -> tuple[Vector, Vector]:
        """Return the log of measured over modeled time of each batch, and its leverage, both of shape ``(batches,)``.

        The leverage says how far a batch's own measurement determines its modeled time: from 0, not at all, to 1.
        """
        values = np.exp(fit.logs)
        modeled, slopes = self._batches(values)
        pull = (slopes * values / modeled[:, None] / BATCH_NOISE) @ fit.factor
        return np.log(self._seconds / modeled), np.minimum(np.sum(pull**2, axis=1), 1.0)

    def residuals(self, logs: Vector) -> tuple[Vector, Vector]:
        """Return the residuals, in usual errors, and their derivatives by the logarithms."""
        values = np.exp(logs)
        modeled, slopes = self._batches(values)
        clocks, clock_slopes = self._stage_clocks(values)
        errors = np.log(modeled / self._seconds) / BATCH_NOISE
        derivatives = slopes * values / modeled[:, None] / BATCH_NOISE
        off = np.log((clocks + _FLOOR) / (self._clocks + _FLOOR)) / _CLOCK_NOISE
        relative = clock_slopes * values / (clocks + _FLOOR)[..., None] / _CLOCK_NOISE
        return (
            np.concatenate([errors, off[self._timed]]),
            np.concatenate([derivatives, relative[self._timed]]),
        )

    def _batches(self, values: Vector) -> tuple[Vector, Vector]:
        """Return the modeled time of each batch, shape ``(batches,)``, and its derivatives by the costs."""
        costs = self._parts.placed @ values
        features = self._work.features(costs)
        beyond = self._work.beyond_one
        slowed = 1 + values[_CONTENTION] * beyond
        slopes = np.einsum("bs,bsk,skc->bc", slowed, features, self._parts.placed)
        bare = np.einsum("bsk,sk->bs", features, costs)
        slopes[:, _FIXED] = 1.0
        slopes[:, _SCHEDULE] = self._work.scheduled
        slopes[:, _CONTENTION] = (bare * beyond).sum(axis=1)
        modeled = values[_FIXED] + values[_SCHEDULE] * self._work.scheduled + (bare * slowed).sum(axis=1)
        return modeled, slopes

    def _stage_clocks(self, values: Vector) -> tuple[Vector, Vector]:
        """Return the seconds of all tasks of each stage by its clock, shape ``(batches, stages)``, and derivatives."""
        totals = self._work.amounts * self._work.tasks[..., None]
        beyond = self._work.beyond_one
        slowed = 1 + values[_CONTENTION] * beyond
        slopes = np.einsum("bsk,skc->bsc", totals * slowed[..., None], self._parts.timed)
        clocks = slopes @ values
        slopes[..., _CONTENTION] = clocks / slowed * beyond
        return clocks, slopes


def prior_fit(prior: Vector, precision: Vector) -> Fit:
    """Return the fit for log costs around ``prior``, shape ``(costs,)``, with the inverse covariance ``precision``."""
    return Fit(prior, np.linalg.inv(np.linalg.cholesky(precision)).T)


def fit_logs(residuals: ResidualFunction, weights: Vector, prior: Vector, precision: Vector, start: Vector) -> Fit:
    """Return the most probable costs, given log costs around ``prior`` and residuals that are usually about 1.

    The method is Levenberg-Marquardt. Residuals over ``HUBER`` count linearly (Huber loss). The covariance is the
    Laplace approximation.

    Args:
        residuals: residuals in standard deviations.
        weights: weights of the measurements, shape ``(measurements,)``.
        prior, start: logarithms, shape ``(costs,)``; ``start`` is where the search begins.
        precision: inverse covariance of the prior, shape ``(costs, costs)``.
    """
    lowest, highest = prior - _FARTHEST, prior + _FARTHEST
    logs, damping = np.minimum(np.maximum(start, lowest), highest), 1e-3
    errors, slopes = residuals(logs)
    loss = _loss(errors, weights, logs - prior, precision)
    for _ in range(_STEPS):
        robust, information = _information(errors, slopes, weights, precision)
        downhill = -(slopes.T @ (robust * errors) + precision @ (logs - prior))
        step = np.linalg.solve(information + damping * np.diag(np.diag(information)), downhill)
        step *= min(1.0, _LONGEST / max(float(np.abs(step).max()), 1e-12))
        next_logs = np.minimum(np.maximum(logs + step, lowest), highest)
        tried = residuals(next_logs)
        tried_loss = _loss(tried[0], weights, next_logs - prior, precision)
        if tried_loss <= loss:
            logs, loss, damping = next_logs, tried_loss, damping / 5
            errors, slopes = tried
            if np.abs(step).max() < _SMALL:
                break
        else:
            damping *= 10
            if damping > 1e6:
                break
    return prior_fit(logs, _information(errors, slopes, weights, precision)[1])


def _information(errors: Vector, slopes: Vector, weights: Vector, precision: Vector) -> tuple[Vector, Vector]:
    """Return the Huber weights of the measurements, and the inverse covariance of the log costs."""
    robust = weights / np.maximum(np.abs(errors) / HUBER, 1.0)
    return robust, slopes.T @ (robust[:, None] * slopes) + precision


def _loss(errors: Vector, weights: Vector, off: Vector, precision: Vector) -> float:
    size = np.abs(errors)
    huber = np.where(size <= HUBER, size**2 / 2, HUBER * (size - HUBER / 2))
    return float(weights @ huber + off @ precision @ off / 2)
