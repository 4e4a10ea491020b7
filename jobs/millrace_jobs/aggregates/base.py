"""How a worker reduces the records it was sent: the interface between combine and the kinds of aggregates."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

RECORDS = "records"
"""Column of a reducer's result: how many records are in a partial result."""


class Reducer(Protocol):
    """What one worker does with the records of its keys in one batch."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in records."""
        ...

    def partials(self) -> pa.Table:
        """The partial results: the columns of ``ReducerFactory.schema`` and ``records``."""
        ...

    def key_hashes(self) -> NDArray[np.uint64]:
        """Shape ``(keys,)``: hashes of the different keys among the records."""
        ...


class ReducerFactory(Protocol):
    """Makes the reducer of one task; picklable."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the partial results: keys, ``at`` where there is a window, and the mergeable parts."""
        ...

    def __call__(self) -> Reducer:
        """A reducer with nothing in it."""
        ...
