"""A Delta table that one query writes to: created or checked at the start, and changed by one commit per batch.

A commit that writes a batch has application transactions (Delta's ``txn`` actions) beside its files: the batch's
number, and the number of the driver, which is one higher with each start. A driver looks at both before it commits. Two
commits from one version of the table with the same application exclude each other, also without a look. So a batch is
in the table once, and a driver that another one has followed cannot commit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.lakehouse import DeltaSinkSpec
from millrace_jobs.disk import sync
from millrace_jobs.lakehouse.delta_store import delta_options
from millrace_jobs.lakehouse.errors import lakehouse_error, retried
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.lakehouse.columns import PARTITIONING, TargetColumns, match_columns, sql_type
from millrace_jobs.sinks.lakehouse.data_files import Folder
from millrace_jobs.sinks.lakehouse.delta_files import Rewrite, commit_rewrites, has_deletion_vectors, rewrites
from millrace_jobs.sinks.lakehouse.sink import NO_BATCH, REMOVED, BatchesInTable, require_known, taken_over

FIELD = "spec.sink.delta"

_ERRORS = (DeltaError, OSError, ValueError, pa.ArrowNotImplementedError)
"""What ``deltalake`` raises, and ``pyarrow`` for files that it cannot read."""

_RULES = ("delta.constraints.", "delta.enableRowTracking", "delta.enableIcebergCompat")
_COLUMN_RULES = ("delta.generationExpression", "delta.identity.", "delta.invariants")
"""Beginnings of a table's properties, and of its columns' metadata, that demand more of files than their types do."""


class DeltaTarget:
    """The table of a sink.

    Args:
        folder: where it is.
        spec: what the user wrote about it.
        results: columns of the results, as from ``result_schema``.
        query: name of the query.
        checkpoint_id: id of its checkpoint.
    """

    def __init__(self, folder: Folder, spec: DeltaSinkSpec, results: pa.Schema, query: str, checkpoint_id: str) -> None:
        self._folder, self._spec, self._results = folder, spec, results
        self._query, self._checkpoint = query, checkpoint_id
        self._batches = f"millrace/{checkpoint_id}"
        self._drivers = f"millrace/{checkpoint_id}/driver"
        self._checkpoints = f"millrace/query/{query}"
        self._driver = 0
        self._last = NO_BATCH
        self._open: DeltaTable | None = None
        self._columns = TargetColumns(results)

    @property
    def last(self) -> int:
        """The last batch in the table; NO_BATCH if there is none."""
        return self._last

    @property
    def columns(self) -> pa.Schema:
        """The columns that are written, with the table's types."""
        return self._columns.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by."""
        return tuple(self._table.metadata().partition_columns)

    def take(self, last: LastBatch) -> None:
        """Create the table or check it, fence other drivers on this checkpoint, and find the last batch in it.

        Raises:
            MillraceError: the table cannot be used, does not suit the results, or does not match Spark's log.
        """
        doing = f"opening the table {self._folder}"
        with _errors(doing):
            if self._open is None:
                self._open = self._opened() or self._created()
            self._table.update_incremental()
            self._columns = self._matched()
            require_known(self._record, last, self._query, str(self._folder), f"{FIELD}.path")
            if self._columns.added:
                fields = Schema.from_arrow(pa.schema(self._columns.added)).fields
                self._table.alter.add_columns(fields)
        retried(self._fence)
        with _errors(doing):
            known = self._table.transaction_version(self._batches)
        self._last = NO_BATCH if known is None else known

    def append(self, actions: list[AddAction | RemoveAction], batch: ResultBatch) -> None:
        """Add files in a commit with the batch's number.

        Raises:
            MillraceError: another driver has taken over, or the commit fails.
        """

        def commit() -> None:
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=self._table.schema(),
                partition_by=list(self.partition_columns),
                commit_properties=self._numbered(batch),
            )

        self._write(commit, batch)

    def merge(self, rows: Callable[[], pa.RecordBatchReader], pruned: str, batch: ResultBatch) -> None:
        """Replace, add and remove rows by key in a commit with the batch's number.

        Args:
            rows: returns the rows of the batch, with the column REMOVED.
            pruned: condition on the table's rows that all rows with these keys meet; it lets files be skipped.
            batch: the batch.

        Raises:
            MillraceError: another driver has taken over, or the commit fails.
        """
        same = " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in self._spec.key)
        removed, kept = f"source.{REMOVED}", f"NOT source.{REMOVED}"
        values = {_quoted(name): f"source.{_quoted(name)}" for name in self.columns.names}

        def commit() -> None:
            merging = self._table.merge(
                rows(),
                predicate=f"{same} AND {pruned}" if pruned else same,
                source_alias="source",
                target_alias="target",
                commit_properties=self._numbered(batch),
            )
            merging = merging.when_matched_delete(removed).when_matched_update(values, kept)
            merging.when_not_matched_insert(values, kept).execute()

        self._write(commit, batch)

    def compact(self) -> None:
        """Merge small files into larger ones, and remove files that no version needs; the rows stay as they are.

        It gives way to other writers: what is not compacted now, is the next time.
        """
        hours = math.ceil(self._spec.maintenance.retention.microseconds / 3_600_000_000)
        try:
            with _errors(f"compacting the table {self._folder}"):
                self._table.update_incremental()
                schema = pa.schema([each for each in self._full_schema if each.name not in self.partition_columns])
                planned = list(rewrites(self._table, self._folder, schema, FIELD))
                retried(lambda: self._replace(planned, schema))
                # among the files that its log does not add, the library counts those with the marks of deleted rows
                full = not has_deletion_vectors(self._table)
                try:
                    self._table.vacuum(hours, dry_run=False, full=full)
                except DeltaError:  # the table itself keeps files for longer
                    self._table.vacuum(dry_run=False, full=full)
        except TransientError:
            return

    def _replace(self, planned: Sequence[Rewrite], schema: pa.Schema) -> None:
        with _errors(f"compacting the table {self._folder}"):
            commit_rewrites(self._table, planned, schema)

    @property
    def _full_schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    @property
    def _table(self) -> DeltaTable:
        assert self._open is not None, "the table has not been taken"
        return self._open

    def _opened(self) -> DeltaTable | None:
        try:
            return DeltaTable(str(self._folder), storage_options=delta_options(self._folder))
        except TableNotFoundError:
            return None

    def _created(self) -> DeltaTable:
        if isinstance(self._folder, Path):
            self._folder.mkdir(parents=True, exist_ok=True)
        hours = math.ceil(self._spec.maintenance.retention.microseconds / 3_600_000_000)
        kept = f"interval {hours} hours"
        return DeltaTable.create(
            str(self._folder),
            schema=Schema.from_arrow(self._results),
            mode="ignore",  # of two queries that create it at once, the second finds the first one's
            partition_by=list(self._spec.partition_by),
            configuration={"delta.logRetentionDuration": kept, "delta.deletedFileRetentionDuration": kept},
            storage_options=delta_options(self._folder),
        )

    def _matched(self) -> TargetColumns:
        table = self._full_schema
        name = f"delta.`{self._folder}`"
        columns = match_columns(self._results, table, name, self._spec.key, self._spec.schema_evolution, FIELD)
        given, found = self._spec.partition_by, self.partition_columns
        if given and given != found:
            by = f"is partitioned by {', '.join(found)}" if found else "is not partitioned"
            hint = f"write partitionBy: [{', '.join(found)}]" if found else "leave partitionBy out"
            raise _problem(f"the table {self._folder} {by}, and not by {', '.join(given)}", hint, "partitionBy")
        for missing in set(found) - set(self._results.names):
            message = f"the table {self._folder} is partitioned by {missing}, which the result does not have"
            raise _problem(message, "add it to the SELECT list", "partitionBy")
        for name in found:
            if (kind := table.field(name).type) not in PARTITIONING:
                message = f"the table {self._folder} is partitioned by {name}, which is {sql_type(kind)}"
                hint = "write to a table that is partitioned by BOOLEAN, integer, STRING or DATE columns"
                raise _problem(message, hint, "partitionBy")
        configuration = self._table.metadata().configuration
        if (rule := self._rule_for_values(configuration)) is not None:
            message = f"the table {self._folder} has {rule}, which files that tasks write would not obey"
            raise _problem(message, "remove that from the table, or write another table", "path")
        if self._spec.key and configuration.get("delta.appendOnly", "").lower() == "true":
            message = f"the table {self._folder} only takes new rows, since delta.appendOnly is true"
            raise _problem(message, "leave key out, or set the property to false", "key")
        return columns

    def _rule_for_values(self, configuration: Mapping[str, str]) -> str | None:
        """Return what the table demands of new rows, or of the names in its files; None if nothing."""
        found = [name for name in configuration if name.startswith(_RULES)]
        mapped = configuration.get("delta.columnMapping.mode", "none") != "none"
        of_columns = [
            f"{rule} of column {field.name}"
            for field in self._table.schema().fields
            for rule in field.metadata
            if rule.startswith(_COLUMN_RULES)
        ]
        return next(iter([*found, *(["column mapping"] if mapped else []), *of_columns]), None)

    @property
    def _record(self) -> BatchesInTable:
        known = self._table.transaction_version
        other = known(self._checkpoints)
        return BatchesInTable(
            known(self._batches), known(self._drivers), other is not None and other != _number_of(self._checkpoint)
        )

    def _fence(self) -> None:
        with _errors("fencing other drivers"):
            self._table.update_incremental()
            began = (self._table.transaction_version(self._drivers) or 0) + 1
            properties = CommitProperties(app_transactions=[Transaction(self._drivers, began)], max_commit_retries=0)
            self._table.create_write_transaction(
                [],
                mode="append",
                schema=self._table.schema(),
                partition_by=list(self.partition_columns),
                commit_properties=properties,
            )
        self._driver = began

    def _numbered(self, batch: ResultBatch) -> CommitProperties:
        return CommitProperties(
            custom_metadata={"millraceQuery": self._query, "millraceBatch": batch.number},
            app_transactions=[
                Transaction(self._batches, batch.number),
                Transaction(self._drivers, self._driver),
                Transaction(self._checkpoints, _number_of(self._checkpoint)),
            ],
        )

    def _write(self, commit: Callable[[], None], batch: ResultBatch) -> None:
        """Commit a batch once: an error whose commit is in the table all the same is none."""

        doing = f"writing batch {batch.number} to the table {self._folder}"

        def checked() -> None:
            with _errors(doing):
                self._table.update_incremental()
                if self._has(batch):
                    return
                self._require_newest(batch)
                commit()

        retried(checked)
        with _errors(doing):
            self._flush()
        self._last = batch.number

    def _has(self, batch: ResultBatch) -> bool:
        """Return whether this driver has committed the batch."""
        is_newest = self._table.transaction_version(self._drivers) == self._driver
        return is_newest and self._table.transaction_version(self._batches) == batch.number

    def _require_newest(self, batch: ResultBatch) -> None:
        if self._table.transaction_version(self._drivers) != self._driver:
            raise taken_over(self._query, str(self._folder), batch.number, FIELD)

    def _flush(self) -> None:
        """Flush the commit to disk, where the table is in a folder: Spark forgets the batch's records after it."""
        if isinstance(self._folder, Path):
            log = self._folder / "_delta_log"
            sync(log / f"{self._table.version():020d}.json")
            sync(log)


@contextmanager
def _errors(doing: str) -> Iterator[None]:
    """Raise the library's errors as sentences."""
    try:
        yield
    except _ERRORS as error:
        raise lakehouse_error(error, doing, FIELD) from error


def _number_of(checkpoint_id: str) -> int:
    """Return a number for the id of a checkpoint, because Delta's transactions have no other values."""
    return int.from_bytes(hashlib.sha256(checkpoint_id.encode()).digest()[:7])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _problem(message: str, hint: str, part: str = "") -> MillraceError:
    return MillraceError(Problem(message, hint, field=f"{FIELD}.{part}" if part else FIELD))
