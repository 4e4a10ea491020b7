"""A table's data files: rows that are marked as deleted, and the reading of Parquet as rows or as changes.

Rows are marked by one bit for each, or by deletion vectors of Delta tables: bitmaps in the log or in files of their
own, in the format of https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vectors.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.tables import CHANGED_AT
from millrace_jobs.confinement import require_data
from millrace_jobs.sources.base import CHANGED
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.decoding import BadRecord
from millrace_jobs.sources.formats.format_reader import MAX_ROWS, with_constants
from millrace_jobs.sources.formats.parquet_format import ParquetFormat, open_parquet
from millrace_jobs.sources.formats.text_values import from_text
from millrace_jobs.sources.lakehouse.table_columns import FieldKey, FieldKeys
from millrace_jobs.sources.stored_files import open_bytes, unreadable

_MAGIC = struct.pack("<i", 1681511377)

_OF_Z85 = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
"""The digits of Z85 as those of the Base85 that Python decodes."""

_NAME_LENGTH = 20  # digits of the identifier in the name of a file

CHANGE_TYPE = "_change_type"
"""Column of a change file with the kind of each row."""

_SETS, _DELETES = ("insert", "update_postimage"), ("delete", "update_preimage")
_ROWS_OF_FILE = 32  # bits for the number of a row in its file; those above them are for the file


def packed(is_deleted: NDArray[np.bool_]) -> bytes:
    """Return a mask of all rows of a file, in short. Shape ``(rows,)``."""
    return zlib.compress(np.packbits(is_deleted).tobytes(), 1)


def packed_places(places: NDArray[np.int64]) -> bytes:
    """Return the numbers of the deleted rows, in short. Shape ``(deleted rows,)``."""
    return packed(_mask(places))


class DeletedRows:
    """The deleted rows of one file.

    Args:
        mask: which rows are deleted; those behind its end are not. Shape ``(rows,)``.
    """

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self._mask = mask

    @classmethod
    def of_packed(cls, content: bytes) -> DeletedRows:
        """Return the rows that were packed."""
        return cls(np.unpackbits(np.frombuffer(zlib.decompress(content), np.uint8)).astype(np.bool_))

    @classmethod
    def of_places(cls, places: NDArray[np.int64]) -> DeletedRows:
        """Return the rows with these numbers. Shape ``(deleted rows,)``."""
        return cls(_mask(places))

    @property
    def extent(self) -> range:
        """The rows from the first deleted one to the last one; empty if there is none."""
        return range(int(np.argmax(self._mask)) if self._mask.any() else len(self._mask), len(self._mask))

    def marked(self, first: int, count: int) -> NDArray[np.bool_]:
        """Return which of ``count`` rows from ``first`` on are deleted. Shape ``(count,)``."""
        found = np.zeros(count, np.bool_)
        part = self._mask[first : first + count]
        found[: len(part)] = part
        return found

    def without(self, records: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Return the records that are not deleted, where the first of these is row ``first`` of the file."""
        marked = self.marked(first, records.num_rows)
        return records.filter(pa.array(~marked)) if marked.any() else records


def _mask(places: NDArray[np.int64]) -> NDArray[np.bool_]:
    mask = np.zeros(int(places.max(initial=-1)) + 1, np.bool_)
    mask[places] = True
    return mask


