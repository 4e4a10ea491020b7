"""``spark-ratio``: the dynamic allocation of Spark Streaming.

Rules and defaults: ``ExecutorAllocationManager.scala`` in ``org.apache.spark.streaming.scheduler`` of apache/spark.
Every 60 s it divides the mean processing time of the batches since the last check by the interval. At a ratio of 0.9
or more it requests max(round(ratio), 1) executors on top of the ready ones. At 0.3 or less it kills one, which also
lowers the target. Parallelism and replicas are not scaled: a job keeps those it started with.
"""

from __future__ import annotations

import math
from dataclasses import replace

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Shape
from millrace_research.arena.simulation.metrics import increase, ratio

_UP, _DOWN = 0.9, 0.3


class SparkRatioPolicy:
    """A policy that sets the executors by the ratio of processing time to interval."""

    name = "spark-ratio"
    period = 60.0

    def __init__(self, bounds: Bounds, interval: float) -> None:
        self._executors = bounds.executors
        self._interval = interval
        self._before: Answer | None = None

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the plan with more executors, with one fewer, or unchanged; None without a finished batch."""
        before, self._before = self._before, answer
        mean = ratio(increase(before, answer, "processing_seconds_total"), increase(before, answer, "batches_total"))
        if mean is None:
            return None
        return replace(situation.plan, executors=self._target(mean / self._interval, situation))

    def _target(self, load: float, situation: Situation) -> int:
        ready = situation.executors_ready
        if load >= _UP:
            return self._executors.nearest(ready + max(math.floor(load + 0.5), 1))
        if load <= _DOWN and ready > self._executors.low:
            return max(situation.plan.executors - 1, self._executors.low)
        return situation.plan.executors
