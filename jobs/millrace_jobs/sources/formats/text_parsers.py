"""Parsers of CSV and JSON lines: whole lines become columns of the declared types, all or nothing."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.column_types import spark_type, stored_type, to_declared

_CSV_FIELDS = re.compile(r"Expected (\d+) columns?, got (\d+)")
_CSV_VALUE = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to [^:]+: )?(.*)", re.DOTALL)
_TWO_VALUES = re.compile(rb"\}(?:\s*n|[ \t\r]*\{)")
"""A second value after the end of an object; in good lines this occurs only inside a string."""
_STARTS_WITH_NULL = re.compile(rb"\s*n")

_JSON_TYPE = re.compile(r"JSON parse error: Column\(/?(.*?)\) changed from \w+ to (\w+)")
_JSON_VALUE = re.compile(r"Failed to convert JSON to .*?, couldn't parse:(.*)", re.DOTALL)
_JSON_SYNTAX = re.compile(r"JSON parse error: (.*?)(?: in row \d+)?$", re.DOTALL)


class CsvParser:
    """Parser of whole lines of CSV in Spark's default dialect with RFC 4180 quoting.

    The quote character is ``"``. A quote inside quotes is doubled (or has a backslash before it, as Spark writes it).
    An empty field is NULL in every type, quoted or not. Spaces belong to the value, but numbers and dates may have
    spaces around them. A record is one line.

    ``file_columns`` are the names of the fields of a line, in order; fields that are not in ``schema`` are ignored.
    """

    def __init__(self, schema: pa.Schema, file_columns: Sequence[str], delimiter: str, timestamp_format: str) -> None:
        self._schema = schema
        self._timestamp_format = timestamp_format
        # Arrow requires unique names, and ignored columns may share one.
        self._names = [name if name in schema.names else f"ignored {i}" for i, name in enumerate(file_columns)]
        stored = {field.name: stored_type(field.type, timestamp_format) for field in schema}
        self._nulls = b'\n""' + delimiter.encode() * (len(self._names) - 1)
        self._parse_options = pa.csv.ParseOptions(delimiter=delimiter)
        self._convert_options = pa.csv.ConvertOptions(
            column_types=stored,
            include_columns=schema.names,
            null_values=[""],
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            strings_can_be_null=True,
        )

    def parse(self, text: bytes) -> pa.RecordBatch:
        """Return all records of ``text``. Raises ValueError if any of them is bad."""
        if b"\r" in text and text.count(b"\r") != text.count(b"\r\n") + text.endswith(b"\r"):
            raise ValueError("a carriage return inside the line")  # Arrow would end the line there
        quoted = b'"' in text
        if quoted:
            # Arrow closes a quote left open at the end. This record of NULLs then disappears into the value.
            text = text.replace(b'\\"', b'""') + self._nulls
        table = pa.csv.read_csv(
            pa.BufferReader(text),
            pa.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self._names),
            self._parse_options,
            self._convert_options,
        )
        batch = _declared_batch(table, self._schema, self._timestamp_format)
        return batch[:-1] if quoted else batch

    def explain(self, error: ValueError) -> str:
        """Return what is wrong with a record, given the error from parsing it alone."""
        message = str(error)
        if match := _CSV_FIELDS.search(message):
            return f"{match[2]} fields where {match[1]} are expected"
        if match := _CSV_VALUE.match(message):
            field = self._schema.field(self._names[int(match[1])])
            return f"column {field.name} ({spark_type(field.type)}): {match[2]}"
        return message


def header_columns(line: bytes, schema: pa.Schema, delimiter: str, path: str, number: int = 1) -> list[str]:
    """Return the column names in a header line, which is the line ``number`` of its file.

    Raises:
        MillraceError: the line is not CSV in UTF-8, or does not have each column of the schema exactly once.
    """
    try:
        names = next(csv.reader([line.decode().rstrip("\r\n")], delimiter=delimiter))
    except UnicodeDecodeError as error:
        raise MillraceError(Problem(f"the header is not UTF-8: {error.reason}", "", path, number)) from None
    except csv.Error as error:
        reason = "it has a carriage return inside the line" if b"\r" in line.rstrip(b"\r\n") else str(error)
        hint = "end each line with LF or CRLF"
        raise MillraceError(Problem(f"the header is not a line of CSV: {reason}", hint, path, number)) from None
    missing = [name for name in schema.names if name not in names]
    repeated = [name for name in schema.names if names.count(name) > 1]
    if missing:
        message = f"the header has no column {', '.join(missing)}; it has {', '.join(names)}"
        raise MillraceError(Problem(message, "correct the schema or the delimiter, or set header: false", path, number))
    if repeated:
        message = f"the header has the column {', '.join(repeated)} more than once"
        raise MillraceError(Problem(message, "name the column once", path, number))
    return names


class JsonParser:
    """Parser of lines that are one JSON object each.

    Absent fields are NULL, and fields that are not in the schema are ignored. A value whose JSON type differs from the
    column's makes the record bad; a number is not accepted as a STRING.
    """

    def __init__(self, schema: pa.Schema, timestamp_format: str) -> None:
        self._schema = schema
        self._timestamp_format = timestamp_format
        stored = pa.schema([(field.name, _stored_json(field.type, timestamp_format)) for field in schema])
        self._options = pa.json.ParseOptions(explicit_schema=stored, unexpected_field_behavior="ignore")

    def parse(self, text: bytes) -> pa.RecordBatch:
        """Return all records of ``text``. Raises ValueError if any of them is bad."""
        text.decode()  # Arrow accepts strings that are not UTF-8
        if _STARTS_WITH_NULL.match(text) or _TWO_VALUES.search(text):
            # Arrow reads a bare null as an empty record, or crashes on it (apache/arrow#47409). Several lines always
            # fail here, even if all are good: ``decode`` then bisects them, and a good line passes alone.
            _require_one_object(text)
        read_options = pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        table = pa.json.read_json(pa.BufferReader(text), read_options, self._options)
        return _declared_batch(table, self._schema, self._timestamp_format)

    def explain(self, error: ValueError) -> str:
        """Return what is wrong with a record, given the error from parsing it alone."""
        message = str(error)
        if isinstance(error, UnicodeDecodeError):
            return "invalid UTF-8"
        if (match := _JSON_TYPE.match(message)) and not match[1]:
            return f"{match[2]} where a JSON object is expected"
        if match and match[1] in self._schema.names:
            declared = spark_type(self._schema.field(match[1]).type)
            return f"field {match[1]}: {match[2]} where {declared} is expected"
        if match := _JSON_VALUE.match(message):
            return f"{match[1]} does not fit its column"
        if match := _JSON_SYNTAX.match(message):
            return f"invalid JSON: {match[1]}"
        return message


def _stored_json(declared: pa.DataType, timestamp_format: str) -> pa.DataType:
    if declared in (pa.date32(), pa.binary()):
        return pa.string()
    return stored_type(declared, timestamp_format)


def _declared_batch(table: pa.Table, schema: pa.Schema, timestamp_format: str) -> pa.RecordBatch:
    table = table.combine_chunks()
    columns = [to_declared(table.column(f.name).combine_chunks(), f, timestamp_format) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _require_one_object(text: bytes) -> None:
    """Raise ValueError unless ``text`` is a single JSON object."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        reason = "more than one JSON value" if error.msg == "Extra data" else f"invalid JSON: {error.msg}"
        raise ValueError(reason) from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
