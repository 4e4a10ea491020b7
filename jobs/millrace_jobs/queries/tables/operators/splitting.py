"""Splitting of the matching of hot keys: what a bucket hands to workers instead of listing all pairs itself.

State stays in the bucket of its key; only the matching is spread. The rows of the side that has more of them are cut
into chunks of about equally many pairs. A partitioner places each chunk on a worker, as it places a record of the
chunk's key, and the other side's rows are copied to every worker that has a row they match.

The chunk of a row depends on all rows of the batch and of the bucket, but not on their order: a bucket that is computed
again, with its input in another order, gives every worker the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_jobs.partitioners.hot_key_units import CHUNK, MOST_CHUNKS
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.queries.tables.operators.matching import Integers, KeyedPeriods, Mask, Overlap

Place = Callable[[Hashes], Workers]
"""Function that returns a worker for each chunk, from the hashes of the chunks' keys."""


@dataclass(frozen=True)
class Split:
    """How hot keys, those with more than ``pairs`` pairs, are split: into chunks of so many pairs, by ``place``.

    Without ``place``, hot keys are counted, and matched in their bucket.
    """

    pairs: int
    place: Place | None = None


NOT_SPLIT = Split(CHUNK)
"""Setting with which every bucket matches its own rows."""


@dataclass(frozen=True)
class MatchUnit:
    """Rows of both sides of a join whose pairs a worker lists: all rows that match, with the inputs' schemas."""

    worker: int
    pairs: int
    left: pa.Table
    right: pa.Table


@dataclass(frozen=True)
class SplitSide:
    """One side of a join in a bucket: its rows, their keys and periods, and the columns of the key."""

    table: pa.Table
    keyed: KeyedPeriods
    keys: tuple[str, ...]


class HotKeys:
    """The hot keys of a bucket: those with more than ``chunk`` pairs.

    Attributes:
        pairs: the number of pairs of each hot key.
        left: which left rows have a hot key, shape ``(rows,)``.
        right: which right rows have a hot key, shape ``(rows,)``.
    """

    def __init__(self, sides: tuple[SplitSide, SplitSide], overlap: Overlap, chunk: int) -> None:
        self._sides, self._overlap, self._chunk = sides, overlap, chunk
        keys = [side.keyed.keys + 1 for side in sides]  # from 0, which is NO_KEY
        counts = [overlap.left_counts, overlap.right_counts]
        size = max(int(each.max(initial=0)) for each in keys) + 1
        self._pairs = np.bincount(keys[0], counts[0], size).astype(np.int64)
        hot = self._pairs > chunk
        self.pairs: list[int] = self._pairs[hot].tolist()
        self.left, self.right = (hot[each] for each in keys)
        self._counts = [np.where(hot[each], own, 0) for each, own in zip(keys, counts, strict=True)]
        matching = [np.bincount(each, own > 0, size) for each, own in zip(keys, self._counts, strict=True)]
        cuts_left = matching[0] >= matching[1]
        self._cut = [cuts_left[keys[0]] & (self._counts[0] > 0), ~cuts_left[keys[1]] & (self._counts[1] > 0)]

    def units(self, place: Place) -> Iterator[MatchUnit]:
        """Yield what each worker gets of their rows."""
        chunks = [self._chunks(side, rows, counts) for side, rows, counts in
                  zip(self._sides, self._cut, self._counts, strict=True)]  # fmt: skip
        workers = place(np.concatenate([hashes for _, hashes in chunks]))
        placed = np.split(workers, [len(chunks[0][1])])
        owners = []
        for (chunk, _), own in zip(chunks, placed, strict=True):
            owners.append(np.where(chunk >= 0, own[chunk], -1) if len(own) else np.full(len(chunk), -1))
        for worker in np.unique(workers).tolist():
            yield self._unit(worker, owners[0] == worker, owners[1] == worker)

    def _unit(self, worker: int, left: Mask, right: Mask) -> MatchUnit:
        pairs = int(self._counts[0][left].sum() + self._counts[1][right].sum())
        lefts, rights = left | self._overlap.left_partners(right), right | self._overlap.right_partners(left)
        tables = [side.table.filter(pa.array(rows)) for side, rows in zip(self._sides, (lefts, rights), strict=True)]
        return MatchUnit(worker, pairs, *tables)

    def _chunks(self, side: SplitSide, cut: Mask, counts: Integers) -> tuple[Integers, Hashes]:
        """Return the chunk of each row, -1 if it is not cut, and the hash of each chunk's key.

        Rows are in the order of their keys, of time, and of what they contain. Rows that are equal in all of this are
        in the same chunk.
        """
        rows = np.flatnonzero(cut)
        hashes = hash_columns([column.filter(pa.array(cut)) for column in map(side.table.column, side.keys)], len(rows))
        contents = _contents(side.table.filter(pa.array(cut)))
        starts = side.keyed.starts[rows]
        order = np.lexsort((contents, starts, hashes))
        rows, hashes, contents, starts = rows[order], hashes[order], contents[order], starts[order]
        keys = side.keyed.keys[rows]
        new_key = _changes(keys)
        new_row = new_key | _changes(starts) | _changes(contents)
        before = np.cumsum(counts[rows]) - counts[rows]
        before = before - _at_last(new_key, before)
        size = np.maximum(self._chunk, -(-self._pairs[keys + 1] // MOST_CHUNKS))
        number = _at_last(new_row, before) // size
        new_chunk = new_key | _changes(number)
        chunk = np.full(len(cut), -1)
        chunk[rows] = np.cumsum(new_chunk) - 1
        return chunk, hashes[new_chunk]


def _changes(values: NDArray[Any]) -> Mask:
    """Return where a value differs from the one before it; true for the first one."""
    changed = np.ones(len(values), dtype=bool)
    changed[1:] = values[1:] != values[:-1]
    return changed


def _at_last(mask: Mask, values: Integers) -> Integers:
    """Return for each place the value at the last place, up to it, where the mask is true."""
    return values[np.maximum.accumulate(np.where(mask, np.arange(len(mask)), 0))] if len(mask) else values


def _contents(rows: pa.Table) -> Hashes:
    """Return hashes of the rows' contents, as far as their types have hashes."""
    types = pa.types
    columns = [each for each in rows.columns if not (types.is_nested(each.type) or types.is_interval(each.type))]
    return hash_columns(columns, rows.num_rows)
