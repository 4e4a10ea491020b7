"""Robust estimates of where a series of measurements is and where it is heading, despite a few outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .shape import Vector

LEAST_FOR_TREND = 8
"""Fewest values in which a trend is looked for: the normal approximation of Kendall's S holds from about here."""

_SIGNIFICANT = 2.576  # standard normal quantile of a two-sided test at 1 %
_INTERVAL = 1.645  # standard normal quantile of an interval that holds 90 %
_MAD = 1.4826  # standard deviation over median absolute deviation, of normal values

_LEAST_AFTER_STEP = 3  # values after a step
_STEP_EXPLAINS = 0.6  # residuals around two levels over those around one line, below which there is a step

_MOST_CHANGE = 2.0  # factor by which a forecast may differ from the present value
_RISES = 3  # rises in a row that are a surge; a step makes two, of which the first lies across it
_NEWEST = 5  # values whose median must lie on the line
_BESIDE = 1.5  # standard deviations of a value, about 3 of the median of five
_SURE = 6.0  # standard deviations of noise by which values have to rise in all
_LEVEL = 0.01  # distance from the line, as a share, that is never a bend, however little noise there is


@dataclass(frozen=True)
class Trend:
    """The Theil-Sen estimate of a slope, in units per second, with Sen's 90 % interval.

    ``significant`` is the result of the Mann-Kendall test at 1 %, two-sided.
    """

    slope: float
    low: float
    high: float
    significant: bool


@dataclass(frozen=True)
class Outlook:
    """The expected value of a measurement, and its 90 % interval, which includes the measurement's own noise."""

    value: float
    low: float
    high: float


def trend(times: Sequence[float] | Vector, values: Sequence[float] | Vector) -> Trend:
    """Return the slope of at least two ``values`` over rising ``times`` in seconds; shapes ``(n,)``.

    The source is Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968. Up to 29 % of the values
    may be arbitrary. The variance of S is corrected for ties.
    """
    t, v = np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64)
    first, second = _pairs(len(v))
    rises = v[second] - v[first]
    slopes = np.sort(rises / (t[second] - t[first]))
    score, deviation = float(np.sign(rises).sum()), math.sqrt(_variance(v))
    reach = _INTERVAL * deviation
    low, high = (round((len(slopes) + side * reach) / 2) for side in (-1, 1))
    return Trend(
        slope=_middle(slopes),
        low=float(slopes[max(low - 1, 0)]),
        high=float(slopes[min(high, len(slopes) - 1)]),
        significant=abs(score) - 1 > _SIGNIFICANT * deviation and len(v) >= LEAST_FOR_TREND,
    )


