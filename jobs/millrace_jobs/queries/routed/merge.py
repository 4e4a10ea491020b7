"""Merging of partial results into results by key and window, in Spark's own state store.

Parts of Spark's aggregates are merged by Spark's aggregation. The operators on tables merge them where it is not every
change that is emitted, and where the SQL calls aggregators in Python. Where a Python aggregator is the whole query,
Spark's ``transformWithState`` merges its states, as one blob per window and bucket.

The results go to the query's sink (``sinks.base``), in one action with all that is before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from millrace_jobs.aggregates.protocol import State, field_array, running
from millrace_jobs.aggregates.python_reducing import BLOB, BUCKET, Key, PythonReduction, merge_into
from millrace_jobs.changes import FROM, TO, WEIGHT
from millrace_jobs.queries.tables.operators.aggregate import GroupedAggregate, MergedPart
from millrace_jobs.queries.tables.operators.closing import CLOSING
from millrace_jobs.queries.tables.operators.emission import Emission
from millrace_jobs.queries.tables.operators.interface import OperatorChain, TableOperator
from millrace_jobs.queries.tables.operators.merged_states import MergedStates
from millrace_jobs.queries.tables.stages import run_stage, values_schema
from millrace_jobs.sinks.base import ADMITTED
from millrace_jobs.windows import AT, EVENT_TIME, Window

if TYPE_CHECKING:
    from millrace_jobs.queries.routed.aggregation import Aggregation


def window_column(window: Window) -> Column:
    """Return Spark's windows over ``at``: each record or partial result goes to all windows that hold it."""
    size, slide, start = (f"{length} microseconds" for length in (window.size, window.slide, window.offset))
    return F.window(F.col(AT), size, slide, start).alias("window")


def window_from_start(partials: DataFrame, window: Window) -> Column:
    """Return the window that starts at ``at``, as Spark's own function would: with the watermark of its column."""
    end = F.timestamp_micros(F.unix_micros(F.col(AT)) + window.size)
    return F.struct(F.col(AT).alias("start"), end.alias("end")).alias("window", metadata=partials.schema[AT].metadata)


def merge_partials(partials: DataFrame, query: Aggregation) -> DataFrame:
    """Merge the parts by window and key, and keep them as state.

    Input and result have the columns ``window`` (if the query has one), keys, parts.
    """
    groups = [F.col(key.name) for key in query.keys]
    if query.window is not None:
        groups.insert(0, F.col("window"))
    merged = {
        part.name: deviations_between(F.col(part.name), F.col(part.weight)) if part.weight else F.expr(part.merge)
        for part in query.parts
    }
    return partials.groupBy(*groups).agg(*(column.alias(name) for name, column in merged.items()))


def in_order_of_parts(merged: DataFrame, query: Aggregation) -> DataFrame:
    """Return the same groups, whose columns in Spark's state are all parts in their order, whatever is selected.

    Spark merges only what the SELECT list reads, in its order, and the columns of its state have no names. The filter
    reads every part and keeps every group, which the optimizer cannot know.
    """
    return merged.where(f"pmod(xxhash64({', '.join(part.name for part in query.parts)}), 2L) >= 0L")


def deviations_between(mean: Column, count: Column) -> Column:
    """Return the sum over partial results of count * (mean - common mean)^2, which merges without cancellation.

    Spark's only weighted aggregate is its summarizer of vectors. It gives m2 / (W - W2 / W), where W and W2 are the
    sums of the weights and of their squares. It fails if all weights are 0, as for a group without values.
    """
    from pyspark.ml.functions import array_to_vector, vector_to_array  # only these queries pay for the import
    from pyspark.ml.stat import Summarizer

    negligible = F.lit(1e-300)
    features = array_to_vector(F.array(F.coalesce(mean, F.lit(0.0))))
    weight = F.when(count > 0, count.cast("double")).otherwise(negligible)
    summary = Summarizer.metrics("variance").summary(features, weight)
    total, squares = F.sum(count).cast("double"), F.sum(count.cast("double") * count)
    return F.when(total > 0, vector_to_array(summary.getField("variance"))[0] * (total - squares / total))


