"""SH: shuffle grouping, round robin per replica (paper 001, "Existing Stream Partitioning Functions")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from millrace_jobs.kernels.compiling import kernel

from .base import Hashes, Workers, key_block, whole_number
from .state import PartitionerState, pack, unpack


class Shuffle:
    """Shuffle grouping: records go to the workers in turn, whatever their keys.

    Loads differ by at most 1 per replica. Replicas start at evenly spaced workers, so that their unfinished rounds do
    not all fall on the same workers.
    """

    NAME = "shuffle"
    VERSION = 1

    def __init__(self, *, workers: int, replica: int, replicas: int) -> None:
        self._workers = whole_number("workers", workers, 1)
        self._replica = replica
        self._replicas = replicas
        self._turn = 0  # records dealt since the last whole round

    @property
    def workers(self) -> int:
        """Number of workers ``n``."""
        return self._workers

    def route(self, keys: Hashes) -> Workers:
        """Return the next ``len(keys)`` workers in turn."""
        rows = len(key_block(keys))
        start = self._replica * self._workers // self._replicas
        ids = _round_robin(rows, (start + self._turn) % self._workers, self._workers)
        self._turn = (self._turn + rows) % self._workers
        return ids

    def advance(self) -> None:
        """Do nothing: the round continues in the next slide."""

    def save(self) -> bytes:
        """Return the turn, counted from the replica's own start, so that any replica may restore it."""
        return pack(PartitionerState(self.NAME, self.VERSION, self._workers, {"turn": self._turn}, {}))

    def restore(self, state: bytes) -> None:
        """Adopt a saved turn and its number of workers. Raises ValueError on anything else."""
        saved = unpack(state, self.NAME, self.VERSION)
        turn = whole_number("the saved turn", saved.counters.get("turn"), 0)
        self._workers, self._turn = saved.workers, turn % saved.workers

    def merge(self, others: Sequence[Self]) -> None:
        """Do nothing: each replica's round robin is even by itself."""

    def resize(self, workers: int) -> None:
        """Keep the turn, modulo the new number of workers."""
        self._workers = whole_number("workers", workers, 1)
        self._turn %= self._workers


@kernel
def _round_robin(rows: int, worker: int, workers: int) -> Workers:
    ids = np.empty(rows, np.int32)
    for row in range(rows):
        ids[row] = worker
        worker += 1
        if worker == workers:
            worker = 0
    return ids
