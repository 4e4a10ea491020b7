"""Write events of a cluster's tasks in the form of Google's trace of 2011, table task_event.

    python examples/tasks.py out/data/tasks.csv

Columns: time (µs), missing info, job, task, machine, event type, user, scheduling class, priority, requested CPU
cores, memory and disk, different-machine constraint. As in the trace, a request is sometimes unknown.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

EVENTS, JOBS, USERS, SECONDS = 30_000, 1_000, 200, 3 * 3600


def tasks(seed: int = 0) -> pa.Table:
    """Return 30,000 events over three hours."""
    random = np.random.default_rng(seed)
    job = random.zipf(1.4, EVENTS) % JOBS
    known = random.random(EVENTS) > 0.05

    def maybe(values: np.ndarray) -> pa.Array:
        return pa.array(values, mask=~known)

    return pa.table(
        {
            "time": np.sort(random.integers(0, SECONDS * 1_000_000, EVENTS)),
            "missing": pa.array(np.full(EVENTS, 2), mask=known),
            "job": 6_250_000_000 + job,
            "task": random.integers(0, 500, EVENTS),
            "machine": maybe(random.integers(1, 12_000, EVENTS)),
            "event": random.choice([0, 1, 2, 4, 5], EVENTS),
            "user": pa.array([f"user-{number}" for number in job % USERS]),
            "class": job % 4,
            "priority": random.choice([0, 1, 2, 9], EVENTS),
            "cpu": maybe(random.choice([0.0125, 0.025, 0.0625, 0.125, 0.25], EVENTS)),
            "memory": maybe(np.round(random.random(EVENTS) / 8, 5)),
            "disk": maybe(np.round(random.random(EVENTS) / 1000, 7)),
            "different": maybe(random.integers(0, 2, EVENTS)),
        }
    )


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    pa.csv.write_csv(tasks(), target, pa.csv.WriteOptions(include_header=False))
