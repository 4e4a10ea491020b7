"""Parsers of CSV and JSON lines: whole lines become columns of the declared types, all or nothing."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.column_types import (
    MAX_PRECISION,
    TIMESTAMP,
    InexactTimesError,
    require_exact,
    spark_type,
    stored_type,
    to_declared,
)
from millrace_jobs.sources.formats.csv_records import CsvQuotes
from millrace_jobs.sources.formats.decimal_texts import SHORT
from millrace_jobs.sources.formats.decoding import Layout, line_layout
from millrace_jobs.sources.formats.json_rewriting import rewritten
from millrace_jobs.sources.formats.nested_columns import is_nested, leaves_of, parts_of
from millrace_jobs.sources.formats.text_values import from_text

_CSV_FIELDS = re.compile(r"Expected (\d+) columns?, got (\d+)")
_IN_UTF8 = "write it in UTF-8, as iconv -f LATIN1 -t UTF-8 does with a file"
_SHOWN = 80
_OTHER_DELIMITERS = ";\t|,"

_TWO_VALUES = re.compile(rb"\}(?:\s*n|[ \t\r]*\{)")
"""A second value after the end of an object; in good lines this occurs only inside a string."""
_STARTS_WITH_NULL = re.compile(rb"\s*n")

_JSON_TYPE = re.compile(r"JSON parse error: Column\(/?(.*?)\) changed from \w+ to (\w+)", re.DOTALL)
_JSON_TWICE = re.compile(r"JSON parse error: Column\(/?(.*?)\) was specified twice", re.DOTALL)
_JSON_VALUE = re.compile(r"Failed to convert JSON to .*?(?:, couldn't parse:|: )(.*)", re.DOTALL)
_JSON_DECIMAL = re.compile(
    r"The string '(.*)' (?:is not a valid|cannot be represented as) decimal|Empty string cannot", re.DOTALL
)
_JSON_SPECIAL = re.compile("NaN|-?Infinity")
_JSON_SYNTAX = re.compile(r"JSON parse error: (.*?)(?: in row \d+)?$", re.DOTALL)


class CsvParser:
    """Parser of records of CSV in the dialect of RFC 4180; where they end and how they are quoted says ``CsvQuotes``.

    An empty field is NULL. With quotes, it is the empty string in a STRING or BINARY, and NULL in other types. Spaces
    belong to the value, but numbers, dates and times may have spaces around them.

    ``file_columns`` are the names of the fields of a record, in order; fields that are not in ``schema`` are ignored.
    """

    def __init__(self, schema: pa.Schema, file_columns: Sequence[str], delimiter: str, timestamp_format: str) -> None:
        self._schema = schema
        self._timestamp_format = timestamp_format
        self._delimiter = delimiter
        # Arrow requires unique names, and ignored columns may share one.
        self._names = [name if name in schema.names else f"\0{i}" for i, name in enumerate(file_columns)]
        self._converting = self._convert_options([stored_type(field.type, timestamp_format) for field in schema])
        self._as_text = self._convert_options([_text_type(field.type) for field in schema])
        self._has_integers = any(pa.types.is_integer(field.type) for field in schema)
        self.quotes = CsvQuotes(delimiter)

    def layout(self, block: bytes) -> Layout:
        """Return where the records of ``block`` are."""
        return self.quotes.layout(block)

    def parse(self, text: bytes) -> pa.RecordBatch:
        """Return all records of ``text``. Raises ValueError if any of them is bad."""
        if not (self._has_integers and _may_be_hexadecimal(text)):  # which Arrow takes for an integer
            try:
                table = self._read(text, self._converting)
                return _declared_batch(table, self._schema, self._timestamp_format)
            except ValueError:
                pass
        # A value is bad, or is spelled in a way that Arrow does not convert.
        table = self._read(text, self._as_text)
        columns = [from_text(_chunk(table, field.name), field, self._timestamp_format) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def explain(self, error: ValueError, text: bytes) -> str:
        """Return what is wrong with a record, given its text and the error from parsing it alone."""
        message = str(error)
        if match := _CSV_FIELDS.search(message):
            found, expected = int(match[2]), int(match[1])
            said = f"{found} field{'s' * (found != 1)} where {expected} are expected"
            for other in _OTHER_DELIMITERS.replace(self._delimiter, ""):
                if text.count(other.encode()) == expected - 1:
                    return f"{said}: set delimiter: {json.dumps(other)}"
            return said
        if "invalid UTF8 data" in message:
            return f"the text is not UTF-8: {_IN_UTF8}"
        return message

    def _convert_options(self, types: Sequence[pa.DataType]) -> pa.csv.ConvertOptions:
        return pa.csv.ConvertOptions(
            column_types=dict(zip(self._schema.names, types, strict=True)),
            include_columns=self._schema.names,
            null_values=[""],
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=not any(_text_type(field.type) == field.type for field in self._schema),
        )

    def _read(self, text: bytes, converting: pa.csv.ConvertOptions) -> pa.Table:
        reading = pa.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self._names)
        # Made here, since pickled options complain about each row that they refuse.
        parsing = pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)
        return pa.csv.read_csv(pa.BufferReader(text), reading, parsing, converting)


def _text_type(declared: pa.DataType) -> pa.DataType:
    """Return the type that takes a column's text as it is."""
    return declared if pa.types.is_binary(declared) else pa.string()


