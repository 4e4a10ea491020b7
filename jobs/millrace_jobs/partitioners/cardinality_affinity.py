"""AM and cAM: the partitioners of paper 000 that keep a key on one worker, and how their replicas agree on which.

A single replica is paper 000's algorithm. Several ones begin every slide but the first with the same warm keys, those
of the slide before (see ``warm_keys``), and then:

- Warm keys are placed in advance, the most frequent first, each on its candidate with the least load. Affinity then
  sends their records there on every replica.
- Any other key has a home, one of its candidates, which all replicas draw by its hash, in proportion to the room that
  warm keys leave: for cAM the average number of records less those of the worker's warm keys. AM counts keys, of which
  each worker has about as many warm ones.
- A new key goes to its home, unless its home is ahead of its least loaded candidate by more than loads usually differ
  if keys go by hash (``TOLERANCE``). So few keys are sent away, and loads stay about as even as with two choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from millrace_jobs.sketches.space_saving import SpaceSaving

from .base import Hashes, Workers
from .cardinality import CardinalityAware
from .choices import Homes, place_by_load
from .parameters import whole_number
from .state import PartitionerState, Vectors
from .warm_keys import WARM, WarmKeys

_EVERY = 4
"""Of so many records, one is counted to find warm keys; it takes longer to count a record than to place it."""


class Affinity(CardinalityAware):
    """Algorithm 1 for AM and cAM: a worker that has a record's key gets the record."""

    AFFINITY = True
    TOLERANCE: ClassVar[float]
    """How far a home may be ahead, in standard deviations of the loads that keys make which go by hash.

    With less, more keys are on two workers; with more, small batches are less even. These keep the replication factor
    of 8 replicas within 10 % of that of one, in docs/partitioning.md on all streams but the one with tiny slices.
    """

    def __init__(self, *, workers: int, seed: int, replicas: int, choices: int, cardinality: str, slides: int) -> None:
        super().__init__(workers=workers, seed=seed, choices=choices, cardinality=cardinality, slides=slides)
        self._replicas = whole_number("replicas", replicas, 1)
        self._warm = WarmKeys.none()
        self._homes: Homes | None = None  # None until the warm keys are placed
        self._slack = 0.0
        self._counted = SpaceSaving(WARM * workers)
        self._passed = 0

    @property
    def warm(self) -> WarmKeys:
        """The warm keys of this replica's slide before, or those that it was given since."""
        return self._warm

    def agree(self, warm: WarmKeys) -> None:
        """Take the warm keys of all replicas for the next window, which may begin now.

        Within a window all keys stay where they are, warm or not: replicas would otherwise send a key that only some of
        them have had to another worker than the others do.
        """
        self._warm = warm
        if self._slide == 0:
            self._homes = None

    def route(self, keys: Hashes) -> Workers:
        """Send each record to a worker that has its key, else to the key's home or its least loaded candidate."""
        if self._replicas == 1:
            return super().route(keys)
        if self._homes is None:
            self._homes = self._agree()
        self._counted.add(keys[-self._passed % _EVERY :: _EVERY])
        self._passed = (self._passed + len(keys)) % _EVERY
        return self._route(keys, self._homes, self._slack)

    def advance(self) -> None:
        """End the slide: what was frequent in it is warm in the next one."""
        if self._replicas > 1:
            self._warm = self._seen()
            self._counted = SpaceSaving(WARM * self._workers)
            self._passed = 0
        super().advance()
        if self._slide == 0:
            self._homes = None

    def merge(self, others: Sequence[Self]) -> None:
        """Also join the warm keys of the slide before."""
        super().merge(others)
        self._warm = self._warm.joined([other._warm for other in others], self._workers)
        self._homes = None

    def resize(self, workers: int) -> None:
        """Also place the warm keys again, where there is no worker that has them."""
        super().resize(workers)
        self._counted.resize(WARM * workers)
        self._homes = None

    def _agree(self) -> Homes:
        """Place the warm keys, and return the room that they leave on each worker."""
        warm, by_records = self._warm, self._weight == 1.0
        if not warm.records:
            return np.empty(0, np.float64)
        expected = (warm.records if by_records else warm.distinct) / self._workers
        loads = np.zeros(self._workers, np.int64)
        amounts = warm.counts if by_records else np.ones(len(warm.keys), np.int64)
        self._sets.place(warm.keys, place_by_load(warm.keys, amounts, self._seeds(), loads))
        self._slack = self.TOLERANCE * math.sqrt(self._slides * self._variance() / self._replicas)
        return np.maximum(expected - loads, 0.0) if by_records else np.ones(self._workers)

    def _variance(self) -> float:
        """Return by how much, squared, the loads of workers differ in a slide if keys go by hash.

        A worker's keys are Poisson distributed, and its records about so with the records of a key as the unit.
        """
        records, keys = self._warm.records * _EVERY / self._workers, self._warm.distinct / self._workers
        return records * records / max(keys, 1.0) if self._weight == 1.0 else keys

    def _seen(self) -> WarmKeys:
        """Return what is known of the slide that ends, in which this replica has counted a part of the records."""
        counted = self._counted
        known = counted.counts > counted.errors
        counts = (counted.counts - counted.errors)[known]
        return WarmKeys.of(counted.keys[known], counts, counted.total, int(self.cardinalities.sum()), self._workers)

    def _vectors(self) -> Vectors:
        """Return also the warm keys, and the counts of the slide so far."""
        counted = {f"counted_{name}": vector for name, vector in self._counted.vectors().items()}
        passed = {"passed": np.array([self._passed])}
        return {**super()._vectors(), **self._warm.vectors(), **(counted | passed if self._counted.total else {})}

    def _adopt(self, saved: PartitionerState) -> None:
        """Take over also the warm keys, and the counts of the slide so far."""
        warm = WarmKeys.restored(saved)
        counted, passed = SpaceSaving(WARM * saved.workers), 0
        if "passed" in saved.vectors:
            vectors = {name: saved.vector(f"counted_{name}") for name in counted.vectors()}
            counted, passed = SpaceSaving.restored(counted.capacity, vectors), int(saved.vector("passed").sum())
        super()._adopt(saved)
        self._warm, self._counted, self._passed, self._homes = warm, counted, passed % _EVERY, None


class GroupAffinity(Affinity):
    """AM (Algorithm 3): one worker per key and window; for a new key, the candidate with the fewest distinct keys.

    AM has the aggregation cost of hashing, and balances distinct keys. Records are balanced only as far as keys have
    equally many; with hot keys they are balanced no better than by hashing. With HyperLogLog, both properties weaken in
    large windows: see ``cardinality_hll``.
    """

    NAME = "am"
    TOLERANCE = 1.0
    _weight = 0.0


class GroupAffinityByRecords(Affinity):
    """The cAM partitioner (Algorithm 4): like AM, but a new key goes to the candidate with the fewest records.

    The algorithm writes ``L[c].estimate()``; L are the counts of records, as section 4.2 says.
    """

    NAME = "cam"
    TOLERANCE = 1.5
    _weight = 1.0
