"""The candidates of a key: the workers it may go to, the same on every replica.

They are paper 001's hashes H_1 to H_d, but drawn without replacement, so that d choices are d different workers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.inlining import inlined
from millrace_jobs.kernels.mixing import seeded_hash


@inlined
def draw(key: np.uint64, seeds: NDArray[np.uint64], choice: int, workers: int, drawn: NDArray[np.int64]) -> int:
    """Return candidate number ``choice`` of ``key`` among ``workers`` workers; call it for 0, 1, ... in turn.

    ``seeds``, shape ``(d,)`` with ``d <= workers``, are ``mixing.salts``. ``drawn`` has the same shape and keeps the
    key's candidates so far in ascending order; the call for choice 0 resets it. As in ``mixing``, results never change.
    """
    # The hash counts only workers that are not drawn yet, so skip the drawn ones below it.
    worker = np.int64(seeded_hash(key, seeds[choice]) % np.uint64(workers - choice))
    place = 0
    while place < choice and worker >= drawn[place]:
        worker += 1
        place += 1
    for later in range(choice, place, -1):
        drawn[later] = drawn[later - 1]
    drawn[place] = worker
    return int(worker)
