"""The interface of a file format, which reads any range of a file; and columns that files and messages lack.

These are columns whose values are in the path of a file, as Hive and Spark partition them (``dt=2026-01-01/hour=03``),
and the event time where it is a field of a struct, as a column behind the declared ones. The field of the schema that
declares it holds the path to it. Other readers and decoders never see these columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote_to_bytes

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_api.sql.schema_ddl import EVENT_TIME
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.decoding import BadRecord
from millrace_jobs.sources.formats.messages import MessageDecoder, RejectAt
from millrace_jobs.sources.formats.text_values import from_text

MAX_ROWS = 131_072
"""The maximum number of records in one record batch."""

RejectIn = Callable[[str, BadRecord], None]
"""Handler that leaves out a bad record of the file at a path, or raises, as the policy requires."""

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What stands for NULL in a path."""

_PATH = b"path"


class FormatReader(Protocol):
    """A reader of one file format. ``begin`` and ``end`` are in the unit of ``extent``."""

    def extent(self, path: str, size: int) -> int:
        """Return the length of a file of ``size`` bytes: in bytes for text, in rows for Parquet."""

    def divisible(self, path: str) -> bool:
        """Return whether a range of the file can be read without the data before it."""

    def check(self, path: str) -> None:
        """Check the columns that the file declares. Raises MillraceError if the schema does not fit them."""

    def read(self, path: str, begin: int, end: int, reject: RejectIn) -> Iterator[pa.RecordBatch]:
        """Yield the records that begin in ``[begin, end)``, at most MAX_ROWS per batch. Raises MillraceError."""


@dataclass(frozen=True)
class PathColumns:
    """The columns of a schema that paths have.

    A folder ``NAME=VALUE`` anywhere above the file gives the column of this name its value. ``%XX`` in either is a byte
    of UTF-8. Names are those of the schema; in another case, as Hive writes them, if they differ only in it.
    """

    schema: pa.Schema
    timestamp_format: str

    def values(self, path: str) -> list[pa.Array]:
        """Return the value of each column, as an array of one.

        Raises MillraceError if the path lacks a column, has it twice, or has a value that is none of its type.
        """
        return [self._value(field, path) for field in self.schema]

    def _value(self, field: pa.Field, path: str) -> pa.Array:
        folders = [folder for folder in re.split("[/\\\\]", path)[:-1] if _is_of(folder, field.name)]
        if not folders:
            hint = f"move it to a folder {field.name}=VALUE, or leave {field.name} out of partitionColumns"
            raise MillraceError(Problem(f"its path has no folder {field.name}=..., a partition column", hint, path))
        if len(folders) > 1:
            message = f"its path has the partition column {field.name} twice: {' and '.join(folders)}"
            raise MillraceError(Problem(message, "name the folders otherwise", path))
        text = folders[0].partition("=")[2]
        try:
            value = None if text == NO_VALUE else unquote_to_bytes(text).decode()
            return from_text(pa.array([value], pa.string()), field, self.timestamp_format)
        except UnicodeDecodeError:
            said = f"{text!r} is not UTF-8"
        except ValueError as error:
            said = str(error)
        message = f"the folder {folders[0]} of its path has no value of the schema: {said}"
        raise MillraceError(Problem(message, "", path)) from None


def path_columns(schema: pa.Schema, names: Sequence[str], timestamp_format: str) -> PathColumns:
    """Return the columns of these names."""
    return PathColumns(pa.schema([field for field in schema if field.name in names]), timestamp_format)


def _is_of(folder: str, name: str) -> bool:
    key, equals, _ = folder.partition("=")
    found = unquote_to_bytes(key).decode(errors="replace")
    return bool(equals) and found.lower() == name.lower()


def with_event_time(schema: pa.Schema, path: str) -> pa.Schema:
    """Return a schema with a column for the event time at a path such as ``event.time``, in any case."""
    return schema.append(pa.field(EVENT_TIME, TIMESTAMP, metadata={_PATH: path.encode()}))


def without_event_time(schema: pa.Schema) -> pa.Schema:
    """Return the columns that the records themselves have."""
    return pa.schema([field for field in schema if _path(field) is None])


def field_type(schema: pa.Schema, path: str) -> pa.DataType | None:
    """Return the type of the column, or of the field of a struct, at a path in any case; None if there is none."""
    places = _places(schema, path)
    if places is None:
        return None
    kind = schema.field(places[0]).type
    for place in places[1:]:
        kind = kind.field(place).type
    return kind


def field_values(records: pa.RecordBatch, path: str) -> pa.Array:
    """Return the column, or the field of a struct, at a path that the records have; NULL where a struct is."""
    places = _places(records.schema, path)
    assert places is not None
    first, *fields = places
    return pc.struct_field(records.column(first), fields) if fields else records.column(first)


def _places(schema: pa.Schema, path: str) -> list[int] | None:
    places: list[int] = []
    fields: Sequence[pa.Field] = list(schema)
    for name in path.split("."):
        exact = [place for place, field in enumerate(fields) if field.name == name]
        found = exact or [place for place, field in enumerate(fields) if field.name.lower() == name.lower()]
        if not found:
            return None
        places.append(found[0])
        kind = fields[found[0]].type
        fields = list(kind) if pa.types.is_struct(kind) else []
    return places


def _path(field: pa.Field) -> str | None:
    return (field.metadata or {}).get(_PATH, b"").decode() or None


def completed(records: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return records with the event time, in a schema from ``with_event_time``."""
    columns = iter(records.columns)
    paths = [_path(field) for field in schema]
    arrays = [next(columns) if path is None else field_values(records, path) for path in paths]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class ReaderWithAddedColumns:
    """A file format that adds the columns of paths, and the event time, to what another one reads, which lacks them.

    A column of a path that is in the file, too, is not read: the path is what others have filtered by.
    """

    reader: FormatReader
    schema: pa.Schema
    columns: PathColumns

    def extent(self, path: str, size: int) -> int:
        """Return the length of a file."""
        return self.reader.extent(path, size)

    def divisible(self, path: str) -> bool:
        """Return whether a range of the file can be read without the data before it."""
        return self.reader.divisible(path)

    def check(self, path: str) -> None:
        """Check the columns of the path, and those that the file declares."""
        self.columns.values(path)
        self.reader.check(path)

    def read(self, path: str, begin: int, end: int, reject: RejectIn) -> Iterator[pa.RecordBatch]:
        """Yield the records that begin in the range."""
        values = dict(zip(self.columns.schema.names, self.columns.values(path), strict=True))
        stored = without_event_time(self.schema)
        for records in self.reader.read(path, begin, end, reject):
            yield completed(with_constants(records, values, stored) if values else records, self.schema)


def with_constants(records: pa.RecordBatch, values: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return records with columns that have one value each, which is given as an array of one."""
    first = pa.repeat(0, records.num_rows)
    own = {name: value.take(first) for name, value in values.items()}
    arrays = [own[name] if name in own else records.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass
class DecoderWithEventTime:
    """A decoder of messages that adds the event time to what another one decodes."""

    decoder: MessageDecoder
    schema: pa.Schema

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Decode values to records in order."""
        records, indexes = self.decoder.decode(values, reject)
        return completed(records, self.schema), indexes
