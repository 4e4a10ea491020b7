"""Prompt's latency-aware auto-scaling as published (paper 004, section 6, Algorithm 4)."""

from __future__ import annotations

from collections import deque

from .plans import Range


class PromptElasticity:
    """The auto-scaler of Algorithm 4, which adds or removes one map task and one reduce task at a time.

    The printed listing covers only scaling out, its indentation is damaged, and it never resets the count when W is not
    above ``thres``. With the text around it, it is read like this:

    - W above ``thres`` in ``d`` consecutive batches is a scale-out: one more map task if the data rate increased, one
      more reduce task if the number of keys did, both if both did. The count then restarts, whatever was done.
    - W of at most ``thres - step`` in ``d`` consecutive batches is a scale-in "by the same criteria": one task fewer
      for whatever decreased.
    - "Consecutive" means that any other batch resets the count to 0.
    - Increased "in the past d batches" means that the current value is above the value d batches before, the last one
      ahead of the batches that count. A step in the load is then seen by the batches that it overloads.
    - If neither metric changed, nothing happens. So an overload that is not cured when the metrics stop growing stays;
      the text has no rule for it.
    - For a grace period of ``d`` batches after a change, the reverse change is not made. Its batches still count.
    """

    def __init__(
        self,
        maps: int,
        reduces: int,
        map_range: Range,
        reduce_range: Range,
        d: int = 6,
        thres: float = 0.9,
        step: float = 0.1,
    ) -> None:
        """Start with ``maps`` and ``reduces`` tasks, and stay in the ranges.

        The paper gives ``thres`` and ``step``, but no ``d``.
        """
        self._tasks = (maps, reduces)
        self._ranges = (map_range, reduce_range)
        self._d, self._thres, self._step = d, thres, step
        self._stats: deque[tuple[float, float]] = deque(maxlen=d + 1)
        self._side = 0
        self._count = 0
        self._last_side = 0
        self._grace = 0

    def step(self, utilization: float, rate: float, keys: float) -> tuple[int, int]:
        """Record a batch and return the numbers of map tasks and of reduce tasks for the next one.

        Args:
            utilization: W, processing time over batch interval.
            rate: records of the batch, or per second.
            keys: distinct keys of the batch.
        """
        self._stats.append((rate, keys))
        side = self._zone(utilization)
        self._count = self._count + 1 if side == self._side else 1
        self._side = side
        reverse = self._grace > 0 and side == -self._last_side
        self._grace = max(self._grace - 1, 0)
        if side and self._count >= self._d and not reverse:
            self._count = 0
            self._scale(side)
        return self._tasks

    def _zone(self, utilization: float) -> int:
        """Return 1 in zone 3 of the paper, where tasks are added, -1 in zone 1, and 0 in zone 2."""
        if utilization > self._thres:
            return 1
        return -1 if utilization <= self._thres - self._step else 0

    def _scale(self, side: int) -> None:
        before, now = self._stats[0], self._stats[-1]
        changed = tuple((new > old) - (new < old) for old, new in zip(before, now, strict=True))
        tasks = tuple(
            limits.nearest(count + side) if change == side else count
            for count, change, limits in zip(self._tasks, changed, self._ranges, strict=True)
        )
        if tasks != self._tasks:
            self._tasks = (tasks[0], tasks[1])
            self._last_side, self._grace = side, self._d
