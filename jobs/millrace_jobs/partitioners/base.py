"""The interface of every partitioner: blocks of key hashes in, worker ids out.

A *replica* (a source in the papers) is one of ``m`` partitioner instances; a *worker* (the same word in the papers) is
one of ``n`` combine tasks. A partitioner is deterministic given its seed, its state and its input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import read_only
from millrace_jobs.kernels.mixing import Hashes as Hashes

from .parameters import whole_number
from .state import PartitionerState, SavedCounter, Vectors, pack, unpack

Workers = NDArray[np.int32]
"""Shape ``(rows,)``: worker ids in ``range(workers)``."""


class Partitioner(ABC):
    """One replica of a partitioning algorithm.

    Subclasses declare what ``save`` writes: counters by ``COUNTERS``, arrays by ``_vectors`` and ``_adopt``.
    """

    NAME: ClassVar[str]
    VERSION: ClassVar[int] = 1
    """Number to raise when the meaning of a saved field changes."""
    COUNTERS: ClassVar[Sequence[SavedCounter]] = ()
    """Saved attributes that are whole numbers, without their leading underscore."""

    def __init__(self, workers: int) -> None:
        self._workers = whole_number("workers", workers, 1)

    @property
    def workers(self) -> int:
        """Number of workers ``n`` that the records are spread over."""
        return self._workers

    @abstractmethod
    def route(self, keys: Hashes) -> Workers:
        """Place one block of records, in arrival order, and update the local state."""

    def advance(self) -> None:  # noqa: B027
        """End the slide (in a job, a micro-batch), and forget past windows.

        A window is one or more slides; an algorithm without windows has nothing to forget.
        """

    def save(self) -> bytes:
        """Return the state that ``restore`` needs to continue as if there had been no interruption.

        It holds no seed and no parameters, which belong to the plan.
        """
        return pack(PartitionerState(self.NAME, self.VERSION, self._workers, self._counters(), self._vectors()))

    def restore(self, state: bytes) -> None:
        """Adopt a state of the same algorithm made by ``save``, and its number of workers.

        Raises ValueError, and changes nothing, on any other bytes.
        """
        saved = unpack(state, self.NAME, self.VERSION)
        counters = {f"_{counter.name}": counter.checked(saved) for counter in self.COUNTERS}
        self._adopt(saved)
        vars(self).update(counters, _workers=saved.workers)

    def merge(self, others: Sequence[Self]) -> None:  # noqa: B027
        """Fold the states of other replicas into this one, so that it knows what all of them did."""

    def resize(self, workers: int) -> None:
        """Continue with a different number of workers, keeping as much affinity as the algorithm can."""
        self._workers = whole_number("workers", workers, 1)

    def _counters(self) -> Mapping[str, int]:
        return {counter.name: getattr(self, f"_{counter.name}") for counter in self.COUNTERS}

    def _vectors(self) -> Vectors:
        """Return the arrays that ``_adopt`` needs."""
        return {}

    def _adopt(self, saved: PartitionerState) -> None:  # noqa: B027
        """Take over the arrays of a saved state. Raises ValueError, and changes nothing, if they are not usable."""


class BatchPartitioner(Partitioner):
    """A partitioner that sees all records of a micro-batch before it places the first one.

    ``route`` treats its block as a whole micro-batch: it is ``accumulate`` followed by ``cut``.
    """

    def route(self, keys: Hashes) -> Workers:
        """Take in the block and cut the batch; return one id for each record since the last cut."""
        self.accumulate(keys)
        return self.cut()

    @abstractmethod
    def accumulate(self, keys: Hashes) -> None:
        """Take in the next block of the micro-batch."""

    @abstractmethod
    def cut(self) -> Workers:
        """Place all records that were accumulated since the last cut, in arrival order."""


def key_block(keys: Hashes) -> Hashes:
    """Return ``keys`` in the layout of the kernels. Raises TypeError unless it is one-dimensional and ``uint64``.

    Other arrays are not converted, because that would hide that replicas hash keys differently.
    """
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise TypeError(f"keys must be a uint64 array with one dimension, not {keys.dtype} with {keys.ndim}")
    return read_only(keys)
