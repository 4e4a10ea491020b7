"""The sink that writes results to a Delta table, each batch exactly once.

With a key, tasks write the rows that the batch changes to a folder beside the table's files, and the driver merges them
into the table. The library rewrites each file that has a changed row.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millrace_api.model.lakehouse import DeltaSinkSpec
from millrace_jobs.confinement import require_data
from millrace_jobs.lakehouse.delta_store import delta_place
from millrace_jobs.lakehouse.errors import lakehouse_error
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, named
from millrace_jobs.sinks.lakehouse.columns import require_key, result_schema
from millrace_jobs.sinks.lakehouse.data_files import DataFile, FileWriter, Folder, write_files
from millrace_jobs.sinks.lakehouse.delta_files import add_actions
from millrace_jobs.sinks.lakehouse.delta_table import FIELD, DeltaTarget
from millrace_jobs.sinks.lakehouse.sink import REMOVED, LakehouseSink, key_changes

_STAGED = "_millrace"
"""Folder in the table's own for changed rows until they are merged; readers skip names that begin with ``_``."""


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
        """Create or check the table, take over its record of batches, and remove what earlier runs have staged.

        Raises:
            MillraceError: see ``LakehouseSink``.
        """
        try:
            super().prepare(last)
            self._remove_staged()
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
        """Yield the staged rows, of one file after the other."""
        for each in files:
            with pq.ParquetFile(io.BytesIO((self._staged / each.name).read_bytes())) as file:
                yield from file.iter_batches()

    def _remove_staged(self) -> None:
        if isinstance(self._staged, Path):
            shutil.rmtree(self._staged, ignore_errors=True)
        else:
            self._staged.remove_all()


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
                quoted = '"' + name.replace('"', '""') + '"'
                conditions.append(f"target.{quoted} >= {low} AND target.{quoted} <= {high}")
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
