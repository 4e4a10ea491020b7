"""The cost of a batch's tasks: a fixed time and a time per record, learned from the last batches."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection

DIFFERENT = 2.0
"""Minimum factor between the sizes of two batches that shows which part of their work is fixed."""

STEEPEST = 16.0
"""Largest factor by which a record may cost less than its share of the whole work, whatever the batches suggest."""

_BATCHES = 8
"""Number of recent batches that costs are fitted to."""

_TRUST = 0.25
"""Weight of the previous estimate of the fixed part, in batches."""

_SURPRISING, _SURPRISES = 1.5, 2
"""Factor of misprediction, and consecutive batches with it, that show a change of costs; one outlier is no change."""

_RAREST_PROBE = 64
"""Maximum number of batches of one size before a batch of another size is wanted."""


class TaskCosts:
    """The work of a batch: seconds that do not depend on its records (``fixed``), and seconds per record.

    Both are 0 before the first batch.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, float]] = deque(maxlen=_BATCHES)
        self.forget()

    def forget(self) -> None:
        """Discard all measurements and start over with the next batch."""
        self.fixed = self.per_record = 0.0
        self._batches.clear()
        self._known: float | None = None
        self._since_probe, self._probe_after = 0, 1

    def add(self, rows: int, work: float) -> None:
        """Learn from a batch of ``rows`` records that took ``work`` seconds."""
        self._forget_if_surprised(rows, work)
        self._batches.append((rows, work))
        self.fixed, self.per_record = explained(self._batches, self._known or 0.0)
        if self._differ():
            self._known = self.fixed
            self._since_probe = 0
        else:
            self._since_probe += 1

    def wants_another_size(self) -> bool:
        """Whether the next batch should have another size, because batches of one size do not show the fixed part.

        Without such probes, a fixed part that was once mistaken for the cost of records would keep batches small
        forever. The number of batches between two probes doubles each time, up to a bound.
        """
        if self._known is None:
            return True
        if self._since_probe < self._probe_after:
            return False
        self._probe_after = min(2 * self._probe_after, _RAREST_PROBE)
        return True

    def _differ(self) -> bool:
        sizes = [rows for rows, _ in self._batches]
        return max(sizes) >= DIFFERENT * min(sizes)

    def _forget_if_surprised(self, rows: int, work: float) -> None:
        """Discard the measurements if the last batches are far off in the same direction: costs have changed."""
        last = [*self._batches, (rows, work)][-_SURPRISES:]
        if len(self._batches) < _SURPRISES:
            return
        off = [seconds / (self.fixed + self.per_record * records) for records, seconds in last]
        if min(off) > _SURPRISING or max(off) < 1 / _SURPRISING:
            self.forget()
            self._batches.extend(last[:-1])


def explained(batches: Collection[tuple[int, float]], known: float) -> tuple[float, float]:
    """Return the fixed work in seconds and the seconds per record, by least squares of relative errors.

    Errors are relative to the measured work, so a delayed batch has an error of at most 1, however long it took.

    Args:
        batches: records and seconds of work of each batch.
        known: the previous estimate of the fixed work, in seconds; batches of one size do not determine it.
    """
    usual = statistics.median(work for _, work in batches)
    ones = sum(1 / work**2 for _, work in batches) + _TRUST / usual**2
    mixed = sum(rows / work**2 for rows, work in batches)
    squares = sum((rows / work) ** 2 for rows, work in batches)
    one = sum(1 / work for _, work in batches) + _TRUST * known / usual**2
    row = sum(rows / work for rows, work in batches)
    determinant = ones * squares - mixed**2
    fixed = (one * squares - row * mixed) / determinant
    if fixed <= 0:
        return 0.0, row / squares
    per_record = (ones * row - mixed * one) / determinant
    least = row / squares / STEEPEST
    return (fixed, per_record) if per_record >= least else ((one - mixed * least) / ones, least)
