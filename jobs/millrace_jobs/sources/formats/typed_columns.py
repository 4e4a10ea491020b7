"""Columns of files and messages that have types of their own, Parquet and Avro, as columns of the declared types.

A value is converted only if nothing of it is lost: whole numbers of any type to INT, 1.50 to DECIMAL(3,1), bytes that
are UTF-8 to STRING, numbers and times to their text. A value that would change is refused, and so is a type that means
something else, such as STRING for INT. A column without any value fits every type. Fields of a struct are found by
name; others than the declared ones are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from millrace_jobs.schemas.avro_schemas import is_member, is_union
from millrace_jobs.sources.formats.column_types import (
    MAX_PRECISION,
    TIMESTAMP,
    is_list,
    is_nested,
    parts_of,
    put_together,
    spark_type,
    taken_apart,
    time_format,
)
from millrace_jobs.sources.formats.type_conversions import (
    Conversion,
    conversion_of,
    is_bytes,
    is_number,
    is_text,
    is_uuid,
    storage,
)

_SHOWN = 60


@dataclass(frozen=True)
class TypedColumn:
    """A column of type ``found`` in a file or message, which is read as the declared column ``field``.

    ``by_writer``: the schema is that of each record's writer, as in Avro. A field of a struct that it does not have is
    NULL, and the case of names counts. In a file, a missing field does not fit, and a name in another case does. Of a
    union, a member that it does not have is NULL unless it is the ``only_writer``; any other name does not fit.
    """

    found: pa.DataType
    field: pa.Field
    timestamp_format: str
    by_writer: bool = False
    only_writer: bool = False

    @cached_property
    def _conversion(self) -> Conversion | None:
        if pa.types.is_null(self.found) or not is_nested(self.field.type):
            return conversion_of(self.found, self.field.type, time_format(self.field, self.timestamp_format))
        return self._nested_conversion()

    def _nested_conversion(self) -> Conversion | None:
        if self.parts is None:
            return None
        conversions: list[tuple[int | None, Conversion, pa.DataType]] = []
        for place, part in self.parts:
            if part._conversion is None or (place is None and self._requires(part)):
                return None
            conversions.append((place, part._conversion, part.field.type))
        return partial(_convert_nested, self.field.type, conversions)

    def _requires(self, part: TypedColumn) -> bool:
        """Whether a part has to be among those found, and is not NULL without."""
        if not self.by_writer:
            return True
        return is_union(self.found) and (self.only_writer or not is_member(part.field.name.rpartition(".")[2]))

    @cached_property
    def parts(self) -> list[tuple[int | None, TypedColumn]] | None:
        """The parts of a nested column, each with its place among those found; None if it is nested in another way."""
        places = places_of(self.found, self.field, by_writer=self.by_writer)
        if places is None:
            return None
        kinds = [part.type for part in parts_of(self.field.with_type(_plain(self.found)))]
        return [
            (place, replace(self, found=pa.null() if place is None else kinds[place], field=part))
            for place, part in zip(places, parts_of(self.field), strict=True)
        ]

    @property
    def fits(self) -> bool:
        """Whether values of the type can be read as the declared type, at least some of them."""
        return self._conversion is not None

    def require_fit(self) -> None:
        """Raise ValueError, with what is wrong and what to write, unless the column fits."""
        if not self.fits:
            raise ValueError(f"{self.misfit}: {self.hint}" if self.hint else self.misfit)

    @property
    def misfit(self) -> str:
        """What is wrong with a column that does not fit."""
        if (part := self._misfit_part) is not None:
            return part.misfit
        missing = [part.field.name for place, part in self.parts or () if place is None and self._requires(part)]
        if missing:
            names = ", ".join(field.name for field in _plain(self.found))
            return f"{self.title}: there is no field {missing[0]}; it has {names or 'no fields'}"
        return f"{self.title}: its type is {'a union' if is_union(self.found) else type_name(self.found)}"

    @property
    def _misfit_part(self) -> TypedColumn | None:
        return next((part for place, part in self.parts or () if place is not None and not part.fits), None)

    @property
    def hint(self) -> str:
        """What to write so that the column fits."""
        if (part := self._misfit_part) is not None:
            return part.hint
        name = self.field.name
        if is_union(self.found):
            return f"write {name} {_union_declaration(self.found)} in the schema"
        if is_nested(self.field.type):
            return f"write {name} in the schema as it is in the file, or leave it out"
        if self.field.type == TIMESTAMP and is_number(self.found):
            return "set timestampFormat to the unit of the numbers"
        suitable = suitable_type(self.found)
        if suitable is None and is_nested(_plain(self.found)):
            return f"write {name} {type_name(self.found)}<...> in the schema"
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
            title, place, why = self._failure(column)
            row = "" if first_row is None else f"row {first_row + place}: "
            raise ValueError(f"{title}: {row}{why}") from None

    def _failure(self, column: pa.Array) -> tuple[str, int, str]:
        """Return the title of the column or of its part with the first value that does not fit, its place, and why."""
        assert self._conversion is not None
        place = _first_misfit(self._conversion, column)
        if self.parts is not None and is_nested(column.type):
            found, _ = taken_apart(column.take(pa.array([place], pa.int64())), self.field.type)
            for index, part in self.parts:
                if index is not None and part._conversion and _reason(part._conversion, found[index], 0, None):
                    title, _, why = part._failure(found[index])
                    return title, place, why
        why = _reason(self._conversion, column, place, place + 1) or "does not fit"
        return self.title, place, why if why.startswith(("'", '"')) else f"{_shown(column[place])} {why}"

    @property
    def title(self) -> str:
        """The column as messages about it begin."""
        return f"column {self.field.name} ({spark_type(self.field.type)})"


def places_of(found: pa.DataType, field: pa.Field, *, by_writer: bool = False) -> list[int | None] | None:
    """Return where the parts of a nested column are among those found, None for a missing field.

    Returns None if a value of the type found is nested in another way, or not at all.
    """
    kind, found = field.type, _plain(found)
    if pa.types.is_list(kind) and is_list(found):
        return [0]
    if pa.types.is_map(kind) and pa.types.is_map(found):
        return [0, 1]
    if not (pa.types.is_struct(kind) and pa.types.is_struct(found)):
        return None
    names = [each.name for each in found]
    folded = [name.lower() for name in names]
    places: list[int | None] = []
    for each in kind:
        alike = [index for index, name in enumerate(folded) if name == each.name.lower() and not by_writer]
        exact = [index for index, name in enumerate(names) if name == each.name]
        matching = exact or alike
        places.append(matching[0] if len(matching) == 1 else None)
    return places


def _plain(found: pa.DataType) -> pa.DataType:
    """Return the type of the values of an extension."""
    return found.storage_type if isinstance(found, pa.BaseExtensionType) else found


def suitable_type(found: pa.DataType) -> pa.DataType | None:
    """Return the type of a column that can hold any value of the type ``found``; None if there is no such type."""
    found = storage(found)
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
    if is_text(found) or pa.types.is_time(found) or pa.types.is_null(found) or is_uuid(found):
        return pa.string()
    if is_bytes(found):
        return pa.binary()
    is_simple = pa.types.is_boolean(found) or pa.types.is_integer(found) or pa.types.is_floating(found)
    return wider.get(found, found) if is_simple else None


def type_name(found: pa.DataType) -> str:
    """Return the name of a type of a file, for messages: Spark's, if Spark has it."""
    found = storage(found)
    if is_uuid(found):
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
    (is_list, "ARRAY"),
]


