"""A replica's estimates of the workers' loads: paper 001, "Local Load Estimation"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .state import PartitionerState, Vectors

_MOST = 1 << 56
"""The largest plausible count in a state: 45 years of 50 million records/s to one worker."""


class LocalLoads:
    """Records sent to each worker by this replica, and by others as far as merges and probes reported them.

    Loads are kept as leads, that is, records above the least loaded worker. Decisions only compare loads, so
    subtracting the least load from all changes no decision, and a counter overflows only when one worker leads another
    by 2**63 records.
    """

    def __init__(self, workers: int) -> None:
        self.leads = np.zeros(workers, np.int64)
        """Shape ``(n,)``: the leads. Kernels count in it, and ``level`` then turns the counts into leads again."""
        # The part of the leads that came by merge or probe. Other replicas may hold it too, so a merge omits it.
        self._shared = np.zeros(workers, np.int64)

    def level(self) -> None:
        """Subtract the least load from all; call this after counting."""
        least = self.leads.min()
        self.leads -= least
        self._shared -= least

    def probe(self, loads: NDArray[np.int64]) -> None:
        """Replace the estimates with the true ``loads``, shape ``(n,)``."""
        self.leads = loads - loads.min()
        self._shared = self.leads.copy()

    def merge(self, others: Sequence[Self]) -> None:
        """Add what each other replica counted since its own last merge or probe.

        Raises ValueError, and changes nothing, if one of them has a different number of workers.
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
        """Keep the loads of the remaining workers, and start new ones at the mean of all.

        At the mean (rounded down), the imbalance max - avg stays as it was: records neither rush to the new workers, as
        they would from zero, nor avoid them.
        """
        added = max(0, workers - len(self.leads))
        mean = int(self.leads.mean())
        self.leads = np.append(self.leads[:workers], np.full(added, mean))
        self._shared = np.append(self._shared[:workers], np.full(added, mean))
        self.level()

    def vectors(self) -> Vectors:
        """Return the arrays that ``restored`` needs."""
        return {"loads": self.leads, "shared": self._shared}

    @classmethod
    def restored(cls, saved: PartitionerState) -> Self:
        """Return the loads whose ``vectors`` are in a state. Raises ValueError if they are missing or implausible."""
        restored = cls(saved.workers)
        restored.leads, restored._shared = (_vector(saved, name) for name in restored.vectors())
        return restored


def _vector(saved: PartitionerState, name: str) -> NDArray[np.int64]:
    vector = saved.vector(name)
    if len(vector) != saved.workers or vector.min() < -_MOST or vector.max() > _MOST:
        raise ValueError(f"the saved state of {saved.algorithm} has no usable {name} for its {saved.workers} workers")
    return vector
