"""Windows on event time, and the panes they are made of.

A pane is the longest stretch of time that lies in exactly the same windows: gcd(size, slide) long. Workers
combine by pane first, and put panes together to the size/slide windows that hold each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

AT = "at"
"""Column of event time: of the record in blocks, of where its pane or window starts in partial results."""


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
        """How many windows a record is in, at the most."""
        return -(-self.size // self.slide)

    def last_end(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        """End, in microseconds, of the last window that holds each of these panes."""
        return self._last_start(panes) + self.size

    def starts(self, panes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each window that holds each of these panes: the index of the pane, and the start in microseconds."""
        starts = self._last_start(panes)[:, np.newaxis] - np.arange(self.per_record) * self.slide
        holds = starts + self.size > panes[:, np.newaxis]
        return np.nonzero(holds)[0], starts[holds]

    def _last_start(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        return panes - (panes - self.offset) % self.slide


def pane_starts(at: pa.Array | pa.ChunkedArray, window: Window) -> NDArray[np.int64]:
    """Start in microseconds of the pane of each event time; ``at`` has no nulls."""
    micros: NDArray[np.int64] = np.asarray(at.cast(pa.int64()))
    return micros - (micros - window.offset) % window.pane
