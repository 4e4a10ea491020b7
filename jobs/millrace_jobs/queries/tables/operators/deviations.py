"""Variances and standard deviations of groups whose rows can be taken back.

The state of a group is the sum of its values and the sum of their squares. Their difference cancels out most of their
digits where values are large against their deviations, so both are kept as *double-doubles*: the unevaluated sum of two
floats, which has 106 bits (T. J. Dekker: A floating-point technique for extending the available precision, 1971; the
algorithms are those of Y. Hida, X. S. Li, D. H. Bailey: Library for double-double and quad-double arithmetic, 2007).
Values of 10 digits more than their deviations still have variances of 11 right digits. A value that was added and taken
back leaves an error of at most 2^-104 of its square.

Values without a finite square are counted instead, and the result is NaN as long as a group has any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.queries.tables.operators.merging import Arrays, Integers

Deviation = Literal["stddev_samp", "stddev_pop", "var_samp", "var_pop"]
"""A function of Spark's SQL."""

Floats = NDArray[np.float64]
Pairs = NDArray[np.complex128]
"""Double-doubles: the higher float is the real part, and the lower one the imaginary part."""

_SPLIT: Final = float((1 << 27) + 1)


@dataclass(frozen=True)
class DeviationPart:
    """A column of type double with the value of a row in the input, and with the deviation of a group in the output."""

    name: str
    merge: Deviation

    @property
    def type(self) -> pa.DataType:
        """Type of the column in the input."""
        return pa.float64()

    @property
    def takes_back(self) -> bool:
        """Whether rows can be removed again."""
        return True

    @property
    def result_type(self) -> pa.DataType:
        """Type of the column in the output."""
        return pa.float64()

    @property
    def state(self) -> list[pa.Field]:
        """The columns that are stored: 48 bytes in all."""
        floats = [pa.field(f"{self.name}.{each}", pa.float64()) for each in ("sum", "rest", "squares", "squares_rest")]
        return [*floats, *(pa.field(f"{self.name}.{each}", pa.int64()) for each in ("values", "unbounded"))]

    def of_rows(self, column: pa.Array) -> list[pa.Array]:
        """Return the stored columns of groups that have one row each, whose values are ``column``."""
        values = column.fill_null(0.0).to_numpy()
        with np.errstate(over="ignore"):
            unbounded = ~np.isfinite(values * values)
        values = np.where(unbounded, 0.0, values)
        squares = _product(values, values)
        floats = [values, np.zeros(len(values)), squares.real, squares.imag]
        counts = [np.asarray(column.is_valid()), unbounded]
        return [*map(pa.array, floats), *(pa.array(each.astype(np.int64)) for each in counts)]

    def merger(self, columns: Sequence[pa.Array], weights: Integers) -> Deviations:
        """Return the merger of stored columns, each of whose rows counts as often as its weight."""
        return Deviations(self.merge, columns, weights)


