"""A sink around another one, for tests that change or watch a part of it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from millrace_jobs.sinks.base import LastBatch, ResultBatch, Sink


@dataclass
class WrappedSink:
    """A sink that delegates to ``inner``."""

    inner: Sink

    @property
    def place(self) -> str:
        return self.inner.place

    def prepare(self, last: LastBatch) -> None:
        self.inner.prepare(last)

    def withdraw(self) -> None:
        self.inner.withdraw()

    def close(self) -> None:
        self.inner.close()

    def shape(self, results: DataFrame) -> DataFrame:
        return self.inner.shape(results)

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        return self.inner.write(results, batch)
