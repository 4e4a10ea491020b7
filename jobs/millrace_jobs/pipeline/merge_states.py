"""Merging for Python aggregators: a blob of states per window and bucket, kept by Spark's transformWithState."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from millrace_jobs.aggregates.keyed_states import Key, field_array, merge_into
from millrace_jobs.aggregates.protocol import State
from millrace_jobs.aggregates.python_reducing import BLOB, BUCKET, PythonReduction
from millrace_jobs.pipeline.merge import window_column

_START = "start"
_STATE = StructType([StructField(BLOB, BinaryType())])
_EMITTED = StructType([StructField(_START, LongType()), StructField(BLOB, BinaryType())])


def merge_states(partials: DataFrame, plan: PythonReduction, *, on_close: bool, closes: bool) -> DataFrame:
    """Merge blobs by window and bucket, and finish them: columns window_start, window_end, keys, results.

    ``closes``: a watermark closes windows, and their state is then removed. ``on_close``: results are emitted when
    their window closes, instead of at every change.
    """
    start = F.lit(0).cast("bigint")
    if plan.window is not None:
        # The window stays a plain column: Spark recognizes late partial results by it, as for its own aggregates.
        partials = partials.select(window_column(plan.window), BUCKET, BLOB)
        start = F.unix_micros("window.start")
    grouped = partials.withColumn(_START, start).groupBy(_START, BUCKET)
    merged = grouped.transformWithState(
        StateMerger(plan, on_close=on_close, closes=closes),
        _EMITTED,
        outputMode="append" if on_close else "update",
        timeMode="eventTime" if closes else "none",
    )
    return merged.mapInArrow(Finisher(plan), from_arrow_schema(plan.result_schema))


class StateMerger(StatefulProcessor):
    """Stateful processor that holds one blob per window and bucket.

    It emits states at every change, or once the window has closed.
    """

    def __init__(self, plan: PythonReduction, *, on_close: bool, closes: bool) -> None:
        self._plan = plan
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
        codec, start = self._plan.codec, key[0]
        held = self._blob.get()
        states: dict[Key, State] = dict(codec.decode(bytes(held[0]))) if held else {}
        changed: dict[Key, None] = {}
        for row in rows:
            changed.update(dict.fromkeys(merge_into(self._plan.aggregator, states, codec.decode(bytes(row[BLOB])))))
        self._blob.update((codec.encode(states.items()),))
        if held is None and self._closes and self._plan.window is not None:
            self._handle.registerTimer(-(-(start + self._plan.window.size) // 1000))
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
        """Do nothing, as there is nothing to release; called by Spark."""


@dataclass(frozen=True)
class Finisher:
    """Function that turns blobs of merged states into result rows."""

    plan: PythonReduction

    def __call__(self, stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Finish the states of every blob."""
        for batch in stream:
            for start, blob in zip(batch.column(_START).to_pylist(), batch.column(BLOB).to_pylist(), strict=True):
                yield self._results(start, blob)

    def _results(self, start: int, blob: bytes) -> pa.RecordBatch:
        states = list(self.plan.codec.decode(blob))
        columns: list[Sequence[Any]] = []
        if self.plan.window is not None:
            columns = [[start] * len(states), [start + self.plan.window.size] * len(states)]
        columns.extend(zip(*(key for key, _ in states), strict=True))
        schema = self.plan.result_schema
        arrays = [pa.array(values, schema.field(index).type) for index, values in enumerate(columns)]
        rows = [self.plan.aggregator.finish(state) for _, state in states]
        arrays.extend(field_array(rows, field, "result") for field in self.plan.aggregator.result_schema)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
