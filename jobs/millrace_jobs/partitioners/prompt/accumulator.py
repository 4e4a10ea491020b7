"""The micro-batch accumulator (paper 004, Algorithm 1): HTable, and CountTree with bounded updates.

The algorithm's text leaves some points open, and the prose differs from some of its lines. It is read as follows:

- Time is the position in the batch: the record that raises the tuple count to N_C comes at time N_C, and the interval
  ends at N_Est. At a steady rate this is time up to its unit. A batch that is replayed is ordered as before, which no
  clock could guarantee.
- f = N_Est / (K_Avg * budget) at first (prose), then N_Est / budget * freq / N_C (line 13). Both are the tuples that
  the key is expected to have in the whole batch, spread over its budget. Steps are whole tuples, so that the ``==`` of
  line 9 can hold. They are rounded up, so that the budget lasts, and are at least 1.
- t.step (lines 29 and 19) is the rest of the interval over the rest of the budget, rounded likewise. The ``==`` of line
  15 is read as "at least", because a key's tuples need not hit the moment ("satisfies the time or frequency step").
- Each update also sets the time of the last update, which line 8 needs and no line sets. No update happens once the
  budget is used up ("for a maximum of budget times"). Inserting a key is not an update.
- The list at the end is in the order of the tree's approximate counts, but returns the exact counts of HTable.

CountTree holds the keys in the order of their approximate counts (section 4.1). The paper keeps the counts in a
balanced search tree and uses two of its operations. A key's node moves when its count is updated, and at the end of the
batch an in-order traversal gives the quasi-sorted list. If larger counts come first and a node is put behind the nodes
of equal count, the sequence of updates alone determines that traversal: keys by descending count, and keys of one count
in the order in which they reached it. HTable has both the count and the time of its last update, and no two keys are
updated at the same time. So there is no tree. An update only writes to the key's own row, and the traversal sorts the
keys by time and then by count, in O(N_C) and without a comparison. Results are frozen, like those of ``mixing``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.kernels.key_table import Rows, empty_table, find, grown
from millrace_jobs.partitioners.base import Hashes

Table = NDArray[Any]
"""Shape ``(keys,)``: the rows of HTable, see ``ROW``; ``updated`` is a key's count in the tree."""


@kernel
def in_order(table: Table, tuples: int) -> NDArray[np.int32]:
    """Return the row of each key, shape ``(keys,)``, the largest counts first.

    ``tuples`` is N_C. Each key was last updated at a time between 1 and N_C, and no two keys at the same time.
    """
    keys_at = np.zeros(tuples + 1, np.int32)  # by time: the key that was last updated then, as row + 1
    largest = 0
    for row in range(len(table)):
        keys_at[table[row].last_update] = row + 1
        largest = max(largest, table[row].updated)
    places = np.zeros(largest + 1, np.int32)  # by count: where its next key belongs
    for row in range(len(table)):
        places[table[row].updated - 1] += 1  # first, how many keys have a count of one more
    for count in range(largest - 1, -1, -1):  # then, how many have any larger count
        places[count] += places[count + 1]
    rows = np.empty(len(table), np.int32)
    for time in range(1, tuples + 1):
        row = keys_at[time] - 1
        if row >= 0:
            count = table[row].updated
            rows[places[count]] = row
            places[count] += 1
    return rows


MOST_TUPLES = (1 << 31) - 1
"""The largest micro-batch, in records: counts and positions are 32 bits wide."""

ROW = np.dtype(
    [
        ("current", np.int32),  # Freq_Current: tuples so far
        ("updated", np.int32),  # Freq_Updated: tuples at the last update, the key's count in CountTree
        ("last_update", np.int32),  # when the key got that count
        ("budget", np.int32),  # updates left
        ("f_step", np.int32),
        ("t_step", np.int32),
    ]
)
"""Data type of an HTable row: what the table stores of a key, besides its hash."""

_INITIAL_ROWS = 1536  # 3 of 4 slots of a table of 2048, the most that may be taken

_MOST_EXPECTED = _INITIAL_ROWS << 10


@dataclass(frozen=True)
class Estimate:
    """The expected size of the next batch, from the past few batches."""

    tuples: int
    """Expected records N_Est, at least 1."""
    keys: int
    """Expected distinct keys K_Avg, at least 1."""


@dataclass(frozen=True)
class AccumulatedBatch:
    """A micro-batch of N_C records and K keys, Algorithm 1's output."""

    keys: Hashes
    """Shape ``(K,)``: the keys' hashes, in descending order of their counts, or nearly so."""
    counts: NDArray[np.int32]
    """Shape ``(K,)``: their exact counts."""
    records: NDArray[np.int32]
    """Shape ``(N_C,)``: the index in ``keys`` of each record's key, in arrival order. It replaces the paper's tuple
    lists."""


