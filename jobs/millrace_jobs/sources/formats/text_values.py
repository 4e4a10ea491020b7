"""Values of a file or message as columns of the declared types, where they come as text or as plain numbers.

Arrow's readers convert most values themselves, and faster. The conversions here are those in which Arrow differs from
Spark: values are read as another type (``stored_type``) and cast to the declared type as whole columns
(``to_declared``). Text of a field of CSV that Arrow refuses, or reads as something else, is converted by ``from_text``,
which takes the further spellings that Spark's reader takes, and says what to write instead of the others.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_api.sql.time_formats import ISO, UNITS, is_pattern
from millrace_jobs.sources.formats.column_types import (
    MAX_PRECISION,
    TIMESTAMP,
    is_nested,
    leaves_of,
    rebuilt,
    spark_type,
    time_format,
)
from millrace_jobs.sources.formats.text_conversions import (
    decimals,
    iso_dates,
    iso_timestamps,
    narrowed_decimals,
    pattern_dates,
    pattern_timestamps,
    rescaled_decimals,
)

TIMESTAMP_FORMATS = ("iso", "seconds", "milliseconds", "microseconds")
"""The formats of a TIMESTAMP: ``iso`` is text such as 2013-01-01T10:00:00.5+01:00, in UTC if it has no zone.

The others are numbers since 1970 in that unit.
"""

_DIGITS = {"seconds": 6, "milliseconds": 3, "microseconds": 0}
_EXACT = 2.0**51  # microseconds from which on those of a double may be wrong by one: in the year 2041
_EARLIEST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_LATEST = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000_000 + 999_999
_OUTSIDE = "outside the years 1 to 9999"

_WHOLE = r"^[+-]?[0-9]+$"
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]+")
_FRACTION = re.compile(r"[+-]?\d*\.\d*|[+-]?\d+(?:\.\d*)?[eE][+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:[,_ '\u00a0]\d{3})+(?:\.\d*)?")
_BOOLEANS = frozenset({"t", "f", "1", "0", "yes", "no", "y", "n", "on", "off"})
_NULLS = frozenset({"na", "n/a", "#n/a", "null", "none", "\\n", "-"})
_SHOWN = 80
IN_UTF8 = "write it in UTF-8, as iconv -f LATIN1 -t UTF-8 does with a file"


def stored_type(declared: pa.DataType, timestamp_format: str) -> pa.DataType:
    """Return the type that a column of a text file is read as.

    Timestamps in seconds or milliseconds are read as doubles, to keep fractions; see ``require_exact``. Decimals are
    converted from their text: see ``text_conversions``.
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
            decoded = (None if text is None else base64.b64decode(text, validate=True) for text in column.to_pylist())
            return pa.array(list(decoded), pa.binary())
        if pa.types.is_decimal(declared.type) and pa.types.is_string(column.type):
            return decimals(column, declared.type)
        if pa.types.is_decimal(declared.type) and pa.types.is_decimal256(column.type):
            return narrowed_decimals(column, declared.type)
        return column.cast(declared.type)
    except (ValueError, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {declared.name} ({spark_type(declared.type)}): {error}") from None


def dates(texts: pa.Array, timestamp_format: str) -> pa.Array:
    """Return texts as dates, by the pattern if there is one. Raises ValueError if a value is none."""
    return pattern_dates(texts, timestamp_format) if is_pattern(timestamp_format) else iso_dates(texts)


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
        return iso_timestamps(column) if timestamp_format == ISO else pattern_timestamps(column, timestamp_format)
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
        column = decimals(column, exact)
    elif pa.types.is_decimal256(column.type):
        column = narrowed_decimals(column, exact)
    elif column.type.scale > digits:
        column = pc.round(column, digits, "half_towards_infinity")
    return rescaled_decimals(column, exact).view(pa.decimal128(MAX_PRECISION, 0)).cast(pa.int64())


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


def from_text(texts: pa.Array, declared: pa.Field, timestamp_format: str) -> pa.Array:
    """Convert text to the declared type; empty text is NULL, except in a STRING or BINARY.

    Raises ValueError if a value does not fit; the message has the column, the value and what to write instead.
    """
    kind = declared.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return texts.cast(kind)
    texts = pc.ascii_trim_whitespace(texts)
    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    stored = stored_type(kind, time_format(declared, timestamp_format))
    try:
        column = _converted(texts, stored)
        if pa.types.is_decimal(kind):
            return to_declared(column, declared, timestamp_format)
    except ValueError:
        raise ValueError(_refusal(texts, stored, declared)) from None
    if kind == TIMESTAMP and pa.types.is_floating(stored):
        column = texts  # which has all digits
    return to_declared(column, declared, timestamp_format)


def _converted(texts: pa.Array, stored: pa.DataType) -> pa.Array:
    if pa.types.is_integer(stored):
        # Arrow takes hexadecimal and does not take a plus; Spark's reader does the contrary.
        if pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py() is False:
            raise pa.ArrowInvalid
        return pc.replace_substring_regex(texts, r"^\+", "").cast(stored)
    if pa.types.is_boolean(stored):
        words = pc.utf8_lower(texts)
        if pc.all(pc.is_in(words.drop_null(), pa.array(["true", "false"]))).as_py() is False:
            raise pa.ArrowInvalid
        return pc.equal(words, "true")
    return texts if pa.types.is_date(stored) else texts.cast(stored)


def _refusal(texts: pa.Array, stored: pa.DataType, declared: pa.Field) -> str:
    """Return what is wrong with text that does not fit, and what to write instead if it is a single value."""
    name = spark_type(declared.type)
    values = texts.drop_null()
    if len(values) != 1:
        return f"column {declared.name} ({name}): a value is invalid"
    value = values[0].as_py()
    shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "..."
    return f"column {declared.name} ({name}): invalid value {shown!r}: {_remedy(value, stored, declared)}"


def _remedy(value: str, stored: pa.DataType, declared: pa.Field) -> str:
    if value.lower() in _NULLS:
        return "leave the field empty for NULL"
    if pa.types.is_boolean(stored):
        return "write true or false" if value.lower() in _BOOLEANS else "write true or false, or declare it STRING"
    if _HEXADECIMAL.fullmatch(value):
        return "write the number in decimal digits, or declare the column STRING"
    if _GROUPED.fullmatch(value):
        return "write the digits without separators between thousands"
    if _DECIMAL_COMMA.fullmatch(value):
        return "write a decimal point in place of the comma"
    if declared.type == TIMESTAMP:
        return "write a number, or set timestampFormat: iso"
    if pa.types.is_integer(stored) and re.fullmatch(_WHOLE, value):
        return "it is outside the range of the type: declare a larger one, such as BIGINT or DECIMAL(38,0)"
    if pa.types.is_integer(stored) and _FRACTION.fullmatch(value):
        return "write a whole number, or declare the column DOUBLE or DECIMAL"
    if pa.types.is_decimal(declared.type) and _NUMBER.fullmatch(value):
        return "it has more digits than the type: declare a DECIMAL with more, up to DECIMAL(38, scale), or DOUBLE"
    return "write a number, or declare the column STRING"


def declared_batch(table: pa.Table, schema: pa.Schema, timestamp_format: str) -> pa.RecordBatch:
    """Return the declared columns of a table. Raises InexactTimesError if times have to be read with all digits."""
    for field in schema:
        for column, part in leaves_of(single_array(table, field.name), field):
            if part.type == TIMESTAMP and pa.types.is_floating(column.type):
                require_exact(column, time_format(part, timestamp_format))
    columns = [to_declared(single_array(table, field.name), field, timestamp_format) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def single_array(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
