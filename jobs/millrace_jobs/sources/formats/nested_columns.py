"""Nested columns of Arrow, taken apart to the columns of single values that they are made of, and put together again.

A value within a NULL struct or list is never seen: such places are NULL, or left out, before anything is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ConvertPart = Callable[[pa.Array, pa.Field], pa.Array]
"""Converts a part of a column to the type of a field, whose name is the path to it, such as ``user.country``."""


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
