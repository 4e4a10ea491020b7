"""Parts of groups: how each is merged by sum, minimum or maximum, and what of it is stored between batches.

A part of a group is held in NumPy arrays that merge element by element, each by one ufunc. A row of an input is read as
the state of a group that has this row alone. So rows and stored states are the same columns, and the same code merges
both:

- A sum of integers or decimals is exact: words of 32 bits, each in an int64 that has room for the carries of a batch.
- A sum of floats is the sum of the finite values. Infinities and NaN, which could not be subtracted again, are counted:
  NaN as an infinity of both signs.
- A minimum or maximum is the rank of its value among all values of the batch, so that every type that has an order is
  merged as integers. NaN is above all numbers, as in Spark.

A sum is NULL if the group has no value that is not NULL, so sums also have a count of values. All arrays of sums merge
by addition: a row that is removed is multiplied by its weight of -1. Minima and maxima
cannot take removals.

A sum of finite floats is rounded at each addition and subtraction. It depends on the order of the rows, and after rows
were removed, it may differ from a sum of those that remain. A sum that has overflowed to infinity stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_jobs.changes import normalized

Merge = Literal["sum", "min", "max"]
"""How the parts of two sets of rows become the part of both."""

Integers = NDArray[np.int64]
Arrays = list[NDArray[Any]]
"""The arrays of one part, each with one element of 8 bytes per group or row."""


@dataclass(frozen=True)
class SortOrder:
    """How rows are sorted by one column."""

    descending: bool
    nulls_first: bool


MAX_WEIGHT: Final = 1 << 30
"""Limit on the sum of a batch's weights, so that no word of a sum overflows before its carries are moved."""

_WORD: Final = (1 << 32) - 1


@dataclass(frozen=True)
class MergedPart:
    """A column with the part of one row in the input, and with the part of a group in the output and the state."""

    name: str
    merge: Merge
    type: pa.DataType

    def __post_init__(self) -> None:
        if self.merge not in ("sum", "min", "max"):
            raise ValueError(
                f"the parts of column {self.name!r} cannot be merged by {self.merge!r}: use sum, min or max"
            )
        is_number = (
            pa.types.is_int64(self.type)
            or _is_float(self.type)
            or pa.types.is_decimal128(self.type)
            or pa.types.is_decimal256(self.type)
        )
        if self.merge == "sum" and not is_number:
            raise ValueError(f"column {self.name!r} cannot be summed as {self.type}: use int64, double or a decimal")
        if not has_order(self.type):
            raise ValueError(f"column {self.name!r} of type {self.type} has no {self.merge}: use a type with an order")

    @property
    def takes_back(self) -> bool:
        """Whether rows can be removed again."""
        return self.merge == "sum"

    @property
    def result_type(self) -> pa.DataType:
        """Type of the column in the output."""
        return self.type

    @property
    def state(self) -> list[pa.Field]:
        """The columns that are stored."""
        return [pa.field(self.name, self.type), *(pa.field(f"{self.name}.{each}", pa.int64()) for each in self._counts)]

    @property
    def _counts(self) -> tuple[str, ...]:
        if self.merge != "sum":
            return ()
        return ("values", "positive", "negative") if _is_float(self.type) else ("values",)

    def of_rows(self, column: pa.Array) -> list[pa.Array]:
        """Return the stored columns of groups that have one row each, whose parts are ``column``."""
        if self.merge != "sum":
            return [normalized(column)]
        if not _is_float(self.type):
            return [column, column.is_valid().cast(pa.int64())]
        values = column.fill_null(0.0).to_numpy()
        positive, negative = (np.isnan(values) | (values == infinity) for infinity in (np.inf, -np.inf))
        finite = np.where(np.isfinite(values), values, 0.0)
        return [pa.array(finite), *(_counted(each) for each in (column.is_valid(), positive, negative))]

    def merger(self, columns: Sequence[pa.Array], weights: Integers) -> Merger:
        """Return the merger of stored columns, each of whose rows counts as often as its weight."""
        if self.merge != "sum":
            return Extreme(self.merge, columns[0])
        return _FloatSum(columns, weights) if _is_float(self.type) else _ExactSum(self, columns, weights)


class MergeUfunc(Protocol):
    """What a merge needs of a ufunc."""

    def __call__(self, one: NDArray[Any], other: NDArray[Any], /) -> NDArray[Any]:
        """Merge the elements of two arrays."""
        ...

    def at(self, array: NDArray[Any], places: Integers, others: NDArray[Any], /) -> None:
        """Merge elements into those at some places of an array; a place may be there several times."""
        ...


