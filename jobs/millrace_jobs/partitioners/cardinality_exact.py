"""Exact cardinalities: which worker has which key in this window (paper 000, section 3.2.1, "naive").

The paper keeps a set of keys per worker. Here a single table holds each key with the set of its workers as bits, so
that a record costs one look-up, whichever worker is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined, kernel
from millrace_jobs.kernels.key_table import Rows, Slot, empty_table, find, find_from, grown, is_empty, is_full, rows_of

from .base import Hashes, Workers
from .choices import (
    Cardinalities,
    Homes,
    Loads,
    draw,
    extremes_of,
    home_or_least_hybrid_load,
    last_word,
    update_extremes,
    words_for,
)


class ExactSets:
    """Exact key sets of ``workers`` workers.

    A key takes 21 to 43 bytes with up to 64 workers (8 more bytes per slot for each 64 further workers), however many
    workers it is on: 10 million keys take 268 MB, and 403 MB for the moment the table grows.
    """

    def __init__(self, workers: int, room: int = 0) -> None:
        self.cardinalities: Cardinalities = np.zeros(workers, np.float64)  # distinct keys of each worker
        self._keys = 0  # distinct keys over all workers
        self._table = empty_table(room, words_for(workers))

    def route(
        self,
        keys: Hashes,
        seeds: NDArray[np.uint64],
        affinity: bool,
        weight: float,
        loads: Loads,
        homes: Homes,
        slack: float,
    ) -> Workers:
        """Place ``keys``, and count them here and in ``loads``. With ``affinity`` a worker that has the key gets it."""
        ids, self._table, self._keys = _route(
            keys, seeds, affinity, weight, loads, homes, slack, self.cardinalities, self._table, self._keys
        )
        return ids

    def emptied(self) -> Self:
        """Return sets without keys, with room for as many as now: the next window is likely to have as many."""
        return type(self)(len(self.cardinalities), self._keys)

    def union(self, other: Self) -> None:
        """Add the keys of each of the other's workers."""
        self._add(rows_of(other._table))

    def place(self, keys: Hashes, ids: Workers) -> None:
        """Count keys, none of which is given twice, on these workers; those that a worker already has stay there."""
        rows = np.zeros((len(keys), 1 + words_for(len(self.cardinalities))), np.uint64)
        rows[:, 0] = keys
        rows[np.arange(len(keys)), 1 + ids // 64] = np.uint64(1) << (ids % 64).astype(np.uint64)
        self._add(rows[~np.isin(keys, rows_of(self._table)[:, 0])])

    def resized(self, workers: int) -> Self:
        """Return the sets over ``workers`` workers: the remaining ones keep their keys, new ones have none."""
        rows = rows_of(self._table)
        words = min(words_for(workers), rows.shape[1] - 1)
        kept = np.zeros((len(rows), 1 + words_for(workers)), np.uint64)
        kept[:, : 1 + words] = rows[:, : 1 + words]
        kept[:, -1] &= last_word(workers)
        return type(self)._of(workers, kept[kept[:, 1:].any(axis=1)])

    def vectors(self) -> dict[str, NDArray[np.int64]]:
        """Return the keys in ascending order, and the words of their workers, for ``from_vectors``."""
        rows = rows_of(self._table)
        return {"keys": rows[:, 0].view(np.int64), "holders": rows[:, 1:].ravel().view(np.int64)}

    @classmethod
    def from_vectors(cls, workers: int, vectors: Mapping[str, NDArray[np.int64]]) -> Self:
        """Return the sets that ``vectors`` describe. Raises ValueError if these do not fit ``workers`` workers."""
        keys, holders = (vectors.get(name, np.zeros(1, np.int64)).view(np.uint64) for name in ("keys", "holders"))
        words = words_for(workers)
        if len(holders) != len(keys) * words or (keys[1:] <= keys[:-1]).any():
            raise ValueError(f"its keys are not in order, or not all of them have {words} words of workers")
        rows = np.empty((len(keys), 1 + words), np.uint64)
        rows[:, 0], rows[:, 1:] = keys, holders.reshape(-1, words)
        if not rows[:, 1:].any(axis=1).all() or (rows[:, -1] & ~last_word(workers)).any():
            raise ValueError(f"it has keys on no worker, or on workers beyond its {workers}")
        return cls._of(workers, rows)

    @classmethod
    def _of(cls, workers: int, rows: Rows) -> Self:
        made = cls(workers, len(rows))
        made._add(rows)
        return made

    def _add(self, rows: Rows) -> None:
        self._table, self._keys = _fill(rows, self.cardinalities, self._table, self._keys)


_AHEAD = 32  # keys that are looked up at once


@kernel
def _route(
    keys: Hashes,
    seeds: NDArray[np.uint64],
    affinity: bool,
    weight: float,
    loads: Loads,
    homes: Homes,
    slack: float,
    cardinalities: Cardinalities,
    table: Rows,
    distinct: int,
) -> tuple[Workers, Rows, int]:
    """Place ``keys`` in order; return the ids, the table, which may have grown, and its number of keys."""
    ids = np.empty(len(keys), np.int32)
    drawn = np.empty(len(seeds), np.int64)
    hybrid = 0.0 < weight < 1.0
    extremes = extremes_of(loads, cardinalities)
    slots, ahead = np.empty(_AHEAD, np.int64), 0
    for row in range(len(keys)):
        if row == ahead:
            ahead = _look_ahead(keys, row, table, slots)
        key = keys[row]
        slot = find_from(table, key, slots[row % _AHEAD])
        if affinity and not is_empty(table, slot):
            worker = _holder(key, seeds, drawn, table, slot, len(loads))
        else:
            worker = home_or_least_hybrid_load(key, seeds, drawn, weight, loads, cardinalities, extremes, homes, slack)
        loads[worker] += 1
        if not _has(table, slot, worker):
            cardinalities[worker] += 1
            distinct += is_empty(table, slot)
            _set(table, slot, key, worker)
            if is_full(len(table), distinct):
                table = grown(table)
                ahead = row + 1
        if hybrid:
            update_extremes(extremes, worker, loads, cardinalities)
        ids[row] = worker
    return ids, table, distinct


@inlined
def _look_ahead(keys: Hashes, row: int, table: Rows, slots: NDArray[np.int64]) -> int:
    """Look up the next few keys, so that their cache misses overlap; return the first row not looked up."""
    end = min(row + _AHEAD, len(keys))
    for later in range(row, end):
        slots[later % _AHEAD] = find(table, keys[later])
    return end


@inlined
def _holder(
    key: np.uint64, seeds: NDArray[np.uint64], drawn: NDArray[np.int64], table: Rows, slot: Slot, workers: int
) -> int:
    """Return the first candidate that has the key in ``slot``, else (see ``resize``) the first worker that has it."""
    for choice in range(len(seeds)):
        worker = draw(key, seeds, choice, workers, drawn)
        if _has(table, slot, worker):
            return worker
    worker = 0
    while not _has(table, slot, worker):
        worker += 1
    return worker


@inlined
def _has(table: Rows, slot: Slot, worker: int) -> bool:
    return bool((table[slot, 1 + worker // 64] >> np.uint64(worker % 64)) & np.uint64(1))


@inlined
def _set(table: Rows, slot: Slot, key: np.uint64, worker: int) -> None:
    table[slot, 0] = key
    table[slot, 1 + worker // 64] |= np.uint64(1) << np.uint64(worker % 64)


@kernel
def _fill(rows: Rows, cardinalities: Cardinalities, table: Rows, distinct: int) -> tuple[Rows, int]:
    """Add keys on their workers to a table of ``distinct`` keys; return the table and its number of keys."""
    for row in range(len(rows)):
        slot = find(table, rows[row, 0])
        distinct += is_empty(table, slot)
        for worker in range(len(cardinalities)):
            if _has(rows, row, worker) and not _has(table, slot, worker):
                cardinalities[worker] += 1
                _set(table, slot, rows[row, 0], worker)
        if is_full(len(table), distinct):
            table = grown(table)
    return table, distinct
