"""``prompt``: the elasticity of paper 004 as published, which adds or removes one task at a time.

Rules: Algorithm 4 and section 6 of paper 004 with its thresholds of 90 % and 10 %, as implemented in
``scaling.prompt_elasticity``. The paper gives no value for d; it is 6 there.

The paper's map tasks are the replicas here, and its reduce tasks are the parallelism. The paper bounds the tasks of a
stage by the cores, so that no task waits, and treats task slots as the resource. The executors therefore give the
larger of the two stages one core per task, and a job starts with as many tasks of each stage as its executors have
cores. The paper's algorithm runs in the driver and sees each batch. Here all batches that end between two answers are
represented by their means.
"""

from __future__ import annotations

import math

from millrace_arena.policies.counters import increase, ratio
from millrace_arena.simulation.run import ClusterView
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.plans import Bounds, Range, Shape
from millrace_operator.scaling.prompt_elasticity import PromptElasticity as Elasticity


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
        self._elasticity = Elasticity(*self._tasks, maps, reduces)
        self._before: Answer | None = None

    def step(self, answer: Answer | None, now: float, plan: Shape, epoch: int, cluster: ClusterView) -> Shape | None:
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
