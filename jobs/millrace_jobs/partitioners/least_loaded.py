"""The least loaded of all workers, for kernels that need it at every record."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.inlining import inlined


@inlined
def least_loaded(loads: NDArray[np.int64], search: NDArray[np.int64]) -> int:
    """Return the first worker with the least load; ``loads`` has shape ``(n,)``.

    ``search`` starts as two zeros and keeps where the last search ended. Between two calls with it, loads may only
    grow. The first worker with the least load then only moves forward until the least load itself has grown, which
    takes a record for each worker. So a search takes constant time on average. As in ``mixing``, results never change.
    """
    worker: int = search[1]
    while worker < len(loads) and loads[worker] != search[0]:
        worker += 1
    if worker == len(loads):
        worker = 0
        for other in range(1, len(loads)):
            if loads[other] < loads[worker]:
                worker = other
    search[0], search[1] = loads[worker], worker
    return worker
