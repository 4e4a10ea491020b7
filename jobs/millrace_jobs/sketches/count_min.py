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

from millrace_jobs.kernels.compiling import inlined

Cells = NDArray[np.int64]
"""Counters of shape ``(depth, width)``; the width is a power of two."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


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

    Results are frozen, like those of ``mixing``: saved sketches depend on them.
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
