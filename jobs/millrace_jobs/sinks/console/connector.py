"""The sink ``console``, which writes results to standard output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from millrace_api.model.sinks import ConsoleSinkSpec
from millrace_jobs.shown_values import shown_value
from millrace_jobs.sinks.base import ResultBatch, ShowTable, Sink
from millrace_jobs.sinks.connector import SinkConnector, SinkContext


class ConsoleSink(Sink):
    """A sink that shows the first rows of each batch that has results."""

    place = "standard output"

    def __init__(self, rows: int, show: ShowTable) -> None:
        self._rows = rows
        self._show = show

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Show the first rows of a batch; return its number of rows."""
        counted = Observation()
        observed = results.observe(counted, F.count(F.lit(1)).alias("rows"))
        shown = observed.mapInArrow(_Head(self._rows), results.schema).toArrow().slice(0, self._rows)
        total = int(counted.get["rows"])
        if total:
            more = f", first {shown.num_rows} of {total} (spec.sink.console.rows)" if total > shown.num_rows else ""
            rows = list(zip(*map(_values, shown.columns), strict=True))
            self._show(f"results of batch {batch.number}{more}", shown.column_names, rows)
        return total


@dataclass(frozen=True)
class _Head:
    """A filter for the first rows of each partition; it consumes the others too, because state depends on them."""

    rows: int

    def __call__(self, stream: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = self.rows
        for batch in stream:
            if wanted > 0:
                yield batch.slice(0, wanted)
                wanted -= batch.num_rows


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return values to be shown: of Python's types, or as text where a time is beyond their years."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [shown_value(value) for value in column]


class ConsoleSinkConnector(SinkConnector[ConsoleSinkSpec]):
    """Opens standard output for results."""

    def open(self, spec: ConsoleSinkSpec, context: SinkContext) -> Sink:
        """Return the sink that shows results."""
        return ConsoleSink(spec.rows, context.show)
