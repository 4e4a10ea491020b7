"""Declared columns as an Arrow schema, and nested columns as the columns of single values that they are made of.

A value within a NULL struct or list is never seen: such places are NULL, or left out, before anything is converted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_api.errors import MillraceError, Problem
from millrace_api.sql.schema_ddl import Column, parse_schema, type_problem

ConvertPart = Callable[[pa.Array, pa.Field], pa.Array]
"""Converts a part of a column to the type of a field, whose name is the path to it, such as ``user.country``."""

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

_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_NAMES_SHOWN = 20

MAX_PRECISION = 38
"""The maximum number of digits of a DECIMAL."""

_FORMAT = b"time"  # key of a field's metadata with the format of its times, if that is another one than the source's


def is_nested(kind: pa.DataType) -> bool:
    """Whether a type is a struct, a list of any layout, or a map."""
    return bool(pa.types.is_struct(kind) or pa.types.is_map(kind) or is_list(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is a list of any layout, but no map."""
    types = pa.types
    is_view = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or is_view)


def parts_of(declared: pa.Field) -> list[pa.Field]:
    """Return the fields of a struct, the element of a list, or the key and the value of a map, named by their paths."""
    kind = declared.type
    if pa.types.is_struct(kind):
        return [field.with_name(f"{declared.name}.{field.name}") for field in kind]
    if pa.types.is_map(kind):
        return [pa.field(f"{declared.name}[key]", kind.key_type), pa.field(f"{declared.name}[value]", kind.item_type)]
    return [pa.field(f"{declared.name}[]", kind.value_type)]


def with_parts(kind: pa.DataType, parts: list[pa.DataType]) -> pa.DataType:
    """Return a nested type with other parts; a list of any layout becomes one of the usual layout."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(part) for field, part in zip(kind, parts, strict=True)])
    return pa.map_(*parts) if pa.types.is_map(kind) else pa.list_(*parts)


def leaf_count(kind: pa.DataType) -> int:
    """Return how many columns of single values a column of a type is made of."""
    return sum(leaf_count(part.type) for part in parts_of(pa.field("", kind))) if is_nested(kind) else 1


def leaves_of(column: pa.Array, declared: pa.Field) -> Iterator[tuple[pa.Array, pa.Field]]:
    """Yield the columns of single values that a column is made of, each with its declared field."""
    if not is_nested(declared.type):
        yield column, declared
        return
    for part, field in zip(taken_apart(column, declared.type)[0], parts_of(declared), strict=True):
        yield from leaves_of(part, field)


def rebuilt(column: pa.Array, declared: pa.Field, convert: ConvertPart) -> pa.Array:
    """Return a nested column in its declared type, each part converted; parts are matched by their order."""
    parts, offsets = taken_apart(column, declared.type)
    converted = [convert(part, field) for part, field in zip(parts, parts_of(declared), strict=True)]
    return put_together(declared.type, converted, offsets, column.is_null())


def taken_apart(column: pa.Array, declared: pa.DataType) -> tuple[list[pa.Array], pa.Array | None]:
    """Return the parts of a column, and where each list or map begins in them; None for a struct.

    A column that is declared a map may be a list of structs of a key and a value.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        return column.flatten(), None
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    values = column.flatten()  # without those of NULL
    return values.flatten() if pa.types.is_map(declared) else [values], offsets


def put_together(declared: pa.DataType, parts: list[pa.Array], offsets: pa.Array | None, missing: pa.Array) -> pa.Array:
    """Return a nested column of a type from its parts; it is NULL where ``missing`` says so."""
    if pa.types.is_struct(declared):
        return pa.StructArray.from_arrays(parts, fields=list(declared), mask=missing)
    if pa.types.is_map(declared):
        return pa.MapArray.from_arrays(offsets, *parts, declared, mask=missing)
    return pa.ListArray.from_arrays(offsets, *parts, declared, mask=missing)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of columns; every one is nullable.

    Raises MillraceError with one problem per column whose type no source can read.
    """
    problems = [Problem(*problem) for problem in map(type_problem, columns) if problem is not None]
    if problems:
        raise MillraceError(*problems)
    return pa.schema([(column.name, _arrow_type(column)) for column in columns])


def declared_schema(ddl: str) -> pa.Schema:
    """Return the Arrow schema of columns declared in SQL, such as ``id BIGINT, name STRING``. Raises MillraceError."""
    return arrow_schema(parse_schema(ddl))


def spark_type(arrow_type: pa.DataType) -> str:
    """Return the Spark name of a type, for messages; of a nested type without what is in it."""
    if is_nested(arrow_type):
        return "STRUCT" if pa.types.is_struct(arrow_type) else "MAP" if pa.types.is_map(arrow_type) else "ARRAY"
    names = {known: name for name, known in _TYPES.items()}
    if pa.types.is_decimal(arrow_type):
        return f"DECIMAL({arrow_type.precision},{arrow_type.scale})"
    return names.get(arrow_type, str(arrow_type))


def _arrow_type(column: Column) -> pa.DataType:
    """Return the type of a column that a source can read; see ``type_problem``."""
    if column.parts:
        types = [_arrow_type(part) for part in column.parts]
        if column.is_struct:
            return pa.struct([(part.name, kind) for part, kind in zip(column.parts, types, strict=True)])
        return pa.list_(types[0]) if len(types) == 1 else pa.map_(*types)
    size = _DECIMAL.fullmatch(column.type)
    return _TYPES[column.type] if size is None else pa.decimal128(int(size[1]), int(size[2]))


def shown_names(names: Sequence[str]) -> str:
    """Return the first names of a file's or a table's columns, for messages."""
    return ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")


def place_of(name: str, table: pa.Schema) -> int:
    """Return the place of a declared column among those of a table; -1 if there is none, -2 if there are several."""
    exact = table.get_all_field_indices(name)
    found = exact or [place for place, each in enumerate(table.names) if each.lower() == name.lower()]
    return -1 if not found else found[0] if len(found) == 1 else -2


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
