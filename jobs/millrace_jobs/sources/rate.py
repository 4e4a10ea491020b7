"""An endless generated stream: any row is a function of the seed and its number alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.sources.base import Position, Rejected, Slice
from millrace_jobs.sources.formats import MAX_ROWS
from millrace_jobs.sources.pacing import Pacer, RatePace
from millrace_jobs.sources.schema import TIMESTAMP
from millrace_jobs.sources.slicing import bounds

_SCHEMA = pa.schema([("timestamp", TIMESTAMP), ("key", pa.string()), ("value", pa.float64())])
_WORDS = 4
"""64-bit words that Philox-4x64 gives for one value of its counter: enough for one row."""


@dataclass(frozen=True)
class GeneratedRows:
    """Rows ``[begin, end)`` of the stream that began at ``epoch`` (µs since 1970)."""

    begin: int
    end: int
    epoch: int


class RateSource:
    """Records ``timestamp TIMESTAMP, key STRING, value DOUBLE`` at a rate.

    Row i has the event time ``epoch + i / records_per_second``, a key drawn from ``keys`` keys with
    probability proportional to rank^-skew (Zipf; 0 is uniform), and a value uniform in [0, 1). The random
    numbers are those of the counter-based generator Philox-4x64 (Salmon et al., SC 2011) keyed by ``seed``,
    i steps after counter 0.

    The position is ``{"row": k, "epoch": µs}``; ``epoch`` is ``start_time``, or now at the first start.
    Rows are due at the rate from the first call of ``latest`` in this process on; there is no end, so
    ``everything`` means what is due, too.
    """

    schema = _SCHEMA

    def __init__(
        self,
        name: str,
        records_per_second: float,
        *,
        keys: int = 1000,
        skew: float = 0.0,
        seed: int = 0,
        start_time: datetime | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._rate = records_per_second
        self._keys = keys
        self._skew = skew
        self._seed = seed
        self._epoch = round((start_time.timestamp() if start_time else time.time()) * 1e6)
        self._due = 0
        self._clock = clock

    @cached_property
    def _pacer(self) -> Pacer:
        """Made where the pace is kept: not in the tasks, which read slices only."""
        return Pacer(RatePace.constant(self._rate), self._clock)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pacer"}

    def initial(self) -> Position:
        """Before row 0, with the time the stream begins at."""
        return {"row": 0, "epoch": self._epoch}

    def latest(self, start: Position, *, everything: bool) -> Position:
        """The rows due now."""
        self._due = self._pacer.due(int(start["row"]))
        return {"row": self._due, "epoch": start["epoch"]}

    def exhausted(self, position: Position) -> bool:
        """Never."""
        return False

    def lag(self, position: Position) -> int:
        """Rows that were due at the last call of ``latest`` and are not consumed."""
        return max(self._due - int(position["row"]), 0)

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Ranges of rows that differ by one at most. The epoch is that of ``end``; ``start`` may be newer."""
        cuts = [start["row"] + cut for cut in bounds(end["row"] - start["row"], replicas)]
        return [GeneratedRows(low, high, end["epoch"]) for low, high in itertools.pairwise(cuts) if low < high]

    def read(self, piece: Slice, label: str) -> Iterator[pa.RecordBatch | Rejected]:
        """Generate the rows of the slice."""
        assert isinstance(piece, GeneratedRows)
        for begin in range(piece.begin, piece.end, MAX_ROWS):
            yield self._generate(np.arange(begin, min(begin + MAX_ROWS, piece.end)), piece.epoch)

    def _generate(self, rows: NDArray[np.int64], epoch: int) -> pa.RecordBatch:
        generator = np.random.Philox(key=self._seed).advance(int(rows[0]))
        words = generator.random_raw(_WORDS * len(rows)).reshape(-1, _WORDS)
        uniform = (words[:, :2] >> np.uint64(11)) * 2.0**-53
        cumulative, names = _distribution(self._keys, self._skew)
        ranks = np.searchsorted(cumulative, uniform[:, 0], "right")
        times = epoch + np.floor(rows * (1e6 / self._rate)).astype(np.int64)
        return pa.RecordBatch.from_arrays(
            [pa.array(times).cast(TIMESTAMP), names.take(pa.array(ranks)), pa.array(uniform[:, 1])],
            schema=_SCHEMA,
        )


@lru_cache(maxsize=4)
def _distribution(keys: int, skew: float) -> tuple[NDArray[np.float64], pa.Array]:
    """Cumulative probabilities of the keys by rank, and their names."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    cumulative = np.cumsum(weights)
    return cumulative / cumulative[-1], pa.array([f"key-{rank}" for rank in range(keys)])
