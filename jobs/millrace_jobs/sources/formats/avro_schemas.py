"""Avro schemas: parsed for fastavro, with the Arrow type of each field.

Times and dates are decoded as the plain numbers of the encoding. Arrow converts them to timestamps as whole columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from fastavro.schema import SchemaParseException, expand_schema, parse_schema

from millrace_api.sql.schema_ddl import MOST_LEVELS
from millrace_jobs.schemas.avro_names import with_named
from millrace_jobs.schemas.avro_unions import branches_of, member, merged_type, reading_schema
from millrace_jobs.sources.formats.column_types import MAX_PRECISION, TIMESTAMP
from millrace_jobs.sources.formats.connect_types import LOGICAL_TYPES
from millrace_jobs.sources.formats.typed_columns import suitable_type

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
    logical = LOGICAL_TYPES.get(str(schema.get("connect.name")))
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
