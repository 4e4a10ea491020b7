"""Bottom-k sketch: how many different keys, from the k smallest of their hashes.

Beyer, Haas, Reinwald, Sismanis, Gemulla: On Synopses for Distinct-Value Estimation Under Multiset Operations
(SIGMOD 2007). Exact below k different keys; above, the relative standard error is about 1 / sqrt(k - 2).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

K = 256


def bottom_k(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The at most K smallest different hashes, ascending; ``hashes`` has shape ``(rows,)``."""
    return np.unique(hashes)[:K]


def encode(sketch: NDArray[np.uint64]) -> str:
    """As text for JSON."""
    return base64.b64encode(sketch.astype("<u8").tobytes()).decode("ascii")


def decode(text: str) -> NDArray[np.uint64]:
    """The inverse of ``encode``."""
    return np.frombuffer(base64.b64decode(text), dtype="<u8").astype(np.uint64)


def distinct(sketches: Iterable[NDArray[np.uint64]]) -> int:
    """Number of different keys in the union of the streams behind these sketches."""
    union = bottom_k(np.concatenate([np.empty(0, np.uint64), *sketches]))
    if len(union) < K:
        return len(union)
    return round((K - 1) / (float(union[-1]) / 2.0**64))
