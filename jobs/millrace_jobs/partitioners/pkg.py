"""PK: Partial Key Grouping (paper 001), extended from two to ``d`` choices as in paper 000, section 2.4.

Our copy of paper 001 lacks its formulas; they are taken from its prose and from paper 000. With hashes H_1 to H_d, a
record of key k goes to the worker among H_1(k) to H_d(k) to which this replica has sent the fewest records ("Key
Splitting", "Local Load Estimation").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.kernels.mixing import salts

from .base import Hashes, Partitioner, Workers, key_block
from .choices import LocalLoads, least_loaded_candidate
from .parameters import whole_number
from .state import PartitionerState, SavedCounter, Vectors


class PartialKeyGrouping(Partitioner):
    """Partial key grouping: a record goes to the least loaded of at most ``choices`` workers of its key.

    A key's candidates are distinct and the same on every replica. They are drawn without replacement; if there are no
    more than ``choices`` workers, all of them are candidates. The first candidate wins ties.

    Loads cover a window of ``slides`` slides, as in the implementation that paper 000 compares with: in a job, records
    of earlier micro-batches no longer load their workers. With ``slides`` 0, loads cover the whole stream, as paper 001
    defines them.
    """

    NAME = "pkg"
    COUNTERS = (SavedCounter("slide", "number of slides"),)

    def __init__(self, *, workers: int, seed: int, choices: int, slides: int) -> None:
        super().__init__(workers)
        self._seed = seed
        self._choices = whole_number("choices", choices, 1)
        self._slides = whole_number("slides", slides, 0)
        self._slide = 0  # slides of this window that have ended
        self._loads = LocalLoads(workers)

    @property
    def loads(self) -> NDArray[np.int64]:
        """Shape ``(n,)``: records sent to each worker, less those sent to the least loaded one; a copy."""
        return self._loads.leads.copy()

    def route(self, keys: Hashes) -> Workers:
        """Send each record to the candidate with the least local load."""
        seeds = salts(self._seed, min(self._choices, self._workers))
        ids = _place(key_block(keys), seeds, self._loads.leads)
        self._loads.level()
        return ids

    def probe(self, loads: NDArray[np.int64]) -> None:
        """Continue from the true ``loads`` of all workers, shape ``(n,)``, in records from all replicas.

        Paper 001 compares its local load estimates with such probing, which each source repeats periodically; of that
        part of its evaluation, our copy has only the name of the period, T_p. The caller keeps the true loads and
        chooses when to probe. Replicas that are merged later must have been probed at the same time. Probing is not a
        parameter of a job, because local estimates balance better: between two probes, each of the m replicas
        compensates for the whole lead by itself, m times too much.

        Raises ValueError unless ``loads`` holds n non-negative numbers.
        """
        true = np.asarray(loads, np.int64)
        if true.shape != (self._workers,) or true.min() < 0:
            raise ValueError(f"loads are {loads!r}; write {self._workers} numbers that are not negative")
        self._loads.probe(true)

    def advance(self) -> None:
        """End the slide; after the last slide of the window, forget the loads."""
        if self._slides:
            self._slide = (self._slide + 1) % self._slides
            if self._slide == 0:
                self._loads = LocalLoads(self._workers)

    def merge(self, others: Sequence[Self]) -> None:
        """Add what each other replica sent since its own last merge or probe, so that the loads become global.

        Replicas may all restore one merged state and be merged again: the common part counts once. However, each of the
        m replicas then compensates for the whole lead by itself, m times too much; local loads need no exchange. Raises
        ValueError if another replica has a different number of workers.
        """
        self._loads.merge([other._loads for other in others])

    def resize(self, workers: int) -> None:
        """Keep the loads of the remaining workers; new workers start at the mean.

        Candidates are redrawn, so most keys move.
        """
        super().resize(workers)
        self._loads.resize(workers)

    def _vectors(self) -> Vectors:
        return self._loads.vectors()

    def _adopt(self, saved: PartitionerState) -> None:
        self._loads = LocalLoads.restored(saved)


@kernel
def _place(keys: Hashes, seeds: NDArray[np.uint64], loads: NDArray[np.int64]) -> Workers:
    """Place ``keys`` in order, counting in ``loads`` in place; requires ``len(seeds) <= len(loads)``."""
    ids = np.empty(len(keys), np.int32)
    drawn = np.empty(len(seeds), np.int64)
    for row in range(len(keys)):
        worker = least_loaded_candidate(keys[row], seeds, len(seeds), loads, drawn)
        loads[worker] += 1
        ids[row] = worker
    return ids
