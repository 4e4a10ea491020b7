"""Packing of a micro-batch's keys into blocks: paper 004's Algorithm 2, and the baselines that it is compared with.

A key fragment is a collection of records with the same key (section 3.3), here those in one block.

Algorithm 2 makes blocks of equal size and cardinality with few fragments. Its text leaves some points open. It is read
as follows:

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

The baselines make blocks of exactly equal size, regardless of cardinality. Section 4.2 shows only their results, in
Figures 6a and 6b. First-Fit-Decreasing with items that can be fragmented (Menakerman, Rom, "Bin Packing with Item
Fragmentation", WADS 2001) fragments three of eight keys. Fragmentation Minimization fragments one, the largest. With
both, one block has far more keys than others. Results are frozen, like those of ``mixing``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel, read_only
from millrace_jobs.partitioners.base import Workers

Pieces = NDArray[np.int32]
"""Shape ``(pieces, 3)``: a key's position in the batch's list, the block, and how many of its records go there."""


@dataclass(frozen=True)
class Fragments:
    """The division of a micro-batch of K keys into blocks.

    Key ``k`` has the fragments ``starts[k]`` to ``starts[k + 1] - 1``. No two fragments of a key are in the same block.
    """

    starts: NDArray[np.int64]
    """Shape ``(K + 1,)``: the first fragment of each key, and at the end the number of fragments."""
    blocks: NDArray[np.int32]
    """Shape ``(fragments,)``: the block of each fragment."""
    sizes: NDArray[np.int32]
    """Shape ``(fragments,)``: the number of records in each fragment, at least 1."""


def fragments_of(pieces: Pieces, keys: int) -> Fragments:
    """Return the pieces ordered by key; pieces of one key stay in the order in which they were cut."""
    order = np.argsort(pieces[:, 0], kind="stable")
    starts = np.zeros(keys + 1, np.int64)
    np.cumsum(np.bincount(pieces[:, 0], minlength=keys), out=starts[1:])
    return Fragments(starts, pieces[order, 1], pieces[order, 2])


def capacities(tuples: int, blocks: int) -> NDArray[np.int64]:
    """Return P_Size, N_C / P in whole records, shape ``(blocks,)``; the first blocks share the remainder, one each."""
    sizes = np.full(blocks, tuples // blocks, np.int64)
    sizes[: tuples % blocks] += 1
    return sizes


@kernel
def best_fit(room: NDArray[np.int64], size: int) -> int:
    """Return the block with the least room that holds ``size`` records, or the one with the most room if none does.

    The first of several equal blocks wins.
    """
    best = 0
    for block in range(1, len(room)):
        if size <= room[block] < room[best] or room[best] < min(size, room[block]):
            best = block
    return best


@kernel
def put(pieces: Pieces, cut: int, key: int, block: int, size: int, room: NDArray[np.int64]) -> int:
    """Put ``size`` records of ``key`` into ``block`` as piece number ``cut``; return the number of the next piece."""
    pieces[cut, 0] = key
    pieces[cut, 1] = block
    pieces[cut, 2] = size
    room[block] -= size
    return cut + 1


@kernel
def put_by_best_fit(pieces: Pieces, cut: int, key: int, size: int, room: NDArray[np.int64]) -> int:
    """Put ``size`` records of ``key`` where they fit best; while they fit nowhere, into the block with the most room.

    Pieces are numbered as in ``put``, and all but the last one fill their block.
    """
    while size:
        block = best_fit(room, size)
        fitting = min(size, room[block])
        cut = put(pieces, cut, key, block, fitting, room)
        size -= fitting
    return cut


def place(records: NDArray[np.int32], fragments: Fragments) -> Workers:
    """Return the block of each record, shape ``(N_C,)``, given each record's key in ``records``.

    The records of a key fill its fragments in order.
    """
    starts, blocks, sizes = read_only(fragments.starts), read_only(fragments.blocks), read_only(fragments.sizes)
    return _place(read_only(records), starts, blocks, sizes)


@kernel
def _place(
    records: NDArray[np.int32], starts: NDArray[np.int64], blocks: NDArray[np.int32], sizes: NDArray[np.int32]
) -> Workers:
    ids = np.empty(len(records), np.int32)
    filling = np.empty((len(starts) - 1, 2), np.int64)  # by key: the fragment to fill, and what it still takes
    for key in range(len(filling)):
        filling[key, 0] = starts[key]
        filling[key, 1] = sizes[starts[key]]
    for record in range(len(records)):
        key = records[record]
        if not filling[key, 1]:
            filling[key, 0] += 1
            filling[key, 1] = sizes[filling[key, 0]]
        filling[key, 1] -= 1
        ids[record] = blocks[filling[key, 0]]
    return ids


def first_fit(counts: NDArray[np.int32], blocks: int) -> Fragments:
    """Put each key, largest first, into the first block with room, and what does not fit into the next ones.

    At any time, only the current block can be partly filled, so at most ``blocks - 1`` cuts are made. ``counts`` is as
    in ``zigzag``.
    """
    room = capacities(int(counts.sum(dtype=np.int64)), blocks)
    return fragments_of(_first_fit(read_only(counts), room), len(counts))


def fragmentation_minimization(counts: NDArray[np.int32], blocks: int) -> Fragments:
    """Put all keys but the largest whole into the blocks that fit best, and fill the gaps with the largest.

    The first key of the list is taken to be the largest. Another key is fragmented only if no block has room for all of
    it, and then as Algorithm 2 does with a residual. ``counts`` is as in ``zigzag``.
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


def split_cutoff(tuples: int, keys: int, blocks: int) -> int:
    """Return S_Cut: keys with more records are fragmented, and all others go whole."""
    return max(1, tuples // max(keys, blocks))


def zigzag(counts: NDArray[np.int32], blocks: int) -> Fragments:
    """Partition a batch into ``blocks`` blocks, given the records of each key, nearly in descending order.

    ``counts`` has shape ``(K,)``, with at least one key; each count is at least 1.
    """
    tuples = int(counts.sum(dtype=np.int64))
    cutoff = split_cutoff(tuples, len(counts), blocks)
    return fragments_of(pieces_of(counts, cutoff, capacities(tuples, blocks)), len(counts))


def pieces_of(counts: NDArray[np.int32], cutoff: int, room: NDArray[np.int64]) -> Pieces:
    """Return the pieces of Algorithm 2, and fill ``room``, what is left of each block's P_Size, in place.

    ``counts`` is as in ``zigzag``, and may be empty. The room of a block that has more than P_Size is negative.
    """
    return _zigzag(read_only(counts), cutoff, room)


@kernel
def _zigzag(counts: NDArray[np.int32], cutoff: int, room: NDArray[np.int64]) -> Pieces:
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
