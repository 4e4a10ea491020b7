"""Time-based partitioning of a micro-batch (paper 004, section 2.2.1): Spark Streaming's own way, a baseline."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.arguments import whole_number
from millrace_jobs.partitioners.base import Workers


def time_blocks(times: NDArray[np.int64], start: int, interval: int, blocks: int) -> Workers:
    """Return the block of each record, shape ``(records,)``, in the batch that lasts from ``start`` for ``interval``.

    The interval is split into ``blocks`` equal, consecutive block intervals, and a record goes to the block whose
    interval contains its time. ``times``, of the same shape, ``start`` and ``interval`` are in one unit. Raises
    ValueError on a time outside the interval.
    """
    whole_number("interval", interval, 1)
    whole_number("blocks", blocks, 1)
    since = times - np.int64(start)
    if len(since) and not 0 <= int(since.min()) <= int(since.max()) < interval:
        raise ValueError(
            f"times go from {times.min()} to {times.max()}; a batch from {start} for {interval} has those from "
            f"{start} to {start + interval - 1}"
        )
    ends = np.array([-(-interval * block // blocks) for block in range(1, blocks)], np.int64)
    return np.searchsorted(ends, since, side="right").astype(np.int32)
