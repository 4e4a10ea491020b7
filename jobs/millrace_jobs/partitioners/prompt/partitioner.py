"""Prompt's micro-batch partitioning (paper 004, section 4): Algorithm 1 while the batch arrives, then Algorithm 2."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import BatchPartitioner, Hashes, Workers, key_block
from millrace_jobs.partitioners.parameters import whole_number
from millrace_jobs.partitioners.state import PartitionerState, Vectors
from millrace_jobs.partitioners.warm_keys import WarmKeys

from .accumulator import MOST_TUPLES, Accumulator, Estimate
from .agreeing import agreed_fragments
from .packing import Fragments, first_fit, fragmentation_minimization, place, zigzag

BUFFERING = ("count-tree", "post-sort")
"""Ways to order keys by frequency: as records arrive (Algorithm 1), or by a sort of the exact counts at the end."""

ZIGZAG = "zigzag"
PACKING: Mapping[str, Callable[[NDArray[np.int32], int], Fragments]] = MappingProxyType(
    {
        ZIGZAG: zigzag,
        "first-fit": first_fit,
        "fragmentation-minimization": fragmentation_minimization,
    }
)
"""Ways to pack keys into blocks: Algorithm 2, and the techniques that paper 004 compares it with."""

_PAST = 5  # batches that the estimates are averaged over ("the past few")


@dataclass(frozen=True)
class PartitionedBatch:
    """A partitioned micro-batch of N_C records and K keys."""

    ids: Workers
    """Shape ``(N_C,)``: the block of each record, in arrival order."""
    keys: Hashes
    """Shape ``(K,)``: the keys' hashes."""
    fragments: Fragments
    """The fragments of the keys, in the order of ``keys``."""


