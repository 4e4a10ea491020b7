"""``prompt``: the elasticity of paper 004 as published, which adds or removes one task at a time.

Rules: Algorithm 4 and section 6 of paper 004 with its thresholds of 90 % and 10 %. The paper gives no
value for d; it is 6 here.

The paper's map tasks are the replicas here, and its reduce tasks are the parallelism. The paper bounds the tasks of a
stage by the cores, so that no task waits, and treats task slots as the resource. The executors therefore give the
larger of the two stages one core per task, and a job starts with as many tasks of each stage as its executors have
cores. The paper's algorithm runs in the driver and sees each batch. Here all batches that end between two answers are
represented by their means.
"""

from __future__ import annotations

import math
from collections import deque

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.simulation.metrics import increase, ratio


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


class PromptPolicy:
    """A policy that sets map and reduce tasks by W, data rate and number of keys, and executors to run them."""

    name = "prompt"

    def __init__(self, bounds: Bounds, executors: int, interval: float) -> None:
        self.period = self._interval = interval
        self._bounds = bounds
        slots = bounds.executors.high * bounds.executor_cores
        maps, reduces = (Range(tasks.low, min(tasks.high, slots)) for tasks in (bounds.replicas, bounds.parallelism))
        first = executors * bounds.executor_cores
        self._tasks = (maps.nearest(first), reduces.nearest(first))
        self._elasticity = PromptElasticity(*self._tasks, maps, reduces)
        self._before: Answer | None = None

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the plan with the tasks that the algorithm requests."""
        before, self._before = self._before, answer
        batches = increase(before, answer, "batches_total")
        seconds = ratio(increase(before, answer, "processing_seconds_total"), batches)
        rows = ratio(increase(before, answer, "rows_total"), batches)
        if batches and seconds is not None and rows is not None and answer is not None and answer.keys is not None:
            for _ in range(round(batches)):
                self._tasks = self._elasticity.step(seconds / self._interval, rows, answer.keys)
        return self._plan(*self._tasks)

    def _plan(self, maps: int, reduces: int) -> Shape:
        executors = math.ceil(max(maps, reduces) / self._bounds.executor_cores)
        return Shape(self._bounds.executors.nearest(executors), reduces, maps)
