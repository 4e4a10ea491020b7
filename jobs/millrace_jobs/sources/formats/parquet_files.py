"""Parquet files to Arrow, any range of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.columns import to_declared


@dataclass(frozen=True)
class ParquetFormat:
    """Columns are found by name and cast to the declared types; others are ignored.

    A TIMESTAMP column may be a timestamp of any unit (UTC where it has no zone), or what ``timestamp_format``
    says. A value that does not fit is an error of the file, never a bad record.
    """

    schema: pa.Schema
    timestamp_format: str
    max_rows: int

    def extent(self, path: str, size: int) -> int:
        """Rows of the file."""
        with _open(path) as file:
            return int(file.metadata.num_rows)

    def divisible(self, path: str) -> bool:
        """Always."""
        return True

    def check(self, path: str) -> None:
        """The columns in the file's footer."""
        with _open(path) as file:
            self._check_columns(file, path)

    def read(self, path: str, begin: int, end: int, reject: Callable[..., None]) -> Iterator[pa.RecordBatch]:
        """Rows ``[begin, end)``; row groups outside of them are not touched. ``reject`` is never called."""
        with _open(path) as file:
            self._check_columns(file, path)
            groups, first = _row_groups(file.metadata, begin, end)
            try:
                for batch in file.iter_batches(self.max_rows, groups, columns=self.schema.names):
                    part = batch.slice(max(begin - first, 0), max(end - max(begin, first), 0))
                    first += batch.num_rows
                    if part.num_rows:
                        yield self._to_declared(part, path)
            except (pa.ArrowException, OSError) as error:
                raise MillraceError(Problem(f"cannot be read as parquet: {error}", "", path)) from error

    def _check_columns(self, file: pq.ParquetFile, path: str) -> None:
        there = file.schema_arrow.names
        if missing := [name for name in self.schema.names if name not in there]:
            message = f"has no column {', '.join(missing)}; it has {', '.join(there)}"
            raise MillraceError(Problem(message, "correct the schema", path))

    def _to_declared(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        try:
            columns = [to_declared(batch.column(f.name), f, self.timestamp_format) for f in self.schema]
        except ValueError as error:
            raise MillraceError(Problem(str(error), "correct the schema", path)) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _open(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise MillraceError(Problem(f"cannot be read as parquet: {error}", "", path)) from error


def _row_groups(metadata: pq.FileMetaData, begin: int, end: int) -> tuple[list[int], int]:
    """The row groups with rows of ``[begin, end)``, and the row at which the first of them begins."""
    groups: list[int] = []
    first, row = 0, 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if row < end and row + rows > begin:
            first = first if groups else row
            groups.append(group)
        row += rows
    return groups, first
