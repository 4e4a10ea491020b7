"""Decoding of Avro messages to Arrow: fastavro decodes each message, Arrow converts whole columns.

Times and dates are decoded as the plain numbers of the encoding. Arrow converts them to timestamps as whole columns.
Schemas of a registry are asked for once in a process: an id never gets another schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from io import BytesIO
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import SchemaParseException, expand_schema, parse_schema

from millrace_api.sql.schema_ddl import MOST_LEVELS
from millrace_jobs.schemas.avro_schemas import branches_of, member, merged_type, reading_schema, with_named
from millrace_jobs.schemas.registry import AVRO, MOST_SCHEMAS, SchemaRegistry, referenced
from millrace_jobs.sources.formats.column_types import MAX_PRECISION, TIMESTAMP
from millrace_jobs.sources.formats.messages import FRAME, GroupedDecoder, Part, converted_records, grouped_by_schema_id
from millrace_jobs.sources.formats.typed_columns import TypedColumn, suitable_type

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_STORED = {pa.time32("ms"): pa.int32(), pa.time64("us"): pa.int64(), pa.uuid(): pa.binary()}

_LOGICAL_OF_CONNECT = {
    "io.debezium.time.Date": "date",
    "org.apache.kafka.connect.data.Date": "date",
    "io.debezium.time.Timestamp": "timestamp-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.NanoTimestamp": "timestamp-nanos",
    "io.debezium.time.Time": "time-millis",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
}
"""The logical type of Avro that a type of Connect means, by the name that its converter writes into the schema."""

_TOO_DEEP = "its types are too deep within each other"


@dataclass(frozen=True)
class AvroSchema:
    """A record schema, as ``reading_schema`` makes it.

    ``types`` maps each field to its Arrow type, or to the reason why no column can hold it.
    """

    parsed: Any
    types: Mapping[str, pa.DataType | str]


def read_avro_schema(text: str, named: Sequence[str] = (), *, of_connect: bool = False) -> AvroSchema:
    """Parse an Avro schema from JSON text; ``named`` are the texts of schemas that it refers to by name.

    Raises ValueError if it is invalid, or not the schema of a record.

    ``of_connect``: fields have the types that the converter of Kafka Connect names, such as those of Debezium.
    """
    try:
        document, given = json.loads(text), [json.loads(each) for each in named]
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    try:
        if given:
            document = with_named(document, given)
        parsed = parse_schema(reading_schema(document))
        expanded = expand_schema(_with_logical_types(document) if of_connect else document)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an Avro schema: {type(error).__name__}: {error}") from None
    if not isinstance(expanded, dict) or expanded.get("type") not in ("record", "error"):
        raise ValueError("it is not the schema of a record")
    return AvroSchema(parsed, {field["name"]: _type_or_reason(field["type"]) for field in expanded["fields"]})


def columns_of_avro(writer: AvroSchema) -> pa.Schema:
    """Return all fields of an Avro schema as columns. Raises ValueError if no column can hold a field."""
    for name, kind in writer.types.items():
        if isinstance(kind, str):
            raise ValueError(f"field {name} is {kind}, which no column can hold")
    return pa.schema([(name, spark_type_of(kind)) for name, kind in writer.types.items()])


def spark_type_of(decoded: pa.DataType) -> pa.DataType:
    """Return the column type for a type of AvroSchema, such as Spark's TIMESTAMP for timestamps of any unit.

    Times of day and UUIDs that Avro stores as numbers and bytes stay so: checkpoints and SQL know them as these.
    """
    if pa.types.is_list(decoded):
        return pa.list_(spark_type_of(decoded.value_type))
    if pa.types.is_map(decoded):
        return pa.map_(pa.string(), spark_type_of(decoded.item_type))
    if pa.types.is_struct(decoded):
        return pa.struct([field.with_type(spark_type_of(field.type)) for field in decoded])
    return _STORED.get(decoded) or suitable_type(decoded) or decoded


def _with_logical_types(schema: Any) -> Any:
    """Return the schema with Avro's logical types in place of those of Kafka Connect."""
    if isinstance(schema, list):
        return [_with_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _with_logical_types(value) for name, value in schema.items()}
    logical = _LOGICAL_OF_CONNECT.get(str(schema.get("connect.name")))
    return found if logical is None or "logicalType" in found else found | {"logicalType": logical}