class Accumulator:
    """Buffer of one micro-batch, which arrives block by block.

    ``estimate`` sets the steps of CountTree, and ``budget`` how often a key may update it. Without an estimate there is
    no CountTree: the exact counts are sorted at the end of the batch, which paper 004 calls post-sort.

    It takes 53 to 107 bytes per distinct key, half as much again while it grows, and 4 bytes per record.
    """

    def __init__(self, estimate: Estimate | None, budget: int) -> None:
        self._estimate = estimate
        self._budget = min(budget, MOST_TUPLES)
        rows = _rows_for(0 if estimate is None else estimate.keys)
        self._slots = empty_table(rows, words=1)  # each key's number, counted from 1
        self._hashes = np.empty(rows, np.uint64)
        self._table: Table = np.empty(rows, ROW)
        self.keys = 0
        """K: distinct keys so far."""
        self.tuples = 0
        """N_C: records so far."""
        self._rows: list[NDArray[np.int32]] = []  # the row of each record's key, block by block

    @property
    def accumulated(self) -> Hashes:
        """Shape ``(N_C,)``: the keys of all records so far, in arrival order."""
        return self._hashes[self._chain()]

    def take(self, keys: Hashes) -> None:
        """Take in the next block, which must be ``read_only``.

        Raises ValueError, and takes in nothing, if the batch would have more than ``MOST_TUPLES`` records.
        """
        if self.tuples + len(keys) > MOST_TUPLES:
            raise ValueError(
                f"{self.tuples + len(keys)} records are too many for one micro-batch; "
                f"cut it when it has at most {MOST_TUPLES}"
            )
        rows = np.empty(len(keys), np.int32)
        done = 0
        while True:
            done += self._take_while_there_is_room(keys[done:], rows[done:])
            if done == len(keys):
                break
            self._grow()
        self._rows.append(rows)

    def sorted_list(self) -> AccumulatedBatch:
        """Return the batch so far, its keys in the order of CountTree, or by their counts if there is no CountTree.

        Keys with equal counts are in the order in which they reached that count; without CountTree, in order of
        arrival.
        """
        table = self._table[: self.keys]
        counts = np.ascontiguousarray(table["current"])
        if self._estimate is None:
            order = np.argsort(-counts, kind="stable").astype(np.int32)
        else:
            order = in_order(table, self.tuples)
        place = np.empty_like(order)
        place[order] = np.arange(len(order), dtype=np.int32)
        return AccumulatedBatch(self._hashes[order], counts[order], place[self._chain()])

    def _chain(self) -> NDArray[np.int32]:
        if len(self._rows) != 1:
            self._rows = [np.concatenate([np.empty(0, np.int32), *self._rows])]
        return self._rows[0]

    def _take_while_there_is_room(self, keys: Hashes, rows: NDArray[np.int32]) -> int:
        """Return how many records were taken in: all, or those before the first new key without a row in ``_table``."""
        if self._estimate is None:
            done, self.keys = _count(keys, rows, self._slots, self._hashes, self._table, self.keys)
        else:
            n_est = min(self._estimate.tuples, MOST_TUPLES)
            f = _whole_step(n_est, self._estimate.keys * self._budget)
            done, self.keys = _accumulate(
                keys, rows, self._slots, self._hashes, self._table, self.keys, self.tuples, n_est, f, self._budget
            )
        self.tuples += done
        return done

    def _grow(self) -> None:
        """Make room for twice as many keys."""
        more = len(self._table)
        self._slots = grown(self._slots)
        self._hashes = np.concatenate([self._hashes, np.empty(more, np.uint64)])
        self._table = np.concatenate([self._table, np.empty(more, ROW)])


def _rows_for(keys: int) -> int:
    """Return the rows that growing would give ``keys`` keys; at most ``_MOST_EXPECTED``, as estimates may be wrong."""
    rows = _INITIAL_ROWS
    while rows < min(keys, _MOST_EXPECTED):
        rows *= 2
    return rows


@kernel
def _whole_step(share: int, parts: int) -> int:
    """Return ``share / parts`` rounded up, at least 1."""
    return max(1, (share + parts - 1) // parts)


@kernel
def _count(
    keys: Hashes, rows: NDArray[np.int32], slots: Rows, hashes: Hashes, table: Table, known: int
) -> tuple[int, int]:
    """Count in HTable alone; write each record's row to ``rows``, return the records taken in and the keys so far."""
    for record in range(len(keys)):
        slot = find(slots, keys[record])
        if not slots[slot, 1]:
            if known == len(table):
                return record, known
            hashes[known] = keys[record]
            table[known].current = 0
            known += 1
            slots[slot, 0], slots[slot, 1] = keys[record], known
        row = np.int32(slots[slot, 1]) - 1
        table[row].current += 1
        rows[record] = row
    return len(keys), known


@kernel
def _accumulate(
    keys: Hashes,
    rows: NDArray[np.int32],
    slots: Rows,
    hashes: Hashes,
    table: Table,
    known: int,
    now: int,
    n_est: int,
    f: int,
    budget: int,
) -> tuple[int, int]:
    """Run lines 2 to 32 of Algorithm 1, with the same results as ``_count``; ``now`` is N_C before the first record."""
    for record in range(len(keys)):
        slot = find(slots, keys[record])
        row = int(np.int64(slots[slot, 1])) - 1
        if row >= 0:
            now += 1
            _seen_again(table, row, now, n_est, budget)
        else:
            if known == len(table):
                return record, known
            now += 1
            row = known
            hashes[row] = keys[record]
            _seen_first(table, row, now, n_est, f, budget)
            known += 1
            slots[slot, 0], slots[slot, 1] = keys[record], known
        rows[record] = row
    return len(keys), known


@kernel
def _seen_first(table: Table, row: int, now: int, n_est: int, f: int, budget: int) -> None:
    """Insert a new key (lines 25 to 30)."""
    k = table[row]
    k.current = 1
    k.updated = 1
    k.last_update = now
    k.budget = budget
    k.f_step = f
    k.t_step = _whole_step(n_est - now, budget)


@kernel
def _seen_again(table: Table, row: int, now: int, n_est: int, budget: int) -> None:
    """Count one more tuple of a known key (lines 5 to 23)."""
    k = table[row]
    k.current += 1
    if not k.budget:
        return
    if k.current - k.updated == k.f_step:
        k.budget -= 1
        k.f_step = _whole_step(n_est * k.current, budget * now)
    elif now - k.last_update >= k.t_step:
        k.budget -= 1
        k.t_step = _whole_step(n_est - now, max(1, k.budget))
    else:
        return
    k.updated = k.current
    k.last_update = now
