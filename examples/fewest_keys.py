"""A partitioner that gives each new key to the worker with the fewest keys, of two that the key may go to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class FewestKeys:
    """Keeps all records of a key on one worker, as hashing does, and balances the number of keys better."""

    def __init__(self, workers: int, seed: int) -> None:
        self._workers, self._seed = workers, seed
        self._worker_of: dict[int, int] = {}
        self._keys = [0] * workers

    def route(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the worker of each record."""
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        for place in np.argsort(first):  # in the order of arrival, so that it makes no difference where blocks end
            self._place(int(distinct[place]))
        ids = np.array([self._worker_of[key] for key in distinct.tolist()], np.int32)
        return ids[inverse]

    def advance(self) -> None:
        """Forget the batch that ends: the next one has other keys."""
        self._worker_of.clear()
        self._keys = [0] * self._workers

    def save(self) -> bytes:
        """Return the keys and their workers."""
        keys = np.fromiter(self._worker_of.keys(), "<u8", len(self._worker_of))
        workers = np.fromiter(self._worker_of.values(), "<u8", len(self._worker_of))
        return keys.tobytes() + workers.tobytes()

    def restore(self, state: bytes) -> None:
        """Continue from such a state."""
        keys, workers = np.frombuffer(state, "<u8").reshape(2, -1)
        self._worker_of = dict(zip(keys.tolist(), workers.tolist(), strict=True))
        self._keys = np.bincount(workers.astype(np.int64), minlength=self._workers).tolist()

    def resize(self, workers: int) -> None:
        """Begin again with another number of workers."""
        self._workers = workers
        self.advance()

    def merge(self, others: Sequence[FewestKeys]) -> None:
        """Take over the keys of other replicas that this one has not seen."""
        for other in others:
            for key, worker in other._worker_of.items():
                if key not in self._worker_of:
                    self._worker_of[key] = worker
                    self._keys[worker] += 1

    def _place(self, key: int) -> None:
        if key in self._worker_of:
            return
        one, two = (key ^ self._seed) % self._workers, (key // self._workers ^ self._seed) % self._workers
        worker = one if self._keys[one] <= self._keys[two] else two
        self._worker_of[key] = worker
        self._keys[worker] += 1
