"""Shuffle values for which Spark's hash partitioning puts worker w into partition w.

The number of tasks of a ``repartition(column)`` without a number follows a setting that may change from batch to
batch; that of ``repartitionById`` does not. ``repartition`` hashes its column, so this module inverts the hash for n
values.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_SEED = np.uint32(42)


@lru_cache(maxsize=64)
def places(n: int) -> NDArray[np.int32]:
    """Return for each of ``n`` partitions an INT that Spark puts there; shape ``(n,)``."""
    found = np.full(n, -1, dtype=np.int32)
    begin = 0
    while (found < 0).any():
        candidates = np.arange(begin, begin + 16 * n, dtype=np.int32)
        partitions = _murmur3(candidates).astype(np.int64) % n
        known, first = np.unique(partitions, return_index=True)
        new = found[known] < 0
        found[known[new]] = candidates[first[new]]
        begin += 16 * n
    return found


def _murmur3(values: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return Murmur3 x86 32 of INTs with Spark's seed, as ``hash(column)`` (Appleby, MurmurHash3, public domain)."""
    with np.errstate(over="ignore"):
        k = _rotate(values.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        h = _rotate(_SEED ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)  # length in bytes
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (h ^ (h >> np.uint32(16))).view(np.int32)


def _rotate(values: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
