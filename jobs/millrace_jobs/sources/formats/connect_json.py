"""Decoding of JSON as Kafka Connect's converter writes it, such as Debezium's: beside its schema, or without one.

A value in JSON is read as one type of Arrow (``read``) and converted to the type that it means (``meant``): days since
1970 to a date, microseconds to a timestamp, bytes in base64 to a decimal of the schema's scale.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa

from millrace_api.sql.time_formats import ISO
from millrace_jobs.sources.formats.column_types import (
    MAX_PRECISION,
    TIMESTAMP,
    is_nested,
    parts_of,
    rebuilt,
    time_format,
    with_parts,
)
from millrace_jobs.sources.formats.json_parser import parsed_object, written_value
from millrace_jobs.sources.formats.messages import GroupedDecoder, Part, TextDecoder, converted_records
from millrace_jobs.sources.formats.typed_columns import TypedColumn

_PLAIN = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_TIMES = {
    "io.debezium.time.Date": pa.date32(),
    "org.apache.kafka.connect.data.Date": pa.date32(),
    "io.debezium.time.Timestamp": pa.timestamp("ms", tz="UTC"),
    "org.apache.kafka.connect.data.Timestamp": pa.timestamp("ms", tz="UTC"),
    "io.debezium.time.MicroTimestamp": TIMESTAMP,
    "io.debezium.time.NanoTimestamp": pa.timestamp("ns", tz="UTC"),
    "io.debezium.time.Time": pa.time32("ms"),
    "org.apache.kafka.connect.data.Time": pa.time32("ms"),
    "io.debezium.time.MicroTime": pa.time64("us"),
    "io.debezium.time.NanoTime": pa.time64("ns"),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_ISO_DATE = "io.debezium.time.IsoDate"
_EXACT = Context(prec=1000)

Convert = Callable[[pa.Array], pa.Array]

_BEGIN: Final = b'{"schema":'
_PAYLOAD: Final = b',"payload":'
_MOST_READERS = 64  # schemas that are kept ready to read; a topic has a few, one for each change of its table


@dataclass(frozen=True)
class ConnectType:
    """How values of a type of Connect are read from JSON: as ``read``, which ``convert`` turns into ``meant``."""

    read: pa.DataType
    meant: pa.DataType
    convert: Convert


def connect_type(schema: Mapping[str, Any], declared: pa.Field) -> ConnectType:
    """Return how values with a schema of Connect are read for a declared column.

    Of a struct, only the fields that are declared are read. Raises ValueError if the schema has a type that Connect
    does not have.
    """
    kind, name = schema.get("type"), schema.get("name")
    if name == _VARIABLE_DECIMAL:  # each has a scale of its own, so they are read right away as the declared type
        read, expected = pa.struct([("scale", pa.int32()), ("value", pa.string())]), declared.type
        is_number = pa.types.is_decimal(expected) or pa.types.is_floating(expected) or pa.types.is_integer(expected)
        meant = expected if is_number else pa.string()
        return ConnectType(read, meant, partial(_from_variable, meant))
    if name == _DECIMAL and kind == "bytes":
        scale = int((schema.get("parameters") or {}).get("scale", 0))
        if scale > MAX_PRECISION:
            raise ValueError(f"a decimal with {scale} digits after the point fits no column")
        meant = pa.decimal128(MAX_PRECISION, scale)
        return ConnectType(pa.string(), meant, partial(_each, meant, lambda text: _decimal(text, scale)))
    if name in _TIMES and kind in ("int32", "int64"):
        return ConnectType(_PLAIN[kind], _TIMES[name], partial(_reinterpreted, _TIMES[name]))
    if name == _ISO_DATE:
        return ConnectType(pa.string(), pa.string(), partial(_each, pa.string(), lambda text: text.removesuffix("Z")))
    if kind == "bytes":
        return ConnectType(pa.string(), pa.binary(), partial(_each, pa.binary(), _bytes))
    if kind in _PLAIN:
        return ConnectType(_PLAIN[kind], _PLAIN[kind], lambda column: column)
    if kind in ("array", "map", "struct"):
        return _nested(kind, schema, declared)
    raise ValueError(f"its schema has the type {kind!r}, which Kafka Connect does not have")


def _nested(kind: str, schema: Mapping[str, Any], declared: pa.Field) -> ConnectType:
    expected = declared.type
    if kind == "struct":
        known = {field.name: field for field in expected} if pa.types.is_struct(expected) else {}
        fields = [each for each in schema.get("fields", ()) if each.get("field") in known]
        parts = [connect_type(each, known[each["field"]]) for each in fields]
        names = [each["field"] for each in fields]
        read = pa.struct(list(zip(names, (part.read for part in parts), strict=True)))
        meant = pa.struct(list(zip(names, (part.meant for part in parts), strict=True)))
    elif kind == "array":
        value = pa.field("", expected.value_type if pa.types.is_list(expected) else pa.null())
        parts = [connect_type(schema["items"], value)]
        read, meant = pa.list_(parts[0].read), pa.list_(parts[0].meant)
    else:
        value = pa.field("", expected.item_type if pa.types.is_map(expected) else pa.null())
        parts = [connect_type({"type": "string"}, value), connect_type(schema["values"], value)]
        read, meant = (pa.map_(pa.string(), each) for each in (parts[1].read, parts[1].meant))
    if read == meant:
        return ConnectType(read, meant, lambda column: column)
    return ConnectType(read, meant, partial(_converted_parts, meant, parts))


def _converted_parts(meant: pa.DataType, parts: list[ConnectType], column: pa.Array) -> pa.Array:
    remaining = iter(parts)  # the parts come in their order
    return rebuilt(column, pa.field("", meant), lambda part, _: next(remaining).convert(part))


def _reinterpreted(meant: pa.DataType, column: pa.Array) -> pa.Array:
    """Return numbers of days, or of units of time, as dates and times."""
    return column.cast(meant) if column.type.bit_width == meant.bit_width else column.cast(pa.int64()).cast(meant)


def _each(meant: pa.DataType, convert: Callable[[str], Any], column: pa.Array) -> pa.Array:
    return pa.array([None if text is None else convert(text) for text in column.to_pylist()], meant)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decimal(text: str, scale: int) -> Decimal:
    """Return the decimal of an unscaled number: big-endian bytes in base64."""
    return Decimal(int.from_bytes(_bytes(text), "big", signed=True)).scaleb(-scale, _EXACT)


def _as_meant(number: Decimal, meant: pa.DataType) -> Any:
    if pa.types.is_integer(meant):
        if number != number.to_integral_value():
            raise ValueError(f"{number} is not a whole number")
        return int(number)
    return number if pa.types.is_decimal(meant) else float(number) if pa.types.is_floating(meant) else f"{number:f}"


def _from_variable(meant: pa.DataType, column: pa.Array) -> pa.Array:
    values: list[Any] = []
    with localcontext(_EXACT):
        for each in column.to_pylist():
            number = None if each is None else _decimal(each["value"], each["scale"])
            values.append(number if number is None else _as_meant(number, meant))
    if not pa.types.is_decimal(meant):
        return pa.array(values, meant)
    for number in values:
        digits = 0 if number is None else len(number.normalize(_EXACT).as_tuple().digits)
        if digits > MAX_PRECISION:
            raise ValueError(f"a number of {digits} digits does not fit a DECIMAL")
    return pa.array(values, pa.decimal256(76, meant.scale)).cast(meant)


@dataclass(frozen=True)
class _Reader:
    """How payloads with one schema are read: their text by ``decoder``, whose columns ``convert`` declares."""

    decoder: TextDecoder | None
    convert: Callable[[pa.RecordBatch], pa.RecordBatch]


class ConnectJsonDecoder(GroupedDecoder):
    """A decoder of JSON objects with or without the schema of Kafka Connect.

    With it, values have the types that it says. Without it, they are read as in other JSON, except that a DATE is the
    number of days since 1970, unless a format of its own says that it is text.
    """

    def __init__(self, schema: pa.Schema, timestamp_format: str) -> None:
        self.schema = schema
        read = pa.schema([_with_days(field) for field in schema])
        self._bare = _Reader(TextDecoder("json", read, timestamp_format), partial(_from_days, schema))
        self._readers: dict[bytes, _Reader | str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_readers": {}}

    def names(self, value: bytes) -> frozenset[str]:
        """Return the names of the fields of a message's object; none if it is not an object."""
        found = _object_of(_split(value)[1])
        return frozenset() if found is None else frozenset(found)

    def _parts(self, values: Mapping[int, bytes], bad: dict[int, str]) -> Iterator[Part]:
        groups: dict[bytes, dict[int, bytes]] = {}
        for index, value in values.items():
            schema, payload = _split(value)
            groups.setdefault(schema, {})[index] = payload
        for schema, payloads in groups.items():
            reader = self._reader(schema) if schema else self._bare
            if isinstance(reader, str):
                bad |= dict.fromkeys(payloads, reader)
            else:
                yield from _records(reader, payloads, self.schema, bad)

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
        column.require_fit()
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


def _records(reader: _Reader, payloads: dict[int, bytes], schema: pa.Schema, bad: dict[int, str]) -> Iterator[Part]:
    """Yield the records of messages with one schema, and the indexes of their messages."""
    indexes = list(payloads)
    if reader.decoder is None:
        yield pa.RecordBatch.from_arrays([pa.nulls(len(indexes), f.type) for f in schema], schema=schema), indexes
        return
    read, origins = reader.decoder.decode(
        list(payloads.values()), lambda place, reason: bad.__setitem__(indexes[place], reason)
    )
    # of nested columns that were sliced, Arrow's kernels do not all see the offsets, so bad records are taken apart
    convert = reader.convert
    yield from converted_records(
        lambda rows: convert(read if len(rows) == read.num_rows else read.take(pa.array(rows, pa.int64()))),
        range(read.num_rows),
        [indexes[origin] for origin in origins],
        bad,
    )
