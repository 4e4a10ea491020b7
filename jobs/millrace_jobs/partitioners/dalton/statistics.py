"""Key frequencies f(k) in the current STATS_WIN (paper 003, section 3.3, "Statistics Computation").

``exact`` keeps a map of all keys, ``sketch`` a count-min sketch, ``hybrid`` one of the two, as in section 5:

- A window begins with the map, unless the previous one had too many keys for it.
- The map turns into the sketch in mid-window, without loss, once it has ``MOST_EXACT`` keys. So the first window, and
  one that has grown, are also counted in bounded memory.
"""

from __future__ import annotations

import numpy as np

from millrace_jobs.kernels.compiling import inlined, kernel
from millrace_jobs.kernels.key_table import Rows, empty_table, fill, find, grown, is_full, rows_of
from millrace_jobs.kernels.mixing import splitmix64
from millrace_jobs.partitioners.state import PartitionerState, Vectors
from millrace_jobs.sketches import count_min
from millrace_jobs.sketches.count_min import Cells

MOST_EXACT = 1 << 17
"""Maximum number of keys that ``hybrid`` counts exactly, in a map of 4 MB. For more, the sketch was measured faster."""

WIDTH, DEPTH = 1 << 15, 4
"""Size of the sketch: 1 MB, wrong by more than 0.0083 % of the window's records for less than 1.9 % of the keys."""

_NO_CELLS = np.zeros((0, 0), np.int64)


class Frequencies:
    """The counts of one STATS_WIN; ``kind`` is ``hybrid``, ``exact`` or ``sketch``."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.most = MOST_EXACT if kind == "hybrid" else np.iinfo(np.int64).max
        """Most keys with which the map is in use."""
        self.table: Rows = empty_table(0, 1)
        """The map: keys, each with its count."""
        self.cells: Cells = _NO_CELLS
        """The sketch; without cells while the map is in use."""
        if kind == "sketch":
            self._begin_sketch()

    @property
    def exact(self) -> bool:
        """Whether the map is in use."""
        return not len(self.cells)

    def make_room(self, keys: int) -> int:
        """Grow the map, which is full with ``keys`` keys, or turn it into the sketch; return its keys afterwards."""
        if keys < self.most:
            self.table = grown(self.table)
            return keys
        self._begin_sketch()
        _pour(self.table, self.cells)
        self.table = empty_table(0, 1)
        return 0

    def begin_window(self, keys: int) -> None:
        """Forget all counts. ``keys`` is how many keys the map had."""
        if not self.exact:
            few = count_min.distinct(self.cells) <= MOST_EXACT / 2
            self.cells[:] = 0
            if self.kind == "hybrid" and few:
                self.cells = _NO_CELLS
        self.table = empty_table(keys, 1)

    def vectors(self) -> Vectors:
        """Return the arrays that ``restored`` needs: little, unless there are counts."""
        rows = rows_of(self.table).view(np.int64)
        cells = self.cells if self.cells.any() else _NO_CELLS
        return {"counted_keys": rows[:, 0], "counts": rows[:, 1], "cells": cells.reshape(-1)}

    @classmethod
    def restored(cls, kind: str, exact: bool, saved: PartitionerState) -> Frequencies:
        """Return the counts whose ``vectors`` are in a state. Raises ValueError if these are not usable."""
        restored = cls(kind)
        keys, counts, cells = (saved.vector(name) for name in ("counted_keys", "counts", "cells"))
        hashes = keys.view(np.uint64)
        if kind == ("sketch" if exact else "exact"):
            raise ValueError(f"the saved state of dalton has no statistics of kind {kind}")
        if (
            len(keys) != len(counts)
            or (counts < 1).any()
            or (hashes[1:] <= hashes[:-1]).any()
            or len(keys) > restored.most
        ):
            raise ValueError("the saved state of dalton has no usable counts of keys")
        if len(cells) not in (0, WIDTH * DEPTH) or (cells < 0).any() or (exact and len(cells)):
            raise ValueError("the saved state of dalton has no usable count-min sketch")
        if not exact:
            restored._begin_sketch()
            restored.cells.reshape(-1)[: len(cells)] = cells
        restored.table = empty_table(len(keys), 1)
        fill(restored.table, hashes, counts)
        return restored

    def _begin_sketch(self) -> None:
        self.cells = np.zeros((DEPTH, WIDTH), np.int64)


@inlined
def needs_room(table: Rows, keys: int, most: int) -> bool:
    """Whether the map, which has ``keys`` keys, must make room before another one is counted."""
    return is_full(len(table), keys + 1) or keys == most


@inlined
def count(table: Rows, cells: Cells, key: np.uint64) -> np.int64:
    """Count one record of ``key``; return its count so far (UpdateFrequency and EstimateFrequency of Algorithm 1)."""
    if len(cells):
        return count_min.count(cells, splitmix64(key), 1)
    slot = find(table, key)
    table[slot, 0] = key
    table[slot, 1] += np.uint64(1)
    return np.int64(table[slot, 1])


@kernel
def _pour(table: Rows, cells: Cells) -> None:
    """Add the counts of the map to the sketch."""
    for slot in range(len(table)):
        if table[slot, 1]:
            count_min.count(cells, splitmix64(table[slot, 0]), np.int64(table[slot, 1]))
