"""Admission control of the source: batches of no more records than the job is seen to process within an interval."""

from __future__ import annotations

import math
from collections import deque

_AIM = 0.9
"""Share of the interval that a full batch is to take."""
_BATCHES = 3
"""Batches of which the quickest tells what the job can process: one that was held up says nothing about the next."""


class Admission:
    """Follows what the job can process, as rate estimators do; without it a batch takes all that waits.

    Records that take s seconds let a batch of ``_AIM * interval / s`` times as many in. A batch has a fixed part, so
    that this is less than would fit, until batches are full.
    """

    def __init__(self, interval: float, *, adaptive: bool, most: int | None) -> None:
        """Let in ``most`` records at most, and if ``adaptive`` no more than fit into ``interval`` seconds."""
        self._aim = _AIM * interval
        self._most = most
        self._fitting = deque[float](maxlen=_BATCHES if adaptive else 0)

    @property
    def limit(self) -> int | None:
        """The most records of the next batch; None is no limit."""
        limits = [math.ceil(max(self._fitting))] if self._fitting else []
        return min(limits if self._most is None else [*limits, self._most], default=None)

    def finished(self, rows: int, seconds: float) -> None:
        """Take in a batch; one without records tells nothing."""
        if rows:
            self._fitting.append(rows * self._aim / seconds)
