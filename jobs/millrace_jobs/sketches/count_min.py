"""Count-min: key frequencies that are never too low, from a table whose size does not depend on the keys.

Source: Cormode, Muthukrishnan, "An Improved Data Stream Summary: The Count-Min Sketch and its Applications",
J. Algorithms 55(1), 2005. Each of ``depth`` rows of ``width`` counters counts a key in one counter. The smallest of a
key's counters is its estimate. After N records the estimate exceeds the true count by more than e N / width with a
probability of at most e ** -depth. The hashes of the rows are combined from two, which keeps that bound up to
lower-order terms (Kirsch, Mitzenmacher, "Less Hashing, Same Performance: Building a Better Bloom Filter", ESA 2006).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined, kernel, read_only
from millrace_jobs.kernels.mixing import Hashes, salts, seeded_hash

Cells = NDArray[np.int64]
"""Counters of shape ``(depth, width)``; the width is a power of two."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


class CountMin:
    """Count-min sketch; ``seed`` draws the hashes, and ``width`` is rounded up to a power of two."""

    def __init__(self, *, width: int, depth: int, seed: int) -> None:
        self.cells: Cells = np.zeros((depth, 1 << (width - 1).bit_length()), np.int64)
        """Counters, for ``count`` in kernels; they overflow only after 2**63 records."""
        self._salt = salts(seed, 1)[0]

    def add(self, keys: Hashes) -> None:
        """Count one record of each of ``keys``, shape ``(rows,)``."""
        _count_all(self.cells, read_only(keys), self._salt)

    def estimates(self, keys: Hashes) -> NDArray[np.int64]:
        """Return an upper bound on how often each key was added; same shape as ``keys``."""
        return _estimate_all(self.cells, read_only(keys), self._salt)

    def merge(self, other: CountMin) -> None:
        """Add the counts of ``other``. Raises ValueError unless it has the same shape and seed."""
        if other.cells.shape != self.cells.shape or other._salt != self._salt:
            raise ValueError("count-min sketches can be merged only when width, depth and seed are the same")
        self.cells += other.cells


def distinct(cells: Cells) -> float:
    """Estimate the number of distinct keys by linear counting on the first row; infinite if that row is full.

    Source: Whang, Vander-Zanden, Taylor, "A Linear-Time Probabilistic Counting Algorithm for Database
    Applications", TODS 15(2), 1990.
    """
    width = cells.shape[1]
    empty = width - int(np.count_nonzero(cells[0]))
    return width * math.log(width / empty) if empty else math.inf


@inlined
def count(cells: Cells, hashed: np.uint64, records: int | np.int64) -> np.int64:
    """Count ``records`` more of the key with this (well mixed) hash, and return the estimate of its count.

    Frozen, like ``mixing``: saved sketches depend on it.
    """
    last = np.uint64(cells.shape[1] - 1)
    step = (hashed >> _HALF) | _ONE
    place = hashed & _LOW
    least = np.int64(np.iinfo(np.int64).max)
    for row in range(cells.shape[0]):
        slot = place & last
        cells[row, slot] += records
        least = min(least, cells[row, slot])
        place += step
    return least


@kernel
def _count_all(cells: Cells, keys: Hashes, salt: np.uint64) -> None:
    for row in range(len(keys)):
        count(cells, seeded_hash(keys[row], salt), 1)


@kernel
def _estimate_all(cells: Cells, keys: Hashes, salt: np.uint64) -> NDArray[np.int64]:
    out = np.empty(len(keys), np.int64)
    for row in range(len(keys)):
        out[row] = count(cells, seeded_hash(keys[row], salt), 0)
    return out
