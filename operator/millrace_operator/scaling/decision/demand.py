"""The demand that a plan has to meet, in records per second: what arrives, and what waits."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

from ..observation import Observation

RECENT = 3
"""Observations whose median is the present rate; a single outlier does not count."""

_SLOTS = 16
"""Slots of the delay; the largest demand of each is remembered."""

_GAP_SECONDS = 120.0
"""Longest gap between two observations that does not clear the memory."""

_LATER, _FALLING = 0.75, 0.97
"""The demand falls if its maximum in the last ``_LATER`` of the delay is below ``_FALLING`` of the overall one."""


class Demand:
    """Rates of arrival, and the largest recent demands; bounded in memory, with times of the operator's clock.

    Attributes:
        level: records per second that arrive now.
        backlog: records in a batch and in the source beyond those of two batch intervals: without a backlog, the batch
            holds the records of one interval, and those of the next wait.
    """

    def __init__(self, delay: float) -> None:
        """Remember demands for ``delay`` seconds."""
        self.level = 0.0
        self.backlog = 0.0
        self._arrivals: deque[float] = deque(maxlen=RECENT)
        self._width = max(delay / _SLOTS, 1.0)
        self._since: float | None = None
        self._underused = self._last = -math.inf
        self._largest: deque[tuple[int, float]] = deque(maxlen=_SLOTS + 2)

    def add(self, seen: Observation) -> None:
        """Record an observation."""
        self._arrivals.append(seen.arrival)
        self.level = statistics.median(self._arrivals)
        self.backlog = max(seen.rows + seen.lag - 2 * self.level * seen.interval, 0.0)

    def required(self, coming: float, drain_seconds: float) -> float:
        """Return the records per second that have to be processed with W at the target.

        That is the present rate with the backlog, or the ``coming`` rate if that is higher. Batches hold no more than
        that while there is a backlog, because the job's admission control then keeps them at the target.
        """
        return max(coming, self.level + self.backlog / drain_seconds)

    def remember(self, now: float, required: float, underused: bool) -> None:
        """Record the required rate, and whether the job was underused."""
        if not 0 <= now - self._last <= _GAP_SECONDS:  # too little is known about the time in between
            self._since = None
            self._largest.clear()
        self._last = now
        if underused:
            self._underused = now
            self._since = now if self._since is None else self._since
        elif now - self._underused > self._width:
            self._since = None
        slot = int(now // self._width)
        if self._largest and self._largest[-1][0] == slot:
            required = max(self._largest.pop()[1], required)
        self._largest.append((slot, required))

    def largest(self, now: float, delay: float) -> float | None:
        """Return the largest rate that was required within the last ``delay`` seconds.

        None if the job was not underused for that long.
        """
        return None if self._since is None or now - self._since < delay else self._largest_since(now - delay)

    def falling(self, now: float, delay: float) -> bool:
        """Return whether the largest rate of the last ``delay`` seconds was at their beginning, and will be less."""
        whole, later = (self._largest_since(now - share * delay) for share in (1.0, _LATER))
        return later < whole * _FALLING

    def _largest_since(self, time: float) -> float:
        return max(required for slot, required in self._largest if slot >= time // self._width)

    def underused_for(self, now: float) -> float:
        """Return for how many seconds the job has been underused; 0 if it is not."""
        return 0.0 if self._since is None else max(now - self._since, 0.0)

    def save(self) -> dict[str, Any]:
        """Return the state in JSON types, without the backlog, which the next observation gives."""
        return {
            "arrivals": list(self._arrivals),
            "since": self._since,
            "underused": self._underused if self._since is not None else None,
            "last": self._last if self._largest else None,
            "largest": [list(pair) for pair in self._largest],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned."""
        self._arrivals.extend(saved["arrivals"])
        self.level = statistics.median(self._arrivals) if self._arrivals else 0.0
        self._since = saved["since"]
        self._underused, self._last = (
            -math.inf if saved[name] is None else saved[name] for name in ("underused", "last")
        )
        self._largest.extend((slot, required) for slot, required in saved["largest"])
