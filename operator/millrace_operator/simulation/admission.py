"""Admission control of the source: what waits may make batches longer only up to some intervals."""

from __future__ import annotations

import math
from collections import deque

_INTERVALS = 2.0
"""Batch intervals that a batch may take before those after it get no larger."""
_BATCHES = 3
"""Batches of which the one that allows most tells what comes next: one that was held up says nothing."""


class Admission:
    """Lets batches grow as long as they take less than two intervals, in proportion to what is left of them.

    Without it a job that falls behind takes all that waits at once: each batch is longer than the one before by as
    much as the load is above the capacity, and nothing is heard of the job until it ends. A limit is never less than
    what a batch has had before it, so that a job whose batches are long for other reasons is not starved.
    """

    def __init__(self, interval: float, *, adaptive: bool, most: int | None) -> None:
        """Let in ``most`` records at most; ``interval`` seconds are those of a batch."""
        self._aim = _INTERVALS * interval
        self._most = most
        self._allowed = deque[float](maxlen=_BATCHES if adaptive else 0)

    @property
    def limit(self) -> int | None:
        """The most records of the next batch; None is no limit."""
        limits = [math.ceil(max(self._allowed))] if self._allowed else []
        return min(limits if self._most is None else [*limits, self._most], default=None)

    def finished(self, rows: int, seconds: float) -> None:
        """Take in a batch; one without records tells nothing."""
        if rows:
            self._allowed.append(rows * max(self._aim / seconds, 1.0))