class Deviations:
    """The deviations of a batch; see ``merging.Merger``.

    The arrays are the sums, the sums of squares, and the numbers of values and of those without a finite square. Once
    settled, each double-double is two arrays.
    """

    identity: Final = 0

    def __init__(self, function: Deviation, columns: Sequence[pa.Array], weights: Integers) -> None:
        self._function = function
        self.ufunc = PairAdd()
        total, rest, squares, squares_rest, *counts = (column.to_numpy() for column in columns)
        sums = [_times(_pairs(*each), weights.astype(np.float64)) for each in ((total, rest), (squares, squares_rest))]
        self.arrays: Arrays = [*sums, *(each * weights for each in counts)]

    def settled(self, arrays: Arrays) -> Arrays:
        """Return the arrays with two for each double-double; a group without values has no rounding."""
        total, squares, values, unbounded = arrays
        empty = values == unbounded
        floats = [np.where(empty, 0.0, each) for each in (total.real, total.imag, squares.real, squares.imag)]
        return [*floats, values, unbounded]

    def stored(self, arrays: Arrays) -> list[pa.Array]:
        """Return the columns to store."""
        return [pa.array(array) for array in arrays]

    def result(self, arrays: Arrays) -> pa.Array:
        """Return the column of deviations; NULL for groups with too few values."""
        deviations, is_null = self._deviations(arrays)
        return pa.array(deviations, mask=is_null)

    def same(self, one: Arrays, other: Arrays) -> NDArray[np.bool_]:
        """Return where the deviations are equal, bit by bit."""
        (ours, our_nulls), (theirs, their_nulls) = self._deviations(one), self._deviations(other)
        equal: NDArray[np.bool_] = (ours.view(np.int64) == theirs.view(np.int64)) & (our_nulls == their_nulls)
        return equal

    def _deviations(self, arrays: Arrays) -> tuple[Floats, NDArray[np.bool_]]:
        total, rest, squares, squares_rest, values, unbounded = arrays
        divisor = values - (self._function in ("stddev_samp", "var_samp"))
        is_null = divisor <= 0
        count = np.where(is_null, 1, values).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # of sums that have overflowed, the result is NaN
            mean = _quotient(_pairs(total, rest), count)
            between = _products(_pairs(total, rest), mean)
            squared = PairAdd()(_pairs(squares, squares_rest), -between).real
            result = np.maximum(squared, 0.0) / np.where(is_null, 1, divisor)
        if self._function in ("stddev_samp", "stddev_pop"):
            result = np.sqrt(result)
        result = np.where(unbounded > 0, np.nan, result)
        return np.where(is_null, 0.0, result), is_null


class PairAdd:
    """Function that adds double-doubles element by element, and integers as NumPy does, used like a ufunc."""

    def __call__(self, one: NDArray[Any], other: NDArray[Any], /) -> NDArray[Any]:
        """Return the sums."""
        if not np.iscomplexobj(one):
            total: NDArray[Any] = one + other
            return total
        high, error = _sum(one.real, other.real)
        low, lower = _sum(one.imag, other.imag)
        high, error = _quick_sum(high, error + low)
        return _pairs(*_quick_sum(high, error + lower))

    def at(self, array: NDArray[Any], places: Integers, others: NDArray[Any], /) -> None:
        """Add elements to those at some places of an array: those of one place in pairs, until there is one of each."""
        if not np.iscomplexobj(array):
            np.add.at(array, places, others)
            return
        order = np.argsort(places, kind="stable")
        places, others = places[order], others[order]
        while len(places):
            begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
            if len(begins) == len(places):
                break
            is_odd = (np.arange(len(places)) - np.repeat(begins, np.diff(np.append(begins, len(places))))) % 2 == 1
            second = np.flatnonzero(is_odd)
            others[second - 1] = self(others[second - 1], others[second])
            places, others = places[~is_odd], others[~is_odd]
        array[places] = self(array[places], others)


def _pairs(high: Floats, low: Floats) -> Pairs:
    made = np.empty(len(high), np.complex128)
    made.real, made.imag = high, low
    return made


def _sum(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Return sums and their rounding errors."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


def _quick_sum(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Return sums and their rounding errors, where the first float is the larger one."""
    total = one + other
    return total, other - (total - one)


def _product(one: Floats, other: Floats) -> Pairs:
    """Return exact products of floats."""
    product = one * other
    (high, low), (other_high, other_low) = _halves(one), _halves(other)
    error = ((high * other_high - product) + high * other_low + low * other_high) + low * other_low
    return _pairs(product, error)


def _halves(floats: Floats) -> tuple[Floats, Floats]:
    scaled = _SPLIT * floats
    high = scaled - (scaled - floats)
    return high, floats - high


def _times(pairs: Pairs, floats: Floats) -> Pairs:
    """Return the products of double-doubles with floats."""
    product = _product(pairs.real, floats)
    return _pairs(*_quick_sum(product.real, product.imag + pairs.imag * floats))


def _products(one: Pairs, other: Pairs) -> Pairs:
    """Return the products of double-doubles."""
    product = _product(one.real, other.real)
    return _pairs(*_quick_sum(product.real, product.imag + (one.real * other.imag + one.imag * other.real)))


def _quotient(pairs: Pairs, floats: Floats) -> Pairs:
    """Return double-doubles divided by floats."""
    first = pairs.real / floats
    rest = PairAdd()(pairs, -_product(first, floats))
    return _pairs(*_quick_sum(first, rest.real / floats))
