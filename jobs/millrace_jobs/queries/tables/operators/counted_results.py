"""Results of counted values that are neither sums nor extremes, as arrays of versions; see ``merging.Merger``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import normalized
from millrace_jobs.queries.tables.operators.merging import Arrays, SortOrder, ranks_of, sorted_ranks


class Counts:
    """Counts of values: one array; see ``merging.Merger``."""

    ufunc: np.ufunc = np.add
    identity = 0

    def __init__(self, results: pa.Array) -> None:
        self.arrays: Arrays = [results.fill_null(0).to_numpy()]

    def settled(self, arrays: Arrays) -> Arrays:
        """Return the counts."""
        return arrays

    def stored(self, arrays: Arrays) -> list[pa.Array]:
        """Return the column of counts."""
        return [pa.array(arrays[0])]

    def result(self, arrays: Arrays) -> pa.Array:
        """Return the column of counts."""
        return pa.array(arrays[0])

    def same(self, one: Arrays, other: Arrays) -> NDArray[np.bool_]:
        """Return where the counts are equal."""
        equal: NDArray[np.bool_] = one[0] == other[0]
        return equal


class Numbers:
    """Floats, and whether there is one, as two arrays; see ``merging.Merger``."""

    ufunc: np.ufunc = np.add
    identity = 0

    def __init__(self, results: pa.Array) -> None:
        self.arrays: Arrays = [results.fill_null(0.0).to_numpy(), np.asarray(results.is_valid()).astype(np.int64)]

    def settled(self, arrays: Arrays) -> Arrays:
        """Return the arrays."""
        return arrays

    def stored(self, arrays: Arrays) -> list[pa.Array]:
        """Return the column of floats, NULL where there is none."""
        return [pa.array(arrays[0], mask=arrays[1] == 0)]

    def result(self, arrays: Arrays) -> pa.Array:
        """Return the column of floats, NULL where there is none."""
        return self.stored(arrays)[0]

    def same(self, one: Arrays, other: Arrays) -> NDArray[np.bool_]:
        """Return where the floats are equal, bit by bit."""
        equal: NDArray[np.bool_] = (one[0].view(np.int64) == other[0].view(np.int64)) & (one[1] == other[1])
        return equal


class RankedLists:
    """Lists of structs: an array for each place in a list, with ranks that begin at 1; see ``merging.Merger``.

    ``ranks`` are those of the values, whose first fields are sorted by ``orders``, if there are some.
    """

    ufunc: np.ufunc = np.maximum
    identity = 0

    def __init__(self, results: pa.Array, values: pa.Array, limit: int, orders: Sequence[SortOrder] = ()) -> None:
        lengths = results.value_lengths().fill_null(0).to_numpy()
        self._column = normalized(pa.concat_arrays([results.flatten(), values]))
        ranks = sorted_ranks(self._column, orders) if orders else ranks_of(self._column)
        shown = self._column.field(1)
        is_null = shown.is_null().to_numpy(zero_copy_only=False)
        self._row, self._shown = np.zeros(len(ranks) + 1, np.int64), np.zeros(len(ranks) + 1, np.int64)
        self._row[ranks] = np.arange(len(ranks))
        self._shown[ranks] = np.where(is_null, 0, ranks_of(shown)) + 1
        rows = np.repeat(np.arange(len(results)), lengths)
        places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        of_lists = np.zeros((limit, len(results)), np.int64)
        of_lists[places, rows] = ranks[: len(rows)]
        self.arrays: Arrays = list(of_lists)
        self.ranks = ranks[len(rows) :]

    def settled(self, arrays: Arrays) -> Arrays:
        """Return the ranks."""
        return arrays

    def stored(self, arrays: Arrays) -> list[pa.Array]:
        """Return the column of lists of structs."""
        return [self._lists(arrays, self._column)]

    def result(self, arrays: Arrays) -> pa.Array:
        """Return the column of lists, NULL where there is no value."""
        return self._lists(arrays, self._column.field(1), is_null=arrays[0] == 0)

    def same(self, one: Arrays, other: Arrays) -> NDArray[np.bool_]:
        """Return where the lists are equal."""
        equal: NDArray[np.bool_] = np.logical_and.reduce(
            [self._shown[ours] == self._shown[theirs] for ours, theirs in zip(one, other, strict=True)]
        )
        return equal

    def _lists(self, arrays: Arrays, column: pa.Array, is_null: NDArray[np.bool_] | None = None) -> pa.Array:
        ranks = np.stack(arrays, axis=1)
        ends = np.append(0, np.cumsum((ranks > 0).sum(axis=1))).astype(np.int32)
        mask = None if is_null is None else pa.array(is_null)
        return pa.ListArray.from_arrays(pa.array(ends), column.take(pa.array(self._row[ranks[ranks > 0]])), mask=mask)
