"""A Python aggregation as a Spark user would write it: transformWithStateInPandas over the records of each key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import StringType, StructField, StructType

from millrace_api.model.python_query import PythonQuery
from millrace_api.model.streamquery import Spec
from millrace_jobs.aggregates.protocol import Aggregator, load_aggregator
from millrace_jobs.queries.reading import RunContext, records


class PandasAggregation(StatefulProcessor):
    """A processor that stores an aggregator's state by key and window, and emits every change."""

    def __init__(self, aggregator: Aggregator) -> None:
        self._aggregator = aggregator

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._state = handle.getValueState("state", StructType([StructField("json", StringType())]))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Update the state with the records of one batch."""
        stored = self._state.get()
        state = json.loads(stored[0]) if stored else self._aggregator.init()
        for frame in rows:
            batch = pa.RecordBatch.from_pandas(frame[list(self._aggregator.columns)], preserve_index=False)
            state = self._aggregator.update(state, batch)
        self._state.update((json.dumps(state),))
        yield pd.DataFrame({"key": [key[1]], "result": [json.dumps(self._aggregator.finish(state))]})

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def spark_results(spec: Spec, context: RunContext) -> DataFrame:
    """Return the results of a Python query over source ``s``, computed without Millrace's pipeline."""
    assert spec.query.python is not None
    return aggregated(records("s", spec, context), spec.query.python)


def aggregated(rows: DataFrame, query: PythonQuery) -> DataFrame:
    """Aggregate rows with a watermark by a query with one key column and a window. Columns: key, result."""
    assert query.window is not None
    aggregator = load_aggregator(query.aggregator, query.options)
    window = F.window(query.window.column, f"{query.window.size.microseconds} microseconds")
    rows = rows.select(window.alias("window"), *query.group_by, *aggregator.columns)
    grouped = rows.withColumn("start", F.unix_micros("window.start")).groupBy("start", *query.group_by)
    return grouped.transformWithStateInPandas(
        PandasAggregation(aggregator), "key STRING, result STRING", outputMode="update", timeMode="eventTime"
    )
