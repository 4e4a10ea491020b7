"""Objects with results, written by Spark's tasks.

Each attempt of a task writes objects under names of its own, and reports them as rows. Spark delivers the rows of one
attempt per task only, so objects of other attempts are never published.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_jobs.lakehouse.errors import lakehouse_error
from millrace_jobs.sinks.files.compaction import LINE
from millrace_jobs.sinks.files.formats import partition_folder
from millrace_jobs.sinks.lakehouse.data_files import RowGroups, split_rows
from millrace_jobs.stores.objects import ObjectPath, ObjectWriter

PART = "millrace_part_"
"""Beginning of the names of the columns with the texts of a row's partition, which are behind all others."""

_REPORT = pa.schema([("name", pa.string()), ("folder", pa.string()), ("rows", pa.int64()), ("size", pa.int64())])

_ROW_GROUP_BYTES = 32 << 20
"""Size of a row group in memory: rows are collected up to it, then compressed and written."""

_FILE_BYTES = 64 << 20
"""Size after which a task begins another object; a store copies as much within the time-out of a request."""


class WrittenObject(NamedTuple):
    """An object that a task has written: its name, the folder of its partition, its number of rows, and its size."""

    name: str
    folder: str
    rows: int
    size: int


@dataclass(frozen=True)
class ObjectsWriter:
    """Writes the rows of a task as objects; a function for Spark's ``mapInArrow``.

    Args:
        place: where the objects are written.
        partition_by: columns whose values name folders; rows come sorted by their texts.
        schema: columns of Parquet; None for lines of text.
        header: what each object of text begins with.
        spec_field: the field of the spec that describes the sink.
    """

    place: ObjectPath
    partition_by: tuple[str, ...]
    schema: pa.Schema | None
    header: bytes
    spec_field: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows, and yield a row for each object. Raises MillraceError if an object cannot be written."""
        try:
            yield from self._write(batches)
        except OSError as error:
            raise lakehouse_error(error, f"writing results to {self.place}", self.spec_field) from error

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [f"{PART}{number}" for number in range(len(self.partition_by))]
        opened: _OpenObject | None = None
        for batch in batches:
            for values, rows in split_rows(batch, parts):
                folder = partition_folder(self.partition_by, values)
                if opened is not None and (opened.folder != folder or opened.is_full):
                    yield opened.close()
                    opened = None
                if opened is None:
                    opened = self._open(folder)
                opened.add(rows.drop_columns(parts) if parts else rows)
        if opened is not None:
            yield opened.close()

    def _open(self, folder: str) -> _OpenObject:
        name = str(uuid.uuid4())
        output = (self.place / name).writer()
        if self.schema is None:
            return _OpenObject(name, folder, output, _Lines(output, self.header))
        options = {"compression": "snappy", "store_decimal_as_integer": True}
        rows = RowGroups(output, self.schema, _ROW_GROUP_BYTES, **options)
        return _OpenObject(name, folder, output, rows)


def write_objects(rows: DataFrame, writer: ObjectsWriter) -> list[WrittenObject]:
    """Write the rows in one job; return the objects of the attempts that count."""
    reported = rows.mapInArrow(writer, from_arrow_schema(_REPORT)).toArrow().to_pylist()
    return [WrittenObject(**each) for each in reported]


@dataclass
class _OpenObject:
    """An object that is being written; it does not exist before it is closed."""

    name: str
    folder: str
    output: ObjectWriter
    rows: _Lines | RowGroups
    count: int = 0

    @property
    def is_full(self) -> bool:
        return self.output.tell() >= _FILE_BYTES

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows.add(rows)
        self.count += rows.num_rows

    def close(self) -> pa.RecordBatch:
        self.rows.close()
        self.output.close()
        report = {"name": self.name, "folder": self.folder, "rows": self.count, "size": self.output.tell()}
        return pa.RecordBatch.from_pylist([report], _REPORT)


class _Lines:
    def __init__(self, output: ObjectWriter, header: bytes) -> None:
        self._output = output
        if header:
            output.write(header)

    def add(self, rows: pa.RecordBatch) -> None:
        lines = rows.column(LINE).to_pylist()
        if lines:
            self._output.write(("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        """Do nothing: all lines were written."""
