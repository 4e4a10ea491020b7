"""Reading any range of rows of a Parquet file as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.columns import to_declared


@dataclass(frozen=True)
class ParquetFormat:
    """A reader of Parquet files: columns are found by name and cast to the declared types, and others are ignored.

    A TIMESTAMP column may be a timestamp of any unit (UTC if it has no zone), or a value in the format
    ``timestamp_format``. A value that does not fit is an error of the file, never a bad record.
    """

    schema: pa.Schema
    timestamp_format: str
    max_rows: int

    def extent(self, path: str, size: int) -> int:
        """Return the number of rows in the file."""
        with _open(path) as file:
            return int(file.metadata.num_rows)

    def divisible(self, path: str) -> bool:
        """Return True: any range of rows can be read."""
        return True

    def check(self, path: str) -> None:
        """Check the columns in the file's footer. Raises MillraceError if a column of the schema is missing."""
        with _open(path) as file:
            self._check_columns(file, path)

    def read(self, path: str, begin: int, end: int, reject: Callable[..., None]) -> Iterator[pa.RecordBatch]:
        """Yield the rows ``[begin, end)``; other row groups are not read. ``reject`` is never called."""
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
    """Return the row groups with rows in ``[begin, end)``, and the row at which the first of them begins."""
    groups: list[int] = []
    first, row = 0, 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if row < end and row + rows > begin:
            first = first if groups else row
            groups.append(group)
        row += rows
    return groups, first
