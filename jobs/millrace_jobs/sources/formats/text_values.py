"""Values of each type from their text in a CSV field, converted whole columns at a time.

Arrow's CSV reader converts the usual spellings by itself, and faster. The conversions here are for text that it refuses
or reads as something else: they give the same values, take the further spellings that Spark's reader takes, and say
what to write instead of the others.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.sources.formats.column_types import TIMESTAMP, spark_type, stored_type, time_format, to_declared

_WHOLE = r"^[+-]?[0-9]+$"
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]+")
_FRACTION = re.compile(r"[+-]?\d*\.\d*|[+-]?\d+(?:\.\d*)?[eE][+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:[,_ '\u00a0]\d{3})+(?:\.\d*)?")
_BOOLEANS = frozenset({"t", "f", "1", "0", "yes", "no", "y", "n", "on", "off"})
_NULLS = frozenset({"na", "n/a", "#n/a", "null", "none", "\\n", "-"})
_SHOWN = 80


def from_text(texts: pa.Array, declared: pa.Field, timestamp_format: str) -> pa.Array:
    """Convert text to the declared type; empty text is NULL, except in a STRING or BINARY.

    Raises:
        ValueError: a value does not fit; the message has the column, the value and what to write instead.
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
