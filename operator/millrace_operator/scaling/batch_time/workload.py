"""The workload of a job's newest batches: their keys, how skewed these are, and the partial results they make."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..observation import Observation
from .partials import ObservedPartials, Partials, learn
from .skew import Skew, hot_share

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
