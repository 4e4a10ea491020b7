"""Columns of files and messages that have types of their own, Parquet and Avro, as columns of the declared types.

A value is converted only if nothing of it is lost: whole numbers of any type to INT, 1.50 to DECIMAL(3,1), bytes that
are UTF-8 to STRING, numbers and times to their text. A value that would change is refused, and so is a type that means
something else, such as STRING for INT. A column without any value fits every type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property, partial
from operator import attrgetter

import pyarrow as pa

from millrace_jobs.sources.formats import iso_texts
from millrace_jobs.sources.formats.column_types import MAX_PRECISION, TIMESTAMP, spark_type, timestamps
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

_SHOWN = 60


@dataclass(frozen=True)
class TypedColumn:
    """A column of type ``found`` in a file or message, which is read as the declared column ``field``."""

    found: pa.DataType
    field: pa.Field
    timestamp_format: str

    @cached_property
    def _conversion(self) -> Conversion | None:
        return _conversion(self.found, self.field.type, self.timestamp_format)

    @property
    def fits(self) -> bool:
        """Whether values of the type can be read as the declared type, at least some of them."""
        return self._conversion is not None

    @property
    def misfit(self) -> str:
        """What is wrong with a column that does not fit."""
        return f"{self.title}: its type is {type_name(self.found)}"

    @property
    def hint(self) -> str:
        """What to write so that the column fits."""
        name = self.field.name
        if self.field.type == TIMESTAMP and _is_number(self.found):
            return "set timestampFormat to the unit of the numbers"
        suitable = suitable_type(self.found)
        if suitable is None:
            return f"leave {name} out of the schema, because no column can hold it"
        if suitable == self.field.type:
            return "correct the file, or leave the column out of the schema"
        return f"write {name} {spark_type(suitable)} in the schema"

    def convert(self, column: pa.Array, first_row: int | None = None) -> pa.Array:
        """Return the column in the declared type.

        Raises ValueError with a description of the first value that does not fit; ``first_row`` is the number of the
        first value's row, if rows have numbers.
        """
        if self._conversion is None:
            raise ValueError(self.misfit)
        try:
            return self._conversion(column)
        except (ValueError, pa.ArrowNotImplementedError):
            raise ValueError(f"{self.title}: {_explained(self._conversion, column, first_row)}") from None

    @property
    def title(self) -> str:
        """The column as messages about it begin."""
        return f"column {self.field.name} ({spark_type(self.field.type)})"


def suitable_type(found: pa.DataType) -> pa.DataType | None:
    """Return the type of a column that can hold any value of the type ``found``; None if there is no such type."""
    found = _storage(found)
    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.float16(): pa.float32()}
    if found == pa.uint64():
        return pa.decimal128(20, 0)
    if pa.types.is_decimal(found):
        fits = found.precision <= MAX_PRECISION and 0 <= found.scale <= found.precision
        return pa.decimal128(found.precision, found.scale) if fits else None
    if pa.types.is_timestamp(found):
        return TIMESTAMP
    if pa.types.is_date(found):
        return pa.date32()
    if _is_text(found) or pa.types.is_time(found) or pa.types.is_null(found) or _is_uuid(found):
        return pa.string()
    if _is_bytes(found):
        return pa.binary()
    is_simple = pa.types.is_boolean(found) or pa.types.is_integer(found) or pa.types.is_floating(found)
    return wider.get(found, found) if is_simple else None


def type_name(found: pa.DataType) -> str:
    """Return the name of a type of a file, for messages: Spark's, if Spark has it."""
    found = _storage(found)
    if _is_uuid(found):
        return "UUID"
    if pa.types.is_unsigned_integer(found):
        return f"UINT{found.bit_width}"
    for check, name in _NAMES:
        if check(found):
            return name
    suitable = suitable_type(found)
    return str(found) if suitable is None else spark_type(suitable)


_NAMES: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (pa.types.is_float16, "FLOAT16"),
    (pa.types.is_time, "TIME"),
    (pa.types.is_interval, "INTERVAL"),
    (pa.types.is_struct, "STRUCT"),
    (pa.types.is_map, "MAP"),
    (lambda found: pa.types.is_list(found) or pa.types.is_large_list(found), "ARRAY"),
    (lambda found: pa.types.is_list_view(found) or pa.types.is_large_list_view(found), "ARRAY"),
    (pa.types.is_fixed_size_list, "ARRAY"),
]


def _conversion(found: pa.DataType, declared: pa.DataType, timestamp_format: str) -> Conversion | None:
    """Return the conversion of columns of one type to another; None if they do not mean the same."""
    if pa.types.is_dictionary(found):
        return _after(pa.DictionaryArray.dictionary_decode, _conversion(found.value_type, declared, timestamp_format))
    if isinstance(found, pa.BaseExtensionType) and not _is_uuid(found):
        return _after(attrgetter("storage"), _conversion(found.storage_type, declared, timestamp_format))
    if pa.types.is_duration(found):  # Parquet has no such type: to other readers it is a number, too
        return _after(partial(_cast, pa.int64()), _conversion(pa.int64(), declared, timestamp_format))
    if pa.types.is_null(found):
        return lambda column: pa.nulls(len(column), declared)
    if declared == TIMESTAMP:
        return _to_timestamp(found, timestamp_format)
    for check, conversion in _CONVERSIONS:
        if check(declared):
            return conversion(found, declared)
    return _nested(found, declared, timestamp_format)


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
    is_number = _is_number(found) or pa.types.is_boolean(found)
    return partial(_cast, declared) if is_number else None  # Arrow refuses fractions and overflows


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
    is_number = _is_number(found) or pa.types.is_boolean(found)
    return partial(_cast, declared) if is_number else None  # Arrow refuses integers beyond the exact ones


