"""FLD: field (key) grouping by hash (paper 001, "Single choice": the hash of the key, modulo the workers)."""

from __future__ import annotations

import numpy as np

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.kernels.mixing import salts, seeded_hash

from .base import Hashes, Partitioner, Workers, key_block


class Hash(Partitioner):
    """Key grouping by hash: each key goes to one worker, the same on every replica.

    It has the least aggregation cost, and no balance under skew. A resize from n to n' workers moves about
    ``1 - 1/max(n, n')`` of the keys.
    """

    NAME = "hash"

    def __init__(self, *, workers: int, seed: int) -> None:
        super().__init__(workers)
        self._salt = salts(seed, 1)[0]

    def route(self, keys: Hashes) -> Workers:
        """Return the seeded hash of each key modulo ``n``."""
        return _modulo(key_block(keys), self._salt, self._workers)


@kernel
def _modulo(keys: Hashes, salt: np.uint64, workers: int) -> Workers:
    ids = np.empty(len(keys), np.int32)
    for row in range(len(keys)):
        ids[row] = np.int32(seeded_hash(keys[row], salt) % np.uint64(workers))
    return ids
