"""Replaying a stream through the replicas of an algorithm, slide by slide, and measuring every window.

The records of each slide are cut into one contiguous slice per replica, of nearly equal length, as a job cuts its
batches (``sources.slicing``). At the end of a slide, every replica advances once for each slide that has passed. Then
the replicas of a cooperative algorithm merge each other's states. Window state that spans several slides, such as
loads, stays local to its replica. In a job, a window is one slide, so no such state remains.

Metrics are exact and computed incrementally: each slide is read twice. When the window slides, the (key, worker) pairs
of the entering slide are added and the pairs of leaving slides are subtracted. Only pairs that thereby appear or
disappear are recounted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import BatchPartitioner, Hashes, Partitioner, Workers
from millrace_jobs.partitioners.placement_cost import MovedKeys, PlacementCost, cost_of_counts
from millrace_jobs.sources.base import bounds
from millrace_research.comparison.stream import Slides

BLOCK = 131_072
"""Maximum number of records in a block, as in the blocks that sources deliver."""


@dataclass(frozen=True)
class SlideRun:
    """The run of one slide, over all replicas; seconds are processor time of the one thread that they run in."""

    ids: Workers
    route_seconds: float
    """Time to place the records: ``route``, or ``accumulate`` and ``cut``."""
    advance_seconds: float
    """Time to end the slide: ``advance``, and the exchange between the replicas of a cooperative algorithm."""
    peak_state_bytes: int
    """``len(save())`` of the largest replica after it has taken its records; 0 if states were not requested."""
    state_bytes: int
    """``len(save())`` of the largest replica after the end of the slide, which a job keeps from batch to batch."""


def replay(
    replicas: Sequence[Partitioner],
    hashes: Hashes,
    slides: Slides,
    *,
    slides_per_window: int,
    copies: Sequence[Partitioner] = (),
    states: bool,
) -> Iterator[SlideRun]:
    """Run the stream through the replicas on one core; yield one run per slide that has records.

    Args:
        replicas: the replicas of one algorithm.
        hashes: key hashes of the records, shape ``(rows,)``.
        slides: the slides of the stream.
        slides_per_window: length of a window in slides.
        copies: for a cooperative algorithm, as many further replicas, which hold states during an exchange.
        states: whether to measure the size of states.
    """
    steps = _advances(slides, slides_per_window)
    batches = [replica if isinstance(replica, BatchPartitioner) else None for replica in replicas]
    for (begin, end), advances in zip(pairwise(slides.edges.tolist()), steps, strict=True):
        parts: list[Workers] = []
        routing, peak = 0.0, 0
        for replica, batch, (low, high) in zip(replicas, batches, _slices(begin, end, len(replicas)), strict=True):
            blocks = [hashes[row : min(row + BLOCK, high)] for row in range(low, high, BLOCK)]
            began = time.thread_time()
            parts += _take(replica, batch, blocks)
            routing += time.thread_time() - began
            peak = max(peak, len(replica.save())) if states else 0
            if batch is not None:
                began = time.thread_time()
                parts.append(batch.cut())
                routing += time.thread_time() - began
        began = time.thread_time()
        for replica in replicas:
            for _ in range(advances):
                replica.advance()
        _exchange(replicas, copies)
        ending = time.thread_time() - began
        remaining = max(len(replica.save()) for replica in replicas) if states else 0
        yield SlideRun(np.concatenate(parts), routing, ending, peak, remaining)


def last_window(hashes: Hashes, slides: Slides, *, slides_per_window: int, replicas: int) -> list[Hashes]:
    """Return the records of the last window that has any, assigned to the replicas as in ``replay``."""
    oldest = np.searchsorted(slides.numbers, slides.numbers[-1] - slides_per_window, side="right")
    dealt = [_slices(begin, end, replicas) for begin, end in pairwise(slides.edges[oldest:].tolist())]
    return [np.concatenate([hashes[low:high] for low, high in of_replica]) for of_replica in zip(*dealt, strict=True)]


def _slices(begin: int, end: int, replicas: int) -> list[tuple[int, int]]:
    """Return the range of the records ``[begin, end)`` that each replica gets."""
    return list(pairwise(begin + offset for offset in bounds(end - begin, replicas)))


def _take(replica: Partitioner, batch: BatchPartitioner | None, blocks: Sequence[Hashes]) -> list[Workers]:
    """Pass a slice to a replica; return the workers of its records, or nothing if placement waits for the cut."""
    if batch is None:
        return [replica.route(block) for block in blocks]
    for block in blocks:
        batch.accumulate(block)
    return []


def _exchange(replicas: Sequence[Partitioner], copies: Sequence[Partitioner]) -> None:
    """Merge into each replica the states that all others had before the exchange."""
    if len(copies) < 2:
        return
    for replica, copy in zip(replicas, copies, strict=True):
        copy.restore(replica.save())
    for place, replica in enumerate(replicas):
        replica.merge([*copies[:place], *copies[place + 1 :]])


def _advances(slides: Slides, slides_per_window: int) -> list[int]:
    """Return the number of advances after each slide with records: past it, and past the empty slides that follow.

    A gap longer than two windows is shortened to two windows plus its remainder after whole windows. By then, no window
    contains earlier records, and windows still end where they would have.
    """
    gaps = np.append(np.diff(slides.numbers), 1)
    two_windows = 2 * slides_per_window
    short = two_windows + gaps % slides_per_window
    counts: list[int] = np.where(gaps > two_windows, short, gaps).tolist()
    return counts


Codes = NDArray[np.int64]
"""Keys or (key, worker) pairs, numbered from 0 in order of first appearance; shape ``(rows,)``."""


def key_codes(hashes: Hashes) -> tuple[Codes, int]:
    """Return the keys as codes, and the number of distinct keys."""
    codes, keys = pd.factorize(hashes)
    return codes.astype(np.int64, copy=False), len(keys)


class PlacedStream:
    """A placed stream: each record has a key ``codes`` below ``keys``, and a worker ``ids`` below ``workers``."""

    def __init__(self, ids: Workers, codes: Codes, keys: int, workers: int) -> None:
        self._records, pairs = pd.factorize(codes * workers + ids)
        self._pair_keys, self._pair_workers = np.divmod(pairs, workers)
        self._rows = np.bincount(ids, minlength=workers)
        self._keys = keys

    def total(self) -> PlacementCost:
        """Return the cost of the whole stream as one window."""
        keys = np.bincount(self._pair_workers, minlength=len(self._rows))
        return cost_of_counts(self._rows, keys, distinct_keys=self._keys)

    def windows(self, slides: Slides, slides_per_window: int) -> Iterator[tuple[PlacementCost, MovedKeys]]:
        """Yield, for each slide with records, the cost of the window that ends with it and the keys that moved.

        Moved keys compare this window with the previously yielded one. Windows that end with an empty slide are
        omitted, because they contain nothing that an earlier window does not.
        """
        window = _Window(self._pair_keys, self._pair_workers, self._keys, len(self._rows))
        begins = np.searchsorted(slides.numbers, slides.numbers - slides_per_window, side="right").tolist()
        oldest = 0
        for newest, begin in enumerate(begins):
            entering = self._pairs_of(slides, newest)
            leaving = [self._pairs_of(slides, old) for old in range(oldest, begin)]
            oldest = begin
            yield window.step(entering, leaving)

    def _pairs_of(self, slides: Slides, slide: int) -> tuple[Codes, Codes]:
        """Return the (key, worker) pairs of a slide, and the number of records of each in it."""
        begin, end = slides.edges[slide : slide + 2]
        pairs, rows = np.unique(self._records[begin:end], return_counts=True)
        return pairs, rows


class _Window:
    """The counts of the current window by (key, worker) pair, by key, and by worker."""

    def __init__(self, pair_keys: Codes, pair_workers: Codes, keys: int, workers: int) -> None:
        self._pair_keys = pair_keys
        self._pair_workers = pair_workers
        self._pair_rows = np.zeros(len(pair_keys), np.int64)
        self._key_places = np.zeros(keys, np.int64)
        """Number of workers that each key is on."""
        self._worker_keys = np.zeros(workers, np.int64)
        self._worker_rows = np.zeros(workers, np.int64)
        self._distinct = 0

    def step(
        self, entering: tuple[Codes, Codes], leaving: list[tuple[Codes, Codes]]
    ) -> tuple[PlacementCost, MovedKeys]:
        """Slide the window: add one slide, remove others; return its cost and the keys that moved."""
        pairs, where = np.unique(np.concatenate([entering[0], *(old for old, _ in leaving)]), return_inverse=True)
        change = np.zeros(len(pairs), np.int64)
        np.add.at(change, where, np.concatenate([entering[1], *(-rows for _, rows in leaving)]))
        before = self._pair_rows[pairs]
        self._pair_rows[pairs] += change
        np.add.at(self._worker_rows, self._pair_workers[pairs], change)
        appeared = (before + change > 0).astype(np.int64) - (before > 0)
        moved = self._move(pairs[appeared != 0], appeared[appeared != 0])
        return cost_of_counts(self._worker_rows, self._worker_keys, distinct_keys=self._distinct), moved

    def _move(self, pairs: Codes, change: Codes) -> MovedKeys:
        """Count pairs that entered (``change`` 1) or left (-1) the window; return the keys that moved."""
        np.add.at(self._worker_keys, self._pair_workers[pairs], change)
        keys = np.unique(self._pair_keys[pairs])
        was = self._key_places[keys] > 0
        np.add.at(self._key_places, self._pair_keys[pairs], change)
        now = self._key_places[keys] > 0
        stayed = self._distinct - np.count_nonzero(was & ~now)
        self._distinct += int(np.count_nonzero(now)) - int(np.count_nonzero(was))
        return MovedKeys(int(stayed), int(np.count_nonzero(was & now)))
