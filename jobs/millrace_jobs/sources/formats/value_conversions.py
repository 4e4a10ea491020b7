"""Conversions of whole columns whose values have a type of their own, from Parquet or Avro; where Arrow's casts differ.

Each raises ValueError, with a text that follows the value, if a value would lose something.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.sources.formats.column_types import TIMESTAMP, within_range

_EXACT_DIGITS = 15
"""Every decimal of up to so many digits is also a DOUBLE."""
_LARGEST_EXACT_POWER = 22
"""The largest power of ten that is a DOUBLE."""
_EDGE = 366 * 86_400_000_000
"""How far, in microseconds, results reach beyond the years 1 to 9999: windows of times at their edges, for instance."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]


def zeros_and_ones(column: pa.Array) -> pa.Array:
    """Return integers as booleans. Raises ValueError if one is neither 0 nor 1."""
    booleans = column.cast(pa.bool_())
    if not pc.all(pc.equal(booleans.cast(column.type), column), min_count=0).as_py():
        raise ValueError("is neither 0 nor 1")
    return booleans


def narrowed(declared: pa.DataType, column: pa.Array) -> pa.Array:
    """Return floats in a smaller type. Raises ValueError if a value has more digits than that.

    A float stands for the shortest decimal that is written like it, so 0.1 stays 0.1.
    """
    narrow = column.cast(declared, safe=False)
    is_same = pc.or_(pc.equal(narrow.cast(column.type), column), pc.is_nan(column))
    if not pc.all(is_same, min_count=0).as_py():
        others = pc.invert(is_same)
        written = _shortest(narrow.filter(others)).cast(column.type)
        if not pc.all(pc.equal(written, column.filter(others)), min_count=0).as_py():
            raise ValueError("does not fit")
    return narrow


def decimal_to_float(declared: pa.DataType, column: pa.Array) -> pa.Array:
    """Return the floats whose shortest texts are these decimals. Raises ValueError if a value has more digits."""
    if declared == pa.float64() and (quotients := _quotients(column)) is not None:
        return quotients
    floats = column.cast(pa.string()).cast(declared)  # Arrow's own cast is off by some units in the last place
    if declared != pa.float64() or column.type.precision > _EXACT_DIGITS:
        back = _shortest(floats).cast(column.type)
        if not pc.all(pc.equal(back, column), min_count=0).as_py():
            raise ValueError("does not fit")
    return floats


def _quotients(column: pa.Array) -> pa.Array | None:
    """Return decimals as floats by one division, which is right if both numbers are exact; None if one is not."""
    if column.type.scale > _LARGEST_EXACT_POWER or column.type.bit_width > 128:
        return None
    wide = column.cast(pa.decimal128(38, column.type.scale))
    words = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 2)[wide.offset : wide.offset + len(wide)]
    low, high = words[:, 0], words[:, 1]
    if not ((low > -(10**_EXACT_DIGITS)) & (low < 10**_EXACT_DIGITS) & (high == low >> 63)).all():
        return None
    missing = wide.is_null().to_numpy(zero_copy_only=False) if wide.null_count else None
    return pa.array(low / 10.0**column.type.scale, mask=missing)


def float_to_decimal(declared: pa.DataType, column: pa.Array) -> pa.Array:
    """Return the decimals that are the shortest texts of these floats. Raises ValueError if one has more digits."""
    texts = _shortest(column)
    decimals = texts.cast(declared)  # Arrow makes 0 of very small numbers
    back = decimals.cast(pa.string()).cast(pa.float64())
    if not pc.all(pc.equal(back, texts.cast(pa.float64())), min_count=0).as_py():
        raise ValueError("does not fit")
    return decimals


def _shortest(column: pa.Array) -> pa.Array:
    """Return the shortest text that stands for each float."""
    return (column.cast(pa.float32()) if pa.types.is_float16(column.type) else column).cast(pa.string())


def valid_text(column: pa.Array) -> pa.Array:
    """Return bytes as text without a copy. Parquet's readers do not check that text is UTF-8."""
    if pa.types.is_string(column.type) and _is_ascii(column):
        return column
    try:
        return column.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise ValueError("is not UTF-8") from None


def _is_ascii(column: pa.Array) -> bool:
    """Return whether all text is ASCII; several times faster than to check value by value that it is UTF-8."""
    _, offsets, data = column.buffers()
    if data is None:
        return True
    begin, end = np.frombuffer(offsets, np.int32)[[column.offset, column.offset + len(column)]]
    return bool(np.frombuffer(data, np.int8)[begin:end].min(initial=0) >= 0)


def uuid_text(column: pa.Array) -> pa.Array:
    """Return UUIDs as text, such as ``6ba7b810-9dad-11d1-80b4-00c04fd430c8``."""
    missing = column.storage.is_null()
    if not len(column):
        return pa.array([], pa.string())
    stored = column.storage.fill_null(bytes(16))
    octets = np.frombuffer(stored.buffers()[1], np.uint8).reshape(-1, 16)[stored.offset : stored.offset + len(stored)]
    texts = np.full((len(octets), 36), ord("-"), np.uint8)
    texts[:, _UUID_DIGITS] = _HEX[np.stack([octets >> 4, octets & 15], axis=2)].reshape(-1, 32)
    return pc.if_else(missing, None, pa.array(texts.view("S36").ravel(), pa.binary()).cast(pa.string()))


def time_text(column: pa.Array) -> pa.Array:
    """Return times of day as text, such as ``10:00:00.500000``. Raises ValueError if one is longer than a day."""
    text = column.cast(pa.string())
    if pc.any(pc.starts_with(text, "<")).as_py():  # Arrow's mark of a time that there is not
        raise ValueError("is not a time of day")
    return text


def date_text(column: pa.Array) -> pa.Array:
    """Return dates or timestamps as text, such as ``2024-05-01 10:00:00.000Z``; one without a zone has no Z.

    Raises ValueError if one is outside the years of SQL.
    """
    if pa.types.is_date(column.type):
        return dates_within_range(column.cast(pa.date32())).cast(pa.string())
    timestamps_within_range(column)
    return column.cast(pa.string())


def midnights(column: pa.Array) -> pa.Array:
    """Return timestamps as dates in UTC. Raises ValueError if one has a time of day."""
    column = column.cast(pa.timestamp(column.type.unit, "UTC"))  # Arrow's dates are those of a column's own zone
    dates = column.cast(pa.date32())
    if not pc.all(pc.equal(dates.cast(column.type), column), min_count=0).as_py():
        raise ValueError("has a time of day")
    return dates_within_range(dates)


def dates_within_range(dates: pa.Array) -> pa.Array:
    """Return dates as they are. Raises ValueError if one is outside the years of SQL."""
    timestamps_within_range(dates.cast(pa.timestamp("s")))
    return dates


def timestamps_within_range(column: pa.Array) -> pa.Array:
    """Return timestamps of any unit in microseconds, earlier ones for fractions; those without a zone are in UTC.

    Raises ValueError if one is outside the years of SQL.
    """
    if column.type.unit == "ns":
        nanos = column.cast(pa.int64())
        micros = pc.divide(nanos, 1000)
        if (earliest := pc.min(nanos).as_py()) is not None and earliest < 0:  # Arrow rounds them towards 1970
            is_later = pc.greater(pc.multiply(micros, 1000), nanos)
            micros = pc.subtract(micros, is_later.cast(pa.int64()))
        return micros.cast(TIMESTAMP)
    return within_range(column.cast(TIMESTAMP), "", _EDGE)
