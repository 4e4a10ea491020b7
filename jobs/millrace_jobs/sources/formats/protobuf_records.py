"""Decoding of Protobuf messages to Arrow, with the rules of typed columns for what each field may be read as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

import pyarrow as pa

from millrace_jobs.schemas.protobuf_schemas import ProtobufSchema, protobuf_schema
from millrace_jobs.schemas.registry import SchemaRegistry
from millrace_jobs.sources.formats.avro_records import spark_type_of
from millrace_jobs.sources.formats.messages import GroupedDecoder, Part, converted_records, grouped_by_schema_id
from millrace_jobs.sources.formats.protobuf_columns import MessagePart, ProtobufColumns, part_of, rewriter
from millrace_jobs.sources.formats.typed_columns import TypedColumn

_MOST_READERS = 64
_MOST_INDEXES = 32
_NO_INDEXES = "its message indexes are not those of a schema registry's framing"

rewriter_of = lru_cache(maxsize=_MOST_READERS)(rewriter)
"""``rewriter``, once in a process for each schema."""


class ProtobufDecoder(GroupedDecoder):
    """Decoder of messages of one type, or framed by a registry, where each message names its schema and its type.

    Columns are found by name. A field that the writer's message does not have is NULL. Of framed messages, others than
    those of the type ``message`` are bad, if that is given.
    """

    def __init__(
        self,
        schema: pa.Schema,
        timestamp_format: str,
        writer: ProtobufSchema | SchemaRegistry,
        message: str | None = None,
    ) -> None:
        self.schema = schema
        self._timestamp_format = timestamp_format
        self._writer = writer
        self._message = message

    def _parts(self, values: Mapping[int, bytes], bad: dict[int, str]) -> Iterator[Part]:
        if isinstance(self._writer, ProtobufSchema):
            yield from self._records(self._writer, "the descriptor set", values, bad)
            return
        for number, messages in grouped_by_schema_id(values, bad):
            name = f"schema {number} of the registry"
            for indexes, payloads in _by_indexes(messages, bad):
                writer = protobuf_schema(self._writer, number, indexes)
                if isinstance(writer, str):
                    bad |= dict.fromkeys(payloads, writer)
                elif self._message not in (None, writer.message):
                    bad |= dict.fromkeys(payloads, f"{name}: it is a {writer.message}, not a {self._message}")
                else:
                    yield from self._records(writer, name, payloads, bad)

    def check(self, writer: ProtobufSchema) -> None:
        """Raise ValueError unless the columns can be read from messages of ``writer``."""
        names = writer.descriptor.fields_by_name.keys()
        for field in self.schema:
            if field.name not in names:
                raise ValueError(f"column {field.name} is not a field of {writer.message}; it has {', '.join(names)}")
        _ = self._reader(writer)

    def _records(
        self, writer: ProtobufSchema, name: str, payloads: Mapping[int, bytes], bad: dict[int, str]
    ) -> Iterator[Part]:
        try:
            reader = self._reader(writer)
        except ValueError as error:
            bad |= dict.fromkeys(payloads, f"{name}: {error}")
            return
        rewritten = rewriter_of(writer)
        messages: list[bytes] = []
        indexes: list[int] = []
        for index, payload in payloads.items():
            try:
                messages.append(rewritten(payload))
            except ValueError as error:
                bad[index] = str(error)
            else:
                indexes.append(index)
        yield from converted_records(reader.read, messages, indexes, bad)

    def _reader(self, writer: ProtobufSchema) -> _MessageReader:
        return _reader(writer, self.schema.serialize().to_pybytes(), self._timestamp_format)


@lru_cache(maxsize=_MOST_READERS)
def _reader(writer: ProtobufSchema, schema: bytes, timestamp_format: str) -> _MessageReader:
    return _MessageReader(pa.ipc.read_schema(pa.py_buffer(schema)), timestamp_format, writer)


class _MessageReader:
    """Reads columns from messages of one type. Raises ValueError if the type of a field does not fit its column."""

    def __init__(self, schema: pa.Schema, timestamp_format: str, writer: ProtobufSchema) -> None:
        self._schema = schema
        self._parts: list[MessagePart] = []
        self._columns: dict[str, TypedColumn] = {}
        fields = writer.descriptor.fields_by_name
        for field in schema:
            if field.name not in fields:
                continue
            try:
                part = part_of(fields[field.name], field.type)
            except ValueError as error:
                message = f"column {field.name} is {error}, which no column can hold, in the message"
                raise ValueError(f"{message}: leave {field.name} out of the schema") from None
            self._parts.append(part)
            self._columns[field.name] = TypedColumn(part.found, field, timestamp_format, by_writer=True)
        for column in self._columns.values():
            column.require_fit()

    @cached_property
    def _source(self) -> ProtobufColumns:
        return ProtobufColumns(self._parts)

    def read(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        """Return the records of rewritten messages. Raises ValueError if a value does not fit."""
        found = self._source.read(messages)
        arrays = [
            self._columns[field.name].convert(found[field.name])
            if field.name in found
            else pa.nulls(len(messages), field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def columns_of(writer: ProtobufSchema) -> pa.Schema:
    """Return all fields of a message as columns. Raises ValueError if no column can hold one."""
    columns = []
    for field in writer.descriptor.fields:
        try:
            columns.append((field.name, spark_type_of(part_of(field, None).found)))
        except ValueError as error:
            raise ValueError(f"field {field.name} is {error}, which no column can hold") from None
    return pa.schema(columns)


def _by_indexes(
    messages: Mapping[int, bytes], bad: dict[int, str]
) -> Iterator[tuple[tuple[int, ...], dict[int, bytes]]]:
    """Yield the payloads after the message indexes of the framing, grouped by these."""
    groups: dict[tuple[int, ...], dict[int, bytes]] = {}
    for index, value in messages.items():
        if value[:1] == b"\0":  # short for the first message of the file
            groups.setdefault((0,), {})[index] = value[1:]
            continue
        try:
            indexes, begin = _indexes(value)
        except ValueError:
            bad[index] = _NO_INDEXES
        else:
            groups.setdefault(indexes, {})[index] = value[begin:]
    yield from groups.items()


def _indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes at the beginning of a framed message, and where they end. Raises ValueError."""
    count, place = _number(value, 0)
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError
    indexes = []
    for _ in range(count):
        number, place = _number(value, place)
        indexes.append(number)
    return tuple(indexes), place


def _number(value: bytes, place: int) -> tuple[int, int]:
    """Return the number at a place, in the zigzag encoding of variable length, and where it ends."""
    encoded = 0
    for count, byte in enumerate(value[place : place + 5]):
        encoded |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return (encoded >> 1) ^ -(encoded & 1), place + count + 1
    raise ValueError
