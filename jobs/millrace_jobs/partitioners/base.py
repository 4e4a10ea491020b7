"""The interface of every partitioner, blocks of key hashes in and worker ids out, and the checks of its arguments.

A *replica* (a source in the papers) is one of ``m`` partitioner instances; a *worker* (the same word in the papers) is
one of ``n`` combine tasks. A partitioner is deterministic given its seed, its state and its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import read_only
from millrace_jobs.kernels.mixing import Hashes as Hashes

Workers = NDArray[np.int32]
"""Shape ``(rows,)``: worker ids in ``range(workers)``."""


class Partitioner(Protocol):
    """One replica of a partitioning algorithm."""

    @property
    def workers(self) -> int:
        """Number of workers ``n`` that the records are spread over."""
        ...

    def route(self, keys: Hashes) -> Workers:
        """Place one block of records, in arrival order, and update the local state."""
        ...

    def advance(self) -> None:
        """End the slide (in a job, a micro-batch), and forget past windows.

        A window is one or more slides; an algorithm without windows has nothing to forget.
        """
        ...

    def save(self) -> bytes:
        """Return the state that ``restore`` needs to continue as if there had been no interruption."""
        ...

    def restore(self, state: bytes) -> None:
        """Take over a state of the same algorithm made by ``save``, and its number of workers.

        Raises ``ValueError`` on any other bytes.
        """
        ...

    def merge(self, others: Sequence[Self]) -> None:
        """Fold the states of other replicas into this one, so that it knows what all of them did."""
        ...

    def resize(self, workers: int) -> None:
        """Continue with a different number of workers, keeping as much affinity as the algorithm can."""
        ...


@runtime_checkable
class BatchPartitioner(Partitioner, Protocol):
    """A partitioner that sees all records of a micro-batch before it places the first one.

    ``route`` treats its block as a whole micro-batch: it is ``accumulate`` followed by ``cut``.
    """

    def accumulate(self, keys: Hashes) -> None:
        """Take in the next block of the micro-batch."""
        ...

    def cut(self) -> Workers:
        """Place all records that were accumulated since the last cut, in arrival order."""
        ...


def whole_number(name: str, value: Any, least: int) -> int:
    """Return ``value`` if it is an integer of at least ``least``. Raises ValueError, which quotes it, if not."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} is {value!r}; write a whole number of at least {least}")
    return int(value)


def key_block(keys: Hashes) -> Hashes:
    """Return ``keys`` in the layout of the kernels. Raises TypeError unless it is one-dimensional and ``uint64``.

    Other arrays are not converted, because that would hide that replicas disagree on what a key's hash is.
    """
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise TypeError(f"a block of keys is a uint64 array of one dimension, not {keys.dtype} of {keys.ndim}")
    return read_only(keys)
