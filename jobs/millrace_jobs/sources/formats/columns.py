"""From what a file holds to the declared column type: timestamps, decimals, dates, base64.

Arrow's readers convert most values themselves. These are the ones they do not convert as Spark does; they are
read as another type (``stored_type``) and brought to the declared one as whole columns (``to_declared``).
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.sources.formats.schema import MAX_PRECISION, TIMESTAMP, spark_type

TIMESTAMP_FORMATS = ("iso", "seconds", "milliseconds", "microseconds")
"""``iso``: text such as 2013-01-01T10:00:00.5+01:00, UTC without a zone; else a number since 1970."""

_MICROSECONDS = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
_EARLIEST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_LATEST = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000_000 + 999_999
_ZONE = r"(?:[Zz]|[+-]\d{2}(?::?\d{2})?)$"
_TIME_OF_DAY = r"[ T]\d{2}"


def stored_type(declared: pa.DataType, timestamp_format: str) -> pa.DataType:
    """The type to read a column of a text file as.

    Doubles carry fractions of seconds; they hold microseconds exactly until the year 2255. Decimals are read
    with all their digits, to be rounded.
    """
    if pa.types.is_decimal(declared):
        return pa.decimal128(MAX_PRECISION, MAX_PRECISION - (declared.precision - declared.scale))
    if declared != TIMESTAMP:
        return declared
    if timestamp_format == "iso":
        return pa.string()
    return pa.int64() if timestamp_format == "microseconds" else pa.float64()


def to_declared(column: pa.Array, declared: pa.Field, timestamp_format: str) -> pa.Array:
    """``column`` as the declared type. Raises ValueError naming the column where a value does not fit."""
    try:
        if declared.type == TIMESTAMP:
            return _timestamps(column, timestamp_format)
        if column.type == declared.type:
            return column
        if declared.type == pa.binary() and pa.types.is_string(column.type):
            return pa.array([_base64(text) for text in column.to_pylist()], pa.binary())
        if pa.types.is_decimal(declared.type) and pa.types.is_decimal(column.type):
            column = pc.round(column, declared.type.scale, "half_towards_infinity")
        return column.cast(declared.type)
    except (ValueError, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {declared.name} ({spark_type(declared.type)}): {error}") from None


def _timestamps(column: pa.Array, timestamp_format: str) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        # Spark knows microseconds only, and pandas writes nanoseconds unless told otherwise.
        return _within_range(pc.cast(column, options=pc.CastOptions(TIMESTAMP, allow_time_truncate=True)), "")
    if timestamp_format == "iso":
        if not pa.types.is_string(column.type):
            raise ValueError(f"{column.type} is not an ISO 8601 text; name the unit as the timestamp format")
        return _within_range(_from_iso(column), "")
    factor = _MICROSECONDS[timestamp_format]
    if pa.types.is_integer(column.type):
        micros = pc.multiply_checked(column.cast(pa.int64()), factor)
    else:
        micros = pc.round(pc.multiply(column.cast(pa.float64()), float(factor))).cast(pa.int64())
    return _within_range(micros, f" when read as {timestamp_format}").cast(TIMESTAMP)


def _from_iso(text: pa.Array) -> pa.Array:
    """Most files have no zone at all, or one on each line; what is left pays for a regular expression."""
    try:
        return text.cast(pa.timestamp("us")).cast(TIMESTAMP)
    except pa.ArrowInvalid:
        pass  # zones, or a fraction longer than six digits
    try:
        return text.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        pass  # a mixture
    try:
        return _with_zones(text).cast(TIMESTAMP)
    except pa.ArrowInvalid:
        values = text.drop_null()
        which = repr(values[0].as_py()) if len(values) == 1 else "a value"
        raise ValueError(f"{which} is not an ISO 8601 timestamp") from None


def _with_zones(text: pa.Array) -> pa.Array:
    """Whole microseconds, a time of day and a zone on every timestamp, which is what Arrow asks for."""
    text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    has_time = pc.match_substring_regex(text, _TIME_OF_DAY)
    text = pc.if_else(has_time, text, pc.binary_join_element_wise(text, "00:00", " "))
    has_zone = pc.match_substring_regex(text, _ZONE)
    return pc.if_else(has_zone, text, pc.binary_join_element_wise(text, "Z", ""))


def _within_range(micros: pa.Array, read_as: str) -> pa.Array:
    """Spark's TIMESTAMP covers the years 1 to 9999; beyond them the unit is wrong, not the data."""
    bounds = pc.min_max(micros.cast(pa.int64()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and (low < _EARLIEST or high > _LATEST):
        raise ValueError(f"outside the years 1 to 9999{read_as}")
    return micros


def _base64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
