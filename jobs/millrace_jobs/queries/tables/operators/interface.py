"""The interface of operators on changes, and of the state that they keep.

Rows are cut into *buckets* by the hash of an operator's key, so that rows with one key are in one bucket. An operator
processes one bucket at a time, with the state of that bucket alone. In Spark, a bucket is a grouping key of a
``transformWithState`` (``tables.stages``); in tests, it is a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from millrace_jobs.queries.tables.operators.splitting import MatchUnit

BUCKETS = 16
"""Least number of buckets of an operator; part of the state's layout."""

_STREAM_JOIN_BUCKETS = 2
"""Buckets in each state partition of a join of two streams; they can be repartitioned to twice as many partitions."""


def stream_join_buckets(partitions: int) -> int:
    """Return the least number of buckets of a join of two streams whose state begins in so many partitions.

    A batch has a fixed cost for each bucket, which is most of what such a join does with few records. Rows that change
    need more buckets: a batch rewrites all rows that are in a slot with one of its own.
    """
    return min(BUCKETS, _STREAM_JOIN_BUCKETS * partitions)


class BucketStore(Protocol):
    """The state of one operator in one bucket: small Arrow tables by name.

    What an operator puts is the state for the next batch, if this batch is committed.
    """

    def get(self, name: str, schema: pa.Schema) -> pa.Table | None:
        """Return the table with this name, which was put with this schema, or None."""
        ...

    def put(self, name: str, rows: pa.Table) -> None:
        """Store a table, and replace the one that had this name."""
        ...

    def remove(self, name: str) -> None:
        """Remove a table, if there is one with this name."""
        ...


@dataclass
class OperatorResult:
    """What an operator made of a batch in one bucket.

    ``changes`` are the changes of the operator's result, which can be read once. ``late`` counts the input rows that
    came after the watermark and were ignored. ``wake`` is the earliest watermark, in microseconds since 1970, at which
    the operator has to process this bucket even without input; None if there is none. ``kept`` is the number of rows in
    the bucket's state.

    ``units`` are what a join leaves to workers, and can be read once. ``pairs`` counts the pairs of rows that it
    matched, those of units included, and ``hot`` has the pairs of each hot key.
    """

    changes: Iterable[pa.Table] = field(default_factory=list)
    late: int = 0
    wake: int | None = None
    kept: int = 0
    units: Iterable[MatchUnit] = ()
    pairs: int = 0
    hot: list[int] = field(default_factory=list)


class TableOperator(Protocol):
    """An operator on changes; it has no state of its own besides its ``BucketStore``.

    **Watermarks.** A watermark W promises that the changes of later batches, summed up, alter no version before W. Some
    of their rows may begin earlier: where a row in ``[a, FOREVER)`` is cut at ``t >= W``, it is removed, and added in
    ``[a, t)``. The changes of the batch itself are bound by the watermark of the batch before.

    A source does not keep this promise. The operator that reads it does so in its place: records that begin before the
    watermark of their own batch are late and ignored, and upserts count from the watermark on.

    An operator keeps the promise up to its ``lag``: the changes that it makes in later batches alter no version before
    W - lag. They can be behind W because a result waits for the watermark, or because a new row changes results of
    earlier ones. However far the watermark moves in one batch, results are at most ``lag`` behind the one before. So
    an operator that reads them takes no row for late, even if it begins before the watermark of its batch.
    """

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schema of the changes of each input."""
        ...

    @property
    def output(self) -> pa.Schema:
        """Schema of the changes of the result."""
        ...

    @property
    def lag(self) -> int | None:
        """How far, in microseconds, changes of the result can be behind the watermark.

        None if there is no limit, or if the result has only the latest version, which changes as a whole.
        """
        ...

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Apply the changes of a batch to a bucket, and then the watermark.

        Args:
            store: state of the bucket.
            changes: one table for each input, possibly without rows; rows that were removed have been added before.
            watermark: in microseconds since 1970, or ``changes.BEGINNING`` without one; it is at least that of the
                batch before.
        """
        ...


@dataclass(frozen=True)
class StoreFolder:
    """The tables of a ``BucketStore`` whose names begin with that of the folder; a ``BucketStore`` itself."""

    store: BucketStore
    folder: str

    def get(self, name: str, schema: pa.Schema) -> pa.Table | None:
        """Return the table with this name, or None."""
        return self.store.get(f"{self.folder}/{name}", schema)

    def put(self, name: str, rows: pa.Table) -> None:
        """Store a table."""
        self.store.put(f"{self.folder}/{name}", rows)

    def remove(self, name: str) -> None:
        """Remove a table."""
        self.store.remove(f"{self.folder}/{name}")


@dataclass(frozen=True)
class OperatorChain:
    """Two operators, of which the second one reads what the first makes; an operator on changes.

    Both bring the same rows together, so that they work in the same buckets, without a shuffle between them.
    """

    first: TableOperator
    second: TableOperator

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schemas of the first operator's inputs."""
        return self.first.inputs

    @property
    def output(self) -> pa.Schema:
        """Schema of the second operator's changes."""
        return self.second.output

    @property
    def lag(self) -> int | None:
        """The lag of the second operator, which includes that of its input."""
        return self.second.lag

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Apply the changes of a batch to both operators, one after the other; see ``TableOperator``."""
        made = self.first.process(StoreFolder(store, "first"), changes, watermark)
        (schema,) = self.second.inputs
        between = pa.concat_tables([schema.empty_table(), *made.changes])
        result = self.second.process(StoreFolder(store, "second"), [between], watermark)
        result.late += made.late
        result.kept += made.kept
        result.wake = min((wake for wake in (made.wake, result.wake) if wake is not None), default=None)
        return result
