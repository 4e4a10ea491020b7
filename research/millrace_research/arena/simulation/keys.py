"""Keys of the stream: their number and skew over time, and how many of them appear in a batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_EXACT_RANKS = 512
"""Most frequent keys that are counted one by one in the expected number of distinct keys; the rest are grouped."""

_ROWS = np.concatenate(([0.0], np.geomspace(1, 1e9, 73)))
"""Record counts at which the expected number of distinct keys is computed; it is interpolated between them."""


@dataclass(frozen=True)
class Keys:
    """Frequencies of keys in a part of the stream.

    Attributes:
        distinct: number of keys.
        exponent: exponent of Zipf's law; 0 is uniform.
        hot: extra share of the records, 0 to 1, that goes to the most frequent key.
        salt: seed of the key hashes; another salt moves the frequent keys to other tasks.
    """

    distinct: int
    exponent: float = 0.0
    hot: float = 0.0
    salt: int = 0

    def __post_init__(self) -> None:
        if self.distinct < 1 or self.exponent < 0 or not 0 <= self.hot < 1:
            raise ValueError(f"keys out of range: {self}")

    def appearing(self, rows: float) -> float:
        """Return the expected number of distinct keys among ``rows`` independently drawn records."""
        grid, counts = _appearing(self)
        at = bisect_right(grid, rows) - 1
        if at >= len(grid) - 1:
            return counts[-1]
        return counts[at] + (counts[at + 1] - counts[at]) * (rows - grid[at]) / (grid[at + 1] - grid[at])


class KeySchedule:
    """Keys over time; each entry holds until the next one begins."""

    def __init__(self, parts: Sequence[tuple[float, Keys]]) -> None:
        """Take ``parts``, pairs of a start in seconds and keys; the first starts at 0.

        Raises:
            ValueError: if the parts do not start at 0 or are not in order of time.
        """
        self._since = [since for since, _ in parts]
        self._keys = [keys for _, keys in parts]
        if not parts or self._since[0] != 0 or self._since != sorted(self._since):
            raise ValueError("keys must start at second 0 and be in order of time")

    def at(self, time: float) -> Keys:
        """Return the keys at ``time`` seconds, 0 or more."""
        return self._keys[bisect_right(self._since, time) - 1]


def always(keys: Keys) -> KeySchedule:
    """Return a schedule with the same keys throughout."""
    return KeySchedule([(0.0, keys)])


def growth(keys: Keys, distinct: int, since: float, until: float, parts: int = 16) -> KeySchedule:
    """Return a schedule that grows from ``keys`` to ``distinct`` keys between ``since`` and ``until``, seconds.

    The number of keys grows by the same factor in each of ``parts`` steps.
    """
    counts = np.geomspace(keys.distinct, distinct, parts + 1)[1:]
    times = np.linspace(since, until, parts)
    grown = [replace(keys, distinct=round(count)) for count in counts]
    return KeySchedule([(0.0, keys), *zip(times.tolist(), grown, strict=True)])


@lru_cache(maxsize=64)
def frequencies(keys: Keys) -> NDArray[np.float64]:
    """Return each key's share of the records, most frequent key first; shape (keys.distinct,), sum 1."""
    weights: NDArray[np.float64] = np.arange(1, keys.distinct + 1, dtype=np.float64) ** -keys.exponent
    shares: NDArray[np.float64] = weights * ((1 - keys.hot) / weights.sum())
    shares[0] += keys.hot
    return shares


@lru_cache(maxsize=256)
def _appearing(keys: Keys) -> tuple[list[float], list[float]]:
    """Return record counts and the expected distinct keys among them: the sum of 1 - (1 - p)^rows over keys."""
    shares = frequencies(keys)
    edges = np.unique(np.geomspace(_EXACT_RANKS, max(keys.distinct, _EXACT_RANKS), 400).astype(int))
    starts = np.concatenate((np.arange(min(_EXACT_RANKS, keys.distinct)), edges[edges < keys.distinct][1:]))
    sizes = np.diff(np.append(starts, keys.distinct))
    means = np.add.reduceat(shares, starts) / sizes
    absent = np.log1p(-np.minimum(means, 1 - 1e-15))
    counts = -np.expm1(np.outer(_ROWS, absent)) @ sizes
    return _ROWS.tolist(), counts.tolist()
