"""Declared columns as an Arrow schema, and conversion of the values in a file or message to the declared types.

Arrow's readers convert most values themselves. The conversions here are the ones in which Arrow differs from Spark:
values are read as another type (``stored_type``) and cast to the declared type as whole columns (``to_declared``).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_api.errors import MillraceError, Problem
from millrace_api.sql.schema_ddl import Column, parse_schema, parse_type, type_problem, unreadable
from millrace_api.sql.time_formats import ISO, UNITS, is_pattern
from millrace_jobs.sources.formats import decimal_texts, iso_texts, time_patterns
from millrace_jobs.sources.formats.nested_columns import is_nested, rebuilt

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""Spark's TIMESTAMP: microseconds since 1970-01-01 UTC."""

_TYPES = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "BINARY": pa.binary(),
}
_SYNONYMS = {"BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT", "REAL": "FLOAT"}
_DECIMAL = re.compile(r"(?:DECIMAL|DEC|NUMERIC)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
MAX_PRECISION = 38
"""The maximum number of digits of a DECIMAL."""

_FORMAT = b"time"
"""Key of a field's metadata with the format of its times, if that is another one than the source's."""

TIMESTAMP_FORMATS = ("iso", "seconds", "milliseconds", "microseconds")
"""The formats of a TIMESTAMP: ``iso`` is text such as 2013-01-01T10:00:00.5+01:00, in UTC if it has no zone.

The others are numbers since 1970 in that unit.
"""

_DIGITS = {"seconds": 6, "milliseconds": 3, "microseconds": 0}
_EXACT = 2.0**51
"""Microseconds from which on those of a double may be wrong by one: in the year 2041."""
_EARLIEST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_LATEST = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000_000 + 999_999
_OUTSIDE = "outside the years 1 to 9999"


def arrow_schema(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """Return the Arrow schema of (name, Spark type) pairs; every column is nullable.

    Raises MillraceError with one problem per column whose type is not supported or whose name is a duplicate.
    """
    fields, problems = [], []
    for position, (name, declared) in enumerate(columns):
        column = _column(name, declared)
        arrow_type = _arrow_type(column)
        if arrow_type is None:
            problems.append(Problem(*(type_problem(column) or unreadable(column))))
        elif name in (earlier for earlier, _ in columns[:position]):
            problems.append(Problem(f"column {name} is declared twice", "name every column once"))
        else:
            fields.append(pa.field(name, arrow_type))
    if problems:
        raise MillraceError(*problems)
    return pa.schema(fields)


def declared_schema(ddl: str) -> pa.Schema:
    """Return the Arrow schema of columns declared in SQL, such as ``id BIGINT, name STRING``. Raises MillraceError."""
    return arrow_schema([(column.name, column.type) for column in parse_schema(ddl)])


def _column(name: str, declared: str) -> Column:
    return parse_type(name, declared) if "<" in declared else Column(name, declared)


def spark_type(arrow_type: pa.DataType) -> str:
    """Return the Spark name of a type, for messages; of a nested type without what is in it."""
    if is_nested(arrow_type):
        return "STRUCT" if pa.types.is_struct(arrow_type) else "MAP" if pa.types.is_map(arrow_type) else "ARRAY"
    names = {known: name for name, known in _TYPES.items()}
    if pa.types.is_decimal(arrow_type):
        return f"DECIMAL({arrow_type.precision},{arrow_type.scale})"
    return names.get(arrow_type, str(arrow_type))


def _arrow_type(column: Column) -> pa.DataType | None:
    if column.parts:
        return _nested_type(column)
    text = column.type.strip().upper()
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1] or 10), int(match[2] or 0)
        if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return pa.decimal128(precision, scale)
        return None
    return _TYPES.get(_SYNONYMS.get(text, text))


def _nested_type(column: Column) -> pa.DataType | None:
    types = [_arrow_type(part) for part in column.parts]
    if None in types:
        return None
    if column.is_struct:
        return pa.struct([(part.name, kind) for part, kind in zip(column.parts, types, strict=True)])
    return pa.list_(types[0]) if len(types) == 1 else pa.map_(*types)


def time_format(field: pa.Field, of_source: str) -> str:
    """Return how times are written in a column, or in a part of one: as it is declared for that, or for the source."""
    written: bytes = (field.metadata or {}).get(_FORMAT, of_source.encode())
    return written.decode()


def with_time_formats(schema: pa.Schema, formats: Mapping[str, str]) -> pa.Schema:
    """Return a schema whose columns, and fields of structs, at these paths have formats of times of their own."""
    for path, written in formats.items():
        schema = pa.schema(_with_format(list(schema), path.split("."), written))
    return schema


def _with_format(fields: Sequence[pa.Field], path: Sequence[str], written: str) -> list[pa.Field]:
    name, *within = path
    found = []
    for field in fields:
        if field.name != name:
            found.append(field)
        elif within:
            found.append(field.with_type(_type_with_format(field.type, within, written)))
        else:
            found.append(field.with_metadata({**(field.metadata or {}), _FORMAT: written.encode()}))
    return found


def _type_with_format(kind: pa.DataType, path: Sequence[str], written: str) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_type_with_format(kind.value_type, path, written))
    return pa.struct(_with_format(list(kind), path, written)) if pa.types.is_struct(kind) else kind


