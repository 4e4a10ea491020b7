"""The part that sinks of tables of a lakehouse have in common: each batch is written once, and the table is compacted.

Tasks write the rows of a batch as Parquet files. The driver adds the files to the table in one commit, which also has
the batch's number. After a crash, Spark runs the batch again; it is computed again, because state depends on it, and
written only if the table does not have it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_api.model.lakehouse import LakehouseSinkSpec
from millrace_jobs.changes import WEIGHT
from millrace_jobs.lakehouse.errors import retried
from millrace_jobs.sinks.base import ADMITTED, NO_BATCH, LastBatch, ResultBatch, ResultKeys, Sink, named, quoted
from millrace_jobs.sinks.sink_clock import SINK_CLOCK

REMOVED = "millrace_removed"
"""Boolean column that is true for a key whose row is removed."""

_ORDER, _ROW = "millrace_order", "millrace_row"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchesInTable:
    """What a table knows.

    ``batch`` is the last batch of this checkpoint that is in the table, ``driver`` the number of the last driver that
    has begun on it; None if there is none. ``of_another_checkpoint`` is whether the query has filled the table from
    another.
    """

    batch: int | None
    driver: int | None
    of_another_checkpoint: bool


def require_known(found: BatchesInTable, last: LastBatch, query: str, table: str, field: str) -> None:
    """Refuse a table that does not have the batches that Spark's log has, or has others.

    ``table`` is its name in messages, and ``field`` the field of the spec that names it.

    Raises MillraceError if they do not match.
    """
    what = hint = ""
    if found.batch is not None and last.lacks(found.batch):
        what = f"has results up to batch {found.batch}, but the checkpoint knows of {last.newest}"
        hint = "restore the newest checkpoint, or write another table"
    elif found.driver is None and last.committed is not None and not last.elsewhere:
        what = f"has no record of its batches, but the checkpoint has finished batch {last.committed}"
        hint = f"restore the table, or start over with a new table and {ANOTHER_CHECKPOINT}"
    elif found.driver is None and (last.begun is None or last.elsewhere) and found.of_another_checkpoint:
        what = f"has results of an earlier run of {query}, which began with another checkpoint"
        hint = "to start over, remove the table, or write another one"
    if what:
        raise MillraceError(Problem(f"the table {table} {what}", hint, field=field))


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
    key, at = ", ".join(keys.columns), f"{field}.key"
    missing = [(named(name).isNull(), _fails(_null_problem(name, at))) for name in keys.columns]
    checked = F.when(*missing[0])
    for is_null, failure in missing[1:]:
        checked = checked.when(is_null, failure)
    if keys.weighted:
        message = f"two rows of the result have the same {key}, so one of them would be lost"
        repeated = Problem(message, "write a key that identifies the rows of the result", field=at)
        checked = checked.when(named(_ORDER) > 1, _fails(repeated))
    fields = [F.col(f"{_ROW}.{quoted(name)}").alias(name) for name in columns]
    return latest.select(*fields, checked.otherwise(F.col(f"{_ROW}.{REMOVED}")).alias(REMOVED))


def _null_problem(column: str, field: str) -> Problem:
    message = f"a row of the result has NULL in the column {column} of its key, by which no other row could replace it"
    hint = f"write coalesce({column}, ...) with a value of your own, or exclude such rows by WHERE {column} IS NOT NULL"
    return Problem(message, hint, field=field)


def _fails(problem: Problem) -> Column:
    failure = f"{MillraceError.__module__}.{MillraceError.__name__}: {problem}"  # the form that run.failures knows
    return F.raise_error(F.lit(failure)).cast("boolean")


class LakehouseTable(ABC):
    """A table that one query writes to, by one commit per batch.

    ``name`` is the table, as messages name it.
    """

    def __init__(self, name: str, query: str, checkpoint_id: str) -> None:
        self._name, self._query, self._checkpoint = name, query, checkpoint_id
        self._driver = 0
        self.last = NO_BATCH
        """The last batch in the table; NO_BATCH if there is none."""

    def take(self, last: LastBatch) -> None:
        """Create the table or check it, fence other drivers on this checkpoint, and find the last batch in it.

        Raises MillraceError if the table cannot be used, does not suit the results, or does not match Spark's log.
        """
        doing = f"opening the table {self._name}"
        with self._errors(doing):
            self._open_table(last)
        retried(self._fence)
        with self._errors(doing):
            batch = self._record.batch
        self.last = NO_BATCH if batch is None else batch

    def compact(self) -> None:
        """Merge small files into larger ones, and remove what is no longer needed; the rows stay as they are.

        It gives way to other writers: what is not compacted now, is the next time.
        """
        with suppress(TransientError), self._errors(f"compacting the table {self._name}"):
            self._refresh()
            self._compact()

    def _write(self, commit: Callable[[], None], batch: ResultBatch) -> None:
        """Commit a batch once: an error whose commit is in the table all the same is none."""
        doing = f"writing batch {batch.number} to the table {self._name}"

        def checked() -> None:
            with self._errors(doing):
                self._refresh()
                found = self._record
                if (found.driver, found.batch) == (self._driver, batch.number):
                    return
                self._require_newest(batch)
                commit()

        with SINK_CLOCK.running():
            retried(checked)
            with self._errors(doing):
                self._flush()
        self.last = batch.number

    def _fence(self) -> None:
        with self._errors("fencing other drivers"):
            self._refresh()
            began = (self._record.driver or 0) + 1
            self._begin(began)
        self._driver = began

    def _require_newest(self, batch: ResultBatch) -> None:
        if self._record.driver != self._driver:
            message = f"another driver has taken over writing the results of {self._query} to the table {self._name}"
            hint = "run only one driver on a checkpoint: stop this one or the other one"
            raise MillraceError(Problem(f"{message} before batch {batch.number}", hint, field=self._field))

    _field: str
    """The field of the spec that describes the table."""

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """The columns that are written, with the table's types."""

    @abstractmethod
    def _errors(self, doing: str) -> AbstractContextManager[None]:
        """Raise the library's errors as sentences."""

    @abstractmethod
    def _open_table(self, last: LastBatch) -> None:
        """Create the table or check it, and add columns that it lacks."""

    @abstractmethod
    def _refresh(self) -> None:
        """Look at the table's newest version."""

    @property
    @abstractmethod
    def _record(self) -> BatchesInTable:
        """What that version knows of batches."""

    @abstractmethod
    def _begin(self, driver: int) -> None:
        """Commit the number of a driver."""

    @abstractmethod
    def _compact(self) -> None:
        """Merge and remove files in the newest version."""

    def _flush(self) -> None:
        """Flush the last commit to disk: Spark forgets the batch's records after it."""
        return


_SpecT = TypeVar("_SpecT", bound=LakehouseSinkSpec)
_TableT = TypeVar("_TableT", bound=LakehouseTable)


class LakehouseSink(Sink, Generic[_SpecT, _TableT]):
    """A sink that appends to a table of a lakehouse, or upserts and deletes its rows by key.

    Without columns in ``keys``, results are appended.
    """

    def __init__(self, spec: _SpecT, keys: ResultKeys, results: StructType, query: str, checkpoint_id: str) -> None:
        self._spec, self._keys, self._results = spec, keys, results
        self._query, self._checkpoint = query, checkpoint_id
        self._prepared: _TableT | None = None
        self._has_grown = True

    def prepare(self, last: LastBatch) -> None:
        """Create or check the table, and take over its record of batches.

        Raises MillraceError if the table cannot be used, does not suit the results, or has results that do not match
        this checkpoint's state.
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
            try:
                self._target.compact()
            except MillraceError as error:  # does not end the query, because its results are in the table
                _log.warning("query %s, after batch %d: %s", self._query, batch.number, error)
            self._has_grown = False
        return rows

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
