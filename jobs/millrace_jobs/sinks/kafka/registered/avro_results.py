"""Results as Avro records: every field is a union of null and the type of its column."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_writer
from fastavro.schema import SchemaParseException
from fastavro.validation import ValidationError, validate
from pyspark.sql import types as T  # noqa: N812 - the conventional name
from pyspark.sql.types import DataType, StructType

from millrace_jobs.schemas.avro_schemas import branches_of, is_member, with_named
from millrace_jobs.schemas.registry import SchemaRegistry, referenced
from millrace_jobs.sinks.kafka.registered.sink import SINGLE_TYPES, Encode, field_name, unsupported


class AvroResults:
    """The format ``avro``."""

    kind = "AVRO"

    def latest(self, registry: SchemaRegistry, document: Mapping[str, Any]) -> Any:
        """Return the schema, with those that it refers to in it."""
        named = [json.loads(each.document["schema"]) for each in referenced(registry, document)]
        return with_named(json.loads(document["schema"]), named)

    def derived(self, columns: StructType, record: str, latest: Any | None) -> Any:
        """Return the schema; readers of the latest version find fields by name, so it has no influence."""
        return _record(columns, record)

    def text(self, schema: Any) -> str:
        """Return the schema as JSON."""
        return json.dumps(schema)

    def encoder(self, columns: StructType, record: str, schema: Any) -> tuple[bytes, Encode]:
        """Return an encoder; a sample of the columns' types shows whether they fit."""
        try:
            parsed = parse_schema(schema)
        except (SchemaParseException, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"it is no Avro schema: {error}") from None
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise ValueError("it is not the schema of a record")
        fields = {field["name"]: field["type"] for field in schema["fields"]}
        for column in columns:
            if column.name not in fields:
                raise ValueError(f"it has no field {column.name}")
            _require_no_union(column.dataType, fields[column.name], column.name)

        def encode(row: Mapping[str, Any]) -> bytes:
            stream = BytesIO()
            try:
                validate(row, parsed)
                schemaless_writer(stream, parsed, row)
            except (ValidationError, ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
                raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
            return stream.getvalue()

        encode({column.name: _sample(column.dataType) for column in columns})
        return b"", encode


def _record(columns: StructType, name: str) -> dict[str, Any]:
    namespace, _, short = name.rpartition(".")
    fields = []
    for column in columns:
        kind = _type(column.dataType, f"{name}_{field_name(column.name)}", column.name)
        fields.append({"name": column.name, "type": ["null", kind], "default": None})
    return {"type": "record", "name": short, "namespace": namespace, "fields": fields}


def _type(kind: DataType, name: str, column: str) -> Any:
    """Return the type of a column's values; records within it are named by the path to them."""
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, StructType):
        return _record(kind, name)
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": ["null", _type(kind.elementType, name, column)]}
    if isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        return {"type": "map", "values": ["null", _type(kind.valueType, name, column)]}
    if type(kind) not in SINGLE_TYPES:
        raise unsupported(column, kind, "Avro")
    return SINGLE_TYPES[type(kind)].avro


def _require_no_union(kind: DataType, schema: Any, path: str) -> None:
    """Raise ValueError if a struct of members, as a source reads unions, is to be written to a union of several types.

    ``path`` is that of the column, or of its part. Single values are written to a union with a type that fits them.
    """
    if isinstance(schema, list):
        branches = branches_of(schema)
        if len(branches) > 1 and isinstance(kind, StructType) and all(map(is_member, kind.names)):
            message = (
                f"{path} has members of a union of {len(branches)} types, and only single values can be written to it"
            )
            raise ValueError(f"{message}, such as {path}.{kind.names[0]}")
        for branch in branches:
            _require_no_union(kind, branch, path)
    elif isinstance(schema, dict):
        if isinstance(kind, T.ArrayType):
            _require_no_union(kind.elementType, schema.get("items"), f"{path}[]")
        elif isinstance(kind, T.MapType):
            _require_no_union(kind.valueType, schema.get("values"), f"{path}[value]")
        elif isinstance(kind, StructType):
            parts = {field["name"]: field["type"] for field in schema.get("fields", ())}
            for field in kind:
                _require_no_union(field.dataType, parts.get(field.name), f"{path}.{field.name}")


def _sample(kind: DataType) -> Any:
    if isinstance(kind, T.DecimalType):
        return Decimal(1).scaleb(-kind.scale)
    if isinstance(kind, StructType):
        return {field.name: _sample(field.dataType) for field in kind}
    if isinstance(kind, T.ArrayType):
        return [_sample(kind.elementType)]
    if isinstance(kind, T.MapType):
        return {"a": _sample(kind.valueType)}
    return SINGLE_TYPES[type(kind)].sample if type(kind) in SINGLE_TYPES else 1
