"""Matching of rows by key and period: which rows of two tables have the same key and periods with a common instant.

All functions are vectorized over whole batches, and their time is linear in input and output but for sorting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_jobs.changes import normalized

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_PAIRS = 1 << 16
"""Number of pairs that are listed at once, or a few more."""

NO_KEY = -1
"""Code of a key with a NULL, which matches nothing."""


@dataclass(frozen=True)
class KeyedPeriods:
    """Rows as matching sees them: codes of their keys, and their periods; arrays of shape ``(rows,)``."""

    keys: Integers
    starts: Integers
    ends: Integers


def key_codes(tables: Sequence[pa.Table], keys: Sequence[Sequence[str]]) -> list[Integers]:
    """Return codes of the rows' keys: two rows have the same code if their keys are equal, in whichever table.

    As in Spark, all NaNs are equal, and so are both zeros.

    Args:
        tables: the tables.
        keys: for each table, its key columns; the n-th ones of all tables have the same type.
    """
    ends = np.cumsum([table.num_rows for table in tables])
    codes = np.zeros(int(ends[-1]), dtype=np.int64)
    has_null = np.zeros(len(codes), dtype=bool)
    for columns in zip(*keys, strict=True):
        parts = [table.column(name) for table, name in zip(tables, columns, strict=True)]
        joined = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
        encoded = pc.dictionary_encode(normalized(joined.combine_chunks()))
        indices = encoded.indices
        has_null |= np.asarray(indices.is_null())
        own = np.asarray(indices.fill_null(0).cast(pa.int64()))
        codes = codes * (len(encoded.dictionary) + 1) + own
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)  # small again, before the next column
    codes[has_null] = NO_KEY
    return np.split(codes, ends[:-1])


def last_of_keys(codes: Integers) -> Mask:
    """Return which rows are the last ones of their keys, shape ``(rows,)``; the codes are sorted."""
    return np.append(codes[1:] != codes[:-1], True)[: len(codes)]


class Overlap:
    """The pairs of a left and a right row with the same key and periods that have a common instant.

    Two periods have one if and only if either the left one starts within the right one, or the right one starts within
    the left one and later. Rows with an empty period match nothing. The pairs are counted before they are listed.
    """

    def __init__(self, left: KeyedPeriods, right: KeyedPeriods) -> None:
        self._left_starts = _Starts.within(left, right, after=False)
        self._right_starts = _Starts.within(right, left, after=True)

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return int(self._left_starts.counts.sum() + self._right_starts.counts.sum())

    @property
    def left_counts(self) -> Integers:
        """Number of partners of each left row."""
        return self._left_starts.hits() + self._right_starts.counts

    @property
    def right_counts(self) -> Integers:
        """Number of partners of each right row."""
        return self._right_starts.hits() + self._left_starts.counts

    def left_partners(self, right: Mask) -> Mask:
        """Return which left rows match some of the given right rows."""
        return (self._left_starts.only(right).hits() > 0) | self._right_starts.containing(right)

    def right_partners(self, left: Mask) -> Mask:
        """Return which right rows match some of the given left rows."""
        return (self._right_starts.only(left).hits() > 0) | self._left_starts.containing(left)

    def only(self, left: Mask, right: Mask) -> Overlap:
        """Return the pairs of these rows; they have no partners among the others."""
        part = copy(self)
        part._left_starts = self._left_starts.only(right)
        part._right_starts = self._right_starts.only(left)
        return part

    def rows(self) -> tuple[Integers, Integers]:
        """Return the left and the right row indices of all pairs, each of shape ``(pairs,)``."""
        left, right = self._left_starts.rows()
        more_right, more_left = self._right_starts.rows()
        return np.concatenate([left, more_left]), np.concatenate([right, more_right])

    def pieces(self, most: int) -> Iterator[tuple[Integers, Integers]]:
        """Yield the pairs as ``rows`` does, ``most`` at a time, or a few more: all with the same left or right row."""
        if self.pairs <= most:
            if self.pairs:
                yield self.rows()
            return
        for piece in self._left_starts.pieces(most):
            yield piece.rows()
        for piece in self._right_starts.pieces(most):
            right, left = piece.rows()
            yield left, right


@dataclass(frozen=True)
class _Starts:
    """Which rows start within which periods: those at places ``[first, first + count)`` of ``order``, for each period.

    ``order`` has the indices of the rows with a key and a period, by key and start. ``size`` is the number of rows.
    """

    order: Integers
    size: int
    first: Integers
    counts: Integers

    @classmethod
    def within(cls, rows: KeyedPeriods, periods: KeyedPeriods, *, after: bool) -> _Starts:
        """Return which rows start within which periods; with ``after``, not at the period's own start."""
        candidates = np.flatnonzero((rows.keys != NO_KEY) & (rows.ends > rows.starts))
        times, ranks = np.unique(rows.starts[candidates], return_inverse=True)
        width = len(times) + 1
        places = rows.keys[candidates] * width + ranks  # sorts by key, and then by time
        order = np.argsort(places, kind="stable")
        places = places[order]
        first_rank = np.searchsorted(times, periods.starts, side="right" if after else "left")
        last_rank = np.searchsorted(times, periods.ends)
        first = np.searchsorted(places, periods.keys * width + first_rank)
        end = np.searchsorted(places, periods.keys * width + last_rank)
        counts = np.where(periods.keys == NO_KEY, 0, np.maximum(end - first, 0))
        return cls(candidates[order], len(rows.keys), first, counts)

    def only(self, periods: Mask) -> _Starts:
        """Return what starts within some of the periods."""
        return replace(self, counts=np.where(periods, self.counts, 0))

    def hits(self) -> Integers:
        """Return the number of periods that each row starts within."""
        some = np.flatnonzero(self.counts)
        ends = self.first[some] + self.counts[some]
        edges = np.bincount(self.first[some], minlength=len(self.order) + 1)
        edges -= np.bincount(ends, minlength=len(self.order) + 1)
        hits = np.zeros(self.size, dtype=np.int64)
        hits[self.order] = np.cumsum(edges)[:-1]
        return hits

    def containing(self, rows: Mask) -> Mask:
        """Return which periods some of the given rows start within."""
        before = np.append(0, np.cumsum(rows[self.order]))
        found: Mask = before[np.minimum(self.first + self.counts, len(self.order))] > before[self.first]
        return found & (self.counts > 0)

    def rows(self) -> tuple[Integers, Integers]:
        """Return the indices of the rows and the periods, one of each for every pair."""
        periods = np.repeat(np.arange(len(self.counts)), self.counts)
        within = np.arange(len(periods)) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        return self.order[np.repeat(self.first, self.counts) + within], periods

    def pieces(self, most: int) -> Iterator[_Starts]:
        """Yield parts with at most ``most`` pairs and those of one more period."""
        numbers = np.maximum(np.cumsum(self.counts) - 1, 0) // most
        for number in np.unique(numbers[self.counts > 0]).tolist():
            yield self.only(numbers == number)


