"""Placement of the units of a join's hot keys on workers, by any partitioner.

A hot key is cut into *chunks* of about equally much work, and a partitioner places each chunk as it places a record of
the key. The chunks of one key on one worker are a *unit*. Each task of a join is a replica of the partitioner without
history, so that a task that runs again places its units as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from millrace_jobs.kernels.mixing import seeded_hashes
from millrace_jobs.partitioners.base import BatchPartitioner, Hashes, Workers
from millrace_jobs.partitioners.registry import make

CHUNK = 1 << 14
"""Number of pairs of a chunk, and the most that a key may have without being hot.

To match them takes about as long as to start a task, so fewer are not worth being moved.
"""

MOST_CHUNKS = 1 << 10
"""Maximum number of chunks of a key."""


class UnitPlacement:
    """Placement of what one task of a join has to match.

    Args:
        algorithm: name of the partitioner.
        workers: number of workers.
        task: number of the task, in ``range(tasks)``.
        tasks: number of tasks of the join.
        seed: seed of the partitioner.
        parameters: parameters of the partitioner.
    """

    def __init__(
        self, algorithm: str, *, workers: int, task: int, tasks: int, seed: int, parameters: Mapping[str, Any]
    ) -> None:
        self.workers = workers
        given: dict[str, Any] = {"workers": workers, "seed": seed, "parameters": parameters}
        self._partitioner = make(algorithm, replica=task, replicas=tasks, **given)
        if isinstance(self._partitioner, BatchPartitioner):  # each bucket is a batch, of which no other task has a part
            self._partitioner = make(algorithm, replica=0, replicas=1, **given)
        self._first = task

    def place(self, keys: Hashes) -> Workers:
        """Return the worker of each chunk, from the hash of its key."""
        ids = self._partitioner.route(keys)
        if isinstance(self._partitioner, BatchPartitioner):  # begins each batch, which is a bucket, with worker 0
            ids = ((ids + self._first) % self.workers).astype(np.int32)
            self._first += 1
        return ids

    def place_bucket(self, bucket: int) -> int:
        """Return the worker for the results of a bucket's other keys, which stay together."""
        return int(self.place(seeded_hashes(np.array([bucket], np.uint64), 0))[0])
