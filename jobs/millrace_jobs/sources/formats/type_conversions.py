"""Conversions of columns of single values from the type that a file or message has to the declared one.

``typed_columns`` has the rules, and ``value_conversions`` what Arrow's casts do otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter

import pyarrow as pa

from millrace_api.sql.time_formats import UNITS
from millrace_jobs.sources.formats.column_types import TIMESTAMP, dates, timestamps
from millrace_jobs.sources.formats.decimal_texts import rescaled
from millrace_jobs.sources.formats.value_conversions import (
    date_text,
    dates_within_range,
    decimal_to_float,
    float_to_decimal,
    midnights,
    narrowed,
    time_text,
    timestamps_within_range,
    uuid_text,
    valid_text,
    zeros_and_ones,
)

Conversion = Callable[[pa.Array], pa.Array]
"""Converts whole columns, all or nothing. Raises ValueError if a value does not fit; its own texts say why."""


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
    for check, conversion in _CONVERSIONS:
        if check(declared):
            return conversion(found, declared)
    return None


def _after(unwrap: Conversion, conversion: Conversion | None) -> Conversion | None:
    return None if conversion is None else lambda column: conversion(unwrap(column))


def _cast(declared: pa.DataType, column: pa.Array) -> pa.Array:
    return column.cast(declared)


def _to_boolean(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if pa.types.is_integer(found):
        return zeros_and_ones
    return partial(_cast, declared) if pa.types.is_boolean(found) else None


def _to_integer(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if pa.types.is_time(found) or pa.types.is_timestamp(found) or pa.types.is_date32(found):
        return _to_stored_number(found, declared)
    is_numeric = is_number(found) or pa.types.is_boolean(found)
    return partial(_cast, declared) if is_numeric else None  # Arrow refuses fractions and overflows


def _to_stored_number(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    """Return the conversion of days or times to the numbers that the file has, in its unit, if they have room."""
    stored = pa.int64() if pa.types.is_timestamp(found) or pa.types.is_time64(found) else pa.int32()
    if declared.bit_width < stored.bit_width:
        return None
    return lambda column: column.cast(stored).cast(declared)


def _to_float(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if pa.types.is_decimal(found):
        return partial(decimal_to_float, declared)
    if pa.types.is_floating(found) and found.bit_width > declared.bit_width:
        return partial(narrowed, declared)
    is_numeric = is_number(found) or pa.types.is_boolean(found)
    return partial(_cast, declared) if is_numeric else None  # Arrow refuses integers beyond the exact ones


def _to_decimal(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if pa.types.is_integer(found):
        # Arrow wants room for every integer of the type; decimal256 has it for each scale
        return lambda column: column.cast(pa.decimal256(76, declared.scale)).cast(declared)
    if pa.types.is_floating(found):
        return partial(float_to_decimal, declared)
    return (lambda column: rescaled(column, declared)) if pa.types.is_decimal(found) else None


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


def _to_bytes(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if is_uuid(found):
        return lambda column: column.storage.cast(declared)
    return partial(_cast, declared) if is_text(found) or is_bytes(found) else None


def _to_date(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if pa.types.is_date(found) or found == pa.int32():  # days since 1970
        return lambda column: dates_within_range(column.cast(declared))
    return midnights if pa.types.is_timestamp(found) else None


def _to_timestamp(found: pa.DataType, timestamp_format: str) -> Conversion | None:
    if pa.types.is_timestamp(found):
        return timestamps_within_range
    if pa.types.is_date(found):
        return lambda column: timestamps_within_range(column.cast(pa.date32()).cast(pa.timestamp("us")))
    if is_text(found) if timestamp_format not in UNITS else is_number(found):
        return lambda column: timestamps(_as_text(column), timestamp_format)
    return None


_CONVERSIONS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], Conversion | None]]] = [
    (pa.types.is_boolean, _to_boolean),
    (pa.types.is_integer, _to_integer),
    (pa.types.is_floating, _to_float),
    (pa.types.is_decimal, _to_decimal),
    (pa.types.is_string, _to_text),
    (pa.types.is_binary, _to_bytes),
    (pa.types.is_date, _to_date),
]


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