class PairCondition(Protocol):
    """A condition on pairs of rows that have the same key and periods with a common instant."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of both sides that it reads; no two rows of a pair have one with the same name."""
        ...

    def __call__(self, pairs: pa.RecordBatch) -> Mask:
        """Return which pairs fulfil it, from their ``columns``; not those for which it is NULL."""
        ...


class Matches:
    """The pairs of an ``Overlap`` that fulfil a condition; all of them without one.

    With a condition, pairs are listed to be counted.
    """

    def __init__(self, overlap: Overlap, left: pa.Table, right: pa.Table, condition: PairCondition | None) -> None:
        self._overlap, self._tables, self._condition = overlap, (left, right), condition

    @property
    def left_counts(self) -> Integers:
        """Number of partners of each left row."""
        if self._condition is None:
            return self._overlap.left_counts
        counts = np.zeros(self._tables[0].num_rows, np.int64)
        for rows, _ in self.pieces():
            counts += np.bincount(rows, minlength=len(counts))
        return counts

    def rows(self) -> tuple[Integers, Integers]:
        """Return the left and the right row indices of all pairs, each of shape ``(pairs,)``."""
        none = np.empty(0, np.int64)
        left, right = zip((none, none), *self.pieces(), strict=True)
        return np.concatenate(left), np.concatenate(right)

    def pieces(self) -> Iterator[tuple[Integers, Integers]]:
        """Yield the pairs as ``rows`` does, ``MOST_PAIRS`` at a time, or a few more."""
        for rows, partners in self._overlap.pieces(MOST_PAIRS):
            if self._condition is None:
                yield rows, partners
                continue
            taken = zip(self._tables, (rows, partners), strict=True)
            columns = {
                name: table.column(name).take(pa.array(places)).combine_chunks()
                for table, places in taken
                for name in self._condition.columns
                if name in table.column_names
            }
            holds = self._condition(pa.RecordBatch.from_pydict(columns))
            yield rows[holds], partners[holds]


