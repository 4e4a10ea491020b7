"""``prompt``: paper 004's elasticity as the paper has it, one task more or less at a time.

Rules: Algorithm 4 and section 6 of paper 004 with its thresholds of 90 % and 10 %, as ``scaling.prompt_elasticity``
reads them; the paper gives no d, which is 6 there.

Its map tasks are the replicas here and its reduce tasks the parallelism. The paper bounds the tasks of a stage by the
cores, so that none waits, and takes resources to be the slots of tasks: so there are as many executors as the larger of
the two stages needs at one task for each core, and a job starts with as many tasks of each as its executors have cores.
The paper's runs in the driver and sees each batch; here those that end between two answers come with their means.
"""

from __future__ import annotations

import math

from ...scaling.observation import Answer
from ...scaling.plans import Bounds, Range, Shape
from ...scaling.prompt_elasticity import PromptElasticity as Elasticity
from ...simulation.run import ClusterView
from .counters import increase, ratio


class PromptPolicy:
    """Map and reduce tasks by W, data rate and number of keys, and executors to run them."""

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
        """The plan with as many tasks as the algorithm asks for."""
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
