"""Exact numbers of records per key, from which profiles are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.mixing import Hashes


@dataclass(frozen=True, eq=False)
class KeyCounts:
    """Distinct keys and their numbers of records.

    ``hashes`` has shape ``(keys,)`` and holds each key's hash once; ``counts`` has the same shape.
    """

    hashes: Hashes
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.hashes)

    @classmethod
    def none(cls) -> Self:
        """Return the counts of no keys."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.int64))

    @property
    def rows(self) -> int:
        """Number of records of all keys."""
        return int(self.counts.sum())

    def take(self, wanted: NDArray[np.bool_] | NDArray[np.intp]) -> KeyCounts:
        """Return the keys that a mask or an array of positions selects."""
        return KeyCounts(self.hashes[wanted], self.counts[wanted])

    def counts_of(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the number of records of each of these keys, 0 for unknown ones; same shape as ``hashes``.

        ``self.hashes`` must be ascending.
        """
        if not len(self):
            return np.zeros(len(hashes), np.int64)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self) - 1)
        return np.where(self.hashes[at] == hashes, self.counts[at], 0)


def added(parts: Sequence[tuple[Hashes, NDArray[np.int64]]]) -> KeyCounts:
    """Add up the counts of all parts by key, in ascending order of hash.

    A key may be in several parts, and several times in one part.
    """
    if not parts:
        return KeyCounts.none()
    hashes = np.concatenate([part[0] for part in parts])
    counts = np.concatenate([part[1] for part in parts])
    order = np.argsort(hashes)
    hashes, counts = hashes[order], counts[order]
    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    return KeyCounts(hashes[first], np.add.reduceat(counts, first) if len(first) else counts)
