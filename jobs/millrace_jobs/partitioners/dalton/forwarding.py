"""Key forwarding: which keys need no reducer, because one combiner has all of their records (paper 003, section 4.2).

The paper forwards the keys that a partitioner hashes. With several partitioners, it requires a synchronisation within
the slide, which repairs a wrong decision before the window's result. That is too little: a replica may split a key
after the last synchronisation, and the global Q-table leaves out keys that only one replica split. So here a slide's
keys are forwarded only if a synchronisation came after its last record, and replicas report to each other which keys
they split.

After ``resize`` a cold key goes to another hash worker, and it is unknown which keys had records before. So nothing is
forwarded until all of these records have left the window.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import Hashes

from .table import CARRIED, KeyTable


def split_keys(table: KeyTable) -> NDArray[np.bool_]:
    """Return which keys of ``table`` are the bandit's or have records elsewhere than on their hash worker.

    The shape is ``(table.count,)``. Only records in the window that the table's fragmentation covers count.
    """
    homes = table.policy.homes[: table.count]
    return (table.status >= CARRIED) | table.fragmentation.elsewhere(homes)


def forwardable(keys: Hashes, table: KeyTable, split_by_others: Hashes) -> NDArray[np.bool_]:
    """Return which of ``keys`` all replicas have sent to their hash worker only; same shape as ``keys``."""
    split = np.concatenate([table.keys[split_keys(table)], split_by_others])
    return ~np.isin(keys, split)
