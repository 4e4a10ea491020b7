"""Traces: how many records a second come to the source, over time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

DAY = 86_400.0
"""Seconds."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Records per second over time: linear between points, and none before the first or after the last.

    Attributes:
        name: what it is called in figures.
        times: seconds from the start, shape (points,), the first 0; two equal ones are a jump.
        rates: records per second at these times, shape (points,).

    Raises:
        ValueError: if the points are no such curve.
    """

    name: str
    times: NDArray[np.float64]
    rates: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.times.ndim != 1 or self.times.shape != self.rates.shape or len(self.times) < 2:
            raise ValueError(f"trace {self.name!r} needs a rate for each of two or more times")
        if self.times[0] != 0 or (np.diff(self.times) < 0).any() or not 0 < self.times[-1] < np.inf:
            raise ValueError(f"the times of trace {self.name!r} must begin with 0 and go on")
        if not np.isfinite(self.rates).all() or (self.rates < 0).any():
            raise ValueError(f"the rates of trace {self.name!r} must be 0 or more")

    @property
    def duration(self) -> float:
        """Seconds."""
        return float(self.times[-1])

    @property
    def records(self) -> float:
        """All that come."""
        return self._points[2][-1]

    @property
    def peak(self) -> float:
        """Largest rate, records per second."""
        return float(self.rates.max())

    @property
    def mean(self) -> float:
        """Mean rate, records per second."""
        return self.records / self.duration

    def rate(self, time: float) -> float:
        """Records per second at ``time``; after a jump, if it is at one."""
        times, rates, _ = self._points
        at = bisect_right(times, time) - 1
        if at < 0 or time > times[-1]:
            return 0.0
        if at == len(times) - 1:
            return rates[-1]
        return rates[at] + (rates[at + 1] - rates[at]) * (time - times[at]) / (times[at + 1] - times[at])

    def arrived(self, time: float) -> float:
        """Records that came until ``time``."""
        times, rates, arrived = self._points
        at = bisect_right(times, time) - 1
        if at < 0:
            return 0.0
        if at == len(times) - 1:
            return arrived[-1]
        passed = time - times[at]
        slope = (rates[at + 1] - rates[at]) / (times[at + 1] - times[at])
        return arrived[at] + passed * (rates[at] + slope * passed / 2)

    def when(self, records: float) -> float:
        """The earliest time until which ``records`` came: the inverse of ``arrived``.

        After all have come, the end of the trace.
        """
        times, rates, arrived = self._points
        at = bisect_left(arrived, records) - 1
        if at < 0:
            return 0.0
        if at >= len(times) - 1:
            return times[-1]
        slope = (rates[at + 1] - rates[at]) / (times[at + 1] - times[at])
        missing = records - arrived[at]
        speed = rates[at] + sqrt(max(rates[at] ** 2 + 2 * slope * missing, 0.0))
        # Rates whose squares underflow make it 0: so little comes that any time in this part of the trace will do.
        return min(times[at] + 2 * missing / speed, times[at + 1]) if speed else times[at + 1]

    def scaled(self, *, peak: float | None = None, mean: float | None = None) -> Trace:
        """The same shape with another peak, or another mean, in records per second.

        Raises:
            ValueError: if nothing comes at all, or not exactly one of the two is given.
        """
        if (peak is None) == (mean is None):
            raise ValueError("a trace is scaled either by its peak or by its mean")
        if self.peak == 0:
            raise ValueError(f"trace {self.name!r} is 0 throughout: it cannot be scaled")
        factor = peak / self.peak if peak is not None else (mean or 0.0) / self.mean
        return replace(self, rates=self.rates * factor)

    def between(self, since: float, until: float) -> Trace:
        """What comes from ``since`` to ``until``, seconds of this trace."""
        since, until = max(since, 0.0), min(until, self.duration)
        inside = (self.times > since) & (self.times < until)
        times = np.concatenate(([since], self.times[inside], [until])) - since
        rates = np.concatenate(([self.rate(since)], self.rates[inside], [self.rate(until)]))
        return replace(self, times=times, rates=rates)

    def noisy(self, scatter: float, every: float, seed: int) -> Trace:
        """Rates that vary at random around this trace, with one draw every ``every`` seconds.

        Args:
            scatter: standard deviation of the logarithm of the factor; its mean is 1.
            every: seconds.
            seed: of the draws.
        """
        draws = np.random.default_rng(seed).standard_normal(int(self.duration / every) + 2)
        factors = np.exp(scatter * draws - scatter**2 / 2)
        between = np.setdiff1d(np.arange(0, self.duration, every), self.times)
        times = np.concatenate((self.times, between))
        rates = np.concatenate((self.rates, [self.rate(time) for time in between]))
        order = np.argsort(times, kind="stable")
        factor = np.interp(times / every, np.arange(len(factors)), factors)
        return replace(self, times=times[order], rates=(rates * factor)[order])

    @cached_property
    def _points(self) -> tuple[list[float], list[float], list[float]]:
        """Times, rates and records until then, as lists, which bisect is fastest on."""
        pieces = np.diff(self.times) * (self.rates[1:] + self.rates[:-1]) / 2
        arrived = np.concatenate(([0.0], np.cumsum(pieces)))
        return self.times.tolist(), self.rates.tolist(), arrived.tolist()


def trace(name: str, points: Sequence[tuple[float, float]]) -> Trace:
    """A trace through ``points``, each seconds and records per second."""
    times, rates = np.array(points, dtype=np.float64).T
    return Trace(name, times, rates)
