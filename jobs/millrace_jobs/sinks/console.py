"""The sink that shows results in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from millrace_jobs.sinks.base import Head, LastBatch, ResultBatch

ShowTable = Callable[[str, Sequence[str], Sequence[Sequence[object]]], None]


class ConsoleSink:
    """A sink that shows the first rows of each batch that has results."""

    place = "the terminal"

    def __init__(self, rows: int, show: ShowTable) -> None:
        self._rows = rows
        self._show = show

    def prepare(self, last: LastBatch) -> None:
        """Do nothing: the terminal needs no preparation."""

    def shape(self, results: DataFrame) -> DataFrame:
        """Return the results unchanged."""
        return results

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Show the first rows of a batch; return its number of rows."""
        counted = Observation()
        observed = results.observe(counted, F.count(F.lit(1)).alias("rows"))
        shown = observed.mapInArrow(Head(self._rows), results.schema).toArrow().slice(0, self._rows)
        total = int(counted.get["rows"])
        if total:
            more = f", first {shown.num_rows} of {total}" if total > shown.num_rows else ""
            rows = list(zip(*(column.to_pylist() for column in shown.columns), strict=True))
            self._show(f"results of batch {batch.number}{more}", shown.column_names, rows)
        return total

    def withdraw(self) -> None:
        """Do nothing: ``prepare`` created nothing."""

    def close(self) -> None:
        """Do nothing: no resource is held."""
