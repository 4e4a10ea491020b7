"""Parser of JSON lines: whole lines become columns of the declared types, all or nothing.

Objects are written again where Arrow does not take them as they are. It reads no object as a map: it becomes an
array of objects with ``key`` and ``value``. NaN and infinities as text become the literals of JavaScript, where a FLOAT
or DOUBLE is declared. Everything else keeps its text, so that Arrow finds the same mistakes in it as in the original; a
field that the schema does not name is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.json

from millrace_api.sql.time_formats import is_pattern
from millrace_jobs.sources.formats.column_types import (
    MAX_PRECISION,
    TIMESTAMP,
    is_nested,
    parts_of,
    spark_type,
    time_format,
    with_parts,
)
from millrace_jobs.sources.formats.decoding import line_layout
from millrace_jobs.sources.formats.text_conversions import SHORT_DIGITS
from millrace_jobs.sources.formats.text_values import IN_UTF8, InexactTimesError, declared_batch, stored_type

_SPECIAL = ("NaN", "Infinity", "-Infinity")
_TOO_DEEP = "invalid JSON: arrays or objects are too deep within each other"

_text = partial(json.dumps, ensure_ascii=False)
_SHOWN = 80

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

_EXACT_TIMES = pa.decimal256(MAX_PRECISION, SHORT_DIGITS)
"""The type by which numbers with fractions that are times keep all their digits."""

_ONE_OBJECT = ": write one object per line, without an array around them, for example with jq -c '.[]'"


class _Literal(str):
    """The text of a number, as it stands in the JSON."""


class _Object(tuple[tuple[str, Any], ...]):
    """The fields of an object in their order; a name can be there twice."""


_decoder = json.JSONDecoder(
    object_pairs_hook=_Object, parse_float=_Literal, parse_int=_Literal, parse_constant=_Literal
)


def rewritten(text: bytes, schema: pa.Schema) -> bytes:
    """Return lines of JSON objects with maps as arrays of entries, one line for each that is not blank.

    Raises ValueError if a line is not one JSON object, or an object that is a map has a key twice.
    """
    fields = pa.struct(list(schema))
    lines = (line for line in text.decode().split("\n") if line.strip())
    try:
        return "".join(f"{_written(parsed_object(line), fields, '')}\n" for line in lines).encode()
    except UnicodeEncodeError:
        raise ValueError("invalid JSON: half of a surrogate pair in a string") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def parsed_object(line: str) -> _Object:
    """Return the fields of a JSON object, whose numbers keep their text. Raises ValueError if it is none."""
    try:
        value = _decoder.decode(line)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        reason = "more than one JSON value" if error.msg == "Extra data" else f"invalid JSON: {error.msg}"
        raise ValueError(reason) from None
    if not isinstance(value, _Object):
        raise ValueError("not a JSON object")
    return value


def _written(value: Any, declared: pa.DataType, path: str) -> str:
    """Return the text of a value for a column of a type; a value of another kind keeps its text."""
    if isinstance(value, _Object):
        if pa.types.is_map(declared):
            return _entries(value, declared.item_type, path)
        known = {field.name: field.type for field in declared} if pa.types.is_struct(declared) else {}
        below = f"{path}." if path else ""
        fields = (f"{_text(name)}:{_written(part, known[name], below + name)}" for name, part in value if name in known)
        return f"{{{','.join(fields)}}}"
    if isinstance(value, list):
        kind = declared.value_type if pa.types.is_list(declared) else pa.null()
        if pa.types.is_map(declared):
            raise ValueError(f"field {path}: array where MAP is expected: write an object")
        return f"[{','.join(_written(part, kind, f'{path}[]') for part in value)}]"
    if isinstance(value, _Literal):
        return value
    if pa.types.is_floating(declared) and value in _SPECIAL:
        return str(value)
    return _text(value)


def written_value(value: Any) -> str:
    """Return the text of a value of a parsed object, with all its fields."""
    if isinstance(value, _Object):
        return f"{{{','.join(f'{_text(name)}:{written_value(part)}' for name, part in value)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written_value, value))}]"
    return value if isinstance(value, _Literal) else _text(value)


def _entries(entries: Sequence[tuple[str, Any]], kind: pa.DataType, path: str) -> str:
    seen: set[str] = set()
    texts = []
    for key, value in entries:
        if key in seen:
            raise ValueError(f"field {path}: the key {_text(key)} appears twice: write it once")
        seen.add(key)
        texts.append(f'{{"key":{_text(key)},"value":{_written(value, kind, f"{path}[value]")}}}')
    return f"[{','.join(texts)}]"


class JsonParser:
    """Parser of lines that are one JSON object each.

    Absent fields are NULL, and fields that are not in the schema are ignored. A value whose JSON type differs from the
    column's makes the record bad; a number is not accepted as a STRING. A DOUBLE or FLOAT may be NaN or an infinity,
    as text or as the literal of JavaScript: ``"NaN"``, ``-Infinity``.
    """

    layout = staticmethod(line_layout)

    def __init__(self, schema: pa.Schema, timestamp_format: str) -> None:
        self._schema = schema
        self._timestamp_format = timestamp_format
        self._options = {
            (scale, times): _json_options(schema, timestamp_format, scale, times)
            for scale in (SHORT_DIGITS, MAX_PRECISION)
            for times in (None, _EXACT_TIMES)
        }
        self._has_decimals = _any_part(schema, pa.types.is_decimal)
        self._is_nested = any(is_nested(field.type) for field in schema)
        self._has_maps = _any_part(schema, pa.types.is_map)
        self._special = _special_numbers([field.name for field in schema if pa.types.is_floating(field.type)])

    def parse(self, text: bytes) -> pa.RecordBatch:
        """Return all records of ``text``. Raises ValueError if any of them is bad."""
        text.decode()  # Arrow accepts strings that are not UTF-8
        if _STARTS_WITH_NULL.match(text) or _TWO_VALUES.search(text):
            # Arrow reads a bare null as an empty record, or crashes on it (apache/arrow#47409). Several lines always
            # fail here, even if all are good: ``decode`` then bisects them, and a good line passes alone.
            parsed_object(text.decode())
        if self._has_maps:
            text = rewritten(text, self._schema)
        scale = SHORT_DIGITS
        try:
            table = self._read(text, self._options[scale, None])
        except ValueError:
            literals = self._with_literals(text)
            if literals == text and not self._has_decimals:
                raise
            text, scale = literals, MAX_PRECISION
            table = self._read(text, self._options[scale, None])
        try:
            return declared_batch(table, self._schema, self._timestamp_format)
        except InexactTimesError:
            exact = self._read(text, self._options[scale, _EXACT_TIMES])
            return declared_batch(exact, self._schema, self._timestamp_format)

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
            return f"invalid UTF-8: {IN_UTF8}"
        if (match := _JSON_TYPE.match(message)) and not match[1]:
            return f"{match[2]} where a JSON object is expected{_ONE_OBJECT if match[2] == 'array' else ''}"
        if match and (field := self._declared(match[1])) is not None:
            said = f"field {field.name}: {match[2]} where {spark_type(field.type)} is expected"
            return said + _json_remedy(match[2], field.type, time_format(field, self._timestamp_format))
        if match := _JSON_TWICE.match(message):
            twice = self._declared(match[1])
            return f"field {match[1] if twice is None else twice.name} appears twice: write it once"
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
            found = json.loads(text, parse_float=_Literal, parse_int=_Literal, parse_constant=_Literal)
        except (ValueError, RecursionError):
            found = {}
        shown = written if len(written) <= _SHOWN else written[:_SHOWN] + "..."
        for field, value in _values_in(found, pa.field("", pa.struct(list(self._schema)))):
            is_number = isinstance(value, _Literal)
            if value == written and (is_number or pa.types.is_decimal(field.type)):
                hint = "write a number, or declare the column STRING"
                if _JSON_SPECIAL.fullmatch(written):
                    hint = "declare the column DOUBLE or FLOAT"
                elif is_number:
                    hint = "declare the column DOUBLE or DECIMAL, or BIGINT for larger whole numbers"
                said = shown if is_number else json.dumps(shown)
                return f"field {field.name}: {said} does not fit {spark_type(field.type)}: {hint}"
        return f"{shown} does not fit its column"


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


def _json_remedy(found: str, declared: pa.DataType, written: str) -> str:
    """Return what to write for a value of another JSON type than the column's, as the end of a sentence."""
    if is_pattern(written) and declared in (TIMESTAMP, pa.date32()):
        return f": write it like {written}, in quotes, or correct the format in timeFormats"
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

    def stored(field: pa.Field) -> pa.DataType:
        kind, written = field.type, time_format(field, timestamp_format)
        if kind == TIMESTAMP and times is not None and written in ("seconds", "milliseconds"):
            return times
        if is_nested(kind):
            parts = list(map(stored, parts_of(field)))
            if pa.types.is_map(kind):  # see json_rewriting
                return pa.list_(pa.struct([("key", parts[0]), ("value", parts[1])]))
            return with_parts(kind, parts)
        if pa.types.is_decimal(kind):
            return pa.decimal256(MAX_PRECISION, scale)
        return pa.string() if kind in (pa.date32(), pa.binary()) else stored_type(kind, written)

    explicit = pa.schema([(field.name, stored(field)) for field in schema])
    return pa.json.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="ignore")


def _any_part(schema: pa.Schema, check: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type is that of a column, or of a part of one."""

    def within(kind: pa.DataType) -> bool:
        return check(kind) or (is_nested(kind) and any(within(kind.field(i).type) for i in range(kind.num_fields)))

    return any(within(field.type) for field in schema)
