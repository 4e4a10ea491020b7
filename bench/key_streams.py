"""Streams of key hashes to measure partitioners on: integer key codes, hashed as a job hashes a column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.key_hashes import hash_columns

KEYS = 1_000_000
SKEWS = {"uniform": 0.0, "Zipf 1.0": 1.0, "Zipf 1.5": 1.5, "Zipf 2.0": 2.0}


def zipf_shares(skew: float, keys: int) -> NDArray[np.float64]:
    """Return the shares of ``keys`` keys by Zipf's law, the largest first."""
    weights: NDArray[np.float64] = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    return weights / weights.sum()  # type: ignore[no-any-return]


def skewed(name: str, records: int) -> Hashes:
    """Return the hashes of ``records`` keys, drawn from ``KEYS`` keys with the skew ``name`` in ``SKEWS``."""
    return hashed(codes(name, records, KEYS))


def codes(name: str, records: int, keys: int) -> NDArray[np.int64]:
    """Return ``records`` integer codes of ``keys`` keys with the skew ``name`` in ``SKEWS``. 0 is the most frequent."""
    shares = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -SKEWS[name])
    drawn = np.random.default_rng(7).random(records) * shares[-1]
    found: NDArray[np.int64] = np.searchsorted(shares, drawn, side="right")
    return found


def hashed(codes: NDArray[np.int64]) -> Hashes:
    """Return the hashes of integer key codes, equal for equal codes."""
    return hash_columns([pa.array(codes)], len(codes))
