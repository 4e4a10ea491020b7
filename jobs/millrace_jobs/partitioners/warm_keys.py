"""Warm keys: the frequent keys of a slide, which replicas exchange, so that they agree where these keys go.

Papers 000, 003 and 004 place a whole window or batch. Here each of ``m`` replicas places its own slice, and would send
a key that is in several slices to several workers. So all replicas begin a slide with the same warm keys, those of the
slide before over all slices, and compute from them, in the same way, where these keys go (see ``cardinality_affinity``
and ``prompt.agreeing``). They send every other key by its hash, as far as their own part of the load allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .base import Hashes
from .state import PartitionerState, Vectors

WARM = 64
"""Number of warm keys per worker that replicas agree on."""

_LEAST = 2
"""Records, over all replicas, that make a key warm: a key with one record is in one slice only."""

_MOST = 1 << 56
"""The largest plausible number of records in a state, as in ``choices``."""


@dataclass(frozen=True, eq=False)
class WarmKeys:
    """The warm keys of a slide, of one replica or of all."""

    keys: Hashes
    """Shape ``(keys,)``: their hashes, the most frequent first; equally frequent ones in ascending order."""
    counts: NDArray[np.int64]
    """Shape ``(keys,)``: their records, of those that were counted."""
    records: int
    """Records of the slide that were counted, over all keys."""
    distinct: int
    """Distinct keys of the slide, added up over the replicas."""

    @classmethod
    def none(cls) -> Self:
        """Return the warm keys of no slide."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.int64), 0, 0)

    @classmethod
    def of(cls, keys: Hashes, counts: NDArray[np.int64], records: int, distinct: int, workers: int) -> Self:
        """Return the warmest of these keys, each of which is given once, for ``workers`` workers."""
        warmest = np.lexsort((keys, -counts))[: WARM * workers]
        return cls(keys[warmest], counts[warmest].astype(np.int64), records, distinct)

    def joined(self, others: Sequence[Self], workers: int) -> Self:
        """Return the warm keys of one slide from those of its replicas."""
        parts = [self, *others]
        keys, at = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, at, np.concatenate([part.counts for part in parts]))
        records, distinct = sum(part.records for part in parts), sum(part.distinct for part in parts)
        common = counts >= _LEAST
        return self.of(keys[common], counts[common], records, distinct, workers)

    def vectors(self) -> Vectors:
        """Return the arrays that ``restored`` needs: 16 bytes per key."""
        totals = np.array([self.records, self.distinct] if self.records else [], np.int64)
        return {"warm_keys": self.keys.view(np.int64), "warm_counts": self.counts, "warm_totals": totals}

    @classmethod
    def restored(cls, saved: PartitionerState) -> Self:
        """Return the warm keys whose ``vectors`` are in a state; none if it has none.

        Raises ValueError if they contradict each other.
        """
        keys, counts = saved.vector("warm_keys").view(np.uint64), saved.vector("warm_counts")
        totals = saved.vector("warm_totals")
        if len(keys) != len(counts) or len(totals) not in (0, 2) or len(np.unique(keys)) != len(keys):
            raise ValueError(f"the saved state of {saved.algorithm} has no usable warm keys")
        records, distinct = totals.tolist() if len(totals) else (0, 0)
        bounded = ((counts >= 1) & (counts <= _MOST)).all() and 0 <= distinct <= _MOST
        if not (bounded and int(counts.sum()) <= records <= _MOST):
            raise ValueError(f"the saved state of {saved.algorithm} has implausible counts of warm keys")
        return cls(keys, counts, records, distinct)


@runtime_checkable
class Agreeing(Protocol):
    """A partitioner whose replicas agree by warm keys. Replicas that exchange no whole states use it between slides."""

    @property
    def warm(self) -> WarmKeys:
        """The warm keys of this replica's slide before, or those that it was given since."""
        ...

    def agree(self, warm: WarmKeys) -> None:
        """Begin the slide with these warm keys of all replicas; the replica's window stays its own."""
        ...
