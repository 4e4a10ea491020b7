"""Synthetic loads of a known shape, scaled to a peak in records per second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from millrace_arena.simulation import shapes
from millrace_arena.simulation.keys import Keys, KeySchedule, always, growth
from millrace_arena.simulation.traces import Trace

KEYS = Keys(distinct=20_000, exponent=0.8)
"""Keys of a load unless it sets its own; the most frequent key has 3 % of the records."""
_HOUR = 3600.0
_LEVELS, _LEVEL_SECONDS = 24, 1200.0


@dataclass(frozen=True, eq=False)
class SyntheticLoad:
    """The trace of a source, and the keys of its records."""

    trace: Trace
    keys: KeySchedule


def _steps(peak: float, seed: int) -> SyntheticLoad:
    """Return random levels of 20 minutes each; consecutive levels differ by more than 20 % of the peak."""
    rng = np.random.default_rng(seed)
    levels = [0.5]
    while len(levels) < _LEVELS:
        level = float(rng.uniform(0.1, 1.0))
        if abs(level - levels[-1]) > 0.2:
            levels.append(level)
    since = [number * _LEVEL_SECONDS for number in range(_LEVELS)]
    trace = shapes.steps([peak * level for level in levels], since, _LEVELS * _LEVEL_SECONDS)
    return SyntheticLoad(trace, always(KEYS))


def _noise(peak: float, seed: int) -> SyntheticLoad:
    trace = shapes.constant(0.5 * peak, 4 * _HOUR).noisy(scatter=0.05, every=10.0, seed=seed)
    return SyntheticLoad(trace, always(KEYS))


def _skew_shift(peak: float, seed: int) -> SyntheticLoad:
    """Return a constant rate with a hot key: a tenth of the records after an hour, on another key after two hours."""
    shifts = [(0.0, KEYS)]
    for hour, salt in ((1, 1), (2, 2)):
        shifts.append((hour * _HOUR, Keys(KEYS.distinct, KEYS.exponent, hot=0.1, salt=salt)))
    return SyntheticLoad(shapes.constant(0.5 * peak, 3 * _HOUR), KeySchedule(shifts))


def _key_growth(peak: float, seed: int) -> SyntheticLoad:
    """Return a constant rate whose number of keys grows tenfold over an hour."""
    keys = growth(KEYS, 10 * KEYS.distinct, since=_HOUR, until=2 * _HOUR)
    return SyntheticLoad(shapes.constant(0.5 * peak, 3 * _HOUR), keys)


SYNTHETIC: Mapping[str, Callable[[float, int], SyntheticLoad]] = {
    "constant": lambda peak, seed: SyntheticLoad(shapes.constant(0.5 * peak, 2 * _HOUR), always(KEYS)),
    "noise": _noise,
    "step": lambda peak, seed: SyntheticLoad(shapes.step(0.3 * peak, peak, _HOUR, 2 * _HOUR), always(KEYS)),
    "step-down": lambda peak, seed: SyntheticLoad(shapes.step(peak, 0.3 * peak, _HOUR, 2 * _HOUR), always(KEYS)),
    "steps": _steps,
    "ramp": lambda peak, seed: SyntheticLoad(shapes.ramp(0.2 * peak, peak, _HOUR, 2 * _HOUR, 3 * _HOUR), always(KEYS)),
    "spike": lambda peak, seed: SyntheticLoad(shapes.spike(0.3 * peak, peak, _HOUR, 300.0, 2 * _HOUR), always(KEYS)),
    "sawtooth": lambda peak, seed: SyntheticLoad(shapes.sawtooth(0.2 * peak, peak, _HOUR, 6 * _HOUR), always(KEYS)),
    "diurnal": lambda peak, seed: SyntheticLoad(shapes.diurnal(0.15 * peak, peak), always(KEYS)),
    "skew-shift": _skew_shift,
    "key-growth": _key_growth,
}
"""Loads by name, each made from the peak in records per second and a seed."""
