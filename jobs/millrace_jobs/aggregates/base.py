"""The interface between the combine step on a worker and the kinds of aggregates that reduce its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from millrace_jobs.sketches.key_counts import KeyCounts

RECORDS = "records"
"""Column of a reducer's result with the number of records in a partial result."""


class Reducer(Protocol):
    """A combiner that reduces one worker's records of one batch to partial results."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records."""
        ...

    def partials(self) -> Iterator[pa.Table]:
        """Yield the partial results: tables with the columns of ``ReducerFactory.schema`` and possibly others."""
        ...

    def records(self) -> int:
        """Return the number of records added."""
        ...

    def groups(self) -> int:
        """Return the number of groups by key and pane."""
        ...

    def key_counts(self) -> KeyCounts:
        """Return the distinct keys among the records, by ascending hash, each with its number of records."""
        ...


class ReducerFactory(Protocol):
    """A picklable factory of the reducer of one task."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the partial results: keys, ``at`` if there is a window, and the mergeable parts."""
        ...

    def __call__(self) -> Reducer:
        """Return an empty reducer."""
        ...
