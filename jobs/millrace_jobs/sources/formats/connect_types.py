"""Types of Kafka Connect, as the schema in a JSON message names them, among them those of Debezium.

A value in JSON is read as one type of Arrow (``read``) and converted to the type that it means (``meant``): days since
1970 to a date, microseconds to a timestamp, bytes in base64 to a decimal of the schema's scale.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import partial
from typing import Any

import pyarrow as pa

from millrace_jobs.sources.formats.column_types import MAX_PRECISION, TIMESTAMP
from millrace_jobs.sources.formats.nested_columns import rebuilt

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
LOGICAL_TYPES: Mapping[str, str] = {
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

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_ISO_DATE = "io.debezium.time.IsoDate"
_EXACT = Context(prec=1000)

Convert = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class ConnectType:
    """How values of a type of Connect are read from JSON: as ``read``, which ``convert`` turns into ``meant``."""

    read: pa.DataType
    meant: pa.DataType
    convert: Convert


def connect_type(schema: Mapping[str, Any], declared: pa.Field) -> ConnectType:
    """Return how values with a schema of Connect are read for a declared column.

    Of a struct, only the fields that are declared are read.

    Raises:
        ValueError: the schema has a type that Connect does not have.
    """
    kind, name = schema.get("type"), schema.get("name")
    if name == _VARIABLE_DECIMAL:
        return _variable_decimal(declared.type)
    if name == _DECIMAL and kind == "bytes":
        scale = int((schema.get("parameters") or {}).get("scale", 0))
        if scale > MAX_PRECISION:
            raise ValueError(f"a decimal with {scale} digits behind the point fits no column")
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
    raise ValueError(f"its schema has the type {kind!r}, which is none of Kafka Connect")


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


def _variable_decimal(declared: pa.DataType) -> ConnectType:
    """Return how decimals are read of which each has a scale of its own: right away as the declared type."""
    read = pa.struct([("scale", pa.int32()), ("value", pa.string())])
    is_number = pa.types.is_decimal(declared) or pa.types.is_floating(declared) or pa.types.is_integer(declared)
    meant = declared if is_number else pa.string()
    return ConnectType(read, meant, partial(_from_variable, meant))


def _as_meant(number: Decimal, meant: pa.DataType) -> Any:
    if pa.types.is_integer(meant):
        if number != number.to_integral_value():
            raise ValueError(f"{number} is no whole number")
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
