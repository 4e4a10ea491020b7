"""The elasticity zones of paper 004, section 6, made robust: when to scale, and what drives it."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from .answers import MAX_AGE
from .observation import Observation
from .shape import Shape
from .trends import LEAST_FOR_TREND, Outlook, noise, outlook, present_level, surge, trend


class Zone(StrEnum):
    """The range of W, processing time over batch interval; these are the paper's zones 3, 2 and 1."""

    OVERLOADED = "Overloaded"
    STABLE = "Stable"
    UNDERUSED = "Underused"


class LoadDriver(StrEnum):
    """A cause of changes in the load: the rate drives the map side (replicas), keys the reduce side (parallelism)."""

    RATE = "Rate"
    KEYS = "Keys"


_HISTORY = 40
"""Number of observations from which trends are estimated."""

RECENT = 5
"""Number of observations whose median is the present level; two of them may be outliers."""

MARGIN = 0.05
"""Share by which two levels have to differ to count as different."""

_CERTAIN = 1.5  # standard deviations of a value, about 2 of the difference between two medians of five
_SEVERE = 1.0  # W above which batches count even during the grace period


class Zones:
    """The zone of a job, judged by its last batches; docs/autoscaling.md explains the rules.

    At least two observations have to agree. One within the window may disagree, but then three have to agree. An
    observation of several batches counts as that many batches of the mean W. After a change of the plan or of the
    executors, the window restarts, and for ``grace`` batches only W above 1 counts.
    """

    def __init__(self, target: float = 0.9, step: float = 0.1, window: int = 6, grace: int = 6) -> None:
        self._target, self._step = target, step
        self._window, self._grace = window, grace
        self._epoch: int | None = None
        self._shape: Shape | None = None
        self._grace_left = 0
        self._batches: deque[tuple[int, float]] = deque(maxlen=window + 3)
        self._loads: deque[tuple[float, float, float | None]] = deque(maxlen=_HISTORY)
        self._chosen: dict[LoadDriver, float] = {}

    def add(self, seen: Observation) -> None:
        """Record an observation; forget all earlier ones unless it begins within MAX_AGE after the last one ended."""
        if self._loads and not 0 <= seen.since - self._loads[-1][0] <= MAX_AGE:
            self._batches.clear()
            self._loads.clear()
        if self._epoch not in (None, seen.epoch):
            self._chosen = self._levels()
        if self._shape not in (None, seen.plan) or self._epoch not in (None, seen.epoch):
            self._batches.clear()
            self._grace_left = self._grace
        self._epoch, self._shape = seen.epoch, seen.plan
        self._grace_left = max(self._grace_left - seen.batches, 0)
        self._batches.append((seen.batches, seen.utilization))
        self._loads.append((seen.until, seen.arrival, seen.keys))
        self._chosen = self._levels() | self._chosen

    @property
    def zone(self) -> Zone:
        """The zone that the last batches agree on."""
        limit = self._target - self._step
        if self._agree(lambda w: w > (_SEVERE if self._grace_left else self._target)):
            return Zone.OVERLOADED
        if not self._grace_left and self._agree(lambda w: w <= limit):
            return Zone.UNDERUSED
        return Zone.STABLE

    def drivers(self) -> frozenset[LoadDriver]:
        """Return what accounts for the zone: what grew if overloaded, what shrank if underused, either if stable.

        Growth is against the level at which the plan was chosen, however long ago. If the level is the same, the trend
        since the last step counts.
        """
        zone = self.zone
        changes = {driver: self._change(driver) for driver in LoadDriver}
        wanted = {Zone.OVERLOADED: (1,), Zone.UNDERUSED: (-1,), Zone.STABLE: (-1, 1)}[zone]
        return frozenset(driver for driver, change in changes.items() if change in wanted)

    def forecast(self, horizon: float) -> Outlook | None:
        """Forecast the records per second ``horizon`` seconds after the last observation; None without observations."""
        times, rates = self._series(LoadDriver.RATE)
        return outlook(times, rates, horizon) if rates else None

    def surge(self, horizon: float) -> float | None:
        """Forecast the records per second ``horizon`` seconds after the last observation if they rise steadily."""
        return surge(*self._series(LoadDriver.RATE), horizon)

    def save(self) -> dict[str, Any]:
        """Return the whole state in JSON types."""
        return {
            "epoch": self._epoch,
            "plan": None if self._shape is None else asdict(self._shape),
            "grace_left": self._grace_left,
            "batches": [list(pair) for pair in self._batches],
            "loads": [list(load) for load in self._loads],
            "chosen": {driver.value: level for driver, level in self._chosen.items()},
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned."""
        self._epoch, self._grace_left = saved["epoch"], saved["grace_left"]
        self._shape = None if saved["plan"] is None else Shape(**saved["plan"])
        self._batches.extend((batches, w) for batches, w in saved["batches"])
        self._loads.extend((time, rate, keys) for time, rate, keys in saved["loads"])
        self._chosen = {LoadDriver(name): level for name, level in saved["chosen"].items()}

    def _agree(self, holds: Callable[[float], bool]) -> bool:
        """Return whether ``holds`` is true of the last batches, except for at most one odd observation."""
        agreeing = observations = odd = 0
        for batches, w in reversed(self._batches):
            if holds(w):
                agreeing, observations = agreeing + batches, observations + 1
            elif odd:
                return False
            else:
                odd = 1
            if agreeing >= self._window and observations >= 2 + odd:
                return True
        return False

    def _series(self, driver: LoadDriver) -> tuple[list[float], list[float]]:
        """Return the times of a driver's measurements, and their values."""
        index = 1 if driver is LoadDriver.RATE else 2
        known = [(load[0], value) for load in self._loads if (value := load[index]) is not None]
        return [time for time, _ in known], [value for _, value in known]

    def _levels(self) -> dict[LoadDriver, float]:
        """Return the present levels of the drivers that have been measured often enough."""
        recent = {driver: self._series(driver)[1][-RECENT:] for driver in LoadDriver}
        return {driver: statistics.median(values) for driver, values in recent.items() if len(values) == RECENT}

    def _change(self, driver: LoadDriver) -> int:
        """Return 1 if the driver grew, -1 if it shrank, and 0 if neither is certain."""
        chosen, times, values = self._chosen.get(driver), *self._series(driver)
        if chosen is None:
            return 0
        if len(values) >= RECENT:
            change = statistics.median(values[-RECENT:]) - chosen
            if abs(change) > chosen * max(MARGIN, _CERTAIN * noise(values)):
                return 1 if change > 0 else -1
        start = present_level(values)
        if len(values) - start < LEAST_FOR_TREND:
            return 0
        seen = trend(times[start:], values[start:])
        certain = seen.significant and abs(seen.slope) * (times[-1] - times[start]) > MARGIN * chosen
        return (1 if seen.slope > 0 else -1) if certain else 0
