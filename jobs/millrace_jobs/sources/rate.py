"""Generated records of the simplest kind: a timestamp, a key and a value."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.sources.formats.schema import TIMESTAMP
from millrace_jobs.sources.generated import GeneratedSource, random_words, uniform, zipf
from millrace_jobs.sources.pacing import RatePace

_SCHEMA = pa.schema([("timestamp", TIMESTAMP), ("key", pa.string()), ("value", pa.float64())])
_GOLDEN_RATIO = 0.618
"""The share of all ranks by which keys shift at every drift; with this one, few keys return to the top soon."""


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


@lru_cache(maxsize=4)
def _names(keys: int) -> pa.Array:
    return pa.array([f"key-{number}" for number in range(keys)])
