"""Sums over a sliding window of slides, by subtract-on-evict.

Source: Tangwongsan, Hirzel, Schneider, Wu, "General Incremental Sliding-Window Aggregation", PVLDB 8(7), 2015:
an aggregate with an inverse takes the evicted values out again, so that a slide costs one block of counts and
one addition, however many slides a window has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


class SlidingCounts:
    """``length`` counters over the newest ``slides`` slides, the current one included."""

    def __init__(self, slides: int, length: int) -> None:
        self.head: Counts = np.zeros(length, np.int64)
        """Shape ``(length,)``: the counts of the current slide; count here."""
        self.past: Counts = np.zeros(length, np.int64)
        """Shape ``(length,)``: the sums over the earlier slides of the window."""
        # One block per earlier slide, the oldest of which is at _oldest; it is overwritten by the next one.
        self._blocks = np.zeros((slides - 1, length), np.int64)
        self._oldest = 0

    @property
    def totals(self) -> Counts:
        """Shape ``(length,)``: the sums over the window; a copy."""
        return self.past + self.head

    @property
    def history(self) -> Counts:
        """Shape ``(slides, length)``: the counts of each slide of the window, the oldest first; a copy."""
        return np.concatenate([np.roll(self._blocks, -self._oldest, axis=0), self.head[None]])

    @classmethod
    def of(cls, history: Counts) -> SlidingCounts:
        """The counters with that ``history``, of shape ``(slides, length)``."""
        counts = cls(*history.shape)
        counts._blocks[:] = history[:-1]
        counts.head[:] = history[-1]
        counts.past[:] = history[:-1].sum(axis=0)
        return counts

    def advance(self) -> None:
        """The current slide has ended; the oldest one leaves the window."""
        if len(self._blocks):
            oldest = self._blocks[self._oldest]
            self.past += self.head - oldest
            oldest[:] = self.head
            self._oldest = (self._oldest + 1) % len(self._blocks)
        self.head[:] = 0