def merge_changes(
    partials: DataFrame, query: Aggregation, ahead: tuple[int | None, ...], partitions: int, *, closes: bool
) -> DataFrame:
    """Merge the parts by window and key as changes of the groups, and emit these as ``ahead`` says.

    Args:
        partials: window, keys and parts.
        query: the aggregation, whose parts are sums, minima, maxima, and states of aggregators.
        ahead: see ``operators.emission.Emission``.
        partitions: number of state partitions.
        closes: whether a watermark closes the windows.

    Returns:
        Changes with the columns ``window`` if the query has one, keys, parts, those of ``changes.CHANGE`` and, for
        several outputs or rows that are held back, OUTPUT.
    """
    from millrace_jobs.queries.tables.grouping import merge_of  # reads SQL, unlike the tasks that import this module

    keys = [key.name for key in query.keys]
    if query.window is not None:
        keys.append(CLOSING)
        partials = partials.withColumn(CLOSING, F.unix_micros("window.end"))
    rows = partials.selectExpr(
        *keys, *(part.name for part in query.parts), f"0L AS {FROM}", f"1L AS {TO}", f"1L AS {WEIGHT}"
    )
    values = values_schema(rows)
    parts = [
        MergedPart(part.name, merge_of(part, aggregate), values.field(part.name).type)
        if part.aggregator is None
        else MergedStates(part.name, part.aggregator)
        for aggregate in query.aggregates
        for part in aggregate.parts
    ]
    # a state with the rows that are held back goes on as it began
    emits_at_once = query.emits_at_once(ahead)
    groups = GroupedAggregate(
        pa.schema([values.field(name) for name in keys]),
        tuple(parts),
        window_end=CLOSING if closes else None,
        of_table=False,
        versions=False,
        final=emits_at_once and ahead == (0,),
    )
    operator: TableOperator = groups
    if not emits_at_once:
        operator = OperatorChain(groups, Emission(groups.output, tuple(keys), ahead))
    changes = run_stage(operator, [rows], [keys], partitions, number=0, has_watermark=closes, splits=False)
    if query.window is None:
        return changes
    start, end = F.timestamp_micros(F.col(CLOSING) - query.window.size), F.timestamp_micros(CLOSING)
    return changes.withColumn("window", F.struct(start.alias("start"), end.alias("end")))


def finish(
    merged: DataFrame, query: Aggregation, result: StructType, *, retracts: bool = False, marks: Sequence[str] = ()
) -> DataFrame:
    """Apply HAVING and the SELECT list to merged parts, with the names and types that Spark's own plan would give.

    ``retracts``: rows that HAVING does not admit are marked in the column ADMITTED instead of dropped. ``marks`` are
    other columns that the result keeps.
    """
    if query.having and not retracts:
        merged = merged.where(query.having)
    columns = [
        F.expr(item).cast(field.dataType).alias(field.name) for item, field in zip(query.select, result, strict=True)
    ]
    if retracts:
        columns.append(F.coalesce(F.expr(query.having), F.lit(False)).alias(ADMITTED))
    return merged.select(*columns, *marks)


def single_record_partials(records: DataFrame, query: Aggregation, types: StructType) -> DataFrame:
    """Return partial results of one record each, by window and key, for Spark to combine by its own plan.

    They have the ``types`` of the workers' partial results, because these determine the layout of Spark's state.
    """
    if query.where:
        records = records.where(query.where)
    keys = {key.name: F.expr(key.sql).alias(key.name) for key in query.keys}
    parts = [F.expr(part.initial).cast(types[part.name].dataType).alias(part.name) for part in query.parts]
    if query.window is None:
        return records.select(*keys.values(), *parts)
    at = F.col(f"`{query.window.column}`").alias(AT)
    marked = {field.name for field in records.select(*keys.values(), at).schema if EVENT_TIME in field.metadata}
    if AT in marked:
        # Spark allows groups one event time. It is that of the window, also where its column is a key beside it.
        keys |= {name: keys[name].alias(name, metadata={}) for name in marked - {AT}}
    return records.select(*keys.values(), *parts, at).withColumn("window", window_column(query.window))


