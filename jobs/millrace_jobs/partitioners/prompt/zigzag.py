"""The micro-batch partitioner (paper 004, Algorithm 2): blocks of equal size and cardinality, few fragments.

The algorithm's text leaves some points open. It is read as follows:

- S_Cut = P_Size / P_|k| = (N_C / P) / (K / P), in whole records, at least 1. P_|k|, the keys per block, is at least 1:
  with fewer keys than blocks, a key larger than a block is then cut into blocks.
- |k| is the exact count: only the order of the list is approximate. So line 5 finds every key above S_Cut, wherever it
  is in the list.
- The zigzag starts at the block b_i where dealing out fragments stopped, goes on to the last block, and then reverses.
  So a block gets at most one key more than another, and at most ⌈K / P⌉ keys of at most S_Cut records each. It exceeds
  P_Size by less than S_Cut, whatever the order of the list. In a sorted list, no two blocks differ by more than S_Cut.
- Lines 19 to 23: the residual fills the room that is left in its key's own block (``lookupLargePos``). The rest goes to
  the block with the least room that holds it. If no block holds it, it fills the block with the most room, and the
  remainder is treated alike, so that a key larger than two blocks is in as few blocks as possible.
- RList (line 17 takes any key of it) is processed from its end, the smallest residuals first. They fit into their own
  blocks, and only the largest keys are spread over the remaining room. Processed from its beginning, the largest keys
  would fill blocks, which are then closed to the residuals that belong there. On a Zipf stream (z = 1, a million
  records, 81,000 keys, 16 blocks), there are then 5,700 more fragments than keys instead of 16, and one block has half
  as many keys again as the average instead of 2 keys more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel, read_only

from .fragments import Fragments, Pieces, capacities, fragments_of, put, put_by_best_fit


def split_cutoff(tuples: int, keys: int, blocks: int) -> int:
    """Return S_Cut: keys with more records are fragmented, and all others go whole."""
    return max(1, tuples // max(keys, blocks))


def zigzag(counts: NDArray[np.int32], blocks: int) -> Fragments:
    """Partition a batch into ``blocks`` blocks, given the records of each key, nearly in descending order.

    ``counts`` has shape ``(K,)``, with at least one key; each count is at least 1.
    """
    tuples = int(counts.sum(dtype=np.int64))
    cutoff = split_cutoff(tuples, len(counts), blocks)
    return fragments_of(_zigzag(read_only(counts), cutoff, capacities(tuples, blocks)), len(counts))


@kernel
def _zigzag(counts: NDArray[np.int32], cutoff: int, room: NDArray[np.int64]) -> Pieces:
    """Return the pieces, and fill ``room``, what is left of each block's P_Size, in place.

    The room of a block that has more than P_Size is negative.
    """
    keys, blocks = len(counts), len(room)
    pieces = np.empty((2 * keys + blocks, 3), np.int32)  # two per key (own block, last); the others fill a block
    cut = 0
    large = np.full(keys, -1, np.int32)  # lookupLargePos
    block = 0
    for key in range(keys):
        if counts[key] > cutoff:
            large[key] = block
            room[block] -= cutoff
            block = (block + 1) % blocks
    direction = 1
    for key in range(keys):
        if large[key] < 0:
            cut = put(pieces, cut, key, block, counts[key], room)
            block += direction
            if block < 0 or block == blocks:
                direction = -direction
                block += direction
    for key in range(keys - 1, -1, -1):  # RList, from its end
        if large[key] >= 0:
            block = large[key]
            room[block] += cutoff  # makes the first fragment and what fits of the residual one piece
            fitting = max(cutoff, min(counts[key], room[block]))
            cut = put(pieces, cut, key, block, fitting, room)
            cut = put_by_best_fit(pieces, cut, key, counts[key] - fitting, room)
    return pieces[:cut]
