"""Traces: the rate at which records arrive at the source over time, and traces of a known shape such as a step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

DAY = 86_400.0
"""Seconds of a day."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Records per second over time: linear between points, and 0 before the first and after the last.

    Attributes:
        name: name shown in figures.
        times: seconds from the start, shape (points,), beginning with 0; two equal times are a jump.
        rates: records per second at these times, shape (points,).

    Raises:
        ValueError: if the points do not form such a curve.
    """

    name: str
    times: NDArray[np.float64]
    rates: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.times.ndim != 1 or self.times.shape != self.rates.shape or len(self.times) < 2:
            raise ValueError(f"trace {self.name!r} needs a rate for each of two or more times")
        if self.times[0] != 0 or (np.diff(self.times) < 0).any() or not 0 < self.times[-1] < np.inf:
            raise ValueError(f"the times of trace {self.name!r} must start at 0 and not decrease")
        if not np.isfinite(self.rates).all() or (self.rates < 0).any():
            raise ValueError(f"the rates of trace {self.name!r} must be 0 or more")

    @property
    def duration(self) -> float:
        """Length of the trace, seconds."""
        return float(self.times[-1])

    @property
    def records(self) -> float:
        """Number of records in the whole trace."""
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
        """Return the records per second at ``time``; at a jump, the rate after it."""
        times, rates, _ = self._points
        at = bisect_right(times, time) - 1
        if at < 0 or time > times[-1]:
            return 0.0
        if at == len(times) - 1:
            return rates[-1]
        return rates[at] + (rates[at + 1] - rates[at]) * (time - times[at]) / (times[at + 1] - times[at])

    def arrived(self, time: float) -> float:
        """Return the number of records that arrived until ``time``."""
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
        """Return the earliest time by which ``records`` records arrived: the inverse of ``arrived``.

        If the trace has fewer records, this is the end of the trace.
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
        # Speed is 0 if the squared rates underflow. So few records arrive then that any time in this part will do.
        return min(times[at] + 2 * missing / speed, times[at + 1]) if speed else times[at + 1]

    def scaled(self, peak: float) -> Trace:
        """Return the same shape with another peak, in records per second.

        Raises:
            ValueError: if the trace is 0 throughout.
        """
        if self.peak == 0:
            raise ValueError(f"trace {self.name!r} is 0 throughout: it cannot be scaled")
        return replace(self, rates=self.rates * (peak / self.peak))

    def between(self, since: float, until: float) -> Trace:
        """Return the part of this trace from ``since`` to ``until``, seconds; a jump at ``until`` is its last."""
        since, until = max(since, 0.0), min(until, self.duration)
        inside = (self.times > since) & (self.times < until)
        # the rate before a jump at the end; without it, the part would end in a ramp
        before_end = self.rates[self.times == until][:-1][:1]
        times = np.concatenate(([since], self.times[inside], [until] * len(before_end), [until])) - since
        rates = np.concatenate(([self.rate(since)], self.rates[inside], before_end, [self.rate(until)]))
        return replace(self, times=times, rates=rates)

    def noisy(self, scatter: float, every: float, seed: int) -> Trace:
        """Return this trace with lognormal noise on its rates.

        Args:
            scatter: standard deviation of the logarithm of the factor; the factor's mean is 1.
            every: seconds between two draws; the factor is linear between them.
            seed: seed of the draws.
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
        """Times, rates and cumulative records, as lists because bisect is fastest on them."""
        pieces = np.diff(self.times) * (self.rates[1:] + self.rates[:-1]) / 2
        arrived = np.concatenate(([0.0], np.cumsum(pieces)))
        return self.times.tolist(), self.rates.tolist(), arrived.tolist()


def trace(name: str, points: Sequence[tuple[float, float]]) -> Trace:
    """Return a trace through ``points``, each a pair of seconds and records per second."""
    times, rates = np.array(points, dtype=np.float64).T
    return Trace(name, times, rates)


def constant(rate: float, duration: float) -> Trace:
    """Return a trace with ``rate`` records per second throughout."""
    return trace("constant", [(0, rate), (duration, rate)])


def step(low: float, high: float, at: float, duration: float) -> Trace:
    """Return a trace that jumps from ``low`` to ``high`` at second ``at``; ``high`` may be the smaller rate."""
    return steps([low, high], [0, at], duration, name="step")


def steps(rates: Sequence[float], since: Sequence[float], duration: float, name: str = "steps") -> Trace:
    """Return a trace that takes each of ``rates`` from its second in ``since`` on; the first of these is 0."""
    until = [*since[1:], duration]
    points = [(time, rate) for rate, begin, end in zip(rates, since, until, strict=True) for time in (begin, end)]
    return trace(name, points)


def ramp(low: float, high: float, since: float, until: float, duration: float) -> Trace:
    """Return a trace that is ``low``, goes linearly to ``high`` between ``since`` and ``until``, and stays there."""
    return trace("ramp", [(0, low), (since, low), (until, high), (duration, high)])


def spike(base: float, peak: float, at: float, width: float, duration: float) -> Trace:
    """Return a trace at ``base`` that jumps to ``peak`` at second ``at``, for ``width`` seconds."""
    return steps([base, peak, base], [0, at, at + width], duration, name="spike")


def sawtooth(low: float, high: float, period: float, duration: float) -> Trace:
    """Return a trace that rises linearly from ``low`` to ``high`` and drops back, every ``period`` seconds."""
    begins = np.arange(0, duration, period)
    points = [point for begin in begins for point in ((begin, low), (begin + period, high))]
    return trace("sawtooth", points).between(0, duration)


def diurnal(low: float, high: float, duration: float = DAY, period: float = DAY) -> Trace:
    """Return a sine wave from ``low`` at the start to ``high`` half a period later, with 288 points per period."""
    times = np.linspace(0, duration, max(round(duration / period * 288), 1) + 1)
    return Trace("diurnal", times, low + (high - low) * (1 - np.cos(2 * np.pi * times / period)) / 2)