@lru_cache(maxsize=64)
def _pairs(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of all pairs of so many values, the earlier and the later."""
    return np.triu_indices(count, k=1)


def _median(values: Vector) -> float:
    """Return the median of values, of which there are few: ``np.median`` takes ten times as long."""
    return _middle(np.sort(values))


def _middle(ordered: Vector) -> float:
    """Return the median of values that are in order."""
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _variance(values: Vector) -> float:
    """Return the variance of Kendall's S without a trend; equal values reduce it."""
    ordered, n = np.sort(values), len(values)
    ties = np.diff(np.flatnonzero(np.diff(ordered, prepend=np.nan, append=np.nan)))
    return float(n * (n - 1) * (2 * n + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18


def present_level(values: Sequence[float]) -> int:
    """Return the index of the first value since the last step; 0 without a step.

    There is a step if two levels explain the values much better than one straight line: the sum of their absolute
    residuals is smaller by a good part. It takes three values after a step to detect it, so that a single outlier is no
    step.
    """
    start = 0
    while len(values) - start >= 2 * _LEAST_AFTER_STEP:
        rest = np.asarray(values[start:], dtype=np.float64)
        cut, cost = _best_step(rest)
        if cost >= _STEP_EXPLAINS * _around_line(rest):
            break
        start += cut
    return start


def _best_step(values: Vector) -> tuple[int, float]:
    """Return the index of the first value after the best step, and the sum of residuals around its two levels.

    That value has to be nearer to the level after it. Otherwise two outliers and a value before them would pass for
    three.
    """
    cuts = np.arange(_LEAST_AFTER_STEP, len(values) - _LEAST_AFTER_STEP + 1)
    before = np.arange(len(values)) < cuts[:, np.newaxis]
    (old, old_costs), (new, new_costs) = _levels(values, before), _levels(values, ~before)
    nearer = np.abs(values[cuts] - new) <= np.abs(values[cuts] - old)
    costs = np.where(nearer, old_costs + new_costs, np.inf)
    best = int(costs.argmin())
    return int(cuts[best]), float(costs[best])


def _levels(values: Vector, among: NDArray[np.bool_]) -> tuple[Vector, Vector]:
    """For each row of ``among``, shape (cuts, n), return the median value and its sum of absolute residuals."""
    rows, count = np.arange(len(among)), among.sum(axis=1)
    ordered = np.sort(np.where(among, values, np.inf), axis=1)
    middle = (ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2
    return middle, np.where(among, np.abs(values - middle[:, np.newaxis]), 0.0).sum(axis=1)


def _around_line(values: Vector) -> float:
    """Return the sum of absolute residuals around a straight line, or around a level if that explains more."""
    steps = np.arange(len(values), dtype=np.float64)
    first, second = _pairs(len(values))
    slope = _median((values[second] - values[first]) / (second - first))
    return min(float(np.abs(one - _median(one)).sum()) for one in (values - slope * steps, values))


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of noise as a share of the value, estimated from neighbors.

    Steps and slow changes do not count as noise.
    """
    v = np.asarray(values, dtype=np.float64)
    middle = (v[1:] + v[:-1]) / 2
    changes = np.diff(v)[middle > 0] / middle[middle > 0]
    if not len(changes):
        return 0.0
    return _MAD * _median(np.abs(changes - _median(changes))) / math.sqrt(2)


def outlook(times: Sequence[float], values: Sequence[float], horizon: float) -> Outlook:
    """Forecast a measurement that cannot be negative, ``horizon`` seconds after the last of ``values``.

    A significant trend is expected to continue, but no longer than it has been observed, and to at most twice and at
    least half of the present value. Noise is taken to be a share of the value.

    Args:
        times: rising, seconds; shape ``(n,)`` with n of at least 1.
        values: measurements, of the same shape.
        horizon: seconds, 0 or more.
    """
    scatter = noise(values)
    line, seen, count = _present_line(times, values, scatter)
    ahead = min(horizon, seen)
    value = min(max(line.now + line.slope * ahead, line.now / _MOST_CHANGE), line.now * _MOST_CHANGE)
    noise_width = (
        _INTERVAL * scatter * value * math.sqrt(1 + math.pi / 2 / count)
    )  # noise of one value, and of the median
    below = math.hypot(noise_width, ahead * line.falls)
    above = math.hypot(noise_width, ahead * line.rises)
    return Outlook(value, max(value - below, 0.0), value + above)


def surge(times: Sequence[float], values: Sequence[float], horizon: float) -> float | None:
    """Return the value ``horizon`` seconds after the last one if the newest values rise steadily; None if they do not.

    The slope is the smallest of the last three. That is nearly 0 before, across and after a step, and with noise. The
    forecast is at most twice the last value.
    """
    t, v = (np.asarray(each[-_RISES - 1 :], dtype=np.float64) for each in (times, values))
    slopes = np.diff(v) / np.diff(t)
    if len(slopes) < _RISES or slopes.min() <= 0 or v[-1] <= v[0] * (1 + _SURE * noise(values)):
        return None
    return float(min(v[-1] + slopes.min() * horizon, v[-1] * _MOST_CHANGE))


@dataclass(frozen=True)
class _Line:
    """The value ``now``, its slope per second, and by how much the slope may be lower or higher."""

    now: float
    slope: float = 0.0
    falls: float = 0.0
    rises: float = 0.0


def _present_line(times: Sequence[float], values: Sequence[float], scatter: float) -> tuple[_Line, float, int]:
    """Return the line through the newest values that lie on one, the seconds it covers, and the number of its values.

    If the newest values are off the line through all values since the last step, the line bends, and older ones are
    left out.
    """
    start = present_level(values)
    while True:
        t, v = np.asarray(times[start:]) - times[-1], np.asarray(values[start:], dtype=np.float64)
        line = _line(t, v)
        beside = abs(_median((v - line.now - line.slope * t)[-_NEWEST:]))
        if len(v) < LEAST_FOR_TREND or beside <= max(_BESIDE * scatter, _LEVEL) * line.now:
            return line, -float(t[0]), len(v)
        start += len(v) // 2


def _line(t: Vector, v: Vector) -> _Line:
    """Return the line through values up to now, which is time 0."""
    if len(v) < LEAST_FOR_TREND:
        return _Line(_median(v))
    seen = trend(t, v)
    slope = seen.slope if seen.significant else 0.0
    return _Line(_median(v - slope * t), slope, seen.slope - seen.low, seen.high - seen.slope)