_START = "start"
_STATE = StructType([StructField(BLOB, BinaryType())])
_EMITTED = StructType([StructField(_START, LongType()), StructField(BLOB, BinaryType())])


def merge_states(partials: DataFrame, reduction: PythonReduction, *, on_close: bool, closes: bool) -> DataFrame:
    """Merge blobs by window and bucket, and finish them: columns window_start, window_end, keys, results.

    ``closes``: a watermark closes windows, and their state is then removed. ``on_close``: results are emitted when
    their window closes, instead of at every change.
    """
    start = F.lit(0).cast("bigint")
    if reduction.window is not None:
        # The window stays a plain column: Spark recognizes late partial results by it, as for its own aggregates.
        partials = partials.select(window_column(reduction.window), BUCKET, BLOB)
        start = F.unix_micros("window.start")
    grouped = partials.withColumn(_START, start).groupBy(_START, BUCKET)
    merged = grouped.transformWithState(
        StateMerger(reduction, on_close=on_close, closes=closes),
        _EMITTED,
        outputMode="append" if on_close else "update",
        timeMode="eventTime" if closes else "none",
    )
    return merged.mapInArrow(Finisher(reduction), from_arrow_schema(reduction.result_schema))


class StateMerger(StatefulProcessor):
    """Stateful processor that holds one blob per window and bucket.

    It emits states at every change, or once the window has closed.
    """

    def __init__(self, reduction: PythonReduction, *, on_close: bool, closes: bool) -> None:
        self._reduction = reduction
        self._on_close = on_close
        self._closes = closes

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state; called by Spark."""
        self._handle = handle
        self._blob = handle.getValueState("states", _STATE)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        """Merge the blobs of a batch into the state; called by Spark."""
        codec, aggregator, start = self._reduction.codec, self._reduction.aggregator, key[0]
        held = self._blob.get()
        states: dict[Key, State] = dict(codec.decode(bytes(held[0]))) if held else {}
        changed: dict[Key, None] = {}
        for row in rows:
            changed.update(dict.fromkeys(merge_into(aggregator, states, codec.decode(bytes(row[BLOB])))))
        self._blob.update((codec.encode(states.items()),))
        if held is None and self._closes and self._reduction.window is not None:
            self._handle.registerTimer(-(-(start + self._reduction.window.size) // 1000))
        if not self._on_close and changed:
            yield Row(start=start, blob=codec.encode((k, states[k]) for k in changed))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """Close a window whose end the watermark has passed; called by Spark."""
        held = self._blob.get()
        self._blob.clear()
        if self._on_close and held:
            yield Row(start=key[0], blob=bytes(held[0]))

    def close(self) -> None:
        """Release nothing; called by Spark."""


@dataclass(frozen=True)
class Finisher:
    """Function that turns blobs of merged states into result rows."""

    reduction: PythonReduction

    def __call__(self, stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Finish the states of every blob."""
        for batch in stream:
            for start, blob in zip(batch.column(_START).to_pylist(), batch.column(BLOB).to_pylist(), strict=True):
                yield self._results(start, blob)

    def _results(self, start: int, blob: bytes) -> pa.RecordBatch:
        states = list(self.reduction.codec.decode(blob))
        columns: list[Sequence[Any]] = []
        if self.reduction.window is not None:
            columns = [[start] * len(states), [start + self.reduction.window.size] * len(states)]
        columns.extend(zip(*(key for key, _ in states), strict=True))
        schema = self.reduction.result_schema
        arrays = [pa.array(values, schema.field(index).type) for index, values in enumerate(columns)]
        aggregator = self.reduction.aggregator
        with running(aggregator, "finish", "computing results") as call:
            rows = [aggregator.finish(state) for call.calls, (_, state) in enumerate(states, 1)]
        arrays.extend(field_array(rows, field, "result") for field in self.reduction.aggregator.result_schema)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