def _type_or_reason(schema: Any) -> pa.DataType | str:
    try:
        return _arrow_type(schema)
    except ValueError as error:
        return str(error)


def _arrow_type(schema: Any, levels: int = 0) -> pa.DataType:
    """Return the Arrow type of a field. Raises ValueError with a description if no column can hold it.

    ``levels`` is how many records, arrays and maps it is in.
    """
    if levels > MOST_LEVELS:
        raise ValueError(f"of a type with more than {MOST_LEVELS} levels of records, arrays and maps")
    if isinstance(schema, list):
        return _union_type(branches_of(schema), levels)
    if isinstance(schema, str):
        if schema not in _PRIMITIVES:
            raise ValueError("null" if schema == "null" else f"of type {schema}, which contains itself")
        return _PRIMITIVES[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _arrow_type(kind, levels)
    if kind in ("record", "error"):
        return pa.struct([(field["name"], _nested_type(field["type"], levels)) for field in schema["fields"]])
    if kind == "array":
        return pa.list_(_nested_type(schema["items"], levels))
    if kind == "map":
        return pa.map_(pa.string(), _nested_type(schema["values"], levels))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision = schema.get("precision")
        if not precision or precision > MAX_PRECISION:
            raise ValueError(f"a decimal of {precision} digits" if precision else "a decimal without a precision")
        return pa.decimal128(precision, schema.get("scale", 0))
    if kind == "fixed":
        if logical == "duration":
            raise ValueError("a duration")
        return pa.uuid() if logical == "uuid" and schema["size"] == 16 else pa.binary(schema["size"])
    return _LOGICAL.get((kind, logical)) or _arrow_type(kind)


def _union_type(branches: list[Any], levels: int) -> pa.DataType:
    if not branches:
        raise ValueError("a union of nothing but null")
    if len(branches) == 1:
        return _arrow_type(branches[0], levels)
    if (merged := merged_type(branches)) is not None:
        return _PRIMITIVES[merged]
    members = []
    for number, branch in enumerate(branches):
        try:
            members.append((member(number), _nested_type(branch, levels)))
        except ValueError as error:
            raise ValueError(f"a union whose {member(number)} is {error}") from None
    return pa.struct(members)


def _nested_type(schema: Any, levels: int) -> pa.DataType:
    """Return the Arrow type of a part of a field, where Arrow does not make UUIDs."""
    found = _arrow_type(schema, levels + 1)
    return pa.binary(16) if found == pa.uuid() else found


@lru_cache(maxsize=MOST_SCHEMAS)
def avro_schema(registry: SchemaRegistry, number: int, *, of_connect: bool = False) -> AvroSchema | str:
    """Return an Avro schema, with those that it refers to, or the reason why no record can be read by it.

    ``of_connect`` as in ``read_avro_schema``. Raises MillraceError or TransientError as ``SchemaRegistry.schema`` does.
    """
    document = registry.schema(number)
    if document is None:
        return f"the registry has no schema {number}"
    kind = document.get("schemaType", AVRO)
    if kind != AVRO:
        return f"schema {number} of the registry is {kind}, not Avro"
    try:
        named = [each.document["schema"] for each in referenced(registry, document)]
        return read_avro_schema(document["schema"], named, of_connect=of_connect)
    except ValueError as error:
        hint = "write the messages with the schema of a record"
        return f"schema {number} of the registry cannot be used: {error}: {hint}"


class AvroDecoder(GroupedDecoder):
    """Decoder of messages with one known schema, or framed by a schema registry, where each message names its schema.

    Columns are found by name and converted to the declared type, as with Parquet (``typed_columns``). A column that the
    writer did not have is NULL. ``of_connect`` as in ``read_avro_schema``.
    """

    def __init__(
        self, schema: pa.Schema, timestamp_format: str, writer: AvroSchema | SchemaRegistry, *, of_connect: bool = False
    ) -> None:
        self.schema = schema
        self._of_connect = of_connect
        self._timestamp_format = timestamp_format
        self._writer = writer

    def _parts(self, values: Mapping[int, bytes], bad: dict[int, str]) -> Iterator[Part]:
        for name, writer, messages in self._by_schema(values, bad):
            try:
                columns = self._columns(writer)
            except ValueError as error:
                bad |= dict.fromkeys(messages, f"{name}: {error}")
            else:
                yield from converted_records(partial(self._batch, columns), *_decoded(writer, messages, bad), bad)

    def names(self, value: bytes) -> frozenset[str]:
        """Return the names of the fields that the writer of a message has; none if its schema is not known."""
        writer: AvroSchema | str
        if isinstance(self._writer, AvroSchema):
            writer = self._writer
        else:
            number = int.from_bytes(value[1:FRAME], "big")
            writer = avro_schema(self._writer, number, of_connect=self._of_connect)
        return frozenset() if isinstance(writer, str) else frozenset(writer.types)

    def check(self, writer: AvroSchema) -> None:
        """Raise ValueError unless the columns can be read from records of ``writer``."""
        for field in self.schema:
            if field.name not in writer.types:
                raise ValueError(f"column {field.name} is not in the Avro schema; it has {', '.join(writer.types)}")
        self._columns(writer)

    def _by_schema(
        self, values: Mapping[int, bytes], bad: dict[int, str]
    ) -> Iterator[tuple[str, AvroSchema, Mapping[int, bytes]]]:
        """Yield the payloads of the messages by index, grouped by schema, and what messages call the schema."""
        if isinstance(self._writer, AvroSchema):
            yield "the Avro schema", self._writer, values
            return
        for schema_id, messages in grouped_by_schema_id(values, bad):
            writer = avro_schema(self._writer, schema_id, of_connect=self._of_connect)
            if isinstance(writer, str):
                bad |= dict.fromkeys(messages, writer)
            else:
                yield f"schema {schema_id} of the registry", writer, messages

    def _columns(self, writer: AvroSchema) -> list[TypedColumn | None]:
        """Return how each column is read from records of ``writer``; None if the writer does not have it.

        Raises ValueError if a type does not fit its column.
        """
        columns: list[TypedColumn | None] = []
        only = isinstance(self._writer, AvroSchema)
        for field in self.schema:
            kind = writer.types.get(field.name)
            if isinstance(kind, str):
                message = f"column {field.name} is {kind}, which no column can hold, in the Avro schema"
                raise ValueError(f"{message}: leave {field.name} out of the schema")
            column = None
            if kind is not None:
                column = TypedColumn(kind, field, self._timestamp_format, by_writer=True, only_writer=only)
                column.require_fit()
            columns.append(column)
        return columns

    def _batch(self, columns: list[TypedColumn | None], records: Sequence[Any]) -> pa.RecordBatch:
        arrays = []
        for field, column in zip(self.schema, columns, strict=True):
            if column is None:
                arrays.append(pa.nulls(len(records), field.type))
            else:
                arrays.append(column.convert(pa.array([record[field.name] for record in records], column.found)))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _decoded(writer: AvroSchema, messages: Mapping[int, bytes], bad: dict[int, str]) -> tuple[list[Any], list[int]]:
    records, indexes = [], []
    for index, payload in messages.items():
        stream = BytesIO(payload)
        try:
            record = schemaless_reader(stream, writer.parsed, None)
        except EOFError:
            bad[index] = "it ends before its record does"
        except Exception as error:  # corrupt bytes can fail anywhere in fastavro: at an index, a length, a text
            bad[index] = f"it is not a record of its Avro schema: {error or type(error).__name__}"
        else:
            if left := len(payload) - stream.tell():
                bad[index] = f"{left} bytes follow its record"
                continue
            records.append(record)
            indexes.append(index)
    return records, indexes