def uncovered(left: KeyedPeriods, right: KeyedPeriods, matches: Matches) -> tuple[Integers, Integers, Integers]:
    """Return the parts of the left rows' periods in which no right row that matches is valid.

    Returns:
        Left row indices, and starts and ends of the parts, each of shape ``(parts,)``.
    """
    rows, partners = matches.rows()
    order = np.lexsort((right.starts[partners], rows))
    rows, partners = rows[order], partners[order]
    # Before each partner, everything up to the latest end of the earlier partners of the same row is covered.
    ends, ranks = np.unique(right.ends[partners], return_inverse=True)
    width = len(ends) + 1
    latest = np.maximum.accumulate(rows * width + ranks + 1) - rows * width if len(rows) else ranks
    first = np.ones(len(rows), dtype=bool)
    first[1:] = rows[1:] != rows[:-1]
    last = np.roll(first, -1)
    covered_before = left.starts[rows].copy()
    later = np.flatnonzero(~first)
    covered_before[later] = np.maximum(covered_before[later], ends[latest[later - 1] - 1])
    covered_at_end = np.maximum(left.starts[rows[last]], ends[latest[last] - 1]) if len(rows) else left.starts[:0]
    alone = np.flatnonzero(np.bincount(rows, minlength=len(left.keys)) == 0)
    found = np.concatenate([rows, rows[last], alone])
    starts = np.concatenate([covered_before, covered_at_end, left.starts[alone]])
    stops = np.concatenate([right.starts[partners], left.ends[rows[last]], left.ends[alone]])
    parts = stops > starts
    return found[parts], starts[parts], stops[parts]


def covered(left: KeyedPeriods, right: KeyedPeriods, matches: Matches) -> tuple[Integers, Integers, Integers]:
    """Return the parts of the left rows' periods in which a right row that matches is valid.

    A part ends wherever a partner begins or ends. So the part that is not over yet stays as it is without the partners
    that have ended, but for the last one.

    Returns:
        Left row indices, and starts and ends of the parts, each of shape ``(parts,)``.
    """
    rows, partners = matches.rows()
    begins = np.maximum(left.starts[rows], right.starts[partners])
    stops = np.minimum(left.ends[rows], right.ends[partners])
    rows, times = np.concatenate([rows, rows]), np.concatenate([begins, stops])
    steps = np.repeat([1, -1], len(begins))
    order = np.lexsort((times, rows))
    rows, times = rows[order], times[order]
    valid = np.cumsum(steps[order])[:-1] if len(rows) else times
    # of several ends at one time, the last one begins the part
    parts = np.flatnonzero((valid > 0) & (times[1:] > times[:-1])) if len(rows) else times
    return rows[parts], times[parts], times[parts + 1]