def _to_decimal(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if pa.types.is_integer(found):
        # Arrow wants room for every integer of the type; decimal256 has it for each scale
        return lambda column: column.cast(pa.decimal256(76, declared.scale)).cast(declared)
    if pa.types.is_floating(found):
        return partial(float_to_decimal, declared)
    return (lambda column: rescaled(column, declared)) if pa.types.is_decimal(found) else None


def _to_text(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if _is_uuid(found):
        return uuid_text
    if _is_text(found) or (_is_bytes(found) and not pa.types.is_fixed_size_binary(found)):
        return valid_text
    if pa.types.is_time(found):
        return time_text
    if pa.types.is_date(found) or pa.types.is_timestamp(found):
        return date_text
    return partial(_cast, declared) if _is_number(found) or pa.types.is_boolean(found) else None


def _to_bytes(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if _is_uuid(found):
        return lambda column: column.storage.cast(declared)
    return partial(_cast, declared) if _is_text(found) or _is_bytes(found) else None


def _to_date(found: pa.DataType, declared: pa.DataType) -> Conversion | None:
    if _is_text(found):
        return lambda column: iso_texts.dates(_as_text(column))
    if pa.types.is_date(found) or found == pa.int32():  # days since 1970
        return lambda column: dates_within_range(column.cast(declared))
    return midnights if pa.types.is_timestamp(found) else None


def _to_timestamp(found: pa.DataType, timestamp_format: str) -> Conversion | None:
    if pa.types.is_timestamp(found):
        return timestamps_within_range
    if pa.types.is_date(found):
        return lambda column: timestamps_within_range(column.cast(pa.date32()).cast(pa.timestamp("us")))
    if _is_text(found) if timestamp_format == "iso" else _is_number(found):
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


def _nested(found: pa.DataType, declared: pa.DataType, timestamp_format: str) -> Conversion | None:
    """Return the conversion of a nested column, which only the fields of an Avro schema declare."""
    if found.id != declared.id:
        return None
    inner = [
        _conversion(one.type, other.type, timestamp_format)
        for one, other in zip(_children(found), _children(declared), strict=True)
    ]
    conversions = [conversion for conversion in inner if conversion is not None]
    return partial(_convert_nested, declared, conversions) if len(conversions) == len(inner) else None


def _convert_nested(declared: pa.DataType, inner: list[Conversion], column: pa.Array) -> pa.Array:
    missing = column.is_null()
    if pa.types.is_struct(declared):
        parts = [conversion(part) for conversion, part in zip(inner, column.flatten(), strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(declared), mask=missing)
    if pa.types.is_map(declared):
        keys, items = inner[0](column.keys), inner[1](column.items)
        return pa.MapArray.from_arrays(column.offsets, keys, items, declared, mask=missing)
    return pa.ListArray.from_arrays(column.offsets, inner[0](column.values), declared, mask=missing)


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(index) for index in range(kind.num_fields)]


def _as_text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()) if _is_text(column.type) else column


def _storage(found: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, an extension or a duration; a UUID stays one."""
    if pa.types.is_dictionary(found):
        return _storage(found.value_type)
    if isinstance(found, pa.BaseExtensionType) and not _is_uuid(found):
        return _storage(found.storage_type)
    return pa.int64() if pa.types.is_duration(found) else found


def _is_uuid(found: pa.DataType) -> bool:
    return bool(isinstance(found, pa.BaseExtensionType) and found.extension_name == "arrow.uuid")


def _is_number(found: pa.DataType) -> bool:
    return bool(pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found))


def _is_text(found: pa.DataType) -> bool:
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def _is_bytes(found: pa.DataType) -> bool:
    types = pa.types
    is_varying = types.is_binary(found) or types.is_large_binary(found) or types.is_binary_view(found)
    return bool(is_varying or types.is_fixed_size_binary(found))


def _explained(conversion: Conversion, column: pa.Array, first_row: int | None) -> str:
    """Return the first value that does not fit, and why; bisection finds it."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        begin, end = (begin, middle) if _reason(conversion, column, begin, middle) else (middle, end)
    why = _reason(conversion, column, begin, end) or "does not fit"
    place = "" if first_row is None else f"row {first_row + begin}: "
    return place + (why if why.startswith(("'", '"')) else f"{_shown(column[begin])} {why}")


def _reason(conversion: Conversion, column: pa.Array, begin: int, end: int) -> str:
    """Return why a part of a column does not fit; empty if it does."""
    try:
        conversion(column.take(pa.array(range(begin, end), pa.int64())))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return "does not fit"
    except UnicodeDecodeError:
        return "is not UTF-8"
    except ValueError as error:
        return str(error).replace("outside", "is outside", 1) if str(error).startswith("outside") else str(error)
    return ""


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_timestamp(value.type) and value.type.tz is not None:
        value = value.cast(pa.timestamp(value.type.unit, "UTC"))  # in which it is read
    try:
        found = value.as_py()
    except UnicodeDecodeError:
        found = value.cast(pa.binary()).as_py()
    except (ValueError, OverflowError):  # Python does not have the date or the time
        if pa.types.is_timestamp(value.type):
            return f"{value.cast(pa.int64()).as_py()} {value.type.unit} since 1970"
        return f"{value.cast(pa.int32()).as_py()} days since 1970" if pa.types.is_date32(value.type) else "a value"
    text = str(found) if isinstance(found, Decimal | date) else repr(found)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
