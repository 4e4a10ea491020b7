"""Admission control of the source: a backlog may lengthen batches only up to a few batch intervals."""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

_INTERVALS = 2.0
"""Batch intervals that a batch may take before the next batches stop growing."""
_BATCHES = 3
"""Recent batches whose largest allowance is the limit, so that one batch that was held up does not lower it."""


class AdmissionPolicy(Protocol):
    """A limit on the records of the next batch, constructed with the batch interval in seconds."""

    def limit(self, waiting: int) -> int | None:
        """Return the most records of the next batch, or None for no limit.

        ``waiting`` records were left at the source when the last batch was planned.
        """

    def finished(self, rows: int, seconds: float, work: float, plan: object) -> None:
        """Learn from a finished batch: its records, its processing time, the part in which tasks ran, and its plan."""


class Unlimited:
    """Admission of all waiting records."""

    def __init__(self, interval: float) -> None:
        """Ignore the interval: there is no limit."""

    def limit(self, waiting: int) -> int | None:
        """Return None: there is no limit."""
        return None

    def finished(self, rows: int, seconds: float, work: float, plan: object) -> None:
        """Ignore the batch: there is nothing to learn."""


class TwoIntervals:
    """Admission that lets batches grow while they take less than two intervals, in proportion to the time left.

    Without a limit, a job that falls behind takes its whole backlog at once. Each batch is then longer than the last
    by the ratio of load to capacity, and the job reports nothing until the batch ends. A finished batch never allows
    fewer records than it had itself, so a job whose batches are long for other reasons is not starved.
    """

    def __init__(self, interval: float) -> None:
        """Limit batches to two intervals of ``interval`` seconds each."""
        self._aim = _INTERVALS * interval
        self._allowed = deque[float](maxlen=_BATCHES)

    def limit(self, waiting: int) -> int | None:
        """Return the most records of the next batch; None until a batch with records has finished."""
        return math.ceil(max(self._allowed)) if self._allowed else None

    def finished(self, rows: int, seconds: float, work: float, plan: object) -> None:
        """Learn from a finished batch; an empty one is ignored."""
        if rows:
            self._allowed.append(rows * max(self._aim / seconds, 1.0))
