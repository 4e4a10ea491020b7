"""The sink that writes results to an Iceberg table, each batch exactly once.

Tasks write the rows of a batch as Parquet files. The driver adds the files to the table in one commit, which also has
the batch's number. After a crash, Spark runs the batch again; it is computed again, because state depends on it, and
written only if the table does not have it.

With a key, the driver reads the keys from these files, and replaces each file of the table that has rows with them by
one without. Rows whose keys are removed are in files of their own, which are never part of the table.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millrace_api.model.iceberg import IcebergSinkSpec
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path
from millrace_jobs.lakehouse.iceberg_io import FIELD
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.column_names import named
from millrace_jobs.sinks.lakehouse.columns import require_key, result_schema
from millrace_jobs.sinks.lakehouse.data_files import FileWriter, write_files
from millrace_jobs.sinks.lakehouse.iceberg_layout import PartitionTerm
from millrace_jobs.sinks.lakehouse.iceberg_table import Changes, IcebergTarget
from millrace_jobs.sinks.lakehouse.key_changes import REMOVED, key_changes


class IcebergSink(Sink):
    """A sink that appends to an Iceberg table, or upserts and deletes its rows by key.

    Args:
        spec: what the user wrote about the table.
        keys: key of the results; without columns, results are appended.
        results: columns of the results.
        query: name of the query.
        checkpoint_id: id of its checkpoint.
    """

    def __init__(
        self, spec: IcebergSinkSpec, keys: ResultKeys, results: StructType, query: str, checkpoint_id: str
    ) -> None:
        self._spec, self._keys, self._results = spec, keys, results
        self._query, self._checkpoint = query, checkpoint_id
        self._prepared: IcebergTarget | None = None
        self._has_grown = True

    @property
    def place(self) -> str:
        """Name of the table."""
        return f"Iceberg table {self._spec.table}"

    def prepare(self, last: LastBatch) -> None:
        """Create or check the table, and take over its record of batches.

        Raises:
            MillraceError: the table cannot be used, does not suit the results, or has results that do not match this
                checkpoint's state.
        """
        terms = list(map(PartitionTerm.of, self._spec.partition_by))
        plain = [term.column for term in terms if not term.unit]
        columns = result_schema(self._results, plain, self._spec.sort_by, FIELD)
        for term in terms:
            if term.unit:
                term.require_time(columns, f"{FIELD}.partitionBy")
        require_key(columns, self._keys.columns or (), FIELD)
        if self._spec.location is not None and self._spec.is_local:
            require_data(absolute_path(self._spec.location))
        if self._spec.catalog.file is not None:
            require_data(absolute_path(self._spec.catalog.file))
        target = self._prepared or IcebergTarget(self._spec, columns, self._query, self._checkpoint)
        target.take(last)
        self._prepared = target

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute a batch, and write it if the table does not have it yet; return the number of rows written."""
        if batch.number <= self._target.last:
            results.write.format("noop").mode("overwrite").save()
            return 0
        changes = self._changes(results, batch)
        rows = sum(each.rows for each in (*changes.added, *changes.removed))
        if rows:
            self._target.write(changes, batch)
            self._has_grown = True
        for each in changes.removed:
            with suppress(OSError):  # compaction removes what is left
                (self._target.folder / each.name).unlink()
        every = self._spec.maintenance.compact_every
        if every and self._has_grown and (batch.number + 1) % every == 0:
            self._target.compact()
            self._has_grown = False
        return rows

    @property
    def _target(self) -> IcebergTarget:
        assert self._prepared is not None, "the sink has not been prepared"
        return self._prepared

    def _changes(self, results: DataFrame, batch: ResultBatch) -> Changes:
        """Let tasks write the rows of a batch, those with removed keys apart."""
        schema, terms = self._target.columns, self._target.terms
        keyed = bool(self._keys.columns)
        rows = key_changes(results, self._keys, FIELD) if keyed else results
        computed = [term.expression(schema) for term in terms if term.unit]
        rows = rows.select("*", *computed) if computed else rows
        parts = (*([REMOVED] if keyed else []), *(term.computed for term in terms))
        if order := [*parts, *self._spec.sort_by]:
            rows = rows.sortWithinPartitions(*map(named, order))
        writer = FileWriter(self._target.folder, f"batch-{batch.number:010d}-", pa.schema(schema), parts, FIELD)
        files = write_files(rows, writer)
        removed = [each for each in files if each.values.get(REMOVED)]
        return Changes([each for each in files if each not in removed], removed)