class PromptPartitioner(BatchPartitioner):
    """Partitioner that counts a micro-batch's records by key, then cuts the batch into equal blocks, one per worker.

    A record that arrives after a cut belongs to the next batch (see ``EarlyRelease``). Only the sizes of the
    past few batches, N_C and K, are remembered from one batch to the next. Their averages, N_Est and K_Avg, set the
    steps of the next batch's CountTree. The first batch has no estimates and is post-sorted. A key that goes to several
    blocks fills them one after the other, its records in arrival order. No key has a fixed place from batch to batch,
    so a resize takes effect with the next cut.

    From the second batch on, several replicas, which each have a slice, agree on the blocks of keys where Algorithm 2
    packs them: see ``agreeing``. The other ways of packing are for comparisons, and know nothing of other replicas.
    """

    NAME = "prompt"

    def __init__(self, *, workers: int, seed: int, replicas: int, budget: int, buffering: str, packing: str) -> None:
        super().__init__(workers)
        self._seed = seed
        self._agrees = whole_number("replicas", replicas, 1) > 1 and packing == ZIGZAG
        self._warm = WarmKeys.none()
        self._budget = whole_number("budget", budget, 1)
        self._buffering = buffering
        self._pack = PACKING[packing]
        self._past = np.empty((0, 2), np.int64)  # N_C and K of the past few batches, the latest last
        self._batch = self._begin()

    @property
    def estimate(self) -> Estimate | None:
        """N_Est and K_Avg, the averages over the past few batches that were not empty; None before the first."""
        if not len(self._past):
            return None
        tuples, keys = -(-self._past.sum(axis=0) // len(self._past))  # rounded up
        return Estimate(int(tuples), int(keys))

    @property
    def warm(self) -> WarmKeys:
        """The warm keys of this replica's batch before, or those that it was given since."""
        return self._warm

    def agree(self, warm: WarmKeys) -> None:
        """Cut the next batch with the warm keys of all replicas; it may have begun."""
        self._warm = warm

    def accumulate(self, keys: Hashes) -> None:
        """Take in the next block (Algorithm 1).

        Raises ValueError, and takes in nothing, if the batch would have more than ``MOST_TUPLES`` records.
        """
        self._batch.take(key_block(keys))

    def cut(self) -> Workers:
        """Partition the records since the last cut (Algorithm 2); return their blocks, ``(N_C,)``, in arrival order."""
        return self.partition().ids

    def partition(self) -> PartitionedBatch:
        """Cut the batch; return its blocks with the fragments from which their reference tables are made.

        HTable and CountTree are cleared, and N_C and K are stored for the estimates, unless there are no records.
        """
        if not self._batch.tuples:
            empty = np.empty(0, np.int32)
            return PartitionedBatch(empty, np.empty(0, np.uint64), Fragments(np.zeros(1, np.int64), empty, empty))
        batch = self._batch.sorted_list()
        if self._agrees and self._warm.records:
            fragments = agreed_fragments(batch, self._warm, self._workers, self._seed)
        else:
            fragments = self._pack(batch.counts, self._workers)
        if self._agrees:
            counts = batch.counts.astype(np.int64)
            self._warm = WarmKeys.of(batch.keys, counts, self._batch.tuples, self._batch.keys, self._workers)
        size = [[self._batch.tuples, self._batch.keys]]
        self._past = np.concatenate([self._past, np.array(size, np.int64)])[-_PAST:]
        self._batch = self._begin()
        return PartitionedBatch(place(batch.records, fragments), batch.keys, fragments)

    def merge(self, others: Sequence[Self]) -> None:
        """Average the sizes of the past few batches over the replicas, batch by batch, the latest with the latest.

        Each replica then expects an equal share of the stream, and has the warm keys of all. Records that other
        replicas have accumulated stay with them; this replica's are counted again with the new estimates.
        """
        if not others:
            return
        pasts = [replica._past for replica in (self, *others)]
        merged = np.empty((max(map(len, pasts)), 2), np.int64)
        for ago in range(1, len(merged) + 1):
            merged[-ago] = np.mean([past[-ago] for past in pasts if ago <= len(past)], axis=0)
        self._past = merged
        self._warm = self._warm.joined([other._warm for other in others], self._workers)
        self._batch = self._begin(self._batch.accumulated)

    def _vectors(self) -> Vectors:
        """Return the sizes of the past few batches, the warm keys, and those accumulated since the last cut."""
        tuples, keys = self._past.T
        return {
            "tuples": tuples,
            "keys": keys,
            "accumulated": self._batch.accumulated.view(np.int64),
            **self._warm.vectors(),
        }

    def _adopt(self, saved: PartitionerState) -> None:
        """Take over a saved state, and count its batch again."""
        for name in ("tuples", "keys", "accumulated"):
            if name not in saved.vectors:
                raise ValueError(f"the saved state of prompt has no {name}")
        past, warm = _past_of(saved), WarmKeys.restored(saved)
        self._past, self._warm = past, warm
        self._batch = self._begin(saved.vector("accumulated").view(np.uint64))

    def _begin(self, keys: Hashes | None = None) -> Accumulator:
        """Return a new batch that holds ``keys``."""
        batch = Accumulator(self.estimate if self._buffering == "count-tree" else None, self._budget)
        if keys is not None:
            batch.take(key_block(keys))
        return batch


def _past_of(saved: PartitionerState) -> NDArray[np.int64]:
    """Return N_C and K of the saved batches, shape ``(batches, 2)``. Raises ValueError if they are not usable."""
    tuples, keys = saved.vector("tuples"), saved.vector("keys")
    batches = len(tuples)
    if batches != len(keys) or batches > _PAST or (keys < 1).any() or (keys > tuples).any():
        raise ValueError(f"the saved state of prompt has no usable sizes of at most {_PAST} past batches")
    if (tuples > MOST_TUPLES).any():
        raise ValueError(f"the saved state of prompt has a batch of more than {MOST_TUPLES} records")
    return np.stack([tuples, keys], axis=1)


MOST_SLACK = 0.05
"""The largest slack, as a fraction of the batch interval."""

_REMEMBERED = 8  # partitioning times


@dataclass(frozen=True)
class EarlyRelease:
    """The moments to cut batches, learned from past partitioning times (paper 004, section 4.2 and Figure 7).

    Replicas in processes of their own use it (``dedicated``). A Spark task has no use for it: it knows where its slice
    ends.

    The batching cut-off comes before the processing cut-off, the heartbeat that ends the batch, by a slack. The
    partitioner works during this slack, so that the blocks are ready at the heartbeat. The paper found 5 % of the batch
    interval to be enough. All times are in one unit, of any clock.
    """

    interval: float
    """The batch interval."""
    past: tuple[float, ...] = ()
    """Partitioning times of the past few batches, the latest last."""

    def __post_init__(self) -> None:
        """Raise ValueError unless the interval is above 0 and no past time below it."""
        if not (math.isfinite(self.interval) and self.interval > 0):
            raise ValueError(f"the batch interval is {self.interval!r}; write a number above 0")
        for taken in self.past:
            if not (math.isfinite(taken) and taken >= 0):
                raise ValueError(f"partitioning took {taken!r}; write a number of at least 0")

    @property
    def slack(self) -> float:
        """Time before the heartbeat at which to cut: the longest of the past few partitioning times.

        It is at most ``MOST_SLACK`` of the interval, which is also its value while no past time is known.
        """
        most = MOST_SLACK * self.interval
        return min(most, max(self.past, default=most))

    def cut_off(self, heartbeat: float) -> float:
        """Return when to cut the batch that is due at ``heartbeat``. Records from then on belong to the next batch."""
        return heartbeat - self.slack

    def after(self, taken: float) -> EarlyRelease:
        """Return what is learned from a batch that took ``taken`` to partition. Raises ValueError if it is below 0."""
        return replace(self, past=(*self.past, taken)[-_REMEMBERED:])