def stored_type(declared: pa.DataType, timestamp_format: str) -> pa.DataType:
    """Return the type that a column of a text file is read as.

    Timestamps in seconds or milliseconds are read as doubles, to keep fractions; see ``require_exact``. Decimals are
    converted from their text: see ``decimal_texts``.
    """
    if pa.types.is_decimal(declared):
        return pa.string()
    if declared == pa.date32() and is_pattern(timestamp_format):
        return pa.string()
    if declared != TIMESTAMP:
        return declared
    if timestamp_format not in UNITS:
        return pa.string()
    return pa.int64() if timestamp_format == "microseconds" else pa.float64()


def to_declared(column: pa.Array, declared: pa.Field, timestamp_format: str) -> pa.Array:
    """Cast ``column`` to the declared type. Raises ValueError with the column's name if a value does not fit."""
    if is_nested(declared.type):
        return rebuilt(column, declared, lambda part, field: to_declared(part, field, timestamp_format))
    timestamp_format = time_format(declared, timestamp_format)
    try:
        if declared.type == TIMESTAMP:
            return timestamps(column, timestamp_format)
        if column.type == declared.type:
            return column
        if declared.type == pa.date32() and pa.types.is_string(column.type):
            return dates(column, timestamp_format)
        if declared.type == pa.binary() and pa.types.is_string(column.type):
            return pa.array([_base64(text) for text in column.to_pylist()], pa.binary())
        if pa.types.is_decimal(declared.type) and pa.types.is_string(column.type):
            return decimal_texts.decimals(column, declared.type)
        if pa.types.is_decimal(declared.type) and pa.types.is_decimal256(column.type):
            return decimal_texts.narrowed(column, declared.type)
        return column.cast(declared.type)
    except (ValueError, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {declared.name} ({spark_type(declared.type)}): {error}") from None


def dates(texts: pa.Array, timestamp_format: str) -> pa.Array:
    """Return texts as dates, by the pattern if there is one. Raises ValueError if a value is none."""
    by_pattern = is_pattern(timestamp_format)
    return time_patterns.dates(texts, timestamp_format) if by_pattern else iso_texts.dates(texts)


def timestamps(column: pa.Array, timestamp_format: str) -> pa.Array:
    """Return values in the format ``timestamp_format`` as timestamps. Raises ValueError if a value is none."""
    if pa.types.is_timestamp(column.type):
        # Spark has microseconds only, and pandas writes nanoseconds by default.
        return within_range(pc.cast(column, options=pc.CastOptions(TIMESTAMP, allow_time_truncate=True)), "")
    if timestamp_format not in UNITS:
        if not pa.types.is_string(column.type):
            is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
            hint = "; set timestampFormat to the unit of the numbers" if is_number else ""
            raise ValueError(f"{column.type} is not ISO 8601 text{hint}")
        is_iso = timestamp_format == ISO
        return iso_texts.timestamps(column) if is_iso else time_patterns.timestamps(column, timestamp_format)
    read_as = f" when read as {timestamp_format}"
    try:
        micros = _micros(column, _DIGITS[timestamp_format])
    except ValueError:  # too large for 64 bits, infinite, or not a number
        raise ValueError(f"{_OUTSIDE}{read_as}") from None
    return within_range(micros, read_as).cast(TIMESTAMP)


def _micros(column: pa.Array, digits: int) -> pa.Array:
    """Multiply numbers by a power of ten to whole microseconds."""
    if pa.types.is_integer(column.type):
        return pc.multiply_checked(column.cast(pa.int64()), 10**digits)
    exact = pa.decimal128(MAX_PRECISION, digits)
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
        if _are_exact(column, digits):
            return pc.round(pc.multiply(column, float(10**digits))).cast(pa.int64())
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        column = decimal_texts.decimals(column, exact)
    elif pa.types.is_decimal256(column.type):
        column = decimal_texts.narrowed(column, exact)
    elif column.type.scale > digits:
        column = pc.round(column, digits, "half_towards_infinity")
    return decimal_texts.rescaled(column, exact).view(pa.decimal128(MAX_PRECISION, 0)).cast(pa.int64())


def _are_exact(numbers: pa.Array, digits: int) -> bool:
    """Return whether doubles are right to the microsecond when their products are rounded."""
    limit = _EXACT / 10**digits
    if len(numbers) == 0:
        return True
    stored = np.frombuffer(numbers.buffers()[1], np.float64)[numbers.offset : numbers.offset + len(numbers)]
    if stored.max() < limit and stored.min() > -limit:  # several times faster than Arrow, but NULLs may be anything
        return True
    bounds = pc.min_max(numbers)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    return low is None or bool(max(-low, high) < limit)


class InexactTimesError(ValueError):
    """Times whose doubles may be other microseconds than their text."""


def require_exact(numbers: pa.Array, timestamp_format: str) -> None:
    """Raise InexactTimesError if doubles that were read from text may have lost microseconds."""
    if not _are_exact(numbers, _DIGITS[timestamp_format]):
        raise InexactTimesError


def within_range(micros: pa.Array, read_as: str, beyond: int = 0) -> pa.Array:
    """Require the years 1 to 9999 of Spark's TIMESTAMP; a value outside them is a sign of a wrong unit.

    ``beyond`` is how far outside they may be, in microseconds.
    """
    bounds = pc.min_max(micros.cast(pa.int64()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and (low < _EARLIEST - beyond or high > _LATEST + beyond):
        raise ValueError(f"{_OUTSIDE}{read_as}")
    return micros


def _base64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