def _union_declaration(found: pa.DataType) -> str:
    members = []
    for each in found:
        suitable = suitable_type(each.type)
        members.append(f"{each.name}: {f'{type_name(each.type)}<...>' if suitable is None else spark_type(suitable)}")
    return f"STRUCT<{', '.join(members)}>"


def _convert_nested(
    declared: pa.DataType, conversions: list[tuple[int | None, Conversion, pa.DataType]], column: pa.Array
) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    found, offsets = taken_apart(column, declared)
    rows = len(column) if offsets is None else len(found[0])
    parts = [
        pa.nulls(rows, kind) if place is None else conversion(found[place]) for place, conversion, kind in conversions
    ]
    if pa.types.is_map(declared):
        _require_keys(parts[0], offsets)
    return put_together(declared, parts, offsets, column.is_null())


def _require_keys(keys: pa.Array, offsets: pa.Array) -> None:
    """Raise ValueError if a map has a key twice, of which SQL would see one only, or an entry without a key."""
    if keys.null_count:
        raise ValueError("has an entry without a key")
    begins = offsets.to_numpy()
    maps = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    encoded = keys.dictionary_encode()
    if len(np.unique(maps * len(encoded.dictionary) + encoded.indices.to_numpy())) < len(keys):
        raise ValueError("has a key twice")


def _first_misfit(conversion: Conversion, column: pa.Array) -> int:
    """Return the place of the first value that does not fit; bisection finds it."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        begin, end = (begin, middle) if _reason(conversion, column, begin, middle) else (middle, end)
    return begin


def _reason(conversion: Conversion, column: pa.Array, begin: int, end: int | None) -> str:
    """Return why a part of a column does not fit; empty if it does."""
    try:
        conversion(column.take(pa.array(range(begin, len(column) if end is None else end), pa.int64())))
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
