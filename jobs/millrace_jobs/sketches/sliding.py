"""Sums over a sliding window of slides, by subtract-on-evict.

Source: Tangwongsan, Hirzel, Schneider, Wu, "General Incremental Sliding-Window Aggregation", PVLDB 8(7), 2015:
an aggregate with an inverse subtracts the evicted values again, so that a slide costs one block of counts and
one addition, however many slides a window has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


class SlidingCounts:
    """Array of ``length`` counters over the newest ``slides`` slides, including the current one."""

    def __init__(self, slides: int, length: int) -> None:
        self.head: Counts = np.zeros(length, np.int64)
        """Counts of the current slide, shape ``(length,)``; callers add to them directly."""
        self.past: Counts = np.zeros(length, np.int64)
        """Sums over the earlier slides of the window, shape ``(length,)``."""
        # One block per earlier slide. The oldest is at _oldest, and the next slide overwrites it.
        self._blocks = np.zeros((slides - 1, length), np.int64)
        self._oldest = 0

    @property
    def totals(self) -> Counts:
        """Sums over the window, shape ``(length,)``; a copy."""
        return self.past + self.head

    @property
    def history(self) -> Counts:
        """Counts of each slide of the window, oldest first, shape ``(slides, length)``; a copy."""
        return np.concatenate([np.roll(self._blocks, -self._oldest, axis=0), self.head[None]])

    @classmethod
    def of(cls, history: Counts) -> SlidingCounts:
        """Return the counters with this ``history``, of shape ``(slides, length)``."""
        counts = cls(*history.shape)
        counts._blocks[:] = history[:-1]
        counts.head[:] = history[-1]
        counts.past[:] = history[:-1].sum(axis=0)
        return counts

    def advance(self) -> None:
        """End the current slide; the oldest one leaves the window."""
        if len(self._blocks):
            oldest = self._blocks[self._oldest]
            self.past += self.head - oldest
            oldest[:] = self.head
            self._oldest = (self._oldest + 1) % len(self._blocks)
        self.head[:] = 0
