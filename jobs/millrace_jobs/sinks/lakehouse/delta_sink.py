"""The sink that writes results to a Delta table, each batch exactly once.

A commit that writes a batch has application transactions (Delta's ``txn`` actions) beside its files: the batch's
number, and the number of the driver, which is one higher with each start. A driver looks at both before it commits. Two
commits from one version of the table with the same application exclude each other, also without a look. So a batch is
in the table once, and a driver that another one has followed cannot commit.

With a key, tasks write the rows that the batch changes to a folder beside the table's files, and the driver merges them
into the table. The library rewrites each file that has a changed row.
"""

from __future__ import annotations

import hashlib
import io
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.lakehouse import DeltaSinkSpec
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import sync
from millrace_jobs.lakehouse.delta_store import delta_options, delta_place
from millrace_jobs.lakehouse.errors import lakehouse_error, retried
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, named
from millrace_jobs.sinks.lakehouse.columns import (
    PARTITIONING,
    TargetColumns,
    match_columns,
    require_key,
    result_schema,
    sql_type,
)
from millrace_jobs.sinks.lakehouse.data_files import DataFile, FileWriter, Folder, write_files
from millrace_jobs.sinks.lakehouse.delta_files import add_actions, commit_rewrites, has_deletion_vectors, rewrites
from millrace_jobs.sinks.lakehouse.sink import (
    REMOVED,
    BatchesInTable,
    LakehouseSink,
    LakehouseTable,
    key_changes,
    require_known,
)

FIELD = "spec.sink.delta"

_ERRORS = (DeltaError, OSError, ValueError, pa.ArrowNotImplementedError)
"""What ``deltalake`` raises, and ``pyarrow`` for files that it cannot read."""

_RULES = ("delta.constraints.", "delta.enableRowTracking", "delta.enableIcebergCompat")
_COLUMN_RULES = ("delta.generationExpression", "delta.identity.", "delta.invariants")
"""Beginnings of a table's properties, and of its columns' metadata, that demand more of files than their types do."""

_STAGED = "_millrace"
"""Folder in the table's own for changed rows until they are merged; readers skip names that begin with ``_``."""


class DeltaTarget(LakehouseTable):
    """The table of a sink.

    ``results`` are the columns of the results, as from ``result_schema``.
    """

    _field = FIELD

    def __init__(self, folder: Folder, spec: DeltaSinkSpec, results: pa.Schema, query: str, checkpoint_id: str) -> None:
        super().__init__(str(folder), query, checkpoint_id)
        self._folder, self._spec, self._results = folder, spec, results
        self._batches = f"millrace/{checkpoint_id}"
        self._drivers = f"millrace/{checkpoint_id}/driver"
        self._checkpoints = f"millrace/query/{query}"
        self._open: DeltaTable | None = None
        self._columns = TargetColumns(results)

    @property
    def columns(self) -> pa.Schema:
        """The columns that are written, with the table's types."""
        return self._columns.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by."""
        return tuple(self._table.metadata().partition_columns)

    def _open_table(self, last: LastBatch) -> None:
        if self._open is None:
            try:
                self._open = DeltaTable(self._name, storage_options=delta_options(self._folder))
            except TableNotFoundError:
                self._open = self._created()
        self._refresh()
        self._columns = self._matched()
        require_known(self._record, last, self._query, self._name, f"{FIELD}.path")
        if self._columns.added:
            self._table.alter.add_columns(Schema.from_arrow(pa.schema(self._columns.added)).fields)

    def append(self, actions: list[AddAction | RemoveAction], batch: ResultBatch) -> None:
        """Add files in a commit with the batch's number.

        Raises MillraceError if another driver has taken over, or the commit fails.
        """
        self._write(lambda: self._commit(actions, self._numbered(batch)), batch)

    def merge(self, rows: Callable[[], pa.RecordBatchReader], pruned: str, batch: ResultBatch) -> None:
        """Replace, add and remove rows by key in a commit with the batch's number.

        Args:
            rows: returns the rows of the batch, with the column REMOVED.
            pruned: condition on the table's rows that all rows with these keys meet; it lets files be skipped.
            batch: the batch.

        Raises MillraceError if another driver has taken over, or the commit fails.
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

    def _compact(self) -> None:
        schema = pa.schema([each for each in self._full_schema if each.name not in self.partition_columns])
        planned = list(rewrites(self._table, self._folder, schema, FIELD))

        def replace() -> None:
            with self._errors(f"compacting the table {self._folder}"):
                commit_rewrites(self._table, planned, schema)

        retried(replace)
        # among the files that its log does not add, the library counts those with the marks of deleted rows
        full = not has_deletion_vectors(self._table)
        try:
            self._table.vacuum(self._hours, dry_run=False, full=full)
        except DeltaError:  # the table itself keeps files for longer
            self._table.vacuum(dry_run=False, full=full)

    @property
    def _hours(self) -> int:
        return math.ceil(self._spec.maintenance.retention.microseconds / 3_600_000_000)

    @property
    def _full_schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    @property
    def _table(self) -> DeltaTable:
        assert self._open is not None, "the table has not been taken"
        return self._open

    def _created(self) -> DeltaTable:
        if isinstance(self._folder, Path):
            self._folder.mkdir(parents=True, exist_ok=True)
        kept = f"interval {self._hours} hours"
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

    def _refresh(self) -> None:
        self._table.update_incremental()

    def _begin(self, driver: int) -> None:
        transactions = [Transaction(self._drivers, driver)]
        self._commit([], CommitProperties(app_transactions=transactions, max_commit_retries=0))

    def _commit(self, actions: list[AddAction | RemoveAction], properties: CommitProperties) -> None:
        self._table.create_write_transaction(
            actions,
            mode="append",
            schema=self._table.schema(),
            partition_by=list(self.partition_columns),
            commit_properties=properties,
        )

    def _numbered(self, batch: ResultBatch) -> CommitProperties:
        return CommitProperties(
            custom_metadata={"millraceQuery": self._query, "millraceBatch": batch.number},
            app_transactions=[
                Transaction(self._batches, batch.number),
                Transaction(self._drivers, self._driver),
                Transaction(self._checkpoints, _number_of(self._checkpoint)),
            ],
        )

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise lakehouse_error(error, doing, FIELD) from error

    def _flush(self) -> None:
        if isinstance(self._folder, Path):
            log = self._folder / "_delta_log"
            sync(log / f"{self._table.version():020d}.json")
            sync(log)


