"""The results that Spark's stateful operators still hold back, and the watermark that releases them.

Both are read from what Spark runs: the operators of the last batch's plan say by which column of their state they
evict, and how far behind the query's watermark; the state in the checkpoint says how far that column goes. The text of
the SQL does not matter, so a window's length may be written in any way, or depend on the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField, StructType

from millrace_jobs.checkpoint.spark_folder import plainly_named
from millrace_jobs.places import Place
from millrace_jobs.session import COUNTS_ROWS

_EMITTING_SIDES = {"LeftOuter": ("left",), "RightOuter": ("right",), "FullOuter": ("left", "right")}
"""The sides of a join whose rows without a partner are emitted when they are evicted."""

_STATEFUL = ("StateStoreSaveExec", "StreamingSymmetricHashJoinExec", "TransformWithStateInPySparkExec")
"""Ends of the names of operators whose results can wait for the watermark."""


@dataclass(frozen=True)
class HeldResults:
    """State of one operator that becomes results when the watermark passes it.

    ``until`` is the watermark of the query, in milliseconds since 1970, at which the operator releases the last of
    them.
    """

    operator: str
    rows: int
    until: int


@dataclass(frozen=True)
class ExecutedPlan:
    """The plan of the last batch that a Spark query has executed, and the watermark in milliseconds it ran under."""

    root: JavaObject
    watermark: int


def executed_plan(query: StreamingQuery | None) -> ExecutedPlan | None:
    """Return the plan of the query's last batch; None if it has executed none."""
    execution = None if query is None else query._jsq.streamingQuery().lastExecution()
    if execution is None:
        return None
    return ExecutedPlan(execution.executedPlan(), execution.offsetSeqMetadata().batchWatermarkMs())


def held_results(plan: ExecutedPlan, spark: SparkSession, checkpoint: Place, *, timers: bool) -> list[HeldResults]:
    """Return what the operators of a plan hold after the last committed batch, without those that hold nothing.

    Args:
        plan: a plan that was executed on the checkpoint.
        spark: the session that reads the state.
        checkpoint: Spark's own part of the checkpoint.
        timers: whether results wait for timers, which else only remove state.
    """
    with plainly_named(checkpoint) as folder:
        state = _State(spark, folder, plan.watermark, timers)
        found = (held for operator in _operators(plan.root) for held in state.of(operator))
        return [held for held in found if held.rows]


def _operators(node: JavaObject) -> Iterator[JavaObject]:
    """Yield the operators of a plan, each before its children."""
    yield node
    children = node.children()
    for index in range(children.size()):
        yield from _operators(children.apply(index))


@dataclass(frozen=True)
class _State:
    """Reader of the state of a plan's operators."""

    spark: SparkSession
    checkpoint: Place
    watermark: int
    timers: bool

    def of(self, operator: JavaObject) -> Iterator[HeldResults]:
        """Yield what an operator holds; nothing for those that emit all results at once."""
        kind = operator.getClass().getSimpleName()
        if not kind.endswith(_STATEFUL) or self._is_empty(operator):
            return
        if kind == "TransformWithStateInPySparkExec":
            if self.timers and operator.timeMode().toString() == "EventTime":
                yield self._timers(operator)
        elif kind in ("StateStoreSaveExec", "SessionWindowStateStoreSaveExec"):
            evicted = operator.watermarkExpressionForEviction()
            if evicted.isDefined() and operator.outputMode().get().toString() == "Append":
                yield self._groups(operator, evicted.get().left(), in_key=kind == "StateStoreSaveExec")
        elif kind == "StreamingSymmetricHashJoinExec":
            for side in _EMITTING_SIDES.get(operator.joinType().toString(), ()):
                predicate = getattr(operator.stateWatermarkPredicates(), side)()
                if predicate.isDefined():
                    yield self._unmatched(operator, side, predicate.get())

    def _is_empty(self, operator: JavaObject) -> bool:
        """Whether an operator surely has no state: without counts of its rows, which are off by default, it is read."""
        counted = self.spark.conf.get(COUNTS_ROWS, "true") == "true"
        return counted and not operator.longMetric("numTotalStateRows").value()

    def _timers(self, operator: JavaObject) -> HeldResults:
        rows = self._read(operator, readRegisteredTimers="true")
        return self._held(operator, rows, F.col("expiration_timestamp_ms"), self._lag(operator))

    def _groups(self, operator: JavaObject, time: JavaObject, *, in_key: bool) -> HeldResults:
        rows = self._read(operator)
        if in_key:
            column = _field(rows, "key", _position(operator.keyExpressions(), time), time)
        else:  # the session is part of the value
            column = _milliseconds(_end(F.col("value").getField(_attribute(time).name()), time))
        return self._held(operator, rows, column, self._lag(operator))

    def _unmatched(self, join: JavaObject, side: str, predicate: JavaObject) -> HeldResults:
        rows, time = self._read(join, joinSide=side), predicate.expr().left()
        if predicate.getClass().getSimpleName() == "JoinStateKeyWatermarkPredicate":
            column = _field(rows, "key", _attribute(time).ordinal(), time)
        else:
            column = _field(rows, "value", _position(getattr(join, side)().output(), time), time)
        return self._held(join, rows, column, self.watermark - predicate.stateWatermark())

    def _lag(self, operator: JavaObject) -> int:
        """Return how far, in milliseconds, an operator evicts behind the query's watermark."""
        return self.watermark - int(operator.eventTimeWatermarkForEviction().get())

    def _read(self, operator: JavaObject, **options: str) -> DataFrame:
        number = operator.stateInfo().get().operatorId()
        reader = self.spark.read.format("statestore").options(operatorId=str(number), **options)
        return reader.load(str(self.checkpoint))

    def _held(self, operator: JavaObject, rows: DataFrame, milliseconds: Column, lag: int) -> HeldResults:
        times = rows.select(milliseconds.alias("time")).where("time IS NOT NULL")
        count, last = times.agg(F.count(F.lit(1)), F.max("time")).collect()[0]
        name = f"{operator.nodeName()} {operator.stateInfo().get().operatorId()}"
        return HeldResults(name, count, 0 if last is None else last + lag)


def _field(rows: DataFrame, root: str, position: int, time: JavaObject) -> Column:
    """Return a time of the state in milliseconds, rounded up; names in a struct need not be unique."""
    struct = rows.schema[root].dataType
    assert isinstance(struct, StructType)
    numbered = StructType([StructField(f"c{index}", field.dataType) for index, field in enumerate(struct)])
    return _milliseconds(_end(F.col(root).cast(numbered).getField(f"c{position}"), time))


def _end(column: Column, time: JavaObject) -> Column:
    """Return the end of a window, or the column itself if it is a time."""
    return column.getField("end") if time.getClass().getSimpleName() == "GetStructField" else column


def _milliseconds(time: Column) -> Column:
    return F.ceil(F.unix_micros(time.cast("timestamp")) / F.lit(1000).cast("decimal(20,0)")).cast("bigint")


def _attribute(time: JavaObject) -> JavaObject:
    """Return the attribute that an expression is, or that it takes the end of."""
    return time.child() if time.getClass().getSimpleName() == "GetStructField" else time


def _position(attributes: Any, time: JavaObject) -> int:
    """Return the place of an expression's attribute among others."""
    wanted = _attribute(time).exprId()
    return next(index for index in range(attributes.size()) if attributes.apply(index).exprId().equals(wanted))
