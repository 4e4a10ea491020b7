"""FLD: field (key) grouping by hash (paper 001, "Single choice": the hash of the key, modulo the workers)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.kernels.mixing import salts, seeded_hash

from .base import Hashes, Workers, key_block, whole_number
from .state import PartitionerState, pack, unpack


class Hash:
    """Key grouping by hash: each key goes to one worker, the same on every replica.

    It has the least aggregation cost, and no balance under skew.
    """

    NAME = "hash"
    VERSION = 1

    def __init__(self, *, workers: int, seed: int) -> None:
        self._workers = whole_number("workers", workers, 1)
        self._salt = salts(seed, 1)[0]

    @property
    def workers(self) -> int:
        """Number of workers ``n``."""
        return self._workers

    def route(self, keys: Hashes) -> Workers:
        """Return the seeded hash of each key modulo ``n``."""
        return _modulo(key_block(keys), self._salt, self._workers)

    def advance(self) -> None:
        """Do nothing: there are no windows."""

    def save(self) -> bytes:
        """Return the number of workers: there is no other state."""
        return pack(PartitionerState(self.NAME, self.VERSION, self._workers, {}, {}))

    def restore(self, state: bytes) -> None:
        """Adopt the saved number of workers. Raises ValueError on anything but a state of this algorithm."""
        self._workers = unpack(state, self.NAME, self.VERSION).workers

    def merge(self, others: Sequence[Self]) -> None:
        """Do nothing: there is no state to merge."""

    def resize(self, workers: int) -> None:
        """Hash modulo ``workers`` from now on; about ``1 - 1/max(n, n')`` of the keys move."""
        self._workers = whole_number("workers", workers, 1)


@kernel
def _modulo(keys: Hashes, salt: np.uint64, workers: int) -> Workers:
    ids = np.empty(len(keys), np.int32)
    for row in range(len(keys)):
        ids[row] = np.int32(seeded_hash(keys[row], salt) % np.uint64(workers))
    return ids
