"""Algorithm 2 for one of several replicas, which agree on the blocks of keys: see ``warm_keys``.

Paper 004 partitions a whole micro-batch. A replica that dealt out the keys of its slice as Algorithm 2 does would put a
key into another block than the next replica. So the steps are those of ``packing.zigzag``, with these changes:

- The warm keys of the batch before are partitioned by Algorithm 2 into blocks of their own. All replicas get the same
  fragments. A replica divides its records of a warm key in the proportions of these.
- Any other key has a block by its hash, instead of the next one of the zigzag. A block takes
  hardly more than its share of the slice's keys: the rarest that hash to it go to the blocks with the fewest.
- Residuals fill the room in their key's own block, then that in its other fragments' blocks, and then others, as in
  Algorithm 2. So the slice's blocks are of equal size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel, read_only
from millrace_jobs.kernels.key_table import Rows, empty_table, fill, find, is_empty
from millrace_jobs.kernels.mixing import Hashes, salts, seeded_hash
from millrace_jobs.partitioners.warm_keys import WarmKeys

from .accumulator import MOST_TUPLES, AccumulatedBatch
from .packing import Fragments, Pieces, capacities, fragments_of, pieces_of, put, put_by_best_fit, split_cutoff

_SURPLUS = 0.5
"""Standard deviations of its number of keys that a block may have beyond its share, if keys go by hash.

With none, keys would be in more blocks than with some: a key that a replica moves is still in its block with others.
"""


def agreed_fragments(batch: AccumulatedBatch, warm: WarmKeys, blocks: int, seed: int) -> Fragments:
    """Partition a replica's slice of a micro-batch, with at least one record, into ``blocks`` blocks.

    Replicas agree if they have the same ``warm`` keys and the same ``seed``.
    """
    shared = _fragments_of_warm(warm, blocks)
    numbers = empty_table(len(warm.keys), 1)
    fill(numbers, read_only(warm.keys), np.arange(1, len(warm.keys) + 1))
    tuples = len(batch.records)
    pieces = _agreed(
        read_only(batch.keys),
        read_only(batch.counts),
        salts(seed, 1)[0],
        numbers,
        read_only(shared.starts),
        read_only(shared.blocks),
        read_only(shared.sizes),
        split_cutoff(tuples, len(batch.keys), blocks),
        capacities(tuples, blocks),
    )
    return fragments_of(pieces, len(batch.keys))


def _fragments_of_warm(warm: WarmKeys, blocks: int) -> Fragments:
    """Return Algorithm 2's fragments of the warm keys; the other keys take an equal part of each block."""
    counts = np.minimum(warm.counts, MOST_TUPLES).astype(np.int32)
    room = capacities(int(counts.sum(dtype=np.int64)), blocks)
    cutoff = split_cutoff(warm.records, max(warm.distinct, 1), blocks)
    return fragments_of(pieces_of(counts, cutoff, room), len(counts))


@kernel
def _agreed(
    keys: Hashes,
    counts: NDArray[np.int32],
    salt: np.uint64,
    numbers: Rows,
    starts: NDArray[np.int64],
    blocks: NDArray[np.int32],
    sizes: NDArray[np.int32],
    cutoff: int,
    room: NDArray[np.int64],
) -> Pieces:
    """Return the pieces of the keys; ``room`` is as in ``packing``, and ``numbers`` has each warm key's number + 1."""
    pieces = np.empty((4 * len(keys) + len(blocks) + len(room), 3), np.int32)
    parts = np.empty(len(room), np.int64)
    warm = np.empty(len(keys), np.int64)
    for key in range(len(keys)):
        slot = find(numbers, keys[key])
        warm[key] = -1 if is_empty(numbers, slot) else np.int64(numbers[slot, 1]) - 1
    own = _own_blocks(keys, counts, salt, warm, starts, blocks, cutoff, room)
    cut = 0
    for key in range(len(keys) - 1, -1, -1):
        first = min(np.int64(counts[key]), np.int64(cutoff))
        room[own[key]] += first
        if warm[key] < 0:
            fitting = max(first, min(np.int64(counts[key]), room[own[key]]))
            cut = put(pieces, cut, key, own[key], fitting, room)
            left = counts[key] - fitting
        else:
            begin, end = starts[warm[key]], starts[warm[key] + 1]
            left = _divide(np.int64(counts[key]), blocks[begin:end], sizes[begin:end], room, parts)
            for part in range(end - begin):
                if parts[part]:
                    cut = put(pieces, cut, key, blocks[begin + part], parts[part], room)
        cut = put_by_best_fit(pieces, cut, key, left, room)
    return pieces[:cut]


@kernel
def _own_blocks(
    keys: Hashes,
    counts: NDArray[np.int32],
    salt: np.uint64,
    warm: NDArray[np.int64],
    starts: NDArray[np.int64],
    blocks: NDArray[np.int32],
    cutoff: int,
    room: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the block of each key's first fragment, and take that fragment's records from the block's room."""
    own = np.full(len(keys), -1, np.int64)
    taken = np.zeros(len(room), np.int64)  # by block: its keys
    for key in range(len(keys)):
        if warm[key] >= 0:
            own[key] = blocks[starts[warm[key]]]
            taken[own[key]] += 1
            room[own[key]] -= min(counts[key], cutoff)
    average = len(keys) / len(room)
    most = np.ceil(average) + np.floor(_SURPLUS * np.sqrt(average))
    for key in range(len(keys)):
        if warm[key] < 0:
            home = np.int64(seeded_hash(keys[key], salt) % np.uint64(len(room)))
            if taken[home] < most and room[home] >= min(counts[key], cutoff):
                own[key] = home
                taken[home] += 1
                room[home] -= min(counts[key], cutoff)
    for key in range(len(keys)):
        if own[key] < 0:
            own[key] = np.argmin(taken)
            taken[own[key]] += 1
            room[own[key]] -= min(counts[key], cutoff)
    return own


@kernel
def _divide(
    count: int | np.int64,
    blocks: NDArray[np.int32],
    sizes: NDArray[np.int32],
    room: NDArray[np.int64],
    parts: NDArray[np.int64],
) -> int:
    """Divide the ``count`` records of a warm key over its fragments, in proportion, as far as their blocks have room.

    What does not fit then fills the fragments' blocks in order. ``parts`` receives the records of each fragment.
    Returns how many are left.
    """
    total = 0
    for size in sizes:
        total += size
    passed = wanted = 0
    left = np.int64(count)
    for part in range(len(sizes)):
        passed += sizes[part]
        share = count * passed // total - wanted
        wanted += share
        parts[part] = max(np.int64(0), min(share, room[blocks[part]]))
        left -= parts[part]
    for part in range(len(sizes)):
        more = max(np.int64(0), min(left, room[blocks[part]] - parts[part]))
        parts[part] += more
        left -= more
    return int(left)
