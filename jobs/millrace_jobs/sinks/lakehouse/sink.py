"""The part that sinks of tables of a lakehouse have in common: each batch is written once, and the table is compacted.

Tasks write the rows of a batch as Parquet files. The driver adds the files to the table in one commit, which also has
the batch's number. After a crash, Spark runs the batch again; it is computed again, because state depends on it, and
written only if the table does not have it.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError
from millrace_api.model.lakehouse import LakehouseSinkSpec
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, Sink

_log = logging.getLogger(__name__)


class LakehouseTable(Protocol):
    """A table that one query writes to."""

    @property
    def last(self) -> int:
        """The last batch in the table; NO_BATCH if there is none."""
        ...

    def take(self, last: LastBatch) -> None:
        """Create the table or check it, fence other drivers on this checkpoint, and find the last batch in it."""
        ...

    def compact(self) -> None:
        """Merge small files into larger ones, and remove what is no longer needed; the rows stay as they are."""
        ...


_SpecT = TypeVar("_SpecT", bound=LakehouseSinkSpec)
_TableT = TypeVar("_TableT", bound=LakehouseTable)


class LakehouseSink(Sink, Generic[_SpecT, _TableT]):
    """A sink that appends to a table of a lakehouse, or upserts and deletes its rows by key.

    Args:
        spec: what the user wrote about the table.
        keys: key of the results; without columns, results are appended.
        results: columns of the results.
        query: name of the query.
        checkpoint_id: id of its checkpoint.
    """

    def __init__(self, spec: _SpecT, keys: ResultKeys, results: StructType, query: str, checkpoint_id: str) -> None:
        self._spec, self._keys, self._results = spec, keys, results
        self._query, self._checkpoint = query, checkpoint_id
        self._prepared: _TableT | None = None
        self._has_grown = True

    def prepare(self, last: LastBatch) -> None:
        """Create or check the table, and take over its record of batches.

        Raises:
            MillraceError: the table cannot be used, does not suit the results, or has results that do not match this
                checkpoint's state.
        """
        columns = self._checked_columns()
        target = self._prepared or self._new_target(columns)
        target.take(last)
        self._prepared = target

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute a batch, and write it if the table does not have it yet; return the number of rows written."""
        if batch.number <= self._target.last:
            results.write.format("noop").mode("overwrite").save()
            return 0
        rows = self._write(results, batch)
        self._has_grown = self._has_grown or bool(rows)
        every = self._spec.maintenance.compact_every
        if every and self._has_grown and (batch.number + 1) % every == 0:
            self._compact(batch)
            self._has_grown = False
        return rows

    def _compact(self, batch: ResultBatch) -> None:
        """Compact the table; a failure does not end the query, because its results are in the table."""
        try:
            self._target.compact()
        except MillraceError as error:
            _log.warning("query %s, after batch %d: %s", self._query, batch.number, error)

    @property
    def _target(self) -> _TableT:
        assert self._prepared is not None, "the sink has not been prepared"
        return self._prepared

    @abstractmethod
    def _checked_columns(self) -> pa.Schema:
        """Return the columns of the results. Raises MillraceError if they, or the place, cannot be used."""

    @abstractmethod
    def _new_target(self, columns: pa.Schema) -> _TableT:
        """Return the table, which has not been opened."""

    @abstractmethod
    def _write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Write a batch that the table does not have, in one commit; return the number of rows written."""