class Merger(Protocol):
    """One part of the states and rows of a batch: their arrays, and what arrays of the same kind mean after a merge."""

    arrays: Arrays

    @property
    def ufunc(self) -> MergeUfunc:
        """What merges two elements of each array."""
        ...

    @property
    def identity(self) -> int:
        """The element that changes nothing when it is merged."""
        ...

    def settled(self, arrays: Arrays) -> Arrays:
        """Return merged arrays in the only form that equal parts have."""
        ...

    def stored(self, arrays: Arrays) -> list[pa.Array]:
        """Return the columns to store; raises OverflowError for a sum that does not fit into its type."""
        ...

    def result(self, arrays: Arrays) -> pa.Array:
        """Return the column of the output, a function of settled arrays: equal arrays give equal bits."""
        ...

    def same(self, one: Arrays, other: Arrays) -> NDArray[np.bool_]:
        """Return where the results of settled arrays are equal, bit by bit."""
        ...


class _ExactSum:
    """A sum of integers or decimals: arrays of its words, the lowest first, and of the number of values."""

    ufunc: np.ufunc = np.add
    identity = 0

    def __init__(self, part: MergedPart, columns: Sequence[pa.Array], weights: Integers) -> None:
        self._part = part
        self.arrays: Arrays = [array * weights for array in (*words_of(columns[0]), columns[1].to_numpy())]

    def settled(self, arrays: Arrays) -> Arrays:
        *words, values = arrays
        for lower, higher in pairwise(range(len(words))):
            words[higher] = words[higher] + (words[lower] >> 32)
            words[lower] = words[lower] & _WORD
        return [*words, values]

    def stored(self, arrays: Arrays) -> list[pa.Array]:
        *words, values = arrays
        packed = np.stack(words, axis=1).astype(np.uint32)
        column = pa.Array.from_buffers(self._part.type, len(values), [None, pa.py_buffer(packed)])
        if (words[-1] != words[-1].astype(np.int32)).any() or _has_too_many_digits(column):
            raise OverflowError(
                f"a sum of column {self._part.name!r} does not fit into {self._part.type}: cast the column to a type "
                "with more digits"
            )
        return [_null_where(values == 0, column), pa.array(values)]

    def result(self, arrays: Arrays) -> pa.Array:
        return self.stored(arrays)[0]

    def same(self, one: Arrays, other: Arrays) -> NDArray[np.bool_]:
        equal: NDArray[np.bool_] = (one[-1] == 0) == (other[-1] == 0)
        for a, b in zip(one[:-1], other[:-1], strict=True):
            equal = equal & (a == b)
        return equal


class DistinctSum(_ExactSum):
    """A sum of distinct integers or decimals, of which the sum alone is stored; see ``_ExactSum``."""

    def __init__(self, part: MergedPart, results: pa.Array) -> None:
        columns = [results, results.is_valid().cast(pa.int64())]
        super().__init__(part, columns, np.ones(len(results), np.int64))

    def stored(self, arrays: Arrays) -> list[pa.Array]:
        """Return the column of sums; whether there are values follows from it."""
        return super().stored(arrays)[:1]


class _FloatSum:
    """A sum of floats: arrays of the sum of finite values, and of the numbers of values and infinities of each sign."""

    ufunc: np.ufunc = np.add
    identity = 0

    def __init__(self, columns: Sequence[pa.Array], weights: Integers) -> None:
        with np.errstate(over="ignore"):
            self.arrays: Arrays = [column.to_numpy() * weights for column in columns]

    def settled(self, arrays: Arrays) -> Arrays:
        finite, values, *infinities = arrays
        return [np.where(values == 0, 0.0, finite), values, *infinities]

    def stored(self, arrays: Arrays) -> list[pa.Array]:
        return [pa.array(array) for array in arrays]

    def result(self, arrays: Arrays) -> pa.Array:
        return _null_where(arrays[1] == 0, pa.array(self._sums(arrays)))

    def same(self, one: Arrays, other: Arrays) -> NDArray[np.bool_]:
        bits = self._sums(one).view(np.int64) == self._sums(other).view(np.int64)
        equal: NDArray[np.bool_] = bits & ((one[1] == 0) == (other[1] == 0))
        return equal

    def _sums(self, arrays: Arrays) -> NDArray[np.float64]:
        finite, _, positive, negative = arrays
        infinite = np.where(negative == 0, np.inf, np.where(positive == 0, -np.inf, np.nan))
        return np.where((positive == 0) & (negative == 0), finite, infinite)


