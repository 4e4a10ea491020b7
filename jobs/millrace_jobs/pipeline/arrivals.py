"""When records arrived: a small histogram per slice, from which the driver knows their latency at the commit.

A slice counts its records by age in bins of a logarithmic scale, as of one point in time of its own. The driver adds
the time from then to the commit, so that only the age is rounded: by up to 9 %.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BINS, _PER_DOUBLING = 128, 4
"""Number of bins, and of bins per doubling of the age; the first one begins at 1 ms, and the last one at 50 days."""


class Arrivals:
    """Arrival times of the records of one slice; ``at`` is the time of its ages, in seconds since 1970."""

    def __init__(self, at: float | None = None) -> None:
        self._at = round((time.time() if at is None else at) * 1000)
        self._counts = np.zeros(_BINS, np.int64)

    def add(self, micros: NDArray[np.int64], records: NDArray[np.int64]) -> None:
        """Add arrival times in µs since 1970, each of so many records. Shapes ``(times,)``."""
        ages = np.maximum(self._at - micros / 1000, 1.0)
        bins = np.minimum((np.log2(ages) * _PER_DOUBLING).astype(np.int64), _BINS - 1)
        self._counts += np.bincount(bins, records, _BINS).astype(np.int64)

    def note(self) -> dict[str, Any]:
        """Return what the slice's note to the driver has of them; empty if no arrival time is known."""
        bins = np.flatnonzero(self._counts)
        if not len(bins):
            return {}
        return {"arrived": {"at": self._at, "bins": bins.tolist(), "records": self._counts[bins].tolist()}}


@dataclass(frozen=True, eq=False)
class RecordLatencies:
    """Times from arrival to commit in seconds, each of so many records. Shapes ``(times,)``."""

    seconds: NDArray[np.float64]
    records: NDArray[np.int64]

    @classmethod
    def of(cls, notes: Iterable[Mapping[str, Any]], committed: float) -> RecordLatencies:
        """Return the latencies of the slices with these notes, whose batch was committed then (s since 1970)."""
        arrived = [note["arrived"] for note in notes if "arrived" in note]
        seconds = [_ages(each["bins"]) + (committed - each["at"] / 1000) for each in arrived]
        records = [np.array(each["records"], np.int64) for each in arrived]
        if not arrived:
            return NO_LATENCIES
        return cls(np.maximum(np.concatenate(seconds), 0.0), np.concatenate(records))


def _ages(bins: list[int]) -> NDArray[np.float64]:
    """Return the ages in the middle of bins, in seconds."""
    ages: NDArray[np.float64] = 2.0 ** ((np.array(bins) + 0.5) / _PER_DOUBLING) / 1000
    return ages


NO_LATENCIES = RecordLatencies(np.zeros(0), np.zeros(0, np.int64))
"""The latencies of a batch without arrival times."""
