"""``millrace state show``: partitions, last batch and size of a query's state, read without Spark."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root


@dataclass(frozen=True)
class StateSize:
    """The state of a query on disk; ``size``, in bytes, includes the versions that Spark keeps for a restart."""

    checkpoint: Path
    partitions: int
    last_batch: int | None
    size: int

    def __str__(self) -> str:
        lines = {
            "checkpoint": self.checkpoint,
            "state partitions": self.partitions,
            "last batch": "-" if self.last_batch is None else self.last_batch,
            "state on disk": f"{self.size / (1 << 20):,.1f} MiB",
        }
        return "\n".join(f"{name:<18}{value}" for name, value in lines.items())


def state_size(query: StreamQuery) -> StateSize:
    """Return the size of a query's state from its checkpoint, also while the query runs.

    Raises:
        MillraceError: the checkpoint does not exist.
    """
    checkpoint = Checkpoint(checkpoint_root(query))
    if not checkpoint.exists():
        raise MillraceError(Problem(f"there is no checkpoint {checkpoint.root}", "run the query first"))
    size = _size(checkpoint.spark / "state")
    return StateSize(checkpoint.root, checkpoint.state_partitions, checkpoint.last_batch().committed, size)


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # Spark has just deleted an old version
                total += Path(parent, name).stat().st_size
    return total
