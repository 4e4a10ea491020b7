"""Decoding of JSON as Kafka Connect's converter writes it: beside its schema, or without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_api.sql.time_formats import ISO
from millrace_jobs.sources.formats.column_types import time_format
from millrace_jobs.sources.formats.connect_types import ConnectType, connect_type
from millrace_jobs.sources.formats.json_rewriting import parsed_object, written_value
from millrace_jobs.sources.formats.messages import RejectAt, TextDecoder
from millrace_jobs.sources.formats.nested_columns import is_nested, parts_of, rebuilt, with_parts
from millrace_jobs.sources.formats.typed_columns import TypedColumn

_BEGIN: Final = b'{"schema":'
_PAYLOAD: Final = b',"payload":'
_MOST_READERS = 64
"""Schemas that are kept ready to read; a topic has a few, one for each change of its table."""

_Read = tuple[pa.RecordBatch, list[int]]


@dataclass(frozen=True)
class _Reader:
    """How payloads with one schema are read: their text by ``decoder``, whose columns ``convert`` declares."""

    decoder: TextDecoder | None
    convert: Callable[[pa.RecordBatch], pa.RecordBatch]


class ConnectJsonDecoder:
    """A decoder of JSON objects with or without the schema of Kafka Connect.

    With it, values have the types that it says. Without it, they are read as in other JSON, except that a DATE is the
    number of days since 1970, unless a format of its own says that it is text.
    """

    def __init__(self, schema: pa.Schema, timestamp_format: str) -> None:
        self.schema = schema
        self._bare = _bare_reader(schema, timestamp_format)
        self._readers: dict[bytes, _Reader | str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_readers": {}}

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Decode a record from every message that has a value."""
        bad: dict[int, str] = {}
        parts: list[_Read] = []
        for reader, payloads in self._by_schema(values, bad):
            parts += _records(reader, payloads, self.schema, bad)
        for index in sorted(bad):
            reject(index, bad[index])
        if not parts:
            return pa.RecordBatch.from_pylist([], self.schema), np.empty(0, np.int64)
        origins = np.concatenate([np.array(indexes, np.int64) for _, indexes in parts])
        records = pa.concat_batches([batch for batch, _ in parts])
        if len(parts) == 1:
            return records, origins
        order = np.argsort(origins, kind="stable")  # the messages were grouped by schema
        return records.take(pa.array(order)), origins[order]

    def names(self, value: bytes) -> frozenset[str]:
        """Return the names of the fields of a message's object; none if it is not an object."""
        found = _object_of(_split(value)[1])
        return frozenset() if found is None else frozenset(found)

    def _by_schema(
        self, values: Sequence[bytes | None], bad: dict[int, str]
    ) -> Iterator[tuple[_Reader, dict[int, bytes]]]:
        groups: dict[bytes, dict[int, bytes]] = {}
        for index, value in enumerate(values):
            if value is not None:
                schema, payload = _split(value)
                groups.setdefault(schema, {})[index] = payload
        for schema, payloads in groups.items():
            reader = self._reader(schema) if schema else self._bare
            if isinstance(reader, str):
                bad |= dict.fromkeys(payloads, reader)
            else:
                yield reader, payloads

    def _reader(self, schema: bytes) -> _Reader | str:
        """Return how payloads with a schema are read, or the reason why they are not."""
        if schema not in self._readers:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            try:
                self._readers[schema] = _schema_reader(json.loads(schema), self.schema)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                self._readers[schema] = f"the schema in it is none of Kafka Connect: {error}"
        return self._readers[schema]


def _split(value: bytes) -> tuple[bytes, bytes]:
    """Return the schema and the payload of a message, or no schema and the message itself where it has none."""
    if value.startswith(_BEGIN) and value.endswith(b"}"):  # as the converter writes it
        schema, found, payload = value[len(_BEGIN) : -1].partition(_PAYLOAD)
        if found and _is_object(schema):
            return schema, payload
    if b'"payload"' not in value or b'"schema"' not in value:
        return b"", value
    try:
        fields = dict(parsed_object(value.decode()))
    except (ValueError, RecursionError):
        return b"", value  # the parser says what is wrong
    if fields.keys() != {"schema", "payload"}:
        return b"", value
    schema, payload = (written_value(fields[name]).encode() for name in ("schema", "payload"))
    return (b"" if schema == b"null" else schema), payload


