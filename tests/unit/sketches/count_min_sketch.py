"""A count-min sketch of key hashes, around the functions that kernels call."""

import numpy as np

from millrace_jobs.kernels.compiling import kernel, read_only
from millrace_jobs.kernels.mixing import salts, seeded_hash
from millrace_jobs.sketches.count_min import count


class CountMin:
    """Count-min sketch; ``seed`` draws the hashes, and ``width`` is rounded up to a power of two."""

    def __init__(self, *, width, depth, seed):
        self.cells = np.zeros((depth, 1 << (width - 1).bit_length()), np.int64)
        """Counters, for ``count`` in kernels; they overflow only after 2**63 records."""
        self._salt = salts(seed, 1)[0]

    def add(self, keys):
        """Count one record of each of ``keys``, shape ``(rows,)``."""
        _count_all(self.cells, read_only(keys), self._salt)

    def estimates(self, keys):
        """Return an upper bound on how often each key was added; same shape as ``keys``."""
        return _estimate_all(self.cells, read_only(keys), self._salt)

    def merge(self, other):
        """Add the counts of ``other``. Raises ValueError unless it has the same shape and seed."""
        if other.cells.shape != self.cells.shape or other._salt != self._salt:
            raise ValueError("count-min sketches can be merged only when width, depth and seed are the same")
        self.cells += other.cells


@kernel
def _count_all(cells, keys, salt):
    for row in range(len(keys)):
        count(cells, seeded_hash(keys[row], salt), 1)


@kernel
def _estimate_all(cells, keys, salt):
    out = np.empty(len(keys), np.int64)
    for row in range(len(keys)):
        out[row] = count(cells, seeded_hash(keys[row], salt), 0)
    return out
