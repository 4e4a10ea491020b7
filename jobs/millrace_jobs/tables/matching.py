"""Matching of rows by key and period: which rows of two tables have the same key and periods with a common instant.

All functions are vectorized over whole batches, and their time is linear in input and output but for sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_jobs.tables.merging import normalized

Integers = NDArray[np.int64]

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


def last_of_keys(codes: Integers) -> NDArray[np.bool_]:
    """Return which rows are the last ones of their keys, shape ``(rows,)``; the codes are sorted."""
    return np.append(codes[1:] != codes[:-1], True)[: len(codes)]


def overlapping(left: KeyedPeriods, right: KeyedPeriods) -> tuple[Integers, Integers]:
    """Return all pairs of a left and a right row with the same key and periods that have a common instant.

    Two periods have one if and only if either the left one starts within the right one, or the right one starts within
    the left one and later. Rows with an empty period match nothing.

    Returns:
        Left and right row indices, each of shape ``(pairs,)``.
    """
    left_rows, right_rows = _starting_within(left, right, after=False)
    more_right, more_left = _starting_within(right, left, after=True)
    return np.concatenate([left_rows, more_left]), np.concatenate([right_rows, more_right])


def _starting_within(rows: KeyedPeriods, periods: KeyedPeriods, *, after: bool) -> tuple[Integers, Integers]:
    """Return pairs of a row and a period within which it starts; with ``after``, not at the period's own start."""
    candidates = np.flatnonzero((rows.keys != NO_KEY) & (rows.ends > rows.starts))
    times, ranks = np.unique(rows.starts[candidates], return_inverse=True)
    width = len(times) + 1
    places = rows.keys[candidates] * width + ranks  # sorts by key, and then by time
    order = np.argsort(places, kind="stable")
    places = places[order]
    first_rank = np.searchsorted(times, periods.starts, side="right" if after else "left")
    last_rank = np.searchsorted(times, periods.ends)
    begin = np.searchsorted(places, periods.keys * width + first_rank)
    end = np.searchsorted(places, periods.keys * width + last_rank)
    counts = np.where(periods.keys == NO_KEY, 0, np.maximum(end - begin, 0))
    matched = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(matched)) - np.repeat(np.cumsum(counts) - counts, counts)
    return candidates[order[np.repeat(begin, counts) + within]], matched


def unmatched(rows: int, matched: Integers) -> Integers:
    """Return the indices of rows that are not among the ``matched`` ones, of ``rows`` rows."""
    alone = np.ones(rows, dtype=bool)
    alone[matched] = False
    return np.flatnonzero(alone)


def uncovered(left: KeyedPeriods, right: KeyedPeriods) -> tuple[Integers, Integers, Integers]:
    """Return the parts of the left rows' periods in which no right row with the same key is valid.

    Returns:
        Left row indices, and starts and ends of the parts, each of shape ``(parts,)``.
    """
    rows, partners = overlapping(left, right)
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
    alone = unmatched(len(left.keys), rows)
    found = np.concatenate([rows, rows[last], alone])
    starts = np.concatenate([covered_before, covered_at_end, left.starts[alone]])
    stops = np.concatenate([right.starts[partners], left.ends[rows[last]], left.ends[alone]])
    parts = stops > starts
    return found[parts], starts[parts], stops[parts]