@lru_cache(maxsize=_MOST_READERS)
def _is_object(text: bytes) -> bool:
    """Return whether a text is a JSON object. Messages repeat their schema, so that each is parsed once."""
    return _object_of(text) is not None


def _object_of(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _schema_reader(found: dict[str, Any], schema: pa.Schema) -> _Reader:
    """Return how payloads with a schema of Connect are read; fields that it does not have are NULL."""
    if found.get("type") != "struct":
        raise ValueError(f"it is the schema of a {found.get('type')}, not of a struct")
    known = {each["field"]: each for each in found["fields"]}
    fields = [field for field in schema if field.name in known]
    types = [connect_type(known[field.name], field) for field in fields]
    read = pa.schema([(field.name, kind.read) for field, kind in zip(fields, types, strict=True)])
    columns = {
        field.name: (kind, TypedColumn(kind.meant, field, ISO, by_writer=True))
        for field, kind in zip(fields, types, strict=True)
    }
    for _, column in columns.values():
        if not column.fits:
            raise ValueError(f"{column.misfit}: {column.hint}" if column.hint else column.misfit)

    convert = partial(_by_types, schema, columns)
    return _Reader(TextDecoder("json", read, ISO) if fields else None, convert)


def _by_types(
    schema: pa.Schema, columns: Mapping[str, tuple[ConnectType, TypedColumn]], records: pa.RecordBatch
) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        if field.name not in columns:
            arrays.append(pa.nulls(records.num_rows, field.type))
            continue
        kind, column = columns[field.name]
        arrays.append(column.convert(kind.convert(records.column(field.name))))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bare_reader(schema: pa.Schema, timestamp_format: str) -> _Reader:
    read = pa.schema([_with_days(field) for field in schema])
    return _Reader(TextDecoder("json", read, timestamp_format), partial(_from_days, schema))


def _with_days(field: pa.Field) -> pa.Field:
    """Return a field with whole numbers in place of dates that have no format of their own."""
    if is_nested(field.type):
        return field.with_type(with_parts(field.type, [_with_days(part).type for part in parts_of(field)]))
    return field.with_type(pa.int32()) if pa.types.is_date(field.type) and not time_format(field, "") else field


def _from_days(schema: pa.Schema, records: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_as_declared(column, field) for column, field in zip(records.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_declared(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    return rebuilt(column, field, _as_declared) if is_nested(field.type) else column.cast(field.type)


def _records(reader: _Reader, payloads: dict[int, bytes], schema: pa.Schema, bad: dict[int, str]) -> Iterator[_Read]:
    """Yield the records of messages with one schema, and the indexes of their messages."""
    indexes = list(payloads)
    if reader.decoder is None:
        yield pa.RecordBatch.from_arrays([pa.nulls(len(indexes), f.type) for f in schema], schema=schema), indexes
        return
    read, origins = reader.decoder.decode(
        list(payloads.values()), lambda place, reason: bad.__setitem__(indexes[place], reason)
    )
    yield from _converted(reader, read, [indexes[origin] for origin in origins], bad)


def _converted(reader: _Reader, read: pa.RecordBatch, indexes: list[int], bad: dict[int, str]) -> Iterator[_Read]:
    """Convert what was read; bisection finds the records with a value that does not fit."""
    if not indexes:
        return
    try:
        yield reader.convert(read), indexes
        return
    except (ValueError, pa.ArrowNotImplementedError) as error:
        if len(indexes) == 1:
            bad[indexes[0]] = str(error)
            return
    middle = len(indexes) // 2
    for begin, end in ((0, middle), (middle, len(indexes))):
        part = read.take(pa.array(range(begin, end), pa.int64()))
        yield from _converted(reader, part, indexes[begin:end], bad)
