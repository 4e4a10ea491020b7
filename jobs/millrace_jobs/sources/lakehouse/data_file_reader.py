"""Reading of the data files of a table: Parquet, with the values of partitions that are not in the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.decoding import BadRecord
from millrace_jobs.sources.formats.format_reader import MAX_ROWS
from millrace_jobs.sources.formats.parquet_format import ParquetFormat, open_parquet
from millrace_jobs.sources.formats.text_values import from_text
from millrace_jobs.sources.lakehouse.deleted_rows import DeletedRows
from millrace_jobs.sources.lakehouse.field_keys import FieldKey, FieldKeys
from millrace_jobs.sources.lakehouse.table_commits import AddedFile


@dataclass(frozen=True)
class FilePart:
    """A part of a data file: as its bytes ``[begin, end)`` are to all of them, so are the rows of the part to all.

    ``deleted`` says which rows of the file are deleted; empty if none is. Where rows are changes, ``time_ms`` is the
    time of their commit, and ``order`` is the place of the file in the order of its batch.
    """

    file: AddedFile
    begin: int
    end: int
    deleted: bytes = b""
    time_ms: int = 0
    order: int = 0


@dataclass(frozen=True)
class DataFileReader:
    """Reads parts of data files.

    Args:
        schema: the declared columns.
        keys: by what the files know them.
        timestamp_format: how a TIMESTAMP is written where a table has text.
    """

    schema: pa.Schema
    keys: FieldKeys
    timestamp_format: str

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Yield the records of a part of a file that are not deleted.

        Raises:
            MillraceError: the file cannot be read, or has values that the schema does not fit.
        """
        deleted = DeletedRows.of_packed(part.deleted) if part.deleted else None
        for records, first in self.numbered(part):
            yield records if deleted is None else deleted.without(records, first)

    def numbered(self, part: FilePart, only: range | None = None) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield all records of a part of a file, each batch with the number of its first row in the file.

        With ``only``, other rows of the file are left out.

        Raises:
            MillraceError: see ``read``.
        """
        path = part.file.path
        with open_parquet(path) as file:
            rows, stored = int(file.metadata.num_rows), self.keys.named(file.schema_arrow)
        values = dict(self._values(part.file, stored))
        reader = ParquetFormat(
            pa.schema([field for field in self.schema if field.name not in values]), self.timestamp_format, self.keys
        )
        begin, end = (rows * place // part.file.size for place in (part.begin, part.end))
        if only is not None:
            begin, end = max(begin, only.start), min(end, only.stop)
            if begin >= end:
                return
        for records in _rows(reader, path, begin, end):
            first = pa.repeat(0, records.num_rows)
            own = {name: value.take(first) for name, value in values.items()}
            arrays = [own[name] if name in own else records.column(name) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema), begin
            begin += records.num_rows

    def of_columns(self, names: Sequence[str], *more: str) -> DataFileReader:
        """Return a reader of some of the columns, and of ``more`` columns of text that files have under these names."""
        keys = {column.name: column for column in self.keys.columns}
        columns = [*(keys[name] for name in names), *(FieldKey(name, name) for name in more)]
        fields = [*(self.schema.field(name) for name in names), *(pa.field(name, pa.string()) for name in more)]
        return replace(self, schema=pa.schema(fields), keys=replace(self.keys, columns=tuple(columns)))

    def _values(self, file: AddedFile, stored: pa.Schema) -> Iterator[tuple[str, pa.Array]]:
        """Yield the columns whose values the file's partition has, each as an array of one.

        Where fields have numbers, as in Iceberg, the file itself may have them, too, and counts.
        """
        texts = dict(file.values)
        for field, column in zip(self.schema, self.keys.columns, strict=True):
            if column.key not in texts or (self.keys.by_id and field.name in stored.names):
                continue
            try:
                yield field.name, from_text(pa.array([texts[column.key]], pa.string()), field, self.timestamp_format)
            except ValueError as error:
                message = f"the partition has no value of the schema: {error}"
                raise MillraceError(Problem(message, "correct the schema", file.path)) from None


def _rows(reader: ParquetFormat, path: str, begin: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows ``[begin, end)`` of a file, also if no column of them is in it."""
    if len(reader.schema):
        yield from reader.read(path, begin, end, _never)
        return
    for first in range(begin, end, MAX_ROWS):
        yield pa.RecordBatch.from_arrays([pa.nulls(min(MAX_ROWS, end - first))], names=[""])


def _never(path: str, bad: BadRecord) -> None:
    raise AssertionError(f"Parquet has no bad records, but {path} has {bad}")
