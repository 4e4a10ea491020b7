"""What a sink is: it takes the results of one batch, and takes them again after a crash without doubling them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame


class Sink(Protocol):
    """Writes one batch at a time; called from Spark's ``foreachBatch``."""

    @property
    def place(self) -> str:
        """Where the results are, for the user."""
        ...

    def prepare(self) -> None:
        """Make ready before the first batch. Raises MillraceError where results cannot be written."""
        ...

    def write(self, results: DataFrame, batch: int) -> int:
        """Write the results of a batch in one action over all its partitions; returns how many rows.

        After a crash Spark calls it again with the same batch number and the same results.
        """
        ...


@dataclass(frozen=True)
class Head:
    """The first rows of each partition; the rest is computed, because state depends on it, and dropped."""

    rows: int

    def __call__(self, stream: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        wanted = self.rows
        for batch in stream:
            if wanted > 0:
                yield batch.slice(0, wanted)
                wanted -= batch.num_rows
