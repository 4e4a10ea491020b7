"""Packing of keys into blocks of exactly equal size, regardless of cardinality: paper 004's baselines.

Paper 004, section 4.2, shows only the results of these two techniques, in Figures 6a and 6b. First-Fit-Decreasing with
items that can be fragmented (Menakerman, Rom, "Bin Packing with Item Fragmentation", WADS 2001) fragments three of
eight keys. Fragmentation Minimization fragments one, the largest. With both, one block has far more keys than others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel, read_only

from .fragments import Fragments, Pieces, capacities, fragments_of, put, put_by_best_fit


def first_fit(counts: NDArray[np.int32], blocks: int) -> Fragments:
    """Put each key, largest first, into the first block with room, and what does not fit into the next ones.

    At any time, only the current block can be partly filled, so at most ``blocks - 1`` cuts are made. ``counts`` is as
    in ``zigzag.zigzag``, with at least one key.
    """
    room = capacities(int(counts.sum(dtype=np.int64)), blocks)
    return fragments_of(_first_fit(read_only(counts), room), len(counts))


def fragmentation_minimization(counts: NDArray[np.int32], blocks: int) -> Fragments:
    """Put all keys but the largest whole into the blocks that fit best, and fill the gaps with the largest.

    The first key of the list is taken to be the largest. Another key is fragmented only if no block has room for all of
    it, and then as Algorithm 2 does with a residual. ``counts`` is as in ``zigzag.zigzag``, with at least one key.
    """
    room = capacities(int(counts.sum(dtype=np.int64)), blocks)
    return fragments_of(_best_fit_largest_last(read_only(counts), room), len(counts))


@kernel
def _first_fit(counts: NDArray[np.int32], room: NDArray[np.int64]) -> Pieces:
    pieces = np.empty((len(counts) + len(room), 3), np.int32)
    cut = block = 0
    for key in range(len(counts)):
        left = np.int64(counts[key])
        while left:
            while not room[block]:
                block += 1
            fitting = min(left, room[block])
            cut = put(pieces, cut, key, block, fitting, room)
            left -= fitting
    return pieces[:cut]


@kernel
def _best_fit_largest_last(counts: NDArray[np.int32], room: NDArray[np.int64]) -> Pieces:
    pieces = np.empty((len(counts) + len(room), 3), np.int32)
    cut = 0
    for key in range(1, len(counts)):
        cut = put_by_best_fit(pieces, cut, key, int(counts[key]), room)
    cut = put_by_best_fit(pieces, cut, 0, int(counts[0]), room)
    return pieces[:cut]
