"""Admission control: how many records the next batch may have, so that it takes about the interval and not more.

A batch takes a fixed time, and a time per record. Both are learned from the batches themselves: the fixed time from
batches of different size that follow one another, the time per record from the last few. What is learned from one
batch never more than halves or doubles the limit, so an odd batch does little, and the first batches of a
backlog grow step by step until they are long enough.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping

FIRST = 4096
"""Records of the first batch, of which nothing is known."""

FLOOR = 128
"""Records that every batch may have: with fewer, nothing could be learned about a record."""

STEP = 2.0
"""Factor by which the limit falls at most from batch to batch, and grows while batches are far below the goal."""

CAREFUL_STEP = 1.25
"""Factor by which it grows at most while batches are near the goal, and falls where a batch is mostly fixed time.

There a record's time is hard to see, and what is taken for it is mostly noise: with steps down as large as those up,
noise alone would take the limit to nothing.
"""

_NEAR = 0.5
"""Share of the goal from which batches are near it, apart from the fixed time."""

_NEAR_UNKNOWN = 0.75
"""The same while the fixed time is not known, so that a first doubling can show it."""

_NEW = 2
"""Batches under a changed plan that are passed over: it may have new executors, of which some come with the second."""

_TELLING = 3
"""Batches whose median time per record counts: one odd batch is not noticed, two are taken for what is."""

_PAST = 8
"""Batches among which the one of the most different size is looked for."""

_FIXED = 9
"""Pairs of batches whose median fixed time counts."""

_DIFFERENT = 2.0
"""Factor between the sizes of two batches from which their fixed time is learned."""

_WORK = 1 / 3
"""Share of a batch that is for records at least: with less, a job whose fixed time is near the interval only loses."""

_FULL = 0.25
"""Share of the limit from which a batch tells about the time per record; in a smaller one the fixed time hides it."""


class Admission:
    """Learns from finished batches; ``limit`` is for the next one.

    Args:
        goal: seconds that a batch should take while there is a backlog.
        longest: seconds that a batch may take where that is enough for all there is. A lower limit for these would
            make a backlog of a load that the job can just do.
    """

    def __init__(self, goal: float, longest: float) -> None:
        self._goal = goal
        self._room = longest / goal - 1
        self._limit = FIRST
        self._plan: object = None
        self._passing = 0
        self._past: deque[tuple[int, float]] = deque(maxlen=_PAST)
        self._fixed: deque[float] = deque(maxlen=_FIXED)
        self._full: deque[tuple[int, float]] = deque(maxlen=_TELLING)
        self._near = False

    @property
    def limit(self) -> int:
        """Records that the next batch may have, of all sources together, while there is a backlog."""
        return self._limit

    def finished(self, rows: int, seconds: float, plan: object) -> None:
        """Take in a batch: its records, its processing time, and what tells its plan from others.

        The first batch of a process is passed over, since it is also the first for the JVM and for Python processes,
        and so are the first ones under another plan, and a batch without records, or of no time, as a clock that is set
        back may have it.
        """
        if rows <= 0 or seconds <= 0:
            return
        if plan != self._plan:
            self._passing = 1 if self._plan is None else _NEW
            self._change_plan(plan)
        if self._passing:
            self._passing -= 1
            return
        self._learn_fixed(rows, seconds)
        if rows >= self._limit * _FULL or seconds > self._goal:
            self._full.append((rows, seconds))
            self._adapt(rows)

    def shares(self, waiting: Mapping[str, int]) -> dict[str, int]:
        """The limit shared out to sources, by how many records wait in each: a quarter of it evenly, the rest by that.

        With the even part every source can show what it has. ``waiting`` is what the batch before has left.
        """
        total = sum(waiting.values())
        limit = self._limit
        if self._full and total <= self._room * limit:
            limit += int(self._room * limit)
        if not total:
            return {name: max(1, limit // len(waiting)) for name in waiting}
        even = limit / 4 / len(waiting)
        return {name: max(1, int(even + 0.75 * limit * records / total)) for name, records in waiting.items()}

    @property
    def _fixed_seconds(self) -> float:
        return statistics.median(self._fixed) if self._fixed else 0.0

    def _change_plan(self, plan: object) -> None:
        """Forget what records took under the old plan, but neither the fixed time nor how far the batches have come."""
        self._plan = plan
        self._past.clear()
        self._full.clear()
        self._near = False
        if self._fixed:
            self._fixed = deque([self._fixed_seconds], maxlen=_FIXED)

    def _learn_fixed(self, rows: int, seconds: float) -> None:
        """From this batch and the most different of those before it: where the line through them meets no records.

        Where that line falls, records cost too little to be seen, and all of the larger batch's time is fixed.
        """
        other = max(reversed(self._past), key=lambda past: max(past[0] / rows, rows / past[0]), default=(rows, seconds))
        self._past.append((rows, seconds))
        (fewer, low), (more, high) = sorted((other, (rows, seconds)))
        if more >= _DIFFERENT * fewer:
            slope = (high - low) / (more - fewer)
            self._fixed.append(high if slope < 0 else max(0.0, low - fewer * slope))

    def _adapt(self, rows: int) -> None:
        """Move the limit towards the goal, or beyond it where the fixed time leaves too little of it for records."""
        fixed = self._fixed_seconds
        goal = max(self._goal, fixed / (1 - _WORK))
        mostly_fixed = goal > self._goal
        per_record = statistics.median(max(seconds - fixed, 0.0) / rows for rows, seconds in self._full)
        typical = statistics.median(seconds for _, seconds in self._full)
        if typical - fixed >= (_NEAR if fixed else _NEAR_UNKNOWN) * (goal - fixed):
            self._near = True
        elif typical < _NEAR * goal:
            self._near = False
        most = max(self._limit, int((CAREFUL_STEP if self._near and not mostly_fixed else STEP) * rows))
        least = int(self._limit / (CAREFUL_STEP if mostly_fixed else STEP))
        wanted = (goal - fixed) / per_record if per_record > 0 else most
        self._limit = max(FLOOR, least, min(int(wanted), most))
