"""Prompt's micro-batch partitioning (paper 004, section 4): Algorithm 1 while the batch comes, then Algorithm 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.arguments import key_block, whole_number
from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_jobs.partitioners.state import PartitionerState, pack, unpack

from .accumulator import MOST_TUPLES, Accumulator, Estimate
from .buckets import ReferenceTable
from .fragments import Fragments, place
from .packing import first_fit, fragmentation_minimization
from .zigzag import zigzag

BUFFERING = ("count-tree", "post-sort")
"""How keys are ordered by frequency: as records come (Algorithm 1), or by a sort of the exact counts at the end."""

PACKING: Mapping[str, Callable[[NDArray[np.int32], int], Fragments]] = MappingProxyType(
    {
        "zigzag": zigzag,
        "first-fit": first_fit,
        "fragmentation-minimization": fragmentation_minimization,
    }
)
"""How the keys are packed into blocks: by Algorithm 2, or as paper 004 compares it with."""

_PAST = 5  # batches that the estimates are averaged over ("the past few")


@dataclass(frozen=True)
class Blocks:
    """A partitioned micro-batch of N_C records and K keys."""

    ids: Workers
    """Shape ``(N_C,)``: the block of each record, in arrival order."""
    keys: Hashes
    """Shape ``(K,)``: the keys' hashes."""
    fragments: Fragments
    """Of the keys in that order."""

    def reference_table(self, block: int, *, shared: bool) -> ReferenceTable:
        """The reference table of one block, for the Map task that processes it (paper 004, section 5).

        ``shared``: other replicas partition records of the same keys, so any key may be in their blocks too. Then
        all are labelled split, for a Map task must not choose the Reduce bucket of a key by itself. It is False
        where there is one replica, or where each key comes to one replica only.
        """
        plan = self.fragments
        inside = np.flatnonzero(plan.blocks == block)
        key = np.searchsorted(plan.starts, inside, side="right") - 1
        split = np.diff(plan.starts)[key] > 1
        return ReferenceTable(self.keys[key], plan.sizes[inside], split | shared)


class PromptPartitioner:
    """Counts a micro-batch's records by key as they come, then cuts it into equal blocks, one for each worker.

    A record taken in after a cut belongs to the next batch (early release, see ``release``). What stays from one
    batch to the next are the sizes of the past few, N_C and K: their averages, N_Est and K_Avg, set the steps of
    the next batch's CountTree. The first batch, for which nothing is estimated, is post-sorted. A key that goes to
    several blocks fills them one after the other, its records in the order of their arrival.
    """

    NAME = "prompt"
    VERSION = 1

    def __init__(self, *, workers: int, budget: int, buffering: str, packing: str) -> None:
        self._workers = whole_number("workers", workers, 1)
        self._budget = whole_number("budget", budget, 1)
        self._buffering = buffering
        self._pack = PACKING[packing]
        self._past = np.empty((0, 2), np.int64)  # N_C and K of the past few batches, the latest last
        self._batch = self._begin()

    @property
    def workers(self) -> int:
        """Number of workers ``n``, the paper's number P of data partitions."""
        return self._workers

    @property
    def estimate(self) -> Estimate | None:
        """N_Est and K_Avg: the averages over the past few batches that were not empty; None before the first."""
        if not len(self._past):
            return None
        tuples, keys = -(-self._past.sum(axis=0) // len(self._past))  # rounded up
        return Estimate(int(tuples), int(keys))

    def route(self, keys: Hashes) -> Workers:
        """Take in the block and cut the batch: one id for each record since the last cut."""
        self.accumulate(keys)
        return self.cut()

    def accumulate(self, keys: Hashes) -> None:
        """Take in the next block (Algorithm 1).

        Raises ValueError, and takes in nothing, if the batch would have more than ``MOST_TUPLES`` records.
        """
        self._batch.take(key_block(keys))

    def cut(self) -> Workers:
        """Partition what was accumulated since the last cut (Algorithm 2); shape ``(N_C,)``, in arrival order."""
        return self.partition().ids

    def partition(self) -> Blocks:
        """As ``cut``, with the plan from which the blocks' reference tables are made.

        HTable and CountTree are cleared, and N_C and K are kept for the estimates, unless there are no records.
        """
        if not self._batch.tuples:
            empty = np.empty(0, np.int32)
            return Blocks(empty, np.empty(0, np.uint64), Fragments(np.zeros(1, np.int64), empty, empty))
        batch = self._batch.sorted_list()
        fragments = self._pack(batch.counts, self._workers)
        size = [[self._batch.tuples, self._batch.keys]]
        self._past = np.concatenate([self._past, np.array(size, np.int64)])[-_PAST:]
        self._batch = self._begin()
        return Blocks(place(batch.records, fragments), batch.keys, fragments)

    def advance(self) -> None:
        """Nothing: the cut has ended the batch, and what came after it belongs to the next."""

    def save(self) -> bytes:
        """The sizes of the past few batches, and the keys accumulated since the last cut."""
        vectors = {
            "tuples": self._past[:, 0],
            "keys": self._past[:, 1],
            "accumulated": self._batch.accumulated.view(np.int64),
        }
        return pack(PartitionerState(self.NAME, self.VERSION, self._workers, {}, vectors))

    def restore(self, state: bytes) -> None:
        """Adopt a saved state, counting its batch anew. Raises ValueError on anything else."""
        saved = unpack(state, self.NAME, self.VERSION)
        past, accumulated = _past_of(saved), _vector(saved, "accumulated")
        self._workers, self._past = saved.workers, past
        self._batch = self._begin(accumulated.view(np.uint64))

    def merge(self, others: Sequence[Self]) -> None:
        """Average the sizes of the past few batches over the replicas, batch by batch, the latest with the latest.

        So each of them expects an equal share of the stream. The records that the others have accumulated stay
        theirs; those of this replica are counted anew, by the new estimates.
        """
        if not others:
            return
        pasts = [replica._past for replica in (self, *others)]
        merged = np.empty((max(map(len, pasts)), 2), np.int64)
        for ago in range(1, len(merged) + 1):
            merged[-ago] = np.mean([past[-ago] for past in pasts if ago <= len(past)], axis=0)
        self._past = merged
        self._batch = self._begin(self._batch.accumulated)

    def resize(self, workers: int) -> None:
        """Cut into that many blocks from now on: also what is accumulated. No key has a place from batch to batch."""
        self._workers = whole_number("workers", workers, 1)

    def _begin(self, keys: Hashes | None = None) -> Accumulator:
        """A batch that has ``keys``."""
        batch = Accumulator(self.estimate if self._buffering == "count-tree" else None, self._budget)
        if keys is not None:
            batch.take(key_block(keys))
        return batch


def _past_of(saved: PartitionerState) -> NDArray[np.int64]:
    """Shape ``(batches, 2)``: N_C and K. Raises ValueError if they are not those of batches."""
    tuples, keys = _vector(saved, "tuples"), _vector(saved, "keys")
    batches = len(tuples)
    if batches != len(keys) or batches > _PAST or (keys < 1).any() or (keys > tuples).any():
        raise ValueError(f"the saved state of prompt has no usable sizes of at most {_PAST} past batches")
    if (tuples > MOST_TUPLES).any():
        raise ValueError(f"the saved state of prompt has a batch of more than {MOST_TUPLES} records")
    return np.stack([tuples, keys], axis=1)


def _vector(saved: PartitionerState, name: str) -> NDArray[np.int64]:
    if name not in saved.vectors:
        raise ValueError(f"the saved state of prompt has no {name}")
    return saved.vectors[name]
