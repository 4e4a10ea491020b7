"""The results of two versions side by side, as Arrow tables: which rows only one has, and which columns differ.

Rows that are equal in both are left out first, each as often as both have it. What is left is paired by key, and the
columns of a pair are compared, floats with a tolerance. Rows without a key are equal if those of the other version are
within the tolerance; the others are in one version alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_jobs.changes import CHANGE, FROM, TO, WEIGHT, net, normalized, value_codes
from millrace_jobs.comparison.kept_results import KeptOutput
from millrace_jobs.sinks.base import ADMITTED

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class FinalRows:
    """What a version has come to, with the key of its rows; None if no columns identify one.

    Of a table that takes rows back, the column WEIGHT says how often a row was added, or removed if it is negative: a
    comparison from a snapshot sees the removal of older rows.
    """

    rows: pa.Table
    key: tuple[str, ...] | None


@dataclass(frozen=True)
class ComparedRows:
    """Two results side by side.

    Attributes:
        old: the rows of the old version, with the compared columns.
        new: those of the new version.
        key: the columns that identify a row in both; None if no columns do.
        only_old: indices in ``old`` of the rows that have no counterpart.
        only_new: those in ``new``.
        changed: indices in ``old`` and in ``new`` of rows that have one key and differ.
        columns: for each column that differs in such a pair, whether it does in each of them.
        tolerated: the number of pairs that differ within the tolerance alone.
    """

    old: pa.Table
    new: pa.Table
    key: tuple[str, ...] | None
    only_old: Indices
    only_new: Indices
    changed: tuple[Indices, Indices]
    columns: Mapping[str, NDArray[np.bool_]]
    tolerated: int = 0

    @property
    def are_equal(self) -> bool:
        """Whether no row differs."""
        return not (len(self.only_old) or len(self.only_new) or len(self.changed[0]))


def final_rows(batches: Sequence[pa.Table], output: KeptOutput, empty: pa.Table) -> FinalRows:
    """Return what the results of all batches come to.

    Args:
        batches: the results of each batch, the oldest first.
        output: their output.
        empty: no rows, with the columns of the results.
    """
    if not batches:
        return FinalRows(empty, output.key)
    rows = pa.concat_tables(batches, promote_options="permissive")
    if WEIGHT in rows.schema.names:
        return _summed(rows, output)
    internal = [name for name in (FROM, TO) if name in rows.schema.names]
    rows = rows.drop_columns(internal)
    if output.updates and output.key is not None:
        rows = rows.take(_last(row_codes(rows, output.key)))
    if ADMITTED in rows.schema.names:
        rows = rows.filter(rows.column(ADMITTED)).drop_columns([ADMITTED])
    return FinalRows(rows, output.key)


def _summed(changes: pa.Table, output: KeptOutput) -> FinalRows:
    """Return the rows that changes come to, with their weights."""
    values = [name for name in changes.schema.names if name not in CHANGE.names]
    if FROM not in changes.schema.names or not output.versioned:
        zeros = pa.array(np.zeros(changes.num_rows, np.int64))
        columns = [*(changes.column(name) for name in values), zeros, zeros, changes.column(WEIGHT)]
        changes = pa.table(columns, names=[*values, FROM, TO, WEIGHT])
    periods = [FROM, TO] if output.versioned else []
    rows = net(changes).select([*values, *periods, WEIGHT])
    key = None if output.key is None else (*output.key, *periods[:1])
    return FinalRows(rows, key)


def _last(codes: Indices) -> Indices:
    """Return the index of the last row of each code, in the order of the rows."""
    _, from_end = np.unique(codes[::-1], return_index=True)
    return np.sort(len(codes) - 1 - from_end).astype(np.int64)


def row_codes(rows: pa.Table, names: Sequence[str]) -> Indices:
    """Return a number for each row that only rows with equal values in these columns share, shape ``(rows,)``.

    NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0.
    """
    codes = np.zeros(rows.num_rows, np.int64)
    for name in names:
        column = rows.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.array([], column.type) if not column.num_chunks else column.chunk(0)
        of_column = value_codes(normalized(column))
        pairs = codes * (int(of_column.max(initial=0)) + 1) + of_column
        codes = np.unique(pairs, return_inverse=True)[1].astype(np.int64).reshape(-1)
    return codes


def compare_rows(old: FinalRows, new: FinalRows, *, ignored: Collection[str] = (), tolerance: float) -> ComparedRows:
    """Compare two results in the columns that both have.

    Args:
        old: the rows of the old version.
        new: those of the new version.
        ignored: columns that are not compared.
        tolerance: the difference of two floats that does not count, relative to the larger one.
    """
    names = [each for each in old.rows.schema.names if each in new.rows.schema.names and each not in ignored]
    pairs = [_of_one_type(old.rows.column(name), new.rows.column(name)) for name in names]
    left = pa.table([each for each, _ in pairs], names=names)
    right = pa.table([each for _, each in pairs], names=names)
    both, count = pa.concat_tables([left, right]), left.num_rows
    key = _common_key(old, new, names)
    floats = [name for name in names if pa.types.is_floating(both.column(name).type)]
    only_old, only_new = _without_equal(row_codes(both, names), count)
    rest = both.take(pa.array(np.concatenate([only_old, only_new + count])))
    if key is None:
        near_old, near_new = _without_equal(_near_codes(rest, names, floats, tolerance), len(only_old))
        none = only_old[:0]
        tolerated = len(only_old) - len(near_old)
        return ComparedRows(left, right, None, only_old[near_old], only_new[near_new], (none, none), {}, tolerated)
    by = row_codes(rest, key)
    exact = row_codes(rest, [name for name in names if name not in floats])
    order = np.lexsort([*(_as_floats(rest.column(name)) for name in reversed(floats)), exact, by])
    first, second = _paired(by, order, len(only_old))
    differing = _differing(rest, first, second, names, floats, tolerance)
    differs = np.any([np.zeros(len(first), bool), *differing.values()], axis=0)
    in_new = second - len(only_old)
    return ComparedRows(
        left,
        right,
        key,
        np.delete(only_old, first),
        np.delete(only_new, in_new),
        (only_old[first[differs]], only_new[in_new[differs]]),
        {name: each[differs] for name, each in differing.items() if each.any()},
        int((~differs).sum()),
    )


def _common_key(old: FinalRows, new: FinalRows, names: Collection[str]) -> tuple[str, ...] | None:
    """Return the key columns that both versions have; None if one of them has other ones."""
    if old.key is None or new.key is None or set(old.key) != set(new.key):
        return None
    return old.key if set(old.key) <= set(names) else None


def _of_one_type(old: pa.ChunkedArray, new: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return two columns in a type that both can have: the larger one of numbers and times, otherwise text."""
    if old.type == new.type:
        return old, new
    for kind in _common_types(old.type, new.type):
        try:
            return old.cast(kind), new.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return _texts(old), _texts(new)


