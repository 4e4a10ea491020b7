"""What the tasks of a batch take: a fixed time, and a time per record, learned from the last batches."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection

DIFFERENT = 2.0
"""Factor between the sizes of two batches from which they show which part of the work is fixed."""

STEEPEST = 16.0
"""Factor by which a record may cost less than its share of the whole work, whatever the batches seem to show."""

_BATCHES = 8
"""Batches by which the work is explained."""

_TRUST = 0.25
"""What the fixed part that was found before weighs, in batches."""

_SURPRISING, _SURPRISES = 1.5, 2
"""Factor by which the work of so many batches in a row is off when costs have changed: one odd batch changes little."""

_RAREST_PROBE = 64
"""Batches of one size after which one of another size is wanted at the latest."""


class TaskCosts:
    """Seconds of work that do not depend on the number of records (``fixed``), and those of a record.

    Both are 0 before the first batch.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, float]] = deque(maxlen=_BATCHES)
        self.forget()

    def forget(self) -> None:
        """Begin with the next batch."""
        self.fixed = self.per_record = 0.0
        self._batches.clear()
        self._known: float | None = None
        self._since_probe, self._probe_after = 0, 1

    def add(self, rows: int, work: float) -> None:
        """Take in a batch: its records, and seconds of work."""
        self._forget_if_surprised(rows, work)
        self._batches.append((rows, work))
        self.fixed, self.per_record = explained(self._batches, self._known or 0.0)
        if self._differ():
            self._known = self.fixed
            self._since_probe = 0
        else:
            self._since_probe += 1

    def wants_another_size(self) -> bool:
        """Whether the next batch should have another size, to show what batches of one size leave open.

        A fixed part that was once taken for that of records would make batches small for ever. Each time that this is
        wanted, twice as many batches follow in which it is not.
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
        """Where the last batches are off by far in the same direction, costs have changed."""
        last = [*self._batches, (rows, work)][-_SURPRISES:]
        if len(self._batches) < _SURPRISES:
            return
        off = [seconds / (self.fixed + self.per_record * records) for records, seconds in last]
        if min(off) > _SURPRISING or max(off) < 1 / _SURPRISING:
            self.forget()
            self._batches.extend(last[:-1])


def explained(batches: Collection[tuple[int, float]], known: float) -> tuple[float, float]:
    """The fixed part of the work, in seconds, and the seconds of a record, with the least squares of relative errors.

    Relative to the measured work: a batch that was held up can err by 1 at most, however long it took.

    Args:
        batches: records and seconds of work.
        known: what the fixed part was before; batches of one size leave it open.
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
