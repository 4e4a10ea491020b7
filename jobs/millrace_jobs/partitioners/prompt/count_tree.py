"""CountTree: the keys of a micro-batch in the order of their approximate counts (paper 004, section 4.1).

The paper keeps the counts in a balanced search tree, of which it uses two things: a key's node moves when its
count is updated, and at the end of the batch an in-order traversal gives the quasi-sorted list. With larger
counts first and a node put behind those of an equal count, that traversal is determined by the sequence of
updates alone: keys by descending count, and keys of one count in the order in which they got it.

Counts are small whole numbers, so this structure, which stands for the tree, keeps exactly those runs: per
count, a list of the keys that have it, linked through the keys' own rows. A move takes a key out of one list
and puts it at the end of another, in constant time instead of log K and with nothing to rebalance. The
traversal goes through the lists from the largest count down, and sorts nothing. These functions are frozen: see
``compiling.kernel``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel

Table = NDArray[Any]
"""Shape ``(keys,)``: the rows of HTable, see ``accumulator.ROW``; ``updated`` is a key's count in the tree."""

Runs = NDArray[np.int32]
"""Shape ``(counts, 2)``: the first and the last key of each count, as its row's number plus 1; 0 for no key."""


@kernel
def insert(table: Table, runs: Runs, row: int) -> None:
    """Put the key of ``table[row]`` behind the others of its count ``updated``."""
    key = table[row]
    last = runs[key.updated, 1]
    key.before = last
    key.after = 0
    if last:
        table[last - 1].after = row + 1
    else:
        runs[key.updated, 0] = row + 1
    runs[key.updated, 1] = row + 1


@kernel
def move(table: Table, runs: Runs, row: int, count: int) -> None:
    """Update the count of the key of ``table[row]``: it goes behind the others that have ``count``."""
    key = table[row]
    if key.before:
        table[key.before - 1].after = key.after
    else:
        runs[key.updated, 0] = key.after
    if key.after:
        table[key.after - 1].before = key.before
    else:
        runs[key.updated, 1] = key.before
    key.updated = count
    insert(table, runs, row)


@kernel
def in_order(table: Table, runs: Runs) -> NDArray[np.int32]:
    """Shape ``(keys,)``: the row of each key, those with the largest counts first."""
    largest = 0
    for row in range(len(table)):
        largest = max(largest, table[row].updated)
    rows = np.empty(len(table), np.int32)
    place = 0
    for count in range(largest, 0, -1):
        link = runs[count, 0]
        while link:
            rows[place] = link - 1
            place += 1
            link = table[link - 1].after
    return rows
