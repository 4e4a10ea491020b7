"""Avro schemas: the parsed schema for fastavro, and the Arrow type of each field.

Times and dates are decoded as the plain numbers of the encoding. Arrow converts them to timestamps as whole columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from fastavro.schema import SchemaParseException, expand_schema, parse_schema

from millrace_jobs.sources.formats.schema import MAX_PRECISION, TIMESTAMP

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_INNER = ("type", "items", "values")


@dataclass(frozen=True)
class AvroSchema:
    """A record schema; ``types`` maps each field to its Arrow type, or to the reason why no column can hold it."""

    parsed: Any
    types: Mapping[str, pa.DataType | str]


def read_avro_schema(text: str) -> AvroSchema:
    """Parse an Avro schema from JSON text. Raises ValueError if it is invalid, or not the schema of a record."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    try:
        parsed, expanded = parse_schema(_plain(document)), expand_schema(document)
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an Avro schema: {type(error).__name__}: {error}") from None
    if not isinstance(expanded, dict) or expanded.get("type") not in ("record", "error"):
        raise ValueError("it is not of a record")
    return AvroSchema(parsed, {field["name"]: _type_or_reason(field["type"]) for field in expanded["fields"]})


def spark_type_of(decoded: pa.DataType) -> pa.DataType:
    """Return the column type for a type of AvroSchema: timestamps of any unit become Spark's TIMESTAMP."""
    if pa.types.is_timestamp(decoded):
        return TIMESTAMP
    if pa.types.is_list(decoded):
        return pa.list_(spark_type_of(decoded.value_type))
    if pa.types.is_map(decoded):
        return pa.map_(pa.string(), spark_type_of(decoded.item_type))
    if pa.types.is_struct(decoded):
        return pa.struct([field.with_type(spark_type_of(field.type)) for field in decoded])
    return decoded


def _plain(schema: Any) -> Any:
    """Return the schema without its logical types, except decimals: their encoding is not a plain number."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: _plain(value) if name in _INNER else value
        for name, value in schema.items()
        if name != "logicalType" or value == "decimal"
    }
    if isinstance(schema.get("fields"), list):
        kept["fields"] = [_plain(field) for field in schema["fields"]]
    return kept


def _type_or_reason(schema: Any) -> pa.DataType | str:
    try:
        return _arrow_type(schema)
    except ValueError as error:
        return str(error)


def _arrow_type(schema: Any) -> pa.DataType:
    """Return the Arrow type of a field. Raises ValueError with a description if no column can hold it."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise ValueError(f"a union of {', '.join(map(_name, branches)) or 'nothing but null'}")
        return _arrow_type(branches[0])
    if isinstance(schema, str):
        if schema not in _PRIMITIVES:
            raise ValueError("null" if schema == "null" else f"of type {schema}, which holds itself")
        return _PRIMITIVES[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _arrow_type(kind)
    if kind in ("record", "error"):
        return pa.struct([(field["name"], _arrow_type(field["type"])) for field in schema["fields"]])
    if kind == "array":
        return pa.list_(_arrow_type(schema["items"]))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_type(schema["values"]))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        if schema["precision"] > MAX_PRECISION:
            raise ValueError(f"a decimal of {schema['precision']} digits")
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return _LOGICAL.get((kind, logical)) or _arrow_type(kind)


def _name(schema: Any) -> str:
    return str(schema.get("name") or schema["type"]) if isinstance(schema, dict) else str(schema)
