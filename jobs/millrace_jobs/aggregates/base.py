"""How a worker reduces the records it was sent: the interface between combine and the kinds of aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from millrace_jobs.sketches.key_counts import KeyCounts

RECORDS = "records"
"""Column of a reducer's result: how many records are in a partial result."""


class Reducer(Protocol):
    """What one worker does with the records of its keys in one batch."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in records."""
        ...

    def partials(self) -> Iterator[pa.Table]:
        """The partial results: tables with the columns of ``ReducerFactory.schema`` and perhaps others."""
        ...

    def records(self) -> int:
        """Number of records taken in."""
        ...

    def groups(self) -> int:
        """Number of groups by key and pane."""
        ...

    def key_counts(self) -> KeyCounts:
        """The different keys among the records, by ascending hash, with their numbers of records."""
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
