"""The micro-batch partitioner (paper 004, Algorithm 2): blocks of equal size and cardinality, few fragments.

How the algorithm's text was read, where it is open:

- S_Cut = P_Size / P_|k| = (N_C / P) / (K / P), in whole records, at least 1. P_|k|, the keys per block, is at least
  1: with fewer keys than blocks, a key larger than a block is then cut into blocks.
- |k| is the exact count: only the order of the list is approximate. So line 5 finds every key above S_Cut, wherever
  it is in the list.
- The zigzag goes on at the block b_i where dealing out fragments stopped, to the last block, and then reverses.
  A block so gets at most one key more than another, ⌈K / P⌉ of at most S_Cut records: it exceeds P_Size by less
  than S_Cut, whatever the order of the list; and in a sorted list, no two blocks differ by more than S_Cut.
- Lines 19 to 23: the residual fills the room that is left in its key's own block (``lookupLargePos``). The rest goes
  to the block with the least room that holds it; where none does, it fills the one with the most room, and what
  remains is treated alike, so that a key larger than two blocks is in as few as can be.
- RList (line 17 takes any key of it) is worked off from its end, the smallest residuals first. They fit into their
  own blocks, and only the largest keys are spread over what is left. From its beginning, the largest would fill
  blocks that are then closed to the residuals that belong there: on a Zipf stream (z = 1, a million records, 81,000
  keys, 16 blocks), there are then 5,700 fragments more than keys instead of 16, and one block has half as many
  keys again as the average instead of 2 keys more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel, read_only

from .fragments import Fragments, Pieces, capacities, fragments_of, put, put_by_best_fit


def split_cutoff(tuples: int, keys: int, blocks: int) -> int:
    """S_Cut: keys with more records are fragmented, and all others go whole."""
    return max(1, tuples // max(keys, blocks))


def zigzag(counts: NDArray[np.int32], blocks: int) -> Fragments:
    """Partition a batch into ``blocks`` blocks, given the records of each key, nearly in descending order.

    ``counts`` has shape ``(K,)`` and at least one key, each at least 1.
    """
    tuples = int(counts.sum(dtype=np.int64))
    cutoff = split_cutoff(tuples, len(counts), blocks)
    return fragments_of(_zigzag(read_only(counts), cutoff, capacities(tuples, blocks)), len(counts))


@kernel
def _zigzag(counts: NDArray[np.int32], cutoff: int, room: NDArray[np.int64]) -> Pieces:
    """``room``, what is left of each block's P_Size, is filled in place; it is negative where a block has more."""
    keys, blocks = len(counts), len(room)
    pieces = np.empty((2 * keys + blocks, 3), np.int32)  # per key its own block's and the last; others fill a block
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
            room[block] += cutoff  # so as to put the first fragment and what fits of the residual as one piece
            fitting = max(cutoff, min(counts[key], room[block]))
            cut = put(pieces, cut, key, block, fitting, room)
            cut = put_by_best_fit(pieces, cut, key, counts[key] - fitting, room)
    return pieces[:cut]
