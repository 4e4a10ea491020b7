"""Fit of costs to measurements: non-negative least squares, robust against outliers, with a prior."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_PRIOR_WEIGHT = 0.1
"""Weight of the prior: a cost of twice the prior's is as unlikely as measurements that are all off by this share."""

_HUBER = 1.345
_ROUNDS = 8
_LEAST = 0.01
"""Lower bound on a cost's prior in a round, as a share of its previous value, so that the cost can grow again."""

_TINY = 1e-12


def fit_costs(work: Vector, seconds: Vector, prior: Vector) -> Vector:
    """Return the costs c >= 0, shape ``(kinds,)``, for which ``work @ c`` comes closest to ``seconds``.

    If the measurements leave open which kind of work costs what, costs have the ratios of the prior, which is first
    scaled to this machine's speed. Errors count relative to the expected time, and large ones linearly (Huber, Robust
    Estimation of a Location Parameter, Annals of Mathematical Statistics 1964). The costs of each round are the prior
    of the next one (iterated Tikhonov regularization). User code may cost thousands of times the prior; a fixed time
    per task would otherwise be mistaken for the time of its records.

    Args:
        work: amounts, shape ``(measurements, kinds)``; the columns must be few, because all sets of them are tried.
        seconds: shape ``(measurements,)``.
        prior: seconds per unit of each kind, above 0; shape ``(kinds,)``.
    """
    expected = work @ prior
    known = expected > 0
    if not known.any():
        return prior
    speed = max(float(np.median(seconds[known] / expected[known])), _TINY)
    units = work[known] * (prior * speed)
    size = np.maximum(expected[known] * speed, _TINY)
    weights = np.ones(len(size))
    costs, before = np.ones(len(prior)), np.ones(len(prior))
    for _ in range(_ROUNDS):
        scale = np.sqrt(weights) / size
        rows = np.vstack([units * scale[:, None], _PRIOR_WEIGHT * np.diag(1 / before)])
        costs = _non_negative(rows, np.concatenate([seconds[known] * scale, np.full(len(prior), _PRIOR_WEIGHT)]))
        before = np.maximum(costs, _LEAST * before)
        errors = np.abs(units @ costs - seconds[known]) / size
        typical = max(float(np.median(errors)) / 0.6745, _TINY)
        weights = np.minimum(1.0, _HUBER * typical / np.maximum(errors, _TINY))
    return costs * prior * speed


def _non_negative(rows: Vector, wanted: Vector) -> Vector:
    """Return the least squares solution without negative entries: the best over all sets of free entries."""
    kinds = rows.shape[1]
    best, least = np.zeros(kinds), float(wanted @ wanted)
    for free in itertools.chain.from_iterable(itertools.combinations(range(kinds), k) for k in range(1, kinds + 1)):
        found = np.linalg.lstsq(rows[:, free], wanted, rcond=None)[0]
        error = float(np.sum((rows[:, free] @ found - wanted) ** 2))
        if found.min() >= 0 and error < least:
            best, least = np.zeros(kinds), error
            best[list(free)] = found
    return best
