"""SplitMix64, the integer mixer behind key hashes of numbers and behind every seeded choice of a worker.

Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, with the constants
of Vigna's reference implementation (public domain). The results of these functions are frozen: a batch that is
repeated after an upgrade must be routed the same way again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .compiling import kernel, read_only

Hashes = NDArray[np.uint64]
"""Shape ``(rows,)``: 64-bit hashes of the records' keys, equal for equal keys on every replica."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
U64 = (1 << 64) - 1


@kernel
def splitmix64(state: np.uint64) -> np.uint64:
    """Return the first output of the SplitMix64 generator started at ``state``; a bijection of 64-bit words."""
    x = state + GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def seeded_hash(key: np.uint64, salt: np.uint64) -> np.uint64:
    """Return the hash of ``key`` under one of ``salts``; different salts give independent hashes."""
    return splitmix64(key ^ salt)


def salts(seed: int, choices: int) -> NDArray[np.uint64]:
    """Return the first outputs of SplitMix64 started at the low 64 bits of ``seed``, shape ``(choices,)``.

    A prefix is stable: with more choices, the earlier salts stay as they were.
    """
    return read_only(_salts(np.uint64(seed & U64), choices))


@kernel
def _salts(seed: np.uint64, choices: int) -> NDArray[np.uint64]:
    out = np.empty(choices, np.uint64)
    for choice in range(choices):
        out[choice] = splitmix64(seed)
        seed += GOLDEN
    return out


def seeded_hashes(hashes: Hashes, seed: int) -> Hashes:
    """Return a second, independent hash of each key, by mixing ``hashes`` with ``seed``; same shape."""
    return _seeded(read_only(hashes), salts(seed, 1)[0])


@kernel
def _seeded(hashes: Hashes, salt: np.uint64) -> Hashes:
    out = np.empty_like(hashes)
    for row in range(len(hashes)):
        out[row] = seeded_hash(hashes[row], salt)
    return out
