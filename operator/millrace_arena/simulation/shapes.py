"""Traces of a known shape, which show how a policy reacts to a single step, a ramp, or waves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace_arena.simulation.traces import DAY, Trace, trace


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
