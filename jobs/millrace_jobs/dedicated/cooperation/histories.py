"""What each replica published at the end of its past intervals, so that all replicas begin one with the same.

Intervals are numbered by the time at which they should end. What replica B publishes about interval b is at replica A a
moment after A has begun b + 1, or a moment before. So A begins b + 1 with what all have published about b - 1: that is
there, and the same on all replicas. Where a replica has published nothing about b - 1, its newest record before that
stands in, for up to ``STALE`` intervals.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

STALE = 8
"""Intervals after which a replica that publishes nothing no longer counts."""

_Kept = TypeVar("_Kept")


class Histories(Generic[_Kept]):
    """The newest records of each replica, by the number of their interval."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._kept: dict[int, deque[tuple[int, _Kept]]] = {}

    def number(self, due: float) -> int:
        """Return the number of the interval that should end at about ``due``."""
        return round(due / self._interval)

    def add(self, replica: int, number: int, record: _Kept) -> None:
        """Add a record about interval ``number``; it replaces one about the same interval."""
        history = self._kept.setdefault(replica, deque(maxlen=4))
        for at, (known, _) in enumerate(history):
            if known == number:
                history[at] = number, record
                return
        history.append((number, record))

    def before(self, number: int) -> dict[int, _Kept]:
        """Return each replica's newest record about an interval before ``number``, by replica in ascending order."""
        found: dict[int, _Kept] = {}
        for replica in sorted(self._kept):
            usable = [(known, record) for known, record in self._kept[replica] if number - STALE <= known < number]
            if usable:
                found[replica] = max(usable, key=lambda pair: pair[0])[1]
        return found
