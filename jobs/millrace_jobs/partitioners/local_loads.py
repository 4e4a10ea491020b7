"""The loads a replica believes the workers to have: paper 001, "Local Load Estimation"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .state import PartitionerState

_MOST = 1 << 56
"""The largest count in a state that is taken for real: 45 years of 50 million records/s to one worker."""


class LocalLoads:
    """Records sent to each worker by this replica, and what it was told of the others'.

    Loads are leads, records above the least loaded worker: decisions only compare loads, so taking the least
    one from all changes none, and a counter overflows only when one worker leads another by 2**63 records.
    """

    def __init__(self, workers: int) -> None:
        self.leads = np.zeros(workers, np.int64)
        """Shape ``(n,)``; kernels count in it, and ``level`` makes leads of it again."""
        # The part of the leads that came by merge or probe. Other replicas may hold it too; a merge omits it.
        self._shared = np.zeros(workers, np.int64)

    def level(self) -> None:
        """Take the least load from all; to be called after counting."""
        least = self.leads.min()
        self.leads -= least
        self._shared -= least

    def probe(self, loads: NDArray[np.int64]) -> None:
        """Replace the estimate by the true ``loads``, shape ``(n,)``."""
        self.leads = loads - loads.min()
        self._shared = self.leads.copy()

    def merge(self, others: Sequence[Self]) -> None:
        """Add what each other replica counted since its own last merge or probe.

        Raises ValueError, and changes nothing, if one of them has another number of workers.
        """
        workers = len(self.leads)
        for other in others:
            if len(other.leads) != workers:
                raise ValueError(f"cannot merge loads of {len(other.leads)} workers into those of {workers}")
        for other in others:
            self.leads += other.leads - other._shared
        self.level()
        self._shared = self.leads.copy()

    def resize(self, workers: int) -> None:
        """Keep the loads of the workers that stay, and start new ones at the mean of all.

        At the mean (rounded down), the imbalance max - avg is what it was: no stampede to the new workers, as
        from zero, nor one away from them.
        """
        added = max(0, workers - len(self.leads))
        mean = int(self.leads.mean())
        self.leads = np.append(self.leads[:workers], np.full(added, mean))
        self._shared = np.append(self._shared[:workers], np.full(added, mean))
        self.level()

    def vectors(self) -> Mapping[str, NDArray[np.int64]]:
        """What ``restored`` needs."""
        return {"loads": self.leads, "shared": self._shared}

    @classmethod
    def restored(cls, saved: PartitionerState) -> Self:
        """The loads whose ``vectors`` are in a state. Raises ValueError where they cannot be."""
        restored = cls(saved.workers)
        restored.leads, restored._shared = (_vector(saved, name) for name in restored.vectors())
        return restored


def _vector(saved: PartitionerState, name: str) -> NDArray[np.int64]:
    vector = saved.vectors.get(name, np.empty(0, np.int64))
    if len(vector) != saved.workers or vector.min() < -_MOST or vector.max() > _MOST:
        raise ValueError(f"the saved state of {saved.algorithm} has no usable {name} for its {saved.workers} workers")
    return vector
