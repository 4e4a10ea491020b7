"""Record latency, from arrival at the source to the end of the batch, as a mixture of uniform distributions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SHORTEST = 1e-9
"""Shortest span of latencies, seconds; shorter ones are widened to this."""


class Latencies:
    """Latencies of groups of records, each group uniformly distributed from ``low`` to ``high`` seconds."""

    def __init__(self, low: NDArray[np.float64], high: NDArray[np.float64], records: NDArray[np.float64]) -> None:
        """Take three arrays of shape (groups,); groups without records are dropped."""
        some = records > 0
        self.low = low[some]
        self.high = np.maximum(high[some], self.low + _SHORTEST)
        self.records = records[some]

    def above(self, seconds: float) -> float:
        """Return the number of records with a latency of more than ``seconds``."""
        share = np.clip((self.high - seconds) / (self.high - self.low), 0.0, 1.0)
        return float((share * self.records).sum())

    def quantiles(self, shares: Sequence[float]) -> NDArray[np.float64]:
        """Return the latency quantiles in seconds for ``shares`` between 0 and 1; NaN without records."""
        if not len(self.records):
            return np.full(len(shares), np.nan)
        density = self.records / (self.high - self.low)
        edges = np.concatenate((self.low, self.high))
        order = np.argsort(edges, kind="stable")
        edges = edges[order]
        height = np.cumsum(np.concatenate((density, -density))[order])
        below = np.concatenate(([0.0], np.cumsum(np.maximum(height[:-1], 0.0) * np.diff(edges))))
        found: NDArray[np.float64] = np.interp(np.asarray(shares) * below[-1], below, edges)
        return found
