"""The Reduce bucket allocator (paper 004, Algorithm 3), by which a Map task assigns its key clusters to buckets.

The algorithm is read as follows. Its line 8 resets the candidate buckets when there are some; by the prose, they are
reset when none are left ("the selected bucket is removed from the candidate list until all other buckets receive an
item"). The prose is followed. Worst fit selects the bucket with the most capacity left. All buckets start with the same
capacity, |C| / |R|, so this is the bucket with the least in it, whatever the capacity is. The capacity may be exceeded,
because no cluster is divided. The paper leaves open which of several equal buckets is selected. It matters: if every
Map task took the first one, the largest clusters of all tasks would meet there. So each task counts the buckets from a
start of its own.

Spark merges by key, so no job assigns Reduce buckets. Only this rerun of the paper's experiments does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel, read_only
from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.hash import Hash
from millrace_jobs.partitioners.parameters import whole_number
from millrace_jobs.partitioners.prompt.partitioner import PartitionedBatch


@dataclass(frozen=True)
class ReferenceTable:
    """The keys of one block, each with its number of records in the block and whether other blocks have it too."""

    keys: Hashes
    """Shape ``(keys,)``: the keys' hashes."""
    sizes: NDArray[np.int32]
    """Shape ``(keys,)``: the number of records of each key in the block."""
    split: NDArray[np.bool_]
    """Shape ``(keys,)``: whether other blocks have the key too."""


def reference_table(plan: PartitionedBatch, block: int, *, shared: bool) -> ReferenceTable:
    """Return the reference table of one block, for the Map task that processes it (paper 004, section 5).

    With ``shared``, other replicas partition records of the same keys, so any key may be in their blocks too. All keys
    are then labeled split, because a Map task must not choose the Reduce bucket of such a key by itself. ``shared`` is
    False if there is one replica, or if each key comes to one replica only.
    """
    fragments = plan.fragments
    inside = np.flatnonzero(fragments.blocks == block)
    key = np.searchsorted(fragments.starts, inside, side="right") - 1
    split = np.diff(fragments.starts)[key] > 1
    return ReferenceTable(plan.keys[key], fragments.sizes[inside], split | shared)


def allocate(
    table: ReferenceTable, sizes: NDArray[np.integer[Any]], buckets: int, *, task: int, seed: int
) -> NDArray[np.int32]:
    """Return the Reduce bucket, in ``range(buckets)``, of each key cluster of Map task ``task``; shape ``(keys,)``.

    ``sizes``, shape ``(keys,)``, are the sizes of the clusters: how many records the task emits for each key of its
    block. If it emits what it receives, they are ``table.sizes``. Split keys are hashed, as the partitioner ``hash``
    does it, so that all Map tasks with the same ``seed`` agree. The other keys are placed by worst fit, largest first
    and ties in the given order. Of the buckets with the most capacity left, a key goes to the first, counted from
    bucket ``task`` modulo ``buckets``. Raises ValueError if there is no bucket or not one size for each key.
    """
    whole_number("buckets", buckets, 1)
    if sizes.shape != table.keys.shape:
        raise ValueError(f"there are sizes of shape {sizes.shape} for {len(table.keys)} keys; give one for each key")
    chosen = np.empty(len(sizes), np.int32)
    chosen[table.split] = Hash(workers=buckets, seed=seed).route(table.keys[table.split])
    loads = np.zeros(buckets, np.int64)
    np.add.at(loads, chosen[table.split], sizes[table.split])
    own = np.flatnonzero(~table.split)
    own = own[np.argsort(-sizes[own], kind="stable")]
    chosen[own] = _worst_fit(read_only(sizes[own].astype(np.int64)), loads, task % buckets)
    return chosen


@kernel
def _worst_fit(sizes: NDArray[np.int64], loads: NDArray[np.int64], first: int) -> NDArray[np.int32]:
    """Run lines 5 to 12, counting buckets from ``first``; ``loads`` is what each bucket holds, updated in place."""
    buckets = len(loads)
    chosen = np.empty(len(sizes), np.int32)
    candidate = np.ones(buckets, np.bool_)
    for cluster in range(len(sizes)):
        if cluster % buckets == 0:  # every bucket has been selected once more
            candidate[:] = True
        roomiest = -1
        for turn in range(buckets):
            bucket = (first + turn) % buckets
            if candidate[bucket] and (roomiest < 0 or loads[bucket] < loads[roomiest]):
                roomiest = bucket
        candidate[roomiest] = False
        loads[roomiest] += sizes[cluster]
        chosen[cluster] = roomiest
    return chosen
