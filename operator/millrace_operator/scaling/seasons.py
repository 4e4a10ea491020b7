"""Rises of the load that repeat: how long after one another, and how much is about to come.

A season is a time P after which changes of the load come again. Over ``h`` slots the rate x changes by
``d(s) = x(s) - x(s - h)``. To expect the change of P before has the squared error ``(d(s) - d(s - P))^2``, and to
expect none has ``d(s)^2``. The ratio of their sums says what a season's forecast is worth: 0 if all changes repeat, 1
if as many came again as did not, and 2 for noise. Only a season whose error is small enough is used, so that one that
ends, or never was, is given up by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .rate_history import RateHistory
from .shape import Vector

WORTH = 0.5
"""Squared error of a season's forecast over that of the present rate, below which the season is used.

With rises of equal size, two of three have to come again.
"""

OVERLAP = 0.8
"""Share of a period that has to be compared with the one before it: a second rise is enough to expect a third."""

_AGES = {"hours": (10.0, 1080), "days": (60.0, 4320), "weeks": (600.0, 3024)}
"""Width in seconds and number of slots: three hours, three days, three weeks.

A season is about half of each at most.
"""

_FEWEST = 12
"""Slots of a period at least: what comes again sooner is within what executors are kept for."""

_CHANGED = 0.1
"""Share of all squared changes that must lie in what is compared, so that there is something to come again."""

_SURE = 5.0
"""Standard deviations of usual changes by which a rise has to be larger than they are."""

_BEFORE = 2
"""Slots by which a rise may come later than the period says, and which it may take to be complete."""

_MAD = 1.4826  # standard deviation over median absolute deviation, of normal values
_EARLIER = 1.25  # error of an earlier period over the best, up to which it is taken: twice a period is one, too


@dataclass(frozen=True)
class Rise:
    """A rise to ``rate`` records per second that is expected, since it came ``period`` seconds before."""

    rate: float
    period: float


@dataclass(frozen=True)
class Season:
    """A ``period`` in slots, the ``error`` of forecasting with it over that without, and ``usual`` changes.

    ``usual`` is the standard deviation of changes, in records per second, rises apart.
    """

    period: int
    error: float
    usual: float


def in_words(period: float) -> str:
    """Return a period of so many seconds in words, as ``20 min``, to the minute below two hours."""
    for unit, seconds in (("days", 86_400.0), ("h", 3600.0)):
        if period >= 2 * seconds:
            return f"{period / seconds:.3g} {unit}"
    return f"{max(period / 60, 1):.0f} min"


class Seasons:
    """The seasons of a load, looked for in the rates of hours, days and weeks; bounded in memory."""

    def __init__(self) -> None:
        self._ages = {name: _Age(RateHistory(*sizes)) for name, sizes in _AGES.items()}

    def add(self, since: float, until: float, rate: float) -> None:
        """Record that ``rate`` records per second arrived within a time, in seconds of one clock."""
        for age in self._ages.values():
            age.history.add(since, until, rate)

    def coming(self, now: float, level: float, horizon: float, ahead: float) -> Rise | None:
        """Return the largest rise that is expected within ``ahead`` seconds; None if none is.

        Args:
            now: when the last rate was recorded.
            level: the present rate, records per second.
            horizon: seconds ahead for which the seasons have to be better than the present rate.
            ahead: seconds within which the rise has to begin.
        """
        rises = [age.coming(now, level, horizon, ahead) for age in self._ages.values()]
        return max((rise for rise in rises if rise is not None), key=lambda rise: rise.rate, default=None)

    @property
    def lately(self) -> RateHistory:
        """The rates of the last hours, in the shortest slots."""
        return self._ages["hours"].history

    def save(self) -> dict[str, Any]:
        """Return the state in JSON types, about 22 kB after three weeks."""
        return {name: age.history.save() for name, age in self._ages.items()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned."""
        for name, age in self._ages.items():
            age.history.restore(saved[name])


class _Age:
    """A history, and the season that was found in it, which is looked for again once a slot closes."""

    def __init__(self, history: RateHistory) -> None:
        self.history = history
        self._found: tuple[int | None, int, Season | None] | None = None

    def coming(self, now: float, level: float, horizon: float, ahead: float) -> Rise | None:
        """Return the largest rise that this history makes expect."""
        steps = max(math.ceil(horizon / self.history.width), 1)
        found = self._season(steps)
        if found is None:
            return None
        period, width = found.period * self.history.width, self.history.width
        then = now - period
        base, later, whole = (
            self.history.between(then + since, then + until)
            for since, until in ((-_BEFORE * width, 0), (0, ahead), (0, ahead + _BEFORE * width))
        )
        if np.isnan(base).all() or np.isnan(later).all():
            return None
        before, peak = float(np.nanmin(base)), float(np.nanmax(whole))
        rate = min(level + peak - before, peak)
        rises = float(np.nanmax(later)) - before, rate - level
        return Rise(rate, period) if min(rises) > _SURE * found.usual else None

    def _season(self, steps: int) -> Season | None:
        key = self.history.open_slot, steps
        if self._found is None or self._found[:2] != key:
            self._found = (*key, find_season(self.history.closed, steps))
        return self._found[2]


def find_season(rates: Vector, steps: int) -> Season | None:
    """Return the season of ``rates``, shape ``(slots,)``, NaN where unknown; None without one that is worth using.

    ``steps`` are the slots over which the rate is forecast.
    """
    if len(rates) < steps + 2 * _FEWEST:
        return None
    changes = rates[steps:] - rates[:-steps]
    known = ~np.isnan(changes)
    if not known.any():
        return None
    d = np.where(known, changes, 0.0)
    usual = _MAD * float(np.median(np.abs(d[known])))
    errors = _errors(d, known.astype(np.float64), max(_FEWEST, 2 * steps))
    best = float(errors.min())
    if best > WORTH:
        return None
    period = int(np.argmax(errors <= min(best * _EARLIER + 0.02, WORTH)))
    near = errors[period : period + steps + 1]
    return Season(period + int(near.argmin()), best, usual)


def _errors(d: Vector, known: Vector, fewest: int) -> Vector:
    """Return the squared error with each period over that without, infinity where too little is known.

    ``d`` are changes, 0 where not ``known``, both of shape ``(n,)``; the result has an element for each period from 0.
    """
    size = 1 << (2 * len(d) - 1).bit_length()
    spectra = {name: np.fft.rfft(values, size) for name, values in (("d", d), ("dd", d * d), ("known", known))}

    def lagged(later: str, earlier: str) -> Vector:
        products: Vector = np.fft.irfft(spectra[later] * np.conj(spectra[earlier]), size)[: len(d)]
        return products

    without = lagged("dd", "known")
    instead = without + lagged("known", "dd") - 2 * lagged("d", "d")
    periods = np.arange(len(d))
    enough = (lagged("known", "known") >= OVERLAP * periods) & (periods >= fewest)
    changed = without > _CHANGED * float((d * d).sum()) + 1e-12
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(enough & changed, np.maximum(instead, 0.0) / without, np.inf)
