"""Reading of a table's files: Parquet, with values of partitions that are not in the files; as rows, or as changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.tables import CHANGED_AT
from millrace_jobs.confinement import require_data
from millrace_jobs.sources.base import CHANGED
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.decoding import BadRecord
from millrace_jobs.sources.formats.format_reader import MAX_ROWS
from millrace_jobs.sources.formats.parquet_format import ParquetFormat, open_parquet
from millrace_jobs.sources.formats.text_values import from_text
from millrace_jobs.sources.lakehouse.deleted_rows import DeletedRows, DeletionVector
from millrace_jobs.sources.lakehouse.table_columns import FieldKey, FieldKeys
from millrace_jobs.sources.lakehouse.table_commits import AddedFile, FileChanges
from millrace_jobs.sources.stored_files import unreadable


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


CHANGE_TYPE = "_change_type"
"""Column of a change file with the kind of each row."""

_SETS, _DELETES = ("insert", "update_postimage"), ("delete", "update_preimage")

_ROWS_OF_FILE = 32
"""Bits for the number of a row in its file; those above them are for the file."""


@dataclass(frozen=True)
class ChangeReader:
    """Reads parts of files as changes of a table, with the columns of CHANGED.

    A row that is deleted has the columns of its key alone, and its other columns are NULL.

    Args:
        files: reader of the declared columns.
        keys: the primary key of the table, of these columns.
    """

    files: DataFileReader
    keys: tuple[str, ...]

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Yield the changes in a part of a file.

        Raises:
            MillraceError: the file or a deletion vector cannot be read, or has values that the schema does not fit.
        """
        changes = part.file.changes or FileChanges(deletes=False)
        names = self.keys if changes.deletes else self.files.schema.names
        reader = self.files.of_columns(names, *([CHANGE_TYPE] if changes.is_typed else []))
        only, deleted = _marked(changes, part)
        for records, first in reader.numbered(part, None if only is None else only.extent):
            kept = np.ones(records.num_rows, np.bool_)
            if changes.is_typed:
                kept &= _of_kind(records.column(CHANGE_TYPE), part.file.path, deletes=changes.deletes)
            if only is not None:
                kept &= only.marked(first, records.num_rows)
            if deleted is not None:
                kept &= ~deleted.marked(first, records.num_rows)
            places = np.flatnonzero(kept)
            if len(places):
                positions = (part.order << _ROWS_OF_FILE) + first + places
                yield self._changes(records.take(pa.array(places)), positions, part, deletes=changes.deletes)

    def _changes(
        self, records: pa.RecordBatch, positions: NDArray[np.int64], part: FilePart, *, deletes: bool
    ) -> pa.RecordBatch:
        known = dict(zip(records.schema.names, records.columns, strict=True))
        schema = pa.schema([*self.files.schema, pa.field(CHANGED_AT, TIMESTAMP), *CHANGED])
        count = len(positions)
        time = pa.scalar(part.time_ms * 1000, pa.int64()).cast(TIMESTAMP)
        flags = [pa.repeat(pa.scalar(each), count) for each in (deletes, False)]
        columns = [known.get(field.name, pa.nulls(count, field.type)) for field in self.files.schema]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.repeat(time, count), *flags, pa.array(positions)], schema=schema
        )


def _of_kind(kinds: pa.Array, path: str, *, deletes: bool) -> NDArray[np.bool_]:
    """Return which rows of a change file delete rows, or set them. Shape ``(rows,)``."""
    known = pc.is_in(kinds, pa.array([*_SETS, *_DELETES]))
    if not pc.all(known).as_py():
        (kind,) = kinds.filter(pc.invert(known))[:1].to_pylist()
        message = f"a row has the {CHANGE_TYPE} {kind}, which is none of {', '.join((*_SETS, *_DELETES))}"
        raise MillraceError(Problem(message, "start with another checkpoint behind this version", path))
    found: NDArray[np.bool_] = pc.is_in(kinds, pa.array(_DELETES if deletes else _SETS)).to_numpy(zero_copy_only=False)
    return found


def _marked(changes: FileChanges, part: FilePart) -> tuple[DeletedRows | None, DeletedRows | None]:
    """Return the only rows of a file that count, and the rows that do not count, if either is given."""
    if part.deleted:
        return None, DeletedRows.of_packed(part.deleted)
    without = None if changes.without is None else _vector_rows(changes.without, part.file.path)
    if changes.only is not None:
        only = _vector_rows(changes.only, part.file.path)
        return DeletedRows.of_places(only if without is None else np.setdiff1d(only, without)), None
    return None, None if without is None else DeletedRows.of_places(without)


def _vector_rows(vector: DeletionVector, path: str) -> NDArray[np.int64]:
    if vector.file:
        require_data(vector.file)
    try:
        return vector.rows()
    except OSError as error:
        raise unreadable(vector.file, error) from error
    except ValueError as error:
        raise MillraceError(Problem(str(error), "restore it", vector.file or path)) from error
