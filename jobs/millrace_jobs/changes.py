"""Changes: the one representation of streams and evolving tables, which operators on tables and sinks read and write.

A *row* of an evolving table has values and a period of event time, ``[FROM, TO)``, in which the table has it (the
versions of definition 56: version t of the table is the set of rows whose period contains t). A record of a stream is a
row whose period is one instant (definition 53). A *change* is a row with a weight: 1 adds the row, -1 removes it. The
changes of a batch are an Arrow table of values and the three columns below; their order has no meaning. A table is the
sum of its changes, so a changelog and a table convert into each other without loss (section 5.1).

An update of a table that has key k with value v since time a, to value w at time t, is three changes: the row v in
``[a, FOREVER)`` is removed; v in ``[a, t)`` and w in ``[t, FOREVER)`` are added. A delete adds only v in ``[a, t)``. An
update that arrives out of order splits an older period in the same way, which corrects every later version at once
(definition 66, algorithm 5).

An operator that needs only the latest version of a table holds no other, and its rows' periods end at ``FOREVER``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

FROM: Final = "millrace_from"
"""Column with the first instant of a row's period, in microseconds since 1970."""

TO: Final = "millrace_to"
"""Column with the first instant after a row's period, in microseconds since 1970."""

WEIGHT: Final = "millrace_weight"
"""Column with 1 for a row that is added, and -1 for one that is removed; the sum of several changes may be larger."""

OUTPUT: Final = "millrace_output"
"""Column with the number of the output that a change is for."""

BEGINNING: Final = -(1 << 63)
"""Start of a period that has none."""

FOREVER: Final = (1 << 63) - 1
"""End of a period that has none."""

NO_TIME: Final = BEGINNING + 1
"""Start of the period of a record without an event time, which no watermark makes late."""

CHANGE: Final = pa.schema([(FROM, pa.int64()), (TO, pa.int64()), (WEIGHT, pa.int64())])
"""The columns that every table of changes has after its values."""

_ROW: Final = "millrace_row"


def changes_of(values: pa.Schema) -> pa.Schema:
    """Return the schema of changes of rows with these values."""
    return pa.schema([*values, *CHANGE])


def values_of(changes: pa.Schema) -> pa.Schema:
    """Return the schema of the values of changes."""
    return pa.schema([field for field in changes if field.name not in CHANGE.names])


def periods(rows: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the starts and ends of the rows' periods, each of shape ``(rows,)``."""
    return rows.column(FROM).to_numpy(), rows.column(TO).to_numpy()


def with_changes(
    values: pa.Table, starts: NDArray[np.int64], ends: NDArray[np.int64], weights: NDArray[np.int64]
) -> pa.Table:
    """Return changes of rows with these values; the arrays have shape ``(rows,)``."""
    arrays = [pa.array(column, pa.int64()) for column in (starts, ends, weights)]
    return pa.Table.from_arrays([*values.columns, *arrays], schema=changes_of(values.schema))


def changed_periods(
    rows: pa.Table, starts: NDArray[np.int64], ends: NDArray[np.int64], weights: NDArray[np.int64]
) -> pa.Table:
    """Return changes of the same rows with other periods and weights; the arrays have shape ``(rows,)``."""
    return with_changes(rows.select(values_of(rows.schema).names), starts, ends, weights)


def negated(changes: pa.Table) -> pa.Table:
    """Return the changes that undo the given ones."""
    position = changes.schema.get_field_index(WEIGHT)
    return changes.set_column(position, changes.schema.field(position), pc.negate(changes.column(WEIGHT)))


def normalized(column: pa.Array) -> pa.Array:
    """Return a column in which equal floats have equal bits: one zero and one NaN. Others are returned as they are."""
    if pa.types.is_struct(column.type):
        fields = [normalized(column.field(index)) for index in range(column.type.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(column.type), mask=column.is_null())
    if not pa.types.is_floating(column.type):
        return column
    nan = pa.scalar(np.nan, column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))


def net(changes: pa.Table) -> pa.Table:
    """Return the changes with equal rows summed up, and without rows whose weights cancel each other out."""
    if changes.num_rows < 2:
        return changes
    names = [name for name in changes.schema.names if name != WEIGHT]
    nested = [name for name in names if pa.types.is_nested(changes.schema.field(name).type)]
    if nested:
        return _net_by_codes(changes, names, nested)
    summed = changes.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum")])
    summed = summed.rename_columns([*names, WEIGHT]).select(changes.schema.names)
    return summed.filter(pc.not_equal(summed.column(WEIGHT), 0)).cast(changes.schema)


def _net_by_codes(changes: pa.Table, names: list[str], nested: list[str]) -> pa.Table:
    """Return the net changes of rows with lists, structs or maps, by which Arrow does not group."""
    codes = {name: pa.array(value_codes(changes.column(name).combine_chunks())) for name in nested}
    grouped = pa.table({name: codes.get(name, changes.column(name)) for name in changes.schema.names})
    grouped = grouped.append_column(_ROW, pa.array(np.arange(changes.num_rows)))
    summed = grouped.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum"), (_ROW, "min")])
    summed = summed.filter(pc.not_equal(summed.column(f"{WEIGHT}_sum"), 0))
    rows = changes.take(summed.column(f"{_ROW}_min"))
    return changed_periods(rows, *periods(rows), summed.column(f"{WEIGHT}_sum").to_numpy())


def value_codes(values: pa.Array) -> NDArray[np.int64]:
    """Return a number for each value that only equal ones share, shape ``(rows,)``; a nested value is its parts'."""
    if pa.types.is_map(values.type):
        entry = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
        values = values.cast(pa.list_(entry))
    if pa.types.is_struct(values.type):
        parts = np.stack([value_codes(each) for each in (values.is_valid(), *values.flatten())], axis=1)
        buffers = [None, pa.py_buffer(parts)]
        values = pa.Array.from_buffers(pa.binary(8 * parts.shape[1]), len(values), buffers)
    elif pa.types.is_nested(values.type):
        lengths = pc.list_value_length(values).fill_null(0).to_numpy().astype(np.int64)
        offsets = pa.py_buffer(8 * np.append(0, np.cumsum(lengths)))
        buffers = [None, offsets, pa.py_buffer(value_codes(values.flatten()))]
        parts = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
        values = pc.if_else(values.is_valid(), parts, pa.scalar(None, parts.type))
    indices: NDArray[np.int32] = pc.dictionary_encode(values, null_encoding="encode").indices.to_numpy()
    return indices.astype(np.int64)