@dataclass(frozen=True)
class DeletionVector:
    """Where a deletion vector is."""

    file: str  # absolute path or URI of its file; empty if ``text`` has it
    offset: int  # where it begins in the file
    size: int  # its size in bytes
    text: str = ""  # it itself, in Z85

    @classmethod
    def of(cls, described: Mapping[str, Any] | None, place: Callable[[str], str]) -> DeletionVector | None:
        """Return the vector that an action of the log describes, if any.

        Raises ValueError if it is described in a way that the format does not have.

        Args:
            described: the action's ``deletionVector``.
            place: returns the place of a file that the log names.
        """
        if described is None:
            return None
        kind, text, size = described["storageType"], described["pathOrInlineDv"], int(described["sizeInBytes"])
        if kind == "i":
            return cls("", 0, size, text)
        offset = int(described.get("offset") or 0)
        if kind == "p":
            return cls(place(text), offset, size)
        if kind != "u" or len(text) < _NAME_LENGTH:
            raise ValueError(f"the deletion vector {kind}{text} is of an unknown kind")
        folder, name = text[:-_NAME_LENGTH], uuid.UUID(bytes=_decoded(text[-_NAME_LENGTH:]))
        return cls(place(f"{folder}/deletion_vector_{name}.bin".removeprefix("/")), offset, size)

    def rows(self) -> NDArray[np.int64]:
        """Return the numbers of the deleted rows, in order. Shape ``(deleted rows,)``.

        Raises OSError if its file cannot be read. Raises ValueError if it is damaged.
        """
        content = self._stored() if self.file else _decoded(self.text)[: self.size]
        if not content.startswith(_MAGIC):
            raise ValueError("the deletion vector does not begin with its number")
        bitmap = BitMap64.deserialize(content[len(_MAGIC) :])
        return np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64)

    def _stored(self) -> bytes:
        """Return the part of the file that is between the size and the checksum of the vector."""
        with open_bytes(self.file) as file:
            file.seek(self.offset)
            stored = file.read(self.size + 8)
        content = stored[4:-4]
        if stored[:4] + stored[-4:] != struct.pack(">iI", self.size, zlib.crc32(content)):
            raise ValueError("the deletion vector has another size or checksum than its file says")
        return content


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.translate(_OF_Z85))


@dataclass(frozen=True)
class FileChanges:
    """Which rows of a file are changes of a commit, and what they are."""

    deletes: bool  # whether each row deletes that of its key; else it sets it
    is_typed: bool = False  # whether the file itself says of what kind each row is. Rows of the other kind are left out
    only: DeletionVector | None = None  # if given, rows that it does not mark are left out
    without: DeletionVector | None = None  # the rows that it marks are left out


@dataclass(frozen=True)
class AddedFile:
    """A data file of a table, or a file with changes of its rows."""

    path: str  # absolute path or URI
    size: int  # its size in bytes as the table has it, at least 1, because slices are cut by it
    records: int  # the number of its records; an estimate where the table does not say it
    written_ms: int = 0  # when it was written or committed, in ms since 1970
    has_deleted_rows: bool = False  # whether some of its rows may be marked as deleted
    # the values of its partition as text, by the keys of columns (``FieldKeys``); None is NULL
    values: tuple[tuple[str, str | None], ...] = ()
    # which of its rows are changes, if the source reads changes. Without it, each row sets that of its key
    changes: FileChanges | None = None


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
    """Reads parts of data files."""

    schema: pa.Schema  # the declared columns
    keys: FieldKeys  # by what the files know them
    timestamp_format: str  # how a TIMESTAMP is written where a table has text

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Yield the records of a part of a file that are not deleted.

        Raises MillraceError if the file cannot be read, or has values that the schema does not fit.
        """
        deleted = DeletedRows.of_packed(part.deleted) if part.deleted else None
        for records, first in self.numbered(part):
            yield records if deleted is None else deleted.without(records, first)

    def numbered(self, part: FilePart, only: range | None = None) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield all records of a part of a file, each batch with the number of its first row in the file.

        With ``only``, other rows of the file are left out. Raises MillraceError: see ``read``.
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
            yield with_constants(records, values, self.schema), begin
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


@dataclass(frozen=True)
class ChangeReader:
    """Reads parts of files as changes of a table, with the columns of CHANGED.

    A row that is deleted has the columns of its key alone, and its other columns are NULL.
    """

    files: DataFileReader  # reader of the declared columns
    keys: tuple[str, ...]  # the primary key of the table, of these columns

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Yield the changes in a part of a file.

        Raises MillraceError if the file or a deletion vector cannot be read, or has values that the schema does not
        fit.
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
