"""64-bit hashes of Arrow columns: the keys that partitioners see.

Equal keys have equal hashes in every process and on every machine, however their column is cut into slices
and chunks or dictionary-encoded. What counts as equal:

- integers of all widths, and booleans as 0 and 1, by value; ``uint64`` by its bits;
- floats of all widths by value, with ``-0.0`` equal to ``0.0`` and every NaN equal to every other;
- strings and binaries of all layouts by their bytes;
- dates, times, timestamps and durations by their number of ticks, decimals by their unscaled bytes: the unit,
  or the scale and width, belongs to the column's type, which is the same on all replicas;
- nulls of all types.

Numbers are hashed by SplitMix64, and bytes by XXH64 with seed 0; see ``hash_kernels``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import read_only

from .base import Hashes
from .hash_kernels import NULL as NULL
from .hash_kernels import combine, hash_bytes, hash_words

NO_KEY = np.uint64(0)
"""Hash of the empty composite key, which a query without GROUP BY columns groups by."""


def hash_columns(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> Hashes:
    """Return the hash of each row's composite key, shape ``(rows,)``; ``columns`` are its parts, in order.

    Raises TypeError, which names the type, for a column of lists, structs, maps and the like, even if it has no rows.
    Raises ValueError for a column that does not have ``rows`` rows.
    """
    if not columns:
        return np.full(rows, NO_KEY)
    for position, column in enumerate(columns):
        if len(column) != rows:
            raise ValueError(f"key column {position} has {len(column)} rows, but the block has {rows}")
    hashes = _hash_column(columns[0])
    for column in columns[1:]:
        combine(hashes, _hash_column(column))
    return hashes


def _hash_column(column: pa.Array | pa.ChunkedArray) -> Hashes:
    if isinstance(column, pa.ChunkedArray):
        chunks = column.chunks or [pa.array([], column.type)]
        return np.concatenate([_hash_array(chunk) for chunk in chunks])
    return _hash_array(column)


def _hash_array(array: pa.Array) -> Hashes:
    if pa.types.is_null(array.type):
        return np.full(len(array), NULL)
    if pa.types.is_dictionary(array.type):
        return _hash_dictionary(array)
    hashes = _hash_values(array)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = NULL
    return hashes


def _hash_dictionary(array: pa.DictionaryArray) -> Hashes:
    entries = np.append(_hash_array(array.dictionary), NULL)
    indices: NDArray[np.int64] = array.indices.cast(pa.int64()).fill_null(len(entries) - 1).to_numpy()
    return entries[indices]


def _hash_values(array: pa.Array) -> Hashes:
    """Return the hashes of a column of plain values; they are arbitrary for nulls."""
    kind = array.type
    types = pa.types
    if types.is_boolean(kind):
        return _hash_integers(array.cast(pa.uint8()))
    if types.is_integer(kind) or (types.is_temporal(kind) and not types.is_interval(kind)):
        return _hash_integers(array)
    if types.is_floating(kind):
        return _hash_floats(array)
    if types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return _hash_fixed_size(array)
    if types.is_string(kind) or types.is_binary(kind):
        return _hash_variable_size(array, np.dtype(np.int32))
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return _hash_variable_size(array, np.dtype(np.int64))
    if types.is_string_view(kind):
        return _hash_values(array.cast(pa.large_string()))
    if types.is_binary_view(kind):
        return _hash_values(array.cast(pa.large_binary()))
    raise TypeError(f"a column of type {kind} cannot be a key; use its parts, or convert it to text, instead")


def _hash_integers(array: pa.Array) -> Hashes:
    sign = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    ticks = _values(array, np.dtype(f"{sign}{array.type.bit_width // 8}"))
    return hash_words(read_only(ticks.astype(np.int64, copy=False).view(np.uint64)))


def _hash_floats(array: pa.Array) -> Hashes:
    values = _values(array, np.dtype(f"f{array.type.bit_width // 8}")).astype(np.float64)
    values[np.isnan(values)] = np.nan
    values += 0.0  # makes -0.0 positive
    return hash_words(read_only(values.view(np.uint64)))


def _hash_fixed_size(array: pa.Array) -> Hashes:
    offsets = np.arange(array.offset, array.offset + len(array) + 1) * (array.type.bit_width // 8)
    return hash_bytes(_bytes(array.buffers()[1]), read_only(offsets))


def _hash_variable_size(array: pa.Array, offset_type: np.dtype[np.int32] | np.dtype[np.int64]) -> Hashes:
    if not len(array):  # may come without buffers
        return np.empty(0, np.uint64)
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, offset_type, len(array) + 1, array.offset * offset_type.itemsize)
    return hash_bytes(_bytes(data), read_only(bounds))


def _values(array: pa.Array, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    """Return the values of a fixed-width array, without a copy; they are arbitrary for nulls."""
    if not len(array):  # may come without buffers
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _bytes(buffer: pa.Buffer | None) -> NDArray[np.uint8]:
    """Return a data buffer as bytes; Arrow leaves the buffer out if it would be empty."""
    return read_only(np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8))
