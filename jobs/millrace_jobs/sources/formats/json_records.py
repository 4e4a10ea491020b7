"""Decoding of JSON lines to Arrow.

Each line is one object. Absent fields are NULL, and fields that are not in the schema are ignored. A value whose JSON
type differs from the column's makes the record bad; a number is not accepted as a STRING.
"""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.json

from millrace_jobs.sources.formats.columns import stored_type, to_declared
from millrace_jobs.sources.formats.schema import spark_type

_TWO_VALUES = re.compile(rb"\}(?:\s*n|[ \t\r]*\{)")
"""A second value after the end of an object; in good lines this occurs only inside a string."""
_STARTS_WITH_NULL = re.compile(rb"\s*n")

_OTHER_TYPE = re.compile(r"JSON parse error: Column\(/?(.*?)\) changed from \w+ to (\w+)")
_CONVERSION = re.compile(r"Failed to convert JSON to .*?, couldn't parse:(.*)", re.DOTALL)
_SYNTAX = re.compile(r"JSON parse error: (.*?)(?: in row \d+)?$", re.DOTALL)


class JsonParser:
    """Parser of whole lines of JSON objects."""

    def __init__(self, schema: pa.Schema, timestamp_format: str) -> None:
        self._schema = schema
        self._timestamp_format = timestamp_format
        stored = pa.schema([(field.name, _stored(field.type, timestamp_format)) for field in schema])
        self._options = pa.json.ParseOptions(explicit_schema=stored, unexpected_field_behavior="ignore")

    def parse(self, text: bytes) -> pa.RecordBatch:
        """Return all records of ``text``. Raises ValueError if any of them is bad."""
        text.decode()  # Arrow accepts strings that are not UTF-8
        if _STARTS_WITH_NULL.match(text) or _TWO_VALUES.search(text):
            # Arrow reads a bare null as an empty record, or crashes on it (apache/arrow#47409).
            _require_one_object(text)
        read_options = pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        table = pa.json.read_json(pa.BufferReader(text), read_options, self._options).combine_chunks()
        columns = [
            to_declared(table.column(field.name).combine_chunks(), field, self._timestamp_format)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def explain(self, error: ValueError) -> str:
        """Return what is wrong with a record, given the error from parsing it alone."""
        message = str(error)
        if isinstance(error, UnicodeDecodeError):
            return "invalid UTF-8"
        if (match := _OTHER_TYPE.match(message)) and not match[1]:
            return f"{match[2]} where a JSON object is expected"
        if match and match[1] in self._schema.names:
            declared = spark_type(self._schema.field(match[1]).type)
            return f"field {match[1]}: {match[2]} where {declared} is expected"
        if match := _CONVERSION.match(message):
            return f"{match[1]} does not fit its column"
        if match := _SYNTAX.match(message):
            return f"invalid JSON: {match[1]}"
        return message


def _stored(declared: pa.DataType, timestamp_format: str) -> pa.DataType:
    if declared in (pa.date32(), pa.binary()):
        return pa.string()
    return stored_type(declared, timestamp_format)


def _require_one_object(text: bytes) -> None:
    """Raise ValueError unless ``text`` is a single object, in which ``} n`` can only be inside a string."""
    if not isinstance(json.loads(text), dict):
        raise ValueError("not a JSON object")
