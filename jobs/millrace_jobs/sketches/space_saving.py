"""Space-saving: the frequent keys of a stream, from a bounded number of counters.

Source: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams",
ICDT 2005; merging: Agarwal, Cormode, Huang, Phillips, Wei, Yi, "Mergeable Summaries", PODS 2012, section 2.

A record of a counted key adds 1 to its counter. A record of another key takes over a counter with the smallest count:
the count continues from there, and its previous value is the possible error of the new key.

With N records and k counters, for every key with f records:

- if it is counted: ``count - error <= f <= count``, and ``error <= missed``;
- if it is not counted: ``f <= missed``;
- ``missed <= N / k``, so every key with more than N / k records is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined, kernel, read_only
from millrace_jobs.kernels.key_table import Rows, Slot, empty_table, find, is_empty
from millrace_jobs.kernels.mixing import Hashes, splitmix64

_MOST = 1 << 56
"""Largest number of records that a saved summary may plausibly have: 45 years of 50 million records/s."""

_COUNTER = np.dtype(
    [
        # Indexed by slot: a counter stays in its slot, whatever its rank.
        ("key", np.uint64),
        ("count", np.int64),
        ("error", np.int64),
        ("rank", np.int32),
        ("group", np.int32),
        # Indexed by rank, by group, and a list of unused group numbers.
        ("slot", np.int32),
        ("first", np.int32),
        ("spare", np.int32),
    ],
    align=True,
)
_SIZE, _TOTAL, _MISSED, _SPARE = range(4)


class SpaceSavingCounters(NamedTuple):
    """The stream summary that ``count`` works on.

    Counters are ranked by descending count. Counters with equal counts form a group, in any order. Adding 1 therefore
    means swapping places with the first of the group, and joining the group above.
    """

    rows: NDArray[np.void]
    """Counters with their ranks and groups, shape ``(k,)``."""
    table: Rows
    """Hash table from a key to its slot plus 1."""
    numbers: NDArray[np.int64]
    """Number of counters in use, N, ``missed``, and number of unused group numbers."""


class SpaceSaving:
    """Space-saving summary of at most ``capacity`` counters (k)."""

    def __init__(self, capacity: int) -> None:
        none = np.empty(0, np.int64)
        self.counters = _counters(capacity, none.view(np.uint64), none, none, missed=0, total=0)

    def __len__(self) -> int:
        """Return the number of keys that are counted."""
        return int(self.counters.numbers[_SIZE])

    @property
    def capacity(self) -> int:
        """Number of counters k."""
        return len(self.counters.rows)

    @property
    def total(self) -> int:
        """Number of records N."""
        return int(self.counters.numbers[_TOTAL])

    @property
    def missed(self) -> int:
        """Largest number of records that an uncounted key can have."""
        return int(self.counters.numbers[_MISSED])

    @property
    def slots(self) -> NDArray[np.int32]:
        """Slots of the counters in order of rank, shape ``(len(self),)``; a copy."""
        return self.counters.rows["slot"][: len(self)].copy()

    @property
    def keys(self) -> Hashes:
        """Counted keys, most frequent first, shape ``(len(self),)``; a copy."""
        return self.counters.rows["key"][self.slots]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Upper bounds on the records of each key, in the order of ``keys``, shape ``(len(self),)``; a copy."""
        return self.counters.rows["count"][self.slots]

    @property
    def errors(self) -> NDArray[np.int64]:
        """Amounts by which each count may be too high, in the order of ``keys``, shape ``(len(self),)``; a copy."""
        return self.counters.rows["error"][self.slots]

    def add(self, keys: Hashes) -> None:
        """Count a block of records, in order."""
        _count_all(*self.counters, read_only(keys))

    def merge(self, others: Sequence[Self]) -> None:
        """Count the streams of the other summaries too; no record may be in two of the streams.

        All bounds hold for the combined streams if the capacities are the same. Ties go to smaller keys.
        """
        if not others:
            return
        parts = [self, *others]
        keys, at = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
        missed = sum(part.missed for part in parts)
        # A summary that does not count a key adds the most it may have missed.
        counts, errors = np.full(len(keys), missed), np.full(len(keys), missed)
        np.add.at(counts, at, np.concatenate([part.counts - part.missed for part in parts]))
        np.add.at(errors, at, np.concatenate([part.errors - part.missed for part in parts]))
        order = np.lexsort((keys, -counts))
        total = sum(part.total for part in parts)
        self.counters = _counters(self.capacity, keys[order], counts[order], errors[order], missed, total)

    def age(self, divisor: int, share: float = 0.0) -> None:
        """Weigh every record so far as ``1 / divisor`` of one, and forget keys below ``share`` of all records.

        All numbers are rounded down, and so are the true counts that the bounds refer to; an error may then exceed
        ``missed`` by 1. Keys whose count becomes 0 are forgotten too. ``share`` is a fraction of N.
        """
        counts = self.counts // divisor
        errors = counts - (self.counts - self.errors) // divisor
        total = self.total // divisor
        kept = int(np.count_nonzero(counts >= max(1.0, share * total)))
        missed = max(self.missed // divisor, int(counts[kept:].max(initial=0)))
        self.counters = _counters(self.capacity, self.keys[:kept], counts[:kept], errors[:kept], missed, total)

    def resize(self, capacity: int) -> None:
        """Continue with ``capacity`` counters, and keep the most frequent keys.

        With more counters than before, ``missed`` is bounded only by N over the former number until N has grown.
        """
        self.counters = _counters(capacity, self.keys, self.counts, self.errors, self.missed, self.total)

    def vectors(self) -> Mapping[str, NDArray[np.int64]]:
        """Return what ``restored`` needs to continue as if there had been no interruption; 24 bytes per key."""
        totals = np.array([self.total, self.missed], np.int64)
        return {"keys": self.keys.view(np.int64), "counts": self.counts, "errors": self.errors, "totals": totals}

    @classmethod
    def restored(cls, capacity: int, vectors: Mapping[str, NDArray[np.int64]]) -> Self:
        """Return the summary that has these ``vectors``. Raises ValueError if no summary can have them."""
        none = np.empty(0, np.int64)
        keys, counts, errors, totals = (vectors.get(name, none) for name in ("keys", "counts", "errors", "totals"))
        if not len(keys) == len(counts) == len(errors) <= capacity or len(totals) != 2:
            raise ValueError(
                f"{len(keys)} keys, {len(counts)} counts, {len(errors)} errors and {len(totals)} totals do not make "
                f"a space-saving summary of {capacity} counters"
            )
        total, missed = totals.tolist()
        bounds = np.concatenate([[_MOST, total], counts, [max(missed, 0)]])
        if (np.diff(bounds) > 0).any() or missed < 0 or (errors < 0).any() or (errors > counts).any():
            raise ValueError("the counts of a saved space-saving summary contradict each other")
        if len(np.unique(keys)) != len(keys):
            raise ValueError("a saved space-saving summary counts a key twice")
        summary = cls(capacity)
        summary.counters = _counters(capacity, keys.view(np.uint64), counts, errors, missed, total)
        return summary


def _counters(
    capacity: int, keys: Hashes, counts: NDArray[np.int64], errors: NDArray[np.int64], missed: int, total: int
) -> SpaceSavingCounters:
    """Build these counters, in order of rank, or as many as fit; slots are numbered by rank."""
    taken = len(keys[:capacity])
    missed = max(missed, int(counts[taken:].max(initial=0)))
    rows = np.zeros(capacity, _COUNTER)
    rows["count"] = missed
    rows["count"][:taken] = counts[:taken]
    rows["rank"] = rows["slot"] = np.arange(capacity)
    firsts = np.flatnonzero(np.diff(rows["count"], prepend=-1))
    rows["first"][: len(firsts)] = firsts
    rows["group"] = np.searchsorted(firsts, rows["rank"], side="right") - 1
    rows["spare"][: capacity - len(firsts)] = np.arange(len(firsts), capacity)
    table = empty_table(capacity + capacity // 2, 1)  # at most half full, so that failed look-ups end soon
    _enter_all(rows, table, read_only(keys[:taken]), read_only(errors[:taken]))
    return SpaceSavingCounters(rows, table, np.array([taken, total, missed, capacity - len(firsts)], np.int64))


@inlined
def count(rows: NDArray[np.void], table: Rows, numbers: NDArray[np.int64], key: np.uint64) -> np.int64:
    """Count one record in constant time, and return the slot of its key's counter.

    ``rows``, ``table`` and ``numbers`` are the fields of ``SpaceSavingCounters``.
    """
    numbers[_TOTAL] += 1
    place = find(table, key)
    if is_empty(table, place):
        rank = numbers[_SIZE]
        if rank < len(rows):
            numbers[_SIZE] += 1
        else:
            rank -= 1
            numbers[_MISSED] = rows[rows[rank].slot].count
            _remove(table, rows[rows[rank].slot].key)
            place = find(table, key)
        _take_over(rows, table, rows[rank].slot, numbers[_MISSED], key, place)
    slot = np.int64(table[place, 1]) - np.int64(1)
    _add_one(rows, numbers, slot)
    return slot


@inlined
def is_frequent(rows: NDArray[np.void], numbers: NDArray[np.int64], slot: np.int64, share: float) -> bool:
    """Whether the key in the slot may have at least the fraction ``share`` of all records."""
    frequent: bool = rows[slot].count >= share * numbers[_TOTAL]
    return frequent


@kernel
def _count_all(rows: NDArray[np.void], table: Rows, numbers: NDArray[np.int64], keys: Hashes) -> None:
    for row in range(len(keys)):
        count(rows, table, numbers, keys[row])


@kernel
def _enter_all(rows: NDArray[np.void], table: Rows, keys: Hashes, errors: NDArray[np.int64]) -> None:
    for slot in range(len(keys)):
        _take_over(rows, table, slot, errors[slot], keys[slot], find(table, keys[slot]))


@inlined
def _take_over(rows: NDArray[np.void], table: Rows, slot: int, error: int, key: np.uint64, place: Slot) -> None:
    """Give the counter in ``slot`` to the key, whose entry in the table is at ``place``."""
    rows[slot].key = key
    rows[slot].error = error
    table[place, 0] = key
    table[place, 1] = slot + 1


@inlined
def _add_one(rows: NDArray[np.void], numbers: NDArray[np.int64], slot: np.int64) -> None:
    """Swap places with the first of the group, then leave it for the group above, which may be a new one."""
    before, group, rank = rows[slot].count, rows[slot].group, rows[slot].rank
    first = rows[group].first
    other = rows[first].slot
    rows[rank].slot = other
    rows[other].rank = rank
    rows[first].slot = slot
    rows[slot].rank = first
    rows[slot].count = before + 1
    alone = first + 1 == len(rows) or rows[rows[first + 1].slot].count != before
    if not alone:
        rows[group].first = first + 1
    if first > 0 and rows[rows[first - 1].slot].count == before + 1:
        rows[slot].group = rows[rows[first - 1].slot].group
        if alone:
            rows[numbers[_SPARE]].spare = group
            numbers[_SPARE] += 1
    elif not alone:
        numbers[_SPARE] -= 1
        rows[slot].group = rows[numbers[_SPARE]].spare
        rows[rows[slot].group].first = first


@inlined
def _remove(table: Rows, key: np.uint64) -> None:
    """Remove the key, and close its gap by moving up the entries that the gap would hide from ``find``."""
    last = len(table) - 1
    gap = find(table, key)
    place = (gap + 1) & last
    while not is_empty(table, place):
        home = np.int64(splitmix64(table[place, 0])) & last
        if (place - home) & last >= (place - gap) & last:
            table[gap, 0], table[gap, 1] = table[place, 0], table[place, 1]
            gap = place
        place = (place + 1) & last
    table[gap, 0] = table[gap, 1] = np.uint64(0)