def _may_be_hexadecimal(text: bytes) -> bool:
    """Return whether ``0x`` is anywhere in the text; its bytes are compared in pairs, which is fast."""
    pairs = [pair for pair in (b"0x", b"0X") if pair[1:] in text]
    if not pairs:
        return False
    data = np.frombuffer(text, np.uint8)
    halves = (data[begin : begin + (len(data) - begin) // 2 * 2].view(np.uint16) for begin in (0, 1))
    codes = [np.frombuffer(pair, np.uint16)[0] for pair in pairs]
    return any(bool((half == code).any()) for half in halves for code in codes)


def header_columns(line: bytes, schema: pa.Schema, delimiter: str, path: str, number: int = 1) -> list[str]:
    """Return the column names in a header, which begins on the line ``number`` of its file.

    Raises:
        MillraceError: the line is not CSV in UTF-8, or does not have each column of the schema exactly once.
    """
    try:
        text = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        problem = Problem(
            "the header is not UTF-8", "write the file in UTF-8, as iconv -f LATIN1 -t UTF-8 does", path, number
        )
        raise MillraceError(problem) from None
    try:
        names = next(csv.reader([text], delimiter=delimiter))
    except csv.Error as error:
        reason = "it has a carriage return inside the line" if "\r" in text else str(error)
        hint = "end each line with LF or CRLF"
        raise MillraceError(Problem(f"the header is not a line of CSV: {reason}", hint, path, number)) from None
    missing = [name for name in schema.names if name not in names]
    repeated = [name for name in schema.names if names.count(name) > 1]
    if missing:
        message = f"the header has no column {', '.join(missing)}; it has {', '.join(names)}"
        raise MillraceError(Problem(message, _header_hint(text, schema, names, delimiter), path, number))
    if repeated:
        message = f"the header has the column {', '.join(repeated)} more than once"
        raise MillraceError(Problem(message, "name the column once", path, number))
    return names


def _header_hint(text: str, schema: pa.Schema, names: list[str], delimiter: str) -> str:
    """Return what to write where the header lacks a column."""
    if text.startswith("sep=") and len(text) == len("sep=") + 1:
        return f"remove this line, which only Excel knows, and set delimiter: {json.dumps(text[-1])}"
    for other in _OTHER_DELIMITERS.replace(delimiter, ""):
        if set(schema.names) <= set(next(csv.reader([text], delimiter=other))):
            return f"set delimiter: {json.dumps(other)}"
    spelled = {name.strip().lower(): name for name in names}
    if all(name.lower() in spelled for name in schema.names):
        return "write the names in the schema as in the file, where case and blanks count"
    return "correct the schema or the delimiter, or set header: false"


_EXACT_TIMES = pa.decimal256(MAX_PRECISION, SHORT)
"""The type by which numbers with fractions that are times keep all their digits."""


class JsonParser:
    """Parser of lines that are one JSON object each.

    Absent fields are NULL, and fields that are not in the schema are ignored. A value whose JSON type differs from the
    column's makes the record bad; a number is not accepted as a STRING. A DOUBLE or FLOAT may be NaN or an infinity,
    as text or as the literal of JavaScript: ``"NaN"``, ``-Infinity``.
    """

    def __init__(self, schema: pa.Schema, timestamp_format: str) -> None:
        self._schema = schema
        self._timestamp_format = timestamp_format
        self._options = {
            (scale, times): _json_options(schema, timestamp_format, scale, times)
            for scale in (SHORT, MAX_PRECISION)
            for times in (None, _EXACT_TIMES)
        }
        self._has_decimals = _any_part(schema, pa.types.is_decimal)
        self._is_nested = any(is_nested(field.type) for field in schema)
        self._has_maps = _any_part(schema, pa.types.is_map)
        self._special = _special_numbers([field.name for field in schema if pa.types.is_floating(field.type)])

    def layout(self, block: bytes) -> Layout:
        """Return where the records of ``block`` are: each line is one."""
        return line_layout(block)

    def parse(self, text: bytes) -> pa.RecordBatch:
        """Return all records of ``text``. Raises ValueError if any of them is bad."""
        text.decode()  # Arrow accepts strings that are not UTF-8
        if _STARTS_WITH_NULL.match(text) or _TWO_VALUES.search(text):
            # Arrow reads a bare null as an empty record, or crashes on it (apache/arrow#47409). Several lines always
            # fail here, even if all are good: ``decode`` then bisects them, and a good line passes alone.
            _require_one_object(text)
        if self._has_maps:
            text = rewritten(text, self._schema)
        scale = SHORT
        try:
            table = self._read(text, self._options[scale, None])
        except ValueError:
            literals = self._with_literals(text)
            if literals == text and not self._has_decimals:
                raise
            text, scale = literals, MAX_PRECISION
            table = self._read(text, self._options[scale, None])
        try:
            return _declared_batch(table, self._schema, self._timestamp_format)
        except InexactTimesError:
            exact = self._read(text, self._options[scale, _EXACT_TIMES])
            return _declared_batch(exact, self._schema, self._timestamp_format)

    def _with_literals(self, text: bytes) -> bytes:
        """Return the text with literals in place of ``"NaN"`` and the like where they are numbers."""
        if self._has_maps or (b'"NaN"' not in text and b'Infinity"' not in text):
            return text
        if self._is_nested:  # a name alone does not tell which field it is
            return rewritten(text, self._schema)
        return text if self._special is None else self._special.sub(rb"\1\2\3", text)

    def _read(self, text: bytes, parsing: pa.json.ParseOptions) -> pa.Table:
        reading = pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        return pa.json.read_json(pa.BufferReader(text), reading, parsing)

    def explain(self, error: ValueError, text: bytes) -> str:
        """Return what is wrong with a record, given its text and the error from parsing it alone."""
        message = str(error)
        if isinstance(error, UnicodeDecodeError):
            return f"invalid UTF-8: {_IN_UTF8}"
        if (match := _JSON_TYPE.match(message)) and not match[1]:
            return f"{match[2]} where a JSON object is expected{_ONE_OBJECT if match[2] == 'array' else ''}"
        if match and (field := self._declared(match[1])) is not None:
            said = f"field {field.name}: {match[2]} where {spark_type(field.type)} is expected"
            return said + _json_remedy(match[2], field.type)
        if match := _JSON_TWICE.match(message):
            twice = self._declared(match[1])
            return f"field {match[1] if twice is None else twice.name} is there twice: write it once"
        if match := _JSON_VALUE.match(message):
            return self._misfit(match[1].partition(" requires ")[0], text)
        if match := _JSON_DECIMAL.match(message):
            return self._misfit(match[1] or "", text)
        if match := _JSON_SYNTAX.match(message):
            stripped = text.strip()
            is_part = stripped in (b"{", b"}", b"[", b"]") or stripped[:1] == b"[" or stripped[-1:] == b","
            return f"invalid JSON: {match[1]}{_ONE_OBJECT if is_part else ''}"
        return message

    def _declared(self, path: str) -> pa.Field | None:
        """Return the declared field at a path of Arrow, such as ``items/[]/sku``, named as in other messages."""
        first, *steps = path.split("/")
        if first not in self._schema.names:
            return None
        field = self._schema.field(first)
        for step in steps:
            if not is_nested(field.type):
                return None
            if pa.types.is_map(field.type) and step == "[]":
                continue  # an entry, of which the next step is the key or the value
            names = [step, f"{field.name}.{step}", f"{field.name}{step}", f"{field.name}[{step}]"]
            found = [part for part in parts_of(field) if part.name in names]
            if not found:
                return None
            (field,) = found
        return field

    def _misfit(self, written: str, text: bytes) -> str:
        """Return which field has a value that Arrow names without its field."""
        try:
            found = json.loads(text, parse_float=_NumberText, parse_int=_NumberText, parse_constant=_NumberText)
        except (ValueError, RecursionError):
            found = {}
        shown = written if len(written) <= _SHOWN else written[:_SHOWN] + "..."
        for field, value in _values_in(found, pa.field("", pa.struct(list(self._schema)))):
            is_number = isinstance(value, _NumberText)
            if value == written and (is_number or pa.types.is_decimal(field.type)):
                hint = "write a number, or declare the column STRING"
                if _JSON_SPECIAL.fullmatch(written):
                    hint = "declare the column DOUBLE or FLOAT"
                elif is_number:
                    hint = "declare the column DOUBLE or DECIMAL, or BIGINT for larger whole numbers"
                said = shown if is_number else json.dumps(shown)
                return f"field {field.name}: {said} does not fit {spark_type(field.type)}: {hint}"
        return f"{shown} does not fit its column"


class _NumberText(str):
    """The text of a JSON number."""


def _values_in(value: object, declared: pa.Field) -> Iterator[tuple[pa.Field, object]]:
    """Yield the single values of a JSON value, each with its declared field, named by the path to it."""
    kind = declared.type
    if pa.types.is_struct(kind):
        for field, part in zip(kind, parts_of(declared), strict=True):
            if isinstance(value, dict) and field.name in value:
                yield from _values_in(value[field.name], part.with_name(part.name.removeprefix(".")))
    elif pa.types.is_map(kind) and isinstance(value, dict):
        for each in value.values():
            yield from _values_in(each, parts_of(declared)[1])
    elif pa.types.is_list(kind) and isinstance(value, list):
        for each in value:
            yield from _values_in(each, parts_of(declared)[0])
    else:
        yield declared, value


_ONE_OBJECT = ": write one object per line, without an array around them, for example with jq -c '.[]'"


def _json_remedy(found: str, declared: pa.DataType) -> str:
    """Return what to write for a value of another JSON type than the column's, as the end of a sentence."""
    if declared == TIMESTAMP:
        if found == "number":
            return ": set timestampFormat to the unit of the numbers: seconds, milliseconds or microseconds"
        return ": set timestampFormat: iso" if found == "string" else ""
    if is_nested(declared):
        return ": write an object" if not pa.types.is_list(declared) else ": write an array"
    if pa.types.is_string(declared):
        known = {"number": "declare the column as a number", "boolean": "declare the column BOOLEAN"}
        return f": {known[found]}, or quote the value" if found in known else ": quote the value"
    return ": write the value without quotes, or declare the column STRING" if found == "string" else ""


def _special_numbers(names: Sequence[str]) -> re.Pattern[bytes] | None:
    """Return a pattern of NaN and infinities as text in the fields with these names.

    A quote within a text has a backslash before it, so what looks like a field is one.
    """
    forms = {json.dumps(name, ensure_ascii=ascii) for name in names for ascii in (True, False)}
    keys = "|".join(map(re.escape, sorted(forms)))
    return re.compile(rf'(?<!\\)({keys})([ \t\r\n]*:[ \t\r\n]*)"(NaN|-?Infinity)"'.encode()) if keys else None


def _json_options(
    schema: pa.Schema, timestamp_format: str, scale: int, times: pa.DataType | None = None
) -> pa.json.ParseOptions:
    """Return how to parse objects, with decimals of 38 digits, of which ``scale`` may be behind the point.

    Timestamps that are numbers with fractions are read as ``times``.
    """

    def stored(declared: pa.DataType) -> pa.DataType:
        if declared == TIMESTAMP and times is not None and timestamp_format in ("seconds", "milliseconds"):
            return times
        if pa.types.is_struct(declared):
            return pa.struct([(field.name, stored(field.type)) for field in declared])
        if pa.types.is_map(declared):  # see json_rewriting
            return pa.list_(pa.struct([("key", pa.string()), ("value", stored(declared.item_type))]))
        if pa.types.is_list(declared):
            return pa.list_(stored(declared.value_type))
        if pa.types.is_decimal(declared):
            return pa.decimal256(MAX_PRECISION, scale)
        return pa.string() if declared in (pa.date32(), pa.binary()) else stored_type(declared, timestamp_format)

    explicit = pa.schema([(field.name, stored(field.type)) for field in schema])
    return pa.json.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="ignore")


def _declared_batch(table: pa.Table, schema: pa.Schema, timestamp_format: str) -> pa.RecordBatch:
    """Return the declared columns of a table. Raises InexactTimesError if times have to be read with all digits."""
    for field in schema:
        for column, part in leaves_of(_chunk(table, field.name), field):
            if part.type == TIMESTAMP and pa.types.is_floating(column.type):
                require_exact(column, timestamp_format)
    columns = [to_declared(_chunk(table, field.name), field, timestamp_format) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _any_part(schema: pa.Schema, check: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type is that of a column, or of a part of one."""

    def within(kind: pa.DataType) -> bool:
        return check(kind) or (is_nested(kind) and any(within(kind.field(i).type) for i in range(kind.num_fields)))

    return any(within(field.type) for field in schema)


def _chunk(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _require_one_object(text: bytes) -> None:
    """Raise ValueError unless ``text`` is a single JSON object."""
    try:
        value = json.loads(text, parse_int=str)  # which has no limit of digits
    except RecursionError:
        raise ValueError("invalid JSON: arrays or objects are too deep within each other") from None
    except json.JSONDecodeError as error:
        reason = "more than one JSON value" if error.msg == "Extra data" else f"invalid JSON: {error.msg}"
        raise ValueError(reason) from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
