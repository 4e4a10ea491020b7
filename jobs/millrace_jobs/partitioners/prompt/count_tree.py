"""CountTree: the keys of a micro-batch in the order of their approximate counts (paper 004, section 4.1).

The paper keeps the counts in a balanced search tree and uses two of its operations. A key's node moves when its count
is updated, and at the end of the batch an in-order traversal gives the quasi-sorted list. If larger counts come first
and a node is put behind the nodes of equal count, the sequence of updates alone determines that traversal: keys by
descending count, and keys of one count in the order in which they reached it.

HTable has both the count and the time of its last update, and no two keys are updated at the same time. So there is no
tree. An update only writes to the key's own row, and the traversal sorts the keys by time and then by count, in O(N_C)
and without a comparison. As in ``mixing``, results never change.
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
    """Return the row of each key, shape ``(keys,)``, the largest counts first.

    ``tuples`` is N_C. Each key was last updated at a time between 1 and N_C, and no two keys at the same time.
    """
    keys_at = np.zeros(tuples + 1, np.int32)  # by time: the key that was last updated then, as row + 1
    largest = 0
    for row in range(len(table)):
        keys_at[table[row].last_update] = row + 1
        largest = max(largest, table[row].updated)
    places = np.zeros(largest + 1, np.int32)  # by count: where its next key belongs
    for row in range(len(table)):
        places[table[row].updated - 1] += 1  # first, how many keys have a count of one more
    for count in range(largest - 1, -1, -1):  # then, how many have any larger count
        places[count] += places[count + 1]
    rows = np.empty(len(table), np.int32)
    for time in range(1, tuples + 1):
        row = keys_at[time] - 1
        if row >= 0:
            count = table[row].updated
            rows[places[count]] = row
            places[count] += 1
    return rows
