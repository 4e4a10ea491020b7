"""Robust least squares of logarithms: costs above 0 from measurements that scatter and are sometimes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

Residuals = Callable[[Vector], tuple[Vector, Vector]]
"""Function from log costs, shape ``(costs,)``, to residuals, shape ``(measurements,)``, and their derivatives."""

_HUBER = 1.345
_STEPS = 20
_LONGEST, _SMALL = 1.0, 3e-3
"""The longest step of a logarithm, and the step that ends the search."""

_FARTHEST = 15.0
"""Largest distance of a log cost from the prior: a factor of three million."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The logarithms of the costs, shape ``(costs,)``, and a factor of their covariance."""

    logs: Vector
    factor: Vector


def prior_fit(prior: Vector, precision: Vector) -> Fit:
    """Return the fit before there are any measurements."""
    return Fit(prior, np.linalg.inv(np.linalg.cholesky(precision)).T)


def fit_logs(residuals: Residuals, weights: Vector, prior: Vector, precision: Vector, start: Vector) -> Fit:
    """Return the most probable costs, given log costs around ``prior`` and residuals that are usually about 1.

    The method is Levenberg's and Marquardt's. Residuals over 1.345 count linearly (Huber, Robust Estimation of a
    Location Parameter, Annals of Mathematical Statistics 1964). The covariance is Laplace's approximation.

    Args:
        residuals: residuals in standard deviations.
        weights: weights of the measurements, shape ``(measurements,)``.
        prior, start: logarithms, shape ``(costs,)``; ``start`` is where the search begins.
        precision: inverse covariance of the prior, shape ``(costs, costs)``.
    """
    logs, damping = start, 1e-3
    errors, slopes = residuals(logs)
    loss = _loss(errors, weights, logs - prior, precision)
    for _ in range(_STEPS):
        robust = weights / np.maximum(np.abs(errors) / _HUBER, 1.0)
        information = slopes.T @ (robust[:, None] * slopes) + precision
        downhill = -(slopes.T @ (robust * errors) + precision @ (logs - prior))
        step = np.linalg.solve(information + damping * np.diag(np.diag(information)), downhill)
        step *= min(1.0, _LONGEST / max(float(np.abs(step).max()), 1e-12))
        next_logs = np.clip(logs + step, prior - _FARTHEST, prior + _FARTHEST)
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
    robust = weights / np.maximum(np.abs(errors) / _HUBER, 1.0)
    information = slopes.T @ (robust[:, None] * slopes) + precision
    return Fit(logs, np.linalg.inv(np.linalg.cholesky(information)).T)


def _loss(errors: Vector, weights: Vector, off: Vector, precision: Vector) -> float:
    size = np.abs(errors)
    huber = np.where(size <= _HUBER, size**2 / 2, _HUBER * (size - _HUBER / 2))
    return float(weights @ huber + off @ precision @ off / 2)
