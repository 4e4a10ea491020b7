"""Key fragments: which records of which keys go to which blocks, and what all packing techniques share.

Paper 004, section 3.3: a key fragment is a collection of records with the same key. Here, these are in one block.
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
    """The plan of a micro-batch of K keys: key ``k`` has the fragments ``starts[k]`` to ``starts[k + 1] - 1``.

    No two fragments of a key are in the same block.
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

    The first of several equal blocks wins. As in ``mixing``, results never change.
    """
    best = 0
    for block in range(1, len(room)):
        if size <= room[block] < room[best] or room[best] < min(size, room[block]):
            best = block
    return best


@kernel
def put(pieces: Pieces, cut: int, key: int, block: int, size: int, room: NDArray[np.int64]) -> int:
    """Put ``size`` records of ``key`` into ``block`` as piece number ``cut``; return the number of the next piece.

    As in ``mixing``, results never change.
    """
    pieces[cut, 0] = key
    pieces[cut, 1] = block
    pieces[cut, 2] = size
    room[block] -= size
    return cut + 1


@kernel
def put_by_best_fit(pieces: Pieces, cut: int, key: int, size: int, room: NDArray[np.int64]) -> int:
    """Put ``size`` records of ``key`` where they fit best; while they fit nowhere, into the block with the most room.

    Pieces are numbered as in ``put``, and all but the last one fill their block. As in ``mixing``, results never
    change.
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
