"""The event time of records in which it is a field of a struct, as a column of its own behind the declared ones.

The field of the schema that declares it holds the path to it. Readers and decoders never see it: they read the columns
that the records have, and the event time is taken from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_api.sql.schema_ddl import EVENT_TIME
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.format_reader import FormatReader, RejectIn
from millrace_jobs.sources.formats.messages import MessageDecoder, RejectAt

_PATH = b"path"


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
class ReaderWithEventTime:
    """A file format that adds the event time to what another one reads."""

    reader: FormatReader
    schema: pa.Schema

    def extent(self, path: str, size: int) -> int:
        """Return the length of a file."""
        return self.reader.extent(path, size)

    def divisible(self, path: str) -> bool:
        """Return whether a range of the file can be read without the data before it."""
        return self.reader.divisible(path)

    def check(self, path: str) -> None:
        """Check the columns that the file declares."""
        self.reader.check(path)

    def read(self, path: str, begin: int, end: int, reject: RejectIn) -> Iterator[pa.RecordBatch]:
        """Yield the records that begin in the range."""
        for records in self.reader.read(path, begin, end, reject):
            yield completed(records, self.schema)


@dataclass
class DecoderWithEventTime:
    """A decoder of messages that adds the event time to what another one decodes."""

    decoder: MessageDecoder
    schema: pa.Schema

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Decode values to records in order."""
        records, indexes = self.decoder.decode(values, reject)
        return completed(records, self.schema), indexes
