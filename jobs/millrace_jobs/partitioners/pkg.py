"""PK: Partial Key Grouping (paper 001), extended from two to ``d`` choices as in paper 000, section 2.4.

Paper 001's text lost its formulas; they are read from the prose and from paper 000. With hashes H_1 to H_d, a
record of key k goes to that worker among H_1(k) to H_d(k) to which this replica has sent the fewest records
("Key Splitting", "Local Load Estimation").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.kernels.mixing import salts, seeded_hash

from .arguments import key_block, whole_number
from .base import Hashes, Workers
from .state import State, pack, unpack

_MOST = 1 << 56
"""The largest count in a state that is taken for real: 45 years of 50 million records/s to one worker."""


class PartialKeyGrouping:
    """Splits each key over at most ``choices`` workers, and sends a record to the least loaded of them.

    A key's candidates are distinct and the same on every replica: they are drawn without replacement, and are
    all the workers when there are no more than ``choices``. The first candidate wins ties.

    Loads are leads, records above the least loaded worker: decisions only compare loads, so taking the least
    one from all changes none, and a counter overflows only when one worker leads another by 2**63 records.
    """

    NAME = "pkg"
    VERSION = 1

    def __init__(self, *, workers: int, seed: int, choices: int) -> None:
        self._workers = whole_number("workers", workers, 1)
        self._seed = seed
        self._choices = whole_number("choices", choices, 1)
        self._loads = np.zeros(workers, np.int64)
        # The part of the loads that came by merge. Other replicas may hold it too; the next merge omits it.
        self._shared = np.zeros(workers, np.int64)

    @property
    def workers(self) -> int:
        """Number of workers ``n``."""
        return self._workers

    @property
    def loads(self) -> NDArray[np.int64]:
        """Shape ``(n,)``: records sent to each worker, less those sent to the least loaded one; a copy."""
        return self._loads.copy()

    def route(self, keys: Hashes) -> Workers:
        """Send each record to the candidate with the least local load."""
        seeds = salts(self._seed, min(self._choices, self._workers))
        ids = _least_loaded(key_block(keys), seeds, self._loads)
        self._level()
        return ids

    def advance(self) -> None:
        """Nothing: loads count from the beginning of the stream (paper 001, its definition of load)."""

    def save(self) -> bytes:
        """The loads; seed and choices belong to the plan."""
        vectors = {"loads": self._loads, "shared": self._shared}
        return pack(State(self.NAME, self.VERSION, self._workers, {}, vectors))

    def restore(self, state: bytes) -> None:
        """Adopt saved loads and their number of workers. Raises ValueError on anything else."""
        saved = unpack(state, self.NAME, self.VERSION)
        loads, shared = (_vector(saved, name) for name in ("loads", "shared"))
        self._workers, self._loads, self._shared = saved.workers, loads, shared

    def merge(self, others: Sequence[Self]) -> None:
        """Add what each other replica sent since its own last merge: the loads become the global ones.

        Replicas may all restore one merged state and be merged again: the common part counts once. But each
        of the m then makes up for the whole lead by itself, m times too much; local loads need no exchange.
        Raises ValueError if another replica has another number of workers.
        """
        for other in others:
            if other.workers != self._workers:
                raise ValueError(f"cannot merge loads of {other.workers} workers into those of {self._workers}")
        for other in others:
            self._loads += other._loads - other._shared
        self._level()
        self._shared = self._loads.copy()

    def resize(self, workers: int) -> None:
        """Keep the loads of the workers that stay, and start new ones at the mean of those.

        At the mean (rounded down), the imbalance max - avg is what it was: no stampede to the new workers, as
        from zero, nor one away from them. Candidates are drawn anew, so most keys move.
        """
        workers = whole_number("workers", workers, 1)
        added = max(0, workers - self._workers)
        mean = int(self._loads.mean())
        self._loads = np.append(self._loads[:workers], np.full(added, mean))
        self._shared = np.append(self._shared[:workers], np.full(added, mean))
        self._workers = workers
        self._level()

    def _level(self) -> None:
        least = self._loads.min()
        self._loads -= least
        self._shared -= least


def _vector(saved: State, name: str) -> NDArray[np.int64]:
    vector = saved.vectors.get(name, np.empty(0, np.int64))
    if len(vector) != saved.workers or vector.min() < -_MOST or vector.max() > _MOST:
        raise ValueError(f"the saved state of pkg has no usable {name} for its {saved.workers} workers")
    return vector


@kernel
def _least_loaded(keys: Hashes, seeds: NDArray[np.uint64], loads: NDArray[np.int64]) -> Workers:
    """Place ``keys`` in order, counting in ``loads`` in place; ``len(seeds) <= len(loads)``."""
    workers = len(loads)
    ids = np.empty(len(keys), np.int32)
    drawn = np.empty(len(seeds), np.int64)  # this key's candidates so far, ascending
    for row in range(len(keys)):
        best = np.int64(seeded_hash(keys[row], seeds[0]) % np.uint64(workers))
        drawn[0] = best
        for choice in range(1, len(seeds)):
            # One of the workers that are not drawn yet: skip the drawn ones below it.
            worker = np.int64(seeded_hash(keys[row], seeds[choice]) % np.uint64(workers - choice))
            place = 0
            while place < choice and worker >= drawn[place]:
                worker += 1
                place += 1
            for later in range(choice, place, -1):
                drawn[later] = drawn[later - 1]
            drawn[place] = worker
            if loads[worker] < loads[best]:
                best = worker
        loads[best] += 1
        ids[row] = best
    return ids
