"""SH: shuffle grouping, round robin per replica (paper 001, "Existing Stream Partitioning Functions")."""

from __future__ import annotations

import numpy as np

from millrace_jobs.kernels.compiling import kernel

from .base import Hashes, Partitioner, Workers, key_block
from .state import SavedCounter


class Shuffle(Partitioner):
    """Shuffle grouping: records go to the workers in turn, whatever their keys.

    Loads differ by at most 1 per replica. Replicas start at evenly spaced workers, so that their unfinished rounds do
    not all fall on the same workers. The turn is counted from the replica's own start, so that any replica may restore
    it. It continues in the next slide, and after a resize modulo the new number of workers.
    """

    NAME = "shuffle"
    COUNTERS = (SavedCounter("turn", "turn"),)

    def __init__(self, *, workers: int, replica: int, replicas: int) -> None:
        super().__init__(workers)
        self._replica, self._replicas = replica, replicas
        self._turn = 0  # records dealt since the last whole round

    def route(self, keys: Hashes) -> Workers:
        """Return the next ``len(keys)`` workers in turn."""
        rows = len(key_block(keys))
        start = self._replica * self._workers // self._replicas
        ids = _round_robin(rows, (start + self._turn) % self._workers, self._workers)
        self._turn = (self._turn + rows) % self._workers
        return ids

    def resize(self, workers: int) -> None:
        """Keep the turn, modulo the new number of workers."""
        super().resize(workers)
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
