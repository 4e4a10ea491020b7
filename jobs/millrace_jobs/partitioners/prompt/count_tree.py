"""CountTree: the keys of a micro-batch in the order of their approximate counts (paper 004, section 4.1).

The paper keeps the counts in a balanced search tree, of which it uses two things: a key's node moves when its
count is updated, and at the end of the batch an in-order traversal gives the quasi-sorted list. With larger
counts first and a node put behind those of an equal count, that traversal is determined by the sequence of
updates alone: keys by descending count, and keys of one count in the order in which they got it.

HTable has both, the count and when it was updated, which no two keys were at once. So there is no tree: an update
only writes to the key's own row, and the traversal puts the keys into order of time, then of count, in O(N_C)
and without a comparison. Its results never change, like those of ``mixing``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel

Table = NDArray[Any]
"""Shape ``(keys,)``: the rows of HTable, see ``accumulator.ROW``; ``updated`` is a key's count in the tree."""


@kernel
def in_order(table: Table, tuples: int) -> NDArray[np.int32]:
    """Shape ``(keys,)``: the row of each key, those with the largest counts first.

    ``tuples`` is N_C. All keys were updated between 1 and then, each at another time.
    """
    keys_at = np.zeros(tuples + 1, np.int32)  # the key that was updated then for the last time, as row + 1
    largest = 0
    for row in range(len(table)):
        keys_at[table[row].last_update] = row + 1
        largest = max(largest, table[row].updated)
    places = np.zeros(largest + 1, np.int32)  # of a count, where its next key belongs
    for row in range(len(table)):
        places[table[row].updated - 1] += 1  # first, how many keys have one less
    for count in range(largest - 1, -1, -1):  # then, how many have more
        places[count] += places[count + 1]
    rows = np.empty(len(table), np.int32)
    for time in range(1, tuples + 1):
        row = keys_at[time] - 1
        if row >= 0:
            count = table[row].updated
            rows[places[count]] = row
            places[count] += 1
    return rows
