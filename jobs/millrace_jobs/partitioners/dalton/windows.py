"""Sliding windows: the load of each worker, and X_w, the workers of each key (paper 003, section 3.3).

Loads are sums by subtract-on-evict. Source: Tangwongsan, Hirzel, Schneider, Wu, "General Incremental Sliding-Window
Aggregation", PVLDB 8(7), 2015: an aggregate with an inverse subtracts the evicted values again, so that a slide costs
one block of counts and one addition, however many slides a window has.

X_w is stored as the paper's "Reward Computation" describes. A circular list holds one block per slide. The head is a
bit vector per key; a slide that has ended is stored as the list of its set bits. The aggregate of the earlier slides
counts, per key and worker, in how many of them the bit is set, so that a slide is evicted in time proportional to its
own bits.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined


class SlidingCounts:
    """Array of ``length`` counters over the newest ``slides`` slides, including the current one."""

    def __init__(self, slides: int, length: int) -> None:
        self.head: NDArray[np.int64] = np.zeros(length, np.int64)
        """Counts of the current slide, shape ``(length,)``; callers add to them directly."""
        self.past: NDArray[np.int64] = np.zeros(length, np.int64)
        """Sums over the earlier slides of the window, shape ``(length,)``."""
        # One block per earlier slide. The oldest is at _oldest, and the next slide overwrites it.
        self._blocks = np.zeros((slides - 1, length), np.int64)
        self._oldest = 0

    @property
    def totals(self) -> NDArray[np.int64]:
        """Sums over the window, shape ``(length,)``; a copy."""
        return self.past + self.head

    @property
    def history(self) -> NDArray[np.int64]:
        """Counts of each slide of the window, oldest first, shape ``(slides, length)``; a copy."""
        return np.concatenate([np.roll(self._blocks, -self._oldest, axis=0), self.head[None]])

    @classmethod
    def of(cls, history: NDArray[np.int64]) -> SlidingCounts:
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


Places = NDArray[np.int64]
"""Shape ``(bits,)``: the set bits of one slide, as ``row * n + worker``, ascending."""


class Bits(NamedTuple):
    """Arrays that kernels work on, with one row per key; the table of keys knows how many rows are in use."""

    head: NDArray[np.bool_]
    """Shape ``(rows, n)``: the workers on which the key has records in the current slide."""
    past: NDArray[np.int32]
    """Shape ``(rows, n)``: the number of earlier slides of the window in which the key has records on the worker."""
    spread: NDArray[np.int32]
    """Shape ``(rows,)``: ‖X_w‖, the number of workers on which the key has records in the window."""


@inlined
def touch(bits: Bits, row: int | np.int64, worker: int | np.int64) -> None:
    """Set the bit of the key in ``row`` for ``worker`` in the current slide."""
    if not bits.head[row, worker]:
        bits.head[row, worker] = True
        if bits.past[row, worker] == 0:
            bits.spread[row] += 1


class Fragmentation:
    """The fragmentation vectors of a window of ``slides`` slides, for up to ``rows`` keys."""

    def __init__(self, slides: int, rows: int, workers: int) -> None:
        self.most_slides = slides
        """Number of slides in a window."""
        self._blocks: deque[Places] = deque()
        self.bits = _empty(rows, workers)

    def advance(self) -> None:
        """End the current slide; the oldest one leaves the window."""
        head, past, spread = self.bits
        workers = head.shape[1]
        ended = np.flatnonzero(head)
        past.reshape(-1)[ended] += 1
        head[:] = False
        self._blocks.append(ended)
        if len(self._blocks) == self.most_slides:
            evicted = self._blocks.popleft()
            past.reshape(-1)[evicted] -= 1
            gone = evicted[past.reshape(-1)[evicted] == 0]
            spread -= np.bincount(gone // workers, minlength=len(spread)).astype(np.int32)

    def fit(self, kept: NDArray[np.intp], rows: int) -> None:
        """Keep the rows ``kept``, renumbered from 0, with room for ``rows``; every row with a bit must be kept."""
        head, past, spread = self.bits
        workers = head.shape[1]
        fitted = _empty(rows, workers)
        for new, old in zip(fitted, (head, past, spread), strict=True):
            new[: len(kept)] = old[kept]
        numbers = np.zeros(len(head), np.int64)
        numbers[kept] = np.arange(len(kept))
        self._blocks = deque(numbers[block // workers] * workers + block % workers for block in self._blocks)
        self.bits = fitted

    def slides(self) -> list[Places]:
        """Return the bits set in each slide of the window so far, the current slide last."""
        return [*self._blocks, np.flatnonzero(self.bits.head)]

    def replay(self, slides: list[Places]) -> None:
        """Replace all bits with ``slides``, in the form that the method ``slides`` returns."""
        rows, workers = self.bits.head.shape
        head, past, spread = self.bits = _empty(rows, workers)
        self._blocks = deque(slides[:-1])
        for block in self._blocks:
            past.reshape(-1)[block] += 1
        head.reshape(-1)[slides[-1]] = True
        spread[:] = (head | (past > 0)).sum(axis=1)

    def resize(self, workers: int) -> None:
        """Continue with ``workers`` workers, and forget the bits of removed workers."""
        rows, before = self.bits.head.shape
        slides = [block[block % before < workers] for block in self.slides()]
        self.bits = _empty(rows, workers)
        self.replay([block // before * workers + block % before for block in slides])

    def elsewhere(self, homes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which of the first rows have a record on a worker other than their home; same shape as ``homes``."""
        rows = np.arange(len(homes))
        at_home = self.bits.head[rows, homes] | (self.bits.past[rows, homes] > 0)
        away: NDArray[np.bool_] = self.bits.spread[: len(homes)] > at_home
        return away


def _empty(rows: int, workers: int) -> Bits:
    shape = (rows, workers)
    return Bits(np.zeros(shape, np.bool_), np.zeros(shape, np.int32), np.zeros(rows, np.int32))
