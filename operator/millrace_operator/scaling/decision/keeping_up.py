"""Checks whether the present plan keeps up with arrivals, however long its batches are at the moment."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..batch_time.calibration import Calibration
from ..observation import Observation
from ..shape import Shape
from .demand import RECENT, Demand

FALLING_BEHIND = 3
"""Observations in a row that the plan cannot keep up with, after which scaling out does not wait for the zone."""

_GROWING = 0.01
"""Smallest growth that counts, as a share."""

PERSISTENT = 12
"""Observations needed to call a high W persistent, and to estimate how much W varies."""

_JUMPS = 60
_ONE_IN_50 = 2.054
"""Standard deviations above the mean that one in fifty normal values exceeds."""


@dataclass(frozen=True)
class _Recent:
    """One observation: W as ``observed``, the ``rows`` of a batch, and W ``at_arrival`` as estimated at the time."""

    observed: float
    rows: float
    at_arrival: float


class KeepingUp:
    """A comparison of batch times with what they would be without anything to catch up, and of how much they vary.

    A batch after a hiccup is long because it has more records. That alone is no reason to scale.

    Attributes:
        at_arrival: W if the last batches had held the records that arrive in an interval; or the busy share that the
            partitioner pods would then have, if that is higher.
        batches_at_arrival: the same for batches alone.
        behind: whether the plan, complete with its executors, is not predicted to drain the lag in time.
    """

    def __init__(self, drain_seconds: float) -> None:
        self._drain_seconds = drain_seconds
        self._plan: Shape | None = None
        self._recent: deque[_Recent] = deque(maxlen=PERSISTENT)
        self._jumps: deque[float] = deque(maxlen=_JUMPS)
        self._certainly_behind = self._outgrown = 0
        self.at_arrival = self.batches_at_arrival = 0.0
        self.behind = False

    def add(self, seen: Observation, shape: Shape, demand: Demand, calibration: Calibration) -> None:
        """Record an observation, and the plan that was decided last."""
        if self._plan != seen.plan:
            self._plan = seen.plan
            self._recent.clear()
            self._certainly_behind = self._outgrown = 0
        if self._recent and seen.utilization and self._recent[-1].observed:
            self._jumps.append(abs(math.log(seen.utilization / self._recent[-1].observed)) * math.sqrt(seen.batches))
        busy, usual = _busy_at(seen, demand.level), demand.level * seen.interval
        self._recent.append(_Recent(seen.utilization, seen.rows, max(seen.utilization, busy)))
        self.batches_at_arrival, self.behind, certain = self.utilization, False, False
        catching_up = max(one.rows for one in list(self._recent)[-RECENT:]) > usual
        if seen.seconds > seen.interval or demand.backlog or catching_up:
            model = calibration.model()
            rate = seen.arrival + demand.backlog / self._drain_seconds
            recent = list(self._recent)[-RECENT:]
            times = model.seconds(seen.plan, [usual, rate * seen.interval, *(one.rows for one in recent)])
            self.batches_at_arrival = statistics.median(
                one.observed * float(times.seconds[0]) / seconds
                for one, seconds in zip(recent, times.seconds[2:].tolist(), strict=True)
            )
            self._recent[-1] = replace(self._recent[-1], at_arrival=max(self.batches_at_arrival, busy))
            draining = times if shape == seen.plan else model.seconds(shape, [usual, rate * seen.interval])
            load = float(model.partitioner_load(np.array([shape.replicas]), rate)[0])
            middle, low = (float(each[1]) / seen.interval for each in (draining.seconds, draining.least))
            self.behind, certain = max(middle, load) > 1, max(low, load) > 1
        self.at_arrival = max(self.batches_at_arrival, busy)
        self._certainly_behind = self._certainly_behind + 1 if certain else 0

    @property
    def utilization(self) -> float:
        """The observed W of the last batches, as a median."""
        return statistics.median([one.observed for one in self._recent][-RECENT:])

    @property
    def falling_behind(self) -> bool:
        """Whether several observations in a row say that the plan certainly cannot keep up."""
        return self._certainly_behind >= FALLING_BEHIND

    def expect(self, growth: float, limit: float) -> None:
        """Record the factor by which the rate will grow before more executors could be ready."""
        outgrown = growth > 1 + _GROWING and self.at_arrival * growth > limit
        self._outgrown = self._outgrown + 1 if outgrown else 0

    @property
    def outgrown(self) -> bool:
        """Whether several observations in a row say that W will exceed the limit before more executors are ready."""
        return self._outgrown >= FALLING_BEHIND

    def persistently_above(self, limit: float) -> bool:
        """Return whether the median W of the last ``PERSISTENT`` observations is above ``limit``."""
        return len(self._recent) == PERSISTENT and statistics.median(one.at_arrival for one in self._recent) > limit

    @property
    def safe(self) -> float:
        """Mean W at which one batch in fifty takes longer than the interval, given how much batches vary.

        The variation is the median absolute difference between one observation and the next. For normal noise that is
        0.954 standard deviations, whatever the trend.
        """
        scatter = statistics.median(self._jumps) / 0.954 if len(self._jumps) >= PERSISTENT else 0.0
        return math.exp(-_ONE_IN_50 * scatter)

    def save(self) -> dict[str, Any]:
        """Return the whole state in JSON types."""
        return {
            "plan": None if self._plan is None else asdict(self._plan),
            "recent": [asdict(one) for one in self._recent],
            "jumps": list(self._jumps),
            "times": [self._certainly_behind, self._outgrown],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned."""
        self._plan = Shape(**saved["plan"]) if saved["plan"] else None
        self._recent.extend(_Recent(**one) for one in saved["recent"])
        self._jumps.extend(saved["jumps"])
        self._certainly_behind, self._outgrown = saved["times"]


def _busy_at(seen: Observation, rate: float) -> float:
    """Return the busy share of partitioner pods, 0 without any, if ``rate`` records per second came through them.

    More come through while they catch up, and fewer while they fall behind; then it is above 1.
    """
    passed = seen.rows / seen.cycle
    busy = seen.dedicated_busy or 0.0
    return busy * rate / passed if passed else busy
