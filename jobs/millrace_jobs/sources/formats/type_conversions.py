"""Conversions of columns of single values from the type that a file or message has to the declared one.

``typed_columns`` has the rules. Where Arrow's casts differ, functions here convert whole columns; each raises
ValueError, with a text that follows the value, if a value would lose something.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_api.sql.time_formats import UNITS
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.text_conversions import bytes_of, rescaled_decimals
from millrace_jobs.sources.formats.text_values import dates, timestamps, within_range

_EXACT_DIGITS = 15  # every decimal of up to so many digits is also a DOUBLE
_LARGEST_EXACT_POWER = 22  # the largest power of ten that is a DOUBLE
_EDGE = 366 * 86_400_000_000
"""How far, in microseconds, results reach beyond the years 1 to 9999: windows of times at their edges, for instance."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]

Conversion = Callable[[pa.Array], pa.Array]
"""Converts whole columns, all or nothing. Raises ValueError if a value does not fit; its own texts say why."""


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
    return (column.cast(pa.float32()) if pa.types.is_float16(column.type) else column).cast(pa.string())


def valid_text(column: pa.Array) -> pa.Array:
    """Return bytes as text without a copy. Parquet's readers do not check that text is UTF-8."""
    if pa.types.is_string(column.type) and bytes_of(column).view(np.int8).min(initial=0) >= 0:  # ASCII
        return column
    try:
        return column.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise ValueError("is not UTF-8") from None


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


def conversion_of(found: pa.DataType, declared: pa.DataType, timestamp_format: str) -> Conversion | None:
    """Return the conversion of columns of one type to another; None if they do not mean the same, or are nested."""
    if pa.types.is_dictionary(found):
        return _after(pa.DictionaryArray.dictionary_decode, conversion_of(found.value_type, declared, timestamp_format))
    if isinstance(found, pa.BaseExtensionType) and not is_uuid(found):
        return _after(attrgetter("storage"), conversion_of(found.storage_type, declared, timestamp_format))
    if pa.types.is_duration(found):  # Parquet has no such type: to other readers it is a number, too
        return _after(partial(_cast, pa.int64()), conversion_of(pa.int64(), declared, timestamp_format))
    if pa.types.is_null(found):
        return lambda column: pa.nulls(len(column), declared)
    if declared == pa.date32() and is_text(found):
        return lambda column: dates(_as_text(column), timestamp_format)
    if declared == TIMESTAMP:
        return _to_timestamp(found, timestamp_format)
    if pa.types.is_boolean(declared) or is_number(declared):
        return _to_number(found, declared)
    if pa.types.is_string(declared):
        return _to_text(found, declared)
    if pa.types.is_binary(declared) and is_uuid(found):
        return lambda column: column.storage.cast(declared)
    if pa.types.is_binary(declared):
        return partial(_cast, declared) if is_text(found) or is_bytes(found) else None
    if pa.types.is_date(declared) and (pa.types.is_date(found) or found == pa.int32()):  # days since 1970
        return lambda column: dates_within_range(column.cast(declared))
    return midnights if pa.types.is_date(declared) and pa.types.is_timestamp(found) else None


def _after(unwrap: Conversion, conversion: Conversion | None) -> Conversion | None:
    return None if conversion is None else lambda column: conversion(unwrap(column))


def _cast(declared: pa.DataType, column: pa.Array) -> pa.Array:
    return column.cast(declared)


def _to_number(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    types, cast = pa.types, partial(_cast, declared)
    is_plain = is_number(found) or types.is_boolean(found)
    if types.is_boolean(declared):
        return zeros_and_ones if types.is_integer(found) else cast if types.is_boolean(found) else None
    if types.is_integer(declared):
        if not (types.is_time(found) or types.is_timestamp(found) or types.is_date32(found)):
            return cast if is_plain else None  # Arrow refuses fractions and overflows
        # days and times are the numbers that the file has, in its unit, if they have room
        stored = pa.int64() if types.is_timestamp(found) or types.is_time64(found) else pa.int32()
        has_room = declared.bit_width >= stored.bit_width
        return (lambda column: column.cast(stored).cast(declared)) if has_room else None
    if types.is_floating(declared):
        if types.is_decimal(found):
            return partial(decimal_to_float, declared)
        if types.is_floating(found) and found.bit_width > declared.bit_width:
            return partial(narrowed, declared)
        return cast if is_plain else None  # Arrow refuses integers beyond the exact ones
    if types.is_integer(found):
        # Arrow wants room for every integer of the type; decimal256 has it for each scale
        return lambda column: column.cast(pa.decimal256(76, declared.scale)).cast(declared)
    if types.is_floating(found):
        return partial(float_to_decimal, declared)
    return (lambda column: rescaled_decimals(column, declared)) if types.is_decimal(found) else None


def _to_text(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if is_uuid(found):
        return uuid_text
    if is_text(found) or (is_bytes(found) and not pa.types.is_fixed_size_binary(found)):
        return valid_text
    if pa.types.is_time(found):
        return time_text
    if pa.types.is_date(found) or pa.types.is_timestamp(found):
        return date_text
    return partial(_cast, declared) if is_number(found) or pa.types.is_boolean(found) else None


def _to_timestamp(found: pa.DataType, timestamp_format: str) -> Conversion | None:
    if pa.types.is_timestamp(found):
        return timestamps_within_range
    if pa.types.is_date(found):
        return lambda column: timestamps_within_range(column.cast(pa.date32()).cast(pa.timestamp("us")))
    if is_text(found) if timestamp_format not in UNITS else is_number(found):
        return lambda column: timestamps(_as_text(column), timestamp_format)
    return None


def _as_text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()) if is_text(column.type) else column


def storage(found: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, an extension or a duration; a UUID stays one."""
    if pa.types.is_dictionary(found):
        return storage(found.value_type)
    if isinstance(found, pa.BaseExtensionType) and not is_uuid(found):
        return storage(found.storage_type)
    return pa.int64() if pa.types.is_duration(found) else found


def is_uuid(found: pa.DataType) -> bool:
    """Whether a type is that of UUIDs."""
    return bool(isinstance(found, pa.BaseExtensionType) and found.extension_name == "arrow.uuid")


def is_number(found: pa.DataType) -> bool:
    """Whether a type is that of integers, floats or decimals."""
    return bool(pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found))


def is_text(found: pa.DataType) -> bool:
    """Whether a type is text of any layout."""
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def is_bytes(found: pa.DataType) -> bool:
    """Whether a type is bytes of any layout."""
    types = pa.types
    is_varying = types.is_binary(found) or types.is_large_binary(found) or types.is_binary_view(found)
    return bool(is_varying or types.is_fixed_size_binary(found))
