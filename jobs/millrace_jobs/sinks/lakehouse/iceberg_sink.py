"""The sink that writes results to an Iceberg table, each batch exactly once.

With a key, the driver reads the keys from these files, and replaces each file of the table that has rows with them by
one without. Rows whose keys are removed are in files of their own, which are never part of the table.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from pyspark.sql import DataFrame

from millrace_api.model.iceberg import IcebergSinkSpec
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path
from millrace_jobs.lakehouse.iceberg_io import FIELD
from millrace_jobs.sinks.base import ResultBatch, named
from millrace_jobs.sinks.lakehouse.columns import require_key, result_schema
from millrace_jobs.sinks.lakehouse.data_files import FileWriter, write_files
from millrace_jobs.sinks.lakehouse.iceberg_layout import PartitionTerm
from millrace_jobs.sinks.lakehouse.iceberg_table import Changes, IcebergTarget
from millrace_jobs.sinks.lakehouse.sink import REMOVED, LakehouseSink, key_changes


class IcebergSink(LakehouseSink[IcebergSinkSpec, IcebergTarget]):
    """A sink that appends to an Iceberg table, or upserts and deletes its rows by key; see ``LakehouseSink``."""

    @property
    def place(self) -> str:
        """Name of the table."""
        return f"Iceberg table {self._spec.table}"

    def _checked_columns(self) -> pa.Schema:
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
        return columns

    def _new_target(self, columns: pa.Schema) -> IcebergTarget:
        return IcebergTarget(self._spec, columns, self._query, self._checkpoint)

    def _write(self, results: DataFrame, batch: ResultBatch) -> int:
        changes = self._changes(results, batch)
        rows = sum(each.rows for each in (*changes.added, *changes.removed))
        if rows:
            self._target.write(changes, batch)
        for each in changes.removed:
            with suppress(OSError):  # compaction removes what is left
                (self._target.folder / each.name).unlink()
        return rows

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
