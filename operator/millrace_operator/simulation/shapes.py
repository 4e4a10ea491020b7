"""Traces of a known shape, to see what a policy does with a single step, a ramp, or waves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .traces import DAY, Trace, trace


def constant(rate: float, duration: float) -> Trace:
    """``rate`` records per second throughout."""
    return trace("constant", [(0, rate), (duration, rate)])


def step(low: float, high: float, at: float, duration: float) -> Trace:
    """From ``low`` to ``high`` at once; downwards if ``high`` is the smaller one."""
    return steps([low, high], [0, at], duration, name="step")


def steps(rates: Sequence[float], since: Sequence[float], duration: float, name: str = "steps") -> Trace:
    """Each of ``rates`` from its second of ``since`` on; the first of these is 0."""
    until = [*since[1:], duration]
    points = [(time, rate) for rate, begin, end in zip(rates, since, until, strict=True) for time in (begin, end)]
    return trace(name, points)


def ramp(low: float, high: float, since: float, until: float, duration: float) -> Trace:
    """``low``, then evenly up or down to ``high`` from ``since`` to ``until``, and stays there."""
    return trace("ramp", [(0, low), (since, low), (until, high), (duration, high)])


def spike(base: float, peak: float, at: float, width: float, duration: float) -> Trace:
    """``peak`` for ``width`` seconds in the middle of ``base``, with no warning."""
    return steps([base, peak, base], [0, at, at + width], duration, name="spike")


def sawtooth(low: float, high: float, period: float, duration: float) -> Trace:
    """Evenly from ``low`` up to ``high`` and back at once, every ``period`` seconds."""
    begins = np.arange(0, duration, period)
    points = [point for begin in begins for point in ((begin, low), (begin + period, high))]
    return trace("sawtooth", points).between(0, duration)


def diurnal(low: float, high: float, duration: float = DAY, period: float = DAY) -> Trace:
    """A sine wave from ``low`` at the beginning to ``high`` half a period later, in 288 points per period."""
    times = np.linspace(0, duration, max(round(duration / period * 288), 1) + 1)
    return Trace("diurnal", times, low + (high - low) * (1 - np.cos(2 * np.pi * times / period)) / 2)