def _number_of(checkpoint_id: str) -> int:
    """Return a number for the id of a checkpoint, because Delta's transactions have no other values."""
    return int.from_bytes(hashlib.sha256(checkpoint_id.encode()).digest()[:7])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _problem(message: str, hint: str, part: str = "") -> MillraceError:
    return MillraceError(Problem(message, hint, field=f"{FIELD}.{part}" if part else FIELD))


class DeltaSink(LakehouseSink[DeltaSinkSpec, DeltaTarget]):
    """A sink that appends to a Delta table, or upserts and deletes its rows by key; see ``LakehouseSink``."""

    def __init__(
        self, spec: DeltaSinkSpec, keys: ResultKeys, results: StructType, query: str, checkpoint_id: str
    ) -> None:
        super().__init__(spec, keys, results, query, checkpoint_id)
        self._folder: Folder = delta_place(spec)
        self._staged = self._folder / _STAGED / checkpoint_id

    @property
    def place(self) -> str:
        """Place of the table."""
        return f"Delta table {self._folder}"

    def prepare(self, last: LastBatch) -> None:
        """Create or check the table, take over its record of batches, and remove what earlier runs have staged."""
        try:
            super().prepare(last)
            if isinstance(self._staged, Path):
                shutil.rmtree(self._staged, ignore_errors=True)
            else:
                self._staged.remove_all()
        except OSError as error:
            raise lakehouse_error(error, f"opening the table {self._folder}", FIELD) from error

    def _checked_columns(self) -> pa.Schema:
        columns = result_schema(self._results, self._spec.partition_by, self._spec.sort_by, FIELD)
        require_key(columns, self._keys.columns or (), FIELD)
        if isinstance(self._folder, Path):
            require_data(self._folder)
        else:
            self._folder.is_dir()  # says in the store's words why it cannot be used
        return columns

    def _new_target(self, columns: pa.Schema) -> DeltaTarget:
        return DeltaTarget(self._folder, self._spec, columns, self._query, self._checkpoint)

    def _write(self, results: DataFrame, batch: ResultBatch) -> int:
        return self._merge(results, batch) if self._keys.columns else self._append(results, batch)

    def _append(self, results: DataFrame, batch: ResultBatch) -> int:
        parts = self._target.partition_columns
        schema = pa.schema([each for each in self._target.columns if each.name not in parts])
        order = [*parts, *self._spec.sort_by]
        rows = results.sortWithinPartitions(*map(named, order)) if order else results
        files = write_files(rows, self._writer(self._folder, schema, batch, parts))
        if files:
            self._target.append(add_actions(files, schema), batch)
        return sum(each.rows for each in files)

    def _merge(self, results: DataFrame, batch: ResultBatch) -> int:
        schema = self._target.columns.append(pa.field(REMOVED, pa.bool_()))
        if isinstance(self._staged, Path):
            self._staged.mkdir(parents=True, exist_ok=True)
        changes = key_changes(results, self._keys, FIELD)
        files = write_files(changes, self._writer(self._staged, schema, batch))
        if files:

            def rows() -> pa.RecordBatchReader:
                return pa.RecordBatchReader.from_batches(schema, self._changed(files))

            self._target.merge(rows, _bounds(files, self._keys.columns or ()), batch)
            with suppress(OSError):  # what is left is removed at the next start
                for each in files:
                    (self._staged / each.name).unlink()
        return sum(each.rows for each in files)

    def _writer(self, folder: Folder, schema: pa.Schema, batch: ResultBatch, parts: tuple[str, ...] = ()) -> FileWriter:
        return FileWriter(folder, f"batch-{batch.number:010d}-", schema, parts, FIELD)

    def _changed(self, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        for each in files:
            with pq.ParquetFile(io.BytesIO((self._staged / each.name).read_bytes())) as file:
                yield from file.iter_batches()


def _bounds(files: Sequence[DataFile], key: Sequence[str]) -> str:
    """Return a condition that all rows with the keys in these files meet, by which the library skips other files."""
    conditions = []
    for name in key:
        statistics = [
            each.metadata.row_group(group).column(place).statistics
            for each in files
            for place in range(each.metadata.num_columns)
            if each.metadata.schema.column(place).path == name
            for group in range(each.metadata.num_row_groups)
        ]
        if statistics and all(each is not None and each.has_min_max for each in statistics):
            low = _literal(min(each.min for each in statistics))
            high = _literal(max(each.max for each in statistics))
            if low is not None and high is not None:
                column = f"target.{_quoted(name)}"
                conditions.append(f"{column} >= {low} AND {column} <= {high}")
    return " AND ".join(conditions)


def _literal(value: Any) -> str | None:
    """Return a value of a key in SQL; None for types whose bounds let no files be skipped."""
    if isinstance(value, datetime):
        kind = "timestamp" if value.tzinfo is None else "timestamptz"
        return None if kind == "timestamp" else f"CAST('{value.isoformat()}' AS TIMESTAMP)"
    if isinstance(value, date):
        return f"CAST('{value.isoformat()}' AS DATE)"
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
