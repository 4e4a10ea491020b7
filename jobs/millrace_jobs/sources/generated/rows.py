"""Generated streams, which never end: what they have in common, and the source ``rate``.

A row depends only on the seed and the row number, so any range of rows can be generated again.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.sources.base import (
    OnArrival,
    Position,
    Rejected,
    Slice,
    Source,
    bounds,
    ignore_arrivals,
    sampled,
)
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.format_reader import MAX_ROWS
from millrace_jobs.sources.pacing import Pace, Pacer, RatePace

_SCHEMA = pa.schema([("timestamp", TIMESTAMP), ("key", pa.string()), ("value", pa.float64())])
_GOLDEN_RATIO = 0.618
"""The share of all ranks by which keys shift at every drift; with this one, few keys return to the top soon."""

_WORDS = 4
"""64-bit words that Philox-4x64 yields per counter value: enough for one row."""


@dataclass(frozen=True)
class GeneratedRows:
    """Rows ``[begin, end)`` of the stream that began at ``epoch`` (µs since 1970).

    ``paced_from`` is the time at which the pace began, in seconds since 1970; None if it does not run.
    """

    begin: int
    end: int
    epoch: int
    paced_from: float | None = field(default=None, compare=False)


class GeneratedSource(Source, ABC):
    """A source that generates rows at a given pace; the rows do not depend on how they are sliced.

    The position is ``{"row": k, "epoch": µs}``; ``epoch`` is ``start_time``, or the time of the first start. The pace
    starts with the first call of ``latest`` in this process. The stream never ends, so ``everything`` also admits
    only the rows that are due.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        pace: RatePace,
        start_time: datetime | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.schema = schema
        self.pace = pace
        self._epoch = round((start_time.timestamp() if start_time else time.time()) * 1e6)
        self._due = 0
        self._clock = clock

    @cached_property
    def _pacer(self) -> Pacer:
        return Pacer(self.pace, self._clock)

    def initial(self) -> Position:
        """Return the position before row 0, with the time at which the stream begins."""
        return {"row": 0, "epoch": self._epoch}

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Return the position after the rows due now, at most ``most`` rows beyond ``start``."""
        row = int(start["row"])
        self._due = self._pacer.due(row)
        return {"row": self._due if most is None else min(self._due, row + most), "epoch": start["epoch"]}

    def ahead(self, start: Position, records: int) -> Position:
        """Return the position so many rows after ``start``, whenever they are due."""
        return {"row": int(start["row"]) + records, "epoch": start["epoch"]}

    def lag(self, position: Position) -> int:
        """Return the number of rows that were due at the last call of ``latest`` and are not consumed."""
        return max(self._due - int(position["row"]), 0)

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut the rows into ranges whose sizes differ by at most one.

        The epoch is taken from ``end``, because that of ``start`` may be newer.
        """
        cuts = [start["row"] + cut for cut in bounds(end["row"] - start["row"], replicas)]
        began = self._pacer.began()
        return [GeneratedRows(low, high, end["epoch"], began) for low, high in itertools.pairwise(cuts) if low < high]

    def read(
        self, piece: Slice, label: str, on_arrival: OnArrival = ignore_arrivals
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Generate the rows of the slice."""
        assert isinstance(piece, GeneratedRows)
        for begin in range(piece.begin, piece.end, MAX_ROWS):
            end = min(begin + MAX_ROWS, piece.end)
            report_due(self.pace, begin, end, piece.paced_from, on_arrival)
            yield self._generate(np.arange(begin, end), piece.epoch)

    @abstractmethod
    def _generate(self, rows: NDArray[np.int64], epoch: int) -> pa.RecordBatch:
        """Generate these consecutive rows of the stream that began at ``epoch``."""


class RateSource(GeneratedSource):
    """Records ``timestamp TIMESTAMP, key STRING, value DOUBLE`` at a rate, in records per second or a trace of it.

    - The event time of row i is the time at which the rate reaches i records: ``epoch + i / rate`` if it is constant.
    - The key is one of ``keys`` keys, with a probability proportional to rank^-skew (Zipf; 0 is uniform). Every
      ``drift`` seconds of event time the keys change ranks.
    - The value is uniform in [0, 1).
    """

    def __init__(
        self,
        name: str,
        rate: float | RatePace,
        *,
        keys: int = 1000,
        skew: float = 0.0,
        drift: float | None = None,
        seed: int = 0,
        start_time: datetime | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, _SCHEMA, RatePace.of(rate), start_time, clock)
        self._keys = keys
        self._skew = skew
        self._drift = drift
        self._seed = seed

    def _generate(self, rows: NDArray[np.int64], epoch: int) -> pa.RecordBatch:
        numbers = uniform(random_words(self._seed, rows)[:, :2])
        micros = self.pace.micros(rows)
        keys = np.searchsorted(zipf(self._keys, self._skew), numbers[:, 0], "right")
        if self._drift is not None:
            step = max(1, round(_GOLDEN_RATIO * self._keys))
            keys = (keys + micros // round(self._drift * 1e6) * step) % self._keys
        return pa.RecordBatch.from_arrays(
            [
                pa.array(epoch + micros).cast(TIMESTAMP),
                _names(self._keys).take(pa.array(keys)),
                pa.array(numbers[:, 1]),
            ],
            schema=_SCHEMA,
        )


def report_due(pace: Pace, begin: int, end: int, paced_from: float | None, on_arrival: OnArrival) -> None:
    """Report when the rows ``[begin, end)`` of a pace were due; nothing if it is not known when the pace began."""
    if paced_from is not None:
        indexes, records = sampled(end - begin)
        on_arrival(round(paced_from * 1e6) + pace.due_micros(begin + indexes), records)


def random_words(key: int, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return four random words for each of these consecutive rows. Shape ``(rows, 4)``.

    The generator is the counter-based Philox-4x64 (Salmon et al., SC 2011). Its key is ``key``, below 2^128; its
    counter is the row number.
    """
    generator = np.random.Philox(key=key).advance(int(rows[0]))
    return generator.random_raw(_WORDS * len(rows)).reshape(-1, _WORDS)


def uniform(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the words as numbers in [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


@lru_cache(maxsize=4)
def zipf(keys: int, skew: float) -> NDArray[np.float64]:
    """Return the cumulative Zipf distribution of the ranks 1 to ``keys``. Shape ``(keys,)``.

    The probability of a rank is proportional to rank^-skew.
    """
    cumulative = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -skew)
    shares: NDArray[np.float64] = cumulative / cumulative[-1]
    return shares


@lru_cache(maxsize=4)
def _names(keys: int) -> pa.Array:
    return pa.array([f"key-{number}" for number in range(keys)])
