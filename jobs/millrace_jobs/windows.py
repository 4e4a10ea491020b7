"""Windows on event time, and the panes they are made of.

A pane is a stretch of time whose every moment lies in the same windows; it is gcd(size, slide) long. Workers combine
records by pane first, and then combine the panes into the size/slide windows that contain each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

AT = "at"
"""Column of event time: in blocks the record's own, in partial results the start of the pane or window."""

EVENT_TIME = "spark.watermarkDelayMs"
"""The metadata by which Spark knows a column that has a watermark."""


@dataclass(frozen=True)
class Window:
    """A tumbling or hopping window; ``size``, ``slide`` and ``offset`` in microseconds."""

    column: str
    size: int
    slide: int
    offset: int = 0

    @property
    def pane(self) -> int:
        """Length of a pane in microseconds."""
        return math.gcd(self.size, self.slide)

    @property
    def per_record(self) -> int:
        """Largest number of windows that contain a record."""
        return -(-self.size // self.slide)

    def last_end(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the end, in microseconds, of the last window that contains each pane."""
        return self._last_start(panes) + self.size

    def ends_between(self, first: int, last: int) -> bool:
        """Return whether a window can end at a time from ``first`` to ``last``, both in microseconds."""
        return last - (last - self.offset - self.size) % self.slide >= first

    def starts(self, panes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each pair of a pane and a window that contains it: pane indices and window starts in microseconds."""
        starts = self._last_start(panes)[:, np.newaxis] - np.arange(self.per_record) * self.slide
        holds = starts + self.size > panes[:, np.newaxis]
        return np.nonzero(holds)[0], starts[holds]

    def _last_start(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        return panes - (panes - self.offset) % self.slide


def pane_starts(at: pa.Array | pa.ChunkedArray, window: Window) -> NDArray[np.int64]:
    """Return the start, in microseconds, of the pane of each event time; ``at`` has no nulls."""
    micros: NDArray[np.int64] = np.asarray(at.cast(pa.int64()))
    return micros - (micros - window.offset) % window.pane


@dataclass
class TimeSpan:
    """The earliest and the latest event time so far, in microseconds since 1970; None before the first.

    ``missing`` is the number of records without an event time.
    """

    earliest: int | None = None
    latest: int | None = None
    missing: int = 0

    def add(self, at: pa.Array | pa.ChunkedArray) -> None:
        """Extend the span to these event times."""
        self.missing += at.null_count
        bounds = pc.min_max(at.cast(pa.int64()))
        earliest, latest = bounds["min"].as_py(), bounds["max"].as_py()
        if latest is not None:
            self.earliest = earliest if self.earliest is None else min(self.earliest, earliest)
            self.latest = latest if self.latest is None else max(self.latest, latest)

    def note(self) -> dict[str, int]:
        """Return the part of a replica's note on event times; the earliest one only until the beginning of 1970."""
        if self.earliest is None or self.latest is None:
            return {}
        return {"latest": self.latest} | ({"earliest": self.earliest} if self.earliest <= 0 else {})
