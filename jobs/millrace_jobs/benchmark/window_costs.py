"""The exact metrics of every window of a placed stream, computed incrementally: each slide is read twice.

When the window slides, the (key, worker) pairs of the entering slide are added and the pairs of leaving slides are
subtracted. Only pairs that thereby appear or disappear are recounted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_jobs.partitioners.metrics import PlacementCost, cost_of_counts
from millrace_jobs.partitioners.moved_keys import MovedKeys

from .slides import Slides

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
