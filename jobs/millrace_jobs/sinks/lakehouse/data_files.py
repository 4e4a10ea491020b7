"""Data files of a table, written by Spark's tasks.

Each attempt of a task writes Parquet files under names of its own, and reports them as rows. Spark delivers the rows of
one attempt per task only. So files of attempts that failed, that lost against a speculative one, or whose driver has
died, are never committed.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_jobs.disk import sync
from millrace_jobs.lakehouse.errors import lakehouse_error
from millrace_jobs.stores.objects import ObjectPath, ObjectWriter

Folder = Path | ObjectPath
"""Where the files of a table are."""

SMALL_BYTES, FULL_BYTES = 100_000_000, 128 << 20
"""Size below which a file is merged with others, and sum of sizes up to which they become one."""

_REPORT = pa.schema({"name": pa.string(), "size": pa.int64(), "values": pa.string(), "footer": pa.binary()})

_ROW_GROUP_BYTES = 64 << 20
"""Size of a row group in memory: rows are collected up to it, then compressed and written."""

_FILE_BYTES = 128 << 20
"""Size after which a task begins another file."""

_OPEN_FILES = 16
"""Number of partitions of a table that a task has open files for. Rows come sorted by partition, so one would do."""


@dataclass(frozen=True)
class DataFile:
    """A file that a task has written.

    ``name`` is its name in the folder, ``size`` is in bytes, ``values`` are those of its rows in the columns that the
    table is partitioned by, as in JSON, and ``metadata`` is Parquet's footer.
    """

    name: str
    size: int
    values: dict[str, Any]
    metadata: pq.FileMetaData

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.metadata.num_rows)


@dataclass(frozen=True)
class FileWriter:
    """Writes the rows of a task as files; a function for Spark's ``mapInArrow``.

    Args:
        folder: where the files are written.
        prefix: beginning of their names.
        schema: columns of the files.
        partition_by: columns that have one value in each file.
        spec_field: the field of the spec that describes the table.
    """

    folder: Folder
    prefix: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    spec_field: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows, and yield a row for each file. Raises MillraceError if a file cannot be written."""
        try:
            yield from self._write(batches)
        except OSError as error:
            raise lakehouse_error(error, f"writing files of the table {self.folder}", self.spec_field) from error

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writing: dict[tuple[Any, ...], _OpenFile] = {}
        for batch in batches:
            for values, rows in split_rows(batch, self.partition_by):
                opened = writing.pop(values, None) or _OpenFile(self, values)
                writing[values] = opened  # now the last one
                opened.add(rows)
                if opened.is_full or len(writing) > _OPEN_FILES:
                    first = values if opened.is_full else next(iter(writing))
                    yield writing.pop(first).close()
        for opened in writing.values():
            yield opened.close()


def write_files(rows: DataFrame, writer: FileWriter) -> list[DataFile]:
    """Write the rows in one job; return the files of the attempts that count."""
    files = reported_files(rows.mapInArrow(writer, from_arrow_schema(_REPORT)).toArrow())
    if files and isinstance(writer.folder, Path):
        sync(writer.folder)
    return files


def reported_files(reports: pa.Table) -> list[DataFile]:
    """Return the files that the reports of a writer describe."""
    return [
        DataFile(each["name"], each["size"], json.loads(each["values"]), pq.read_metadata(io.BytesIO(each["footer"])))
        for each in reports.to_pylist()
    ]


def rewritten(writer: FileWriter, rows: Iterator[pa.RecordBatch]) -> list[DataFile]:
    """Write rows in the driver; return their files."""
    reports = list(writer(rows))
    return reported_files(pa.Table.from_batches(reports)) if reports else []


_T = TypeVar("_T")


def merging(files: Sequence[_T], size_of: Callable[[_T], int]) -> Iterator[list[_T]]:
    """Yield files that become one, of FULL_BYTES together at most, in their order; none that would stay alone."""
    part: list[_T] = []
    size = 0
    for each in files:
        if part and size + size_of(each) > FULL_BYTES:
            yield from [part] if len(part) > 1 else []
            part, size = [], 0
        part.append(each)
        size += size_of(each)
    yield from [part] if len(part) > 1 else []


def opened_file(folder: Folder, name: str) -> BinaryIO:
    """Return a file as a stream."""
    return (folder / name).open("rb") if isinstance(folder, Path) else cast(BinaryIO, (folder / name).open())


class RowGroups:
    """The row groups of a Parquet file: rows are collected up to ``size`` bytes in memory, then compressed and written.

    ``options`` are those of ``ParquetWriter``.
    """

    def __init__(self, output: IO[bytes] | ObjectWriter, schema: pa.Schema, size: int, **options: Any) -> None:
        self._schema, self._size = schema, size
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._parquet = pq.ParquetWriter(output, schema, store_schema=False, **options)

    def add(self, rows: pa.RecordBatch) -> None:
        """Keep the rows until they are enough for a row group."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= self._size:
            self._flush()

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._flush()
        self._parquet.close()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting).select(self._schema.names).cast(self._schema)
            self._parquet.write_table(table, row_group_size=max(len(table), 1))
        self._waiting, self._waiting_bytes = [], 0


class _OpenFile:
    def __init__(self, writer: FileWriter, values: tuple[Any, ...]) -> None:
        self._writer, self._values = writer, values
        self._name = f"{writer.prefix}{uuid.uuid4()}.parquet"
        self._place = writer.folder / self._name
        self._footers: list[pq.FileMetaData] = []
        self._file = self._place.open("wb") if isinstance(self._place, Path) else self._place.writer()
        options = {"compression": "zstd", "metadata_collector": self._footers}
        self._rows = RowGroups(self._file, writer.schema, _ROW_GROUP_BYTES, **options)
        self.add = self._rows.add

    @property
    def is_full(self) -> bool:
        return int(self._file.tell()) >= _FILE_BYTES

    def close(self) -> pa.RecordBatch:
        """Complete the file, and return its report."""
        self._rows.close()
        size = self._file.tell()
        self._file.close()
        if isinstance(self._place, Path):
            sync(self._place)
        footer = io.BytesIO()
        self._footers[0].write_metadata_file(footer)
        texts = (each.isoformat() if isinstance(each, date) else each for each in self._values)
        values = json.dumps(dict(zip(self._writer.partition_by, texts, strict=True)))
        report = {"name": self._name, "size": size, "values": values, "footer": footer.getvalue()}
        return pa.RecordBatch.from_pylist([report], _REPORT)


def split_rows(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the rows of each combination of values in these columns, in their order."""
    if not names:
        yield (), batch
        return
    codes = np.zeros(len(batch), np.int64)
    for name in names:
        encoded = pc.dictionary_encode(batch.column(name), null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    for number in np.argsort(first):
        rows = batch.take(pa.array(np.flatnonzero(place == number)))
        yield tuple(rows.column(name)[0].as_py() for name in names), rows
