"""The part that sinks of tables of a lakehouse have in common: each batch is written once, and the table is compacted.

Tasks write the rows of a batch as Parquet files. The driver adds the files to the table in one commit, which also has
the batch's number. After a crash, Spark runs the batch again; it is computed again, because state depends on it, and
written only if the table does not have it.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_api.model.lakehouse import LakehouseSinkSpec
from millrace_jobs.sinks.base import ADMITTED, LastBatch, ResultBatch, ResultKeys, Sink, named, quoted
from millrace_jobs.tables.changes import WEIGHT

NO_BATCH = -1
"""Number before that of the first batch."""

REMOVED = "millrace_removed"
"""Boolean column that is true for a key whose row is removed."""

_ORDER, _ROW = "millrace_order", "millrace_row"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchesInTable:
    """What a table knows.

    Args:
        batch: number of the last batch of this checkpoint that is in the table; None if there is none.
        driver: number of the last driver that has begun on this checkpoint; None if there was none.
        of_another_checkpoint: whether the query has filled the table from another checkpoint.
    """

    batch: int | None
    driver: int | None
    of_another_checkpoint: bool


def require_known(found: BatchesInTable, last: LastBatch, query: str, table: str, field: str) -> None:
    """Refuse a table that does not have the batches that Spark's log has, or has others.

    Args:
        found: what the table knows.
        last: what Spark's log knows.
        query: name of the query.
        table: the table, as messages name it.
        field: the field of the spec that names it.

    Raises:
        MillraceError: they do not match.
    """
    what = hint = ""
    if found.batch is not None and found.batch > (NO_BATCH if last.begun is None else last.begun):
        newest = "no batch" if last.begun is None else f"no batch after {last.begun}"
        what = f"has results up to batch {found.batch}, but the checkpoint knows of {newest}"
        hint = "restore the newest checkpoint, or write another table"
    elif found.driver is None and last.committed is not None and not last.elsewhere:
        what = f"has no record of its batches, but the checkpoint has finished batch {last.committed}"
        hint = f"restore the table, or start over with a new table and {ANOTHER_CHECKPOINT}"
    elif found.driver is None and last.begun is None and found.of_another_checkpoint:
        what = f"has results of an earlier run of {query}, which began with another checkpoint"
        hint = "to start over, remove the table, or write another one"
    if what:
        raise MillraceError(Problem(f"the table {table} {what}", hint, field=field))


def taken_over(query: str, table: str, batch: int, field: str) -> MillraceError:
    """Return the error of a driver that another one has followed."""
    message = f"another driver has taken over writing the results of {query} to the table {table} before batch {batch}"
    return MillraceError(
        Problem(message, "run only one driver on a checkpoint: stop this one or the other one", field=field)
    )


def key_changes(results: DataFrame, keys: ResultKeys, field: str) -> DataFrame:
    """Return one row for each key of the results, with the column REMOVED.

    The last row of a key counts, in the order of partitions and of the rows in them. Of weighted changes, the row
    that is added counts.

    Args:
        results: the results of a batch, with the columns that mark them.
        keys: their key.
        field: the field of the spec that describes the table, for the error that ends a batch with a NULL in its key,
            or with two rows of one key.
    """
    assert keys.columns, "results without a key are appended"
    mark = WEIGHT if keys.weighted else ADMITTED if keys.retracts else None
    columns = [name for name in results.columns if name != mark]
    if keys.weighted:
        net = results.groupBy(*map(named, columns)).agg(F.sum(named(WEIGHT)).alias(WEIGHT))
        rows = net.where(named(WEIGHT) != 0).withColumn(_ORDER, named(WEIGHT))
    else:
        rows = results.withColumn(_ORDER, F.monotonically_increasing_id())
    removed = F.lit(False) if mark is None else named(WEIGHT) < 0 if keys.weighted else ~named(ADMITTED)
    row = F.struct(*map(named, columns), removed.alias(REMOVED))
    latest = rows.groupBy(*map(named, keys.columns)).agg(
        F.max_by(row, named(_ORDER)).alias(_ROW), F.count_if(~removed).alias(_ORDER)
    )
    missing = [named(name).isNull() for name in keys.columns]
    checked = F.when(_any(missing), _fails(_null_key(keys.columns, field)))
    if keys.weighted:
        checked = checked.when(named(_ORDER) > 1, _fails(_repeated_key(keys.columns, field)))
    fields = [F.col(f"{_ROW}.{quoted(name)}").alias(name) for name in columns]
    return latest.select(*fields, checked.otherwise(F.col(f"{_ROW}.{REMOVED}")).alias(REMOVED))


def _null_key(key: tuple[str, ...], field: str) -> Problem:
    message = f"a row of the result has NULL in its key {', '.join(key)}, by which no other row could replace it"
    return Problem(message, f"exclude such rows, as in WHERE {key[0]} IS NOT NULL", field=f"{field}.key")


def _repeated_key(key: tuple[str, ...], field: str) -> Problem:
    message = f"two rows of the result have the same {', '.join(key)}, so one of them would be lost"
    return Problem(message, "write a key that identifies the rows of the result", field=f"{field}.key")


def _fails(problem: Problem) -> Column:
    failure = f"{MillraceError.__module__}.{MillraceError.__name__}: {problem}"  # the form that run.failures knows
    return F.raise_error(F.lit(failure)).cast("boolean")


def _any(conditions: list[Column]) -> Column:
    first, *others = conditions
    for each in others:
        first = first | each
    return first


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
