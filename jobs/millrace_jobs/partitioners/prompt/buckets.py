"""The Reduce bucket allocator (paper 004, Algorithm 3), by which a Map task assigns its key clusters to buckets.

How the algorithm's text was read: its line 8 resets the candidate buckets when there are some; the prose, by which
"the selected bucket is removed from the candidate list until all other buckets receive an item", when there are none
left. Worst fit selects the bucket with the most capacity left. All begin with the same, |C| / |R|, so that is the one
with the least in it, whatever that size is; it may be exceeded, for no cluster is divided. The paper leaves open which
of several equal buckets is selected. It matters: where every Map task took the first, the largest clusters of all tasks
would meet in it. So each task counts the buckets from one of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel, read_only
from millrace_jobs.partitioners.arguments import whole_number
from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.fields import Hash


@dataclass(frozen=True)
class ReferenceTable:
    """The keys of one block, each with its number of records in it, and whether other blocks have it, too."""

    keys: Hashes
    """Shape ``(keys,)``: the keys' hashes."""
    sizes: NDArray[np.int32]
    """Shape ``(keys,)``."""
    split: NDArray[np.bool_]
    """Shape ``(keys,)``."""


def allocate(
    table: ReferenceTable, sizes: NDArray[np.integer[Any]], buckets: int, *, task: int, seed: int
) -> NDArray[np.int32]:
    """Shape ``(keys,)``: the Reduce bucket, in ``range(buckets)``, of each key cluster of Map task ``task``.

    ``sizes``, shape ``(keys,)``, are those of the clusters: how many records the task gives out for each key of
    its block; ``table.sizes`` where it gives out what it gets. Split keys are hashed, as the partitioner ``hash``
    does it, so that all Map tasks with the same ``seed`` agree; the others are placed by worst fit, largest first
    and those of equal size as they come, into the first, from bucket ``task`` modulo ``buckets`` on, of
    those with the most capacity left. Raises ValueError where there is no bucket or the sizes are not one for each key.
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
    """Lines 5 to 12, with what is in each bucket in ``loads``, counted on in place, from bucket ``first`` on."""
    buckets = len(loads)
    chosen = np.empty(len(sizes), np.int32)
    candidate = np.ones(buckets, np.bool_)
    for cluster in range(len(sizes)):
        if cluster % buckets == 0:  # each has been selected once more
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