def _common_types(old: pa.DataType, new: pa.DataType) -> list[pa.DataType]:
    types = pa.types
    if all(types.is_integer(each) for each in (old, new)):
        return [pa.int64()]
    if all(types.is_integer(each) or types.is_decimal(each) or types.is_floating(each) for each in (old, new)):
        return [pa.float64()]
    if all(types.is_timestamp(each) for each in (old, new)):
        return [pa.timestamp("us")]
    return [pa.string()]


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values of a nested type as text: a column whose type has changed from or to one, which is rare."""
    texts = [None if each is None else str(each) for each in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _without_equal(codes: Indices, count: int) -> tuple[Indices, Indices]:
    """Return the rows of both sides that are left when equal ones have been crossed out.

    Args:
        codes: the code of each row, first those of the old side.
        count: the number of rows of the old side.
    """
    old, new = codes[:count], codes[count:]
    most = int(codes.max(initial=-1)) + 1
    in_old, in_new = np.bincount(old, minlength=most), np.bincount(new, minlength=most)
    left = np.flatnonzero(_rank(old) >= in_new[old]) if count else old
    right = np.flatnonzero(_rank(new) >= in_old[new]) if len(new) else new
    return left.astype(np.int64), right.astype(np.int64)


def _rank(codes: Indices) -> Indices:
    """Return how many rows with the same code are before each row, shape ``(rows,)``."""
    if not len(codes):
        return codes
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    lengths = np.diff(np.append(begins, len(codes)))
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - np.repeat(begins, lengths)
    return ranks


def _paired(by: Indices, order: Indices, count: int) -> tuple[Indices, Indices]:
    """Return the indices of rows of both sides with the same code and the same place among the rows of that code.

    Args:
        by: the code of each row, first those of the old side.
        order: the rows in the order that gives them their places.
        count: the number of rows of the old side.
    """
    is_old = order < count
    old, new = order[is_old], order[~is_old]
    most = len(by) + 1
    first, second = (by[side] * most + _rank(by[side]) for side in (old, new))
    _, left, right = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    return old[left].astype(np.int64), new[right].astype(np.int64)


def _differing(
    rows: pa.Table, first: Indices, second: Indices, names: Sequence[str], floats: Collection[str], tolerance: float
) -> dict[str, NDArray[np.bool_]]:
    """Return for each column whether its values differ in each pair of rows."""
    found = {}
    for name in names:
        if name in floats:
            values = _as_floats(rows.column(name))
            nulls = pc.is_null(rows.column(name)).to_numpy()
            same = _are_near(values[first], values[second], tolerance) & (nulls[first] == nulls[second])
            found[name] = ~same
        else:
            codes = row_codes(rows, [name])
            found[name] = codes[first] != codes[second]
    return found


def _near_codes(rows: pa.Table, names: Sequence[str], floats: Collection[str], tolerance: float) -> Indices:
    """Return codes like ``row_codes``, in which floats within the tolerance of each other are equal."""
    codes = row_codes(rows, [name for name in names if name not in floats])
    for name in floats:
        nulls = pc.is_null(rows.column(name)).to_numpy()
        codes = _clusters(2 * codes + nulls, _as_floats(rows.column(name)), tolerance)
    return codes


def _clusters(codes: Indices, values: NDArray[np.float64], tolerance: float) -> Indices:
    """Return a number for the rows of a code whose values are near each other.

    Values are in one cluster if each is near the next larger one. If its ends are not near each other, only equal
    values count as near.
    """
    if not len(codes):
        return codes
    order = np.lexsort([values, codes])
    code, value = codes[order], values[order]
    same = code[1:] == code[:-1]
    near = np.cumsum(np.append(True, ~(same & _are_near(value[1:], value[:-1], tolerance))))
    equal = np.cumsum(np.append(True, ~(same & _are_near(value[1:], value[:-1], 0.0))))
    begins = np.flatnonzero(np.append(True, near[1:] != near[:-1]))
    ends = np.append(begins[1:], len(near)) - 1
    is_wide = ~_are_near(value[begins], value[ends], tolerance)
    found = np.empty(len(codes), np.int64)
    found[order] = np.where(is_wide[near - 1], len(near) + equal, near)
    return found


def _are_near(old: NDArray[np.float64], new: NDArray[np.float64], tolerance: float) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        near = np.abs(old - new) <= tolerance * np.maximum(np.abs(old), np.abs(new))
    both: NDArray[np.bool_] = near | (old == new) | (np.isnan(old) & np.isnan(new))
    return both


def _as_floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return floats as an array, with NaN for NULL."""
    values: NDArray[np.float64] = column.cast(pa.float64()).to_numpy()
    return values