class Extreme:
    """Minima or maxima of values of a column: an array of ranks, which begin at 1."""

    def __init__(self, merge: Merge, column: pa.Array) -> None:
        ranks = ranks_of(column)
        self._column = column
        self._row = np.zeros(len(column) + 2, np.int64)
        present = np.flatnonzero(column.is_valid())
        self._row[ranks[present]] = present
        self.ufunc: np.ufunc = np.minimum if merge == "min" else np.maximum
        self.identity = len(column) + 1 if merge == "min" else 0
        ranks[column.is_null().to_numpy(zero_copy_only=False)] = self.identity
        self.arrays: Arrays = [ranks]

    def settled(self, arrays: Arrays) -> Arrays:
        """Return the ranks, of which equal ones are equal values."""
        return arrays

    def stored(self, arrays: Arrays) -> list[pa.Array]:
        """Return the column of values."""
        ranks = arrays[0]
        return [self._column.take(pa.array(self._row[ranks], mask=ranks == self.identity))]

    def result(self, arrays: Arrays) -> pa.Array:
        """Return the column of values."""
        return self.stored(arrays)[0]

    def same(self, one: Arrays, other: Arrays) -> NDArray[np.bool_]:
        """Return where the values are equal."""
        equal: NDArray[np.bool_] = one[0] == other[0]
        return equal


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of sums of values of a type, as Spark has it."""
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(38, kind.precision + 10), kind.scale)
    return pa.int64() if pa.types.is_integer(kind) else pa.float64()


def has_order(kind: pa.DataType) -> bool:
    """Whether values of a type have a minimum and a maximum: scalars, and structs of them."""
    if pa.types.is_struct(kind):
        return all(has_order(field.type) for field in kind)
    return not pa.types.is_nested(kind)


def ranks_of(column: pa.Array) -> Integers:
    """Return the dense ranks of values, which begin at 1; that of NULL is undefined.

    Structs are compared field by field, and NULL is the lowest value of a field, as in Spark.
    """
    if not pa.types.is_struct(column.type):
        ranks: Integers = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        return ranks
    return _ranks_of_rows([np.where(field.is_null(), 0, ranks_of(field)) for field in column.flatten()])


def sorted_ranks(column: pa.StructArray, orders: Sequence[SortOrder]) -> Integers:
    """Return the dense ranks of structs of two fields, which begin at 1.

    The fields of the first one, a struct, are sorted by ``orders``, one for each; the second one is ascending.
    """
    by, others = column.flatten()
    codes = []
    for field, order in zip(by.flatten(), orders, strict=True):
        ranks = ranks_of(field)
        last = len(ranks) + 1
        codes.append(
            np.where(field.is_null(), 0 if order.nulls_first else last, last - ranks if order.descending else ranks)
        )
    return _ranks_of_rows([*codes, ranks_of(others)])


def _ranks_of_rows(codes: Sequence[Integers]) -> Integers:
    """Return the dense ranks of rows, which begin at 1, by columns of numbers, the first of which counts most."""
    order = np.lexsort(codes[::-1])
    in_order = np.stack([code[order] for code in codes])
    new = np.append(True, (in_order[:, 1:] != in_order[:, :-1]).any(axis=0))[: len(order)]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(new)
    return ranks


def words_of(column: pa.Array) -> list[Integers]:
    """Return the values of a column as words of 32 bits, the lowest first; the highest has the sign. NULL is 0."""
    width = column.type.bit_width // 32
    if not len(column):
        return [np.empty(0, np.int64)] * width
    bits = np.frombuffer(column.buffers()[1], np.uint32, len(column) * width, column.offset * width * 4)
    words = bits.reshape(-1, width).astype(np.int64)
    words[:, -1] = words[:, -1].astype(np.int32)
    words[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return [np.ascontiguousarray(words[:, each]) for each in range(width)]


def _has_too_many_digits(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return False


def _counted(condition: pa.Array | NDArray[np.bool_]) -> pa.Array:
    return pa.array(np.asarray(condition).astype(np.int64))


def _null_where(condition: NDArray[np.bool_], column: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(~condition), column, pa.scalar(None, column.type))


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float64(kind))
