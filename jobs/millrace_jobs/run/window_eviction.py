"""Eviction of closed windows from the state of Spark's aggregation, in those batches in which one can have closed.

Spark 4.3 looks at every key of its state at the end of each batch that emits updates, to remove those whose window the
watermark has passed. So a batch costs as much as there is state, even if all windows are open. Windows end at known
times: if no end lies between the watermark of the last search and that of this batch, a search would find nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millrace_api.model.streamquery import Emit, Spec
from millrace_jobs.pipeline.compile import CompiledQuery, Routed
from millrace_jobs.windows import Window

MANY_ROWS = 50_000
"""Rows of state from which a search takes longer than to prevent it, which is about ten calls of the JVM."""

_OPERATOR = "StateStoreSave"
_WATERMARK = "eventTimeWatermarkForEviction"


class WindowEviction:
    """The searches for closed windows in the state of one query.

    Args:
        spark: the session of the query.
        window: the window by which Spark's own aggregation groups and emits updates; None for other queries, whose
            state Spark searches as it does.
    """

    def __init__(self, spark: SparkSession, window: Window | None) -> None:
        self._spark = spark
        self._window = window
        self._rows = 0
        self._searched: int | None = None
        self.prevented = 0
        """Number of searches that were prevented."""

    @classmethod
    def of(cls, spark: SparkSession, query: CompiledQuery, spec: Spec) -> WindowEviction:
        """Return the searches of a compiled query."""
        execution = query.execution
        if not isinstance(execution, Routed) or execution.aggregation is None or execution.ahead:
            return cls(spark, None)
        return cls(spark, execution.window if spec.emit is Emit.ON_UPDATE else None)

    def begin(self) -> None:
        """Start with a new Spark query: what its state has is unknown."""
        self._rows, self._searched = 0, None

    def learn_from(self, rows: int) -> None:
        """Take note of the number of rows in the state after a batch."""
        self._rows = rows

    @contextmanager
    def during(self, query: StreamingQuery | None) -> Iterator[None]:
        """Compute the results of a batch within the block, without a search if none is necessary.

        Spark sends an operator to its tasks when they start. So it has no watermark to evict by for the length of the
        block. Afterwards Spark needs it again, to decide whether a batch without records has to follow.
        """
        operator = self._operator(query)
        if operator is None:
            yield
            return
        field, watermark = _watermark_of(operator)
        ends = self.ends_until(int(watermark.get()) * 1000) if watermark.isDefined() else None
        if ends is None or ends != self._searched:
            yield
            self._searched = ends  # only if the batch did not fail
            return
        self.prevented += 1
        field.set(operator, self._spark._jvm.scala.Option.empty())  # type: ignore[union-attr]
        try:
            yield
        finally:
            field.set(operator, watermark)

    def ends_until(self, time: int) -> int:
        """Return a number that grows by one with each end of a window, for a time in microseconds since 1970."""
        assert self._window is not None
        return (time - self._window.offset - self._window.size) // self._window.slide

    def _operator(self, query: StreamingQuery | None) -> Any | None:
        """Return the operator that searches the state, or None if it may go on."""
        if self._window is None or query is None or self._rows < MANY_ROWS:
            return None
        try:
            plan = query._jsq.streamingQuery().lastExecution().executedPlan()
            while plan.nodeName() != _OPERATOR:
                below = plan.children()
                if below.size() != 1:
                    return None
                plan = below.head()
            plan.getClass().getDeclaredField(_WATERMARK)
        except Py4JError:  # another version of Spark: it searches in each batch
            return None
        return plan


def _watermark_of(operator: Any) -> tuple[Any, Any]:
    """Return an operator's field with the watermark that it evicts by, and the value, which is an option of Scala."""
    field = operator.getClass().getDeclaredField(_WATERMARK)
    field.setAccessible(True)
    return field, field.get(operator)
