"""Admission control of the source: what waits may make batches longer only up to some intervals."""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

_INTERVALS = 2.0
"""Batch intervals that a batch may take before those after it get no larger."""
_BATCHES = 3
"""Batches of which the one that allows most tells what comes next: one that was held up says nothing."""


class AdmissionPolicy(Protocol):
    """Decides how many records the next batch may have. Made with the seconds of a batch interval."""

    def limit(self, waiting: int) -> int | None:
        """The most records of the next batch; None is no limit. ``waiting`` were left when the last one was planned."""

    def finished(self, rows: int, seconds: float, work: float, plan: object) -> None:
        """Take in a batch: its records, its processing time, the part of it in which tasks ran, and the plan."""


class Unlimited:
    """Lets in all that waits."""

    def __init__(self, interval: float) -> None:
        """The same for every interval."""

    def limit(self, waiting: int) -> int | None:
        """There is none."""
        return None

    def finished(self, rows: int, seconds: float, work: float, plan: object) -> None:
        """Nothing to learn."""


class TwoIntervals:
    """Lets batches grow as long as they take less than two intervals, in proportion to what is left of them.

    Without it a job that falls behind takes all that waits at once: each batch is longer than the one before by as
    much as the load is above the capacity, and nothing is heard of the job until it ends. A limit is never less than
    what a batch has had before it, so that a job whose batches are long for other reasons is not starved.
    """

    def __init__(self, interval: float) -> None:
        """``interval`` seconds are those of a batch."""
        self._aim = _INTERVALS * interval
        self._allowed = deque[float](maxlen=_BATCHES)

    def limit(self, waiting: int) -> int | None:
        """The most records of the next batch; None before the first that had any."""
        return math.ceil(max(self._allowed)) if self._allowed else None

    def finished(self, rows: int, seconds: float, work: float, plan: object) -> None:
        """Take in a batch; one without records tells nothing."""
        if rows:
            self._allowed.append(rows * max(self._aim / seconds, 1.0))
