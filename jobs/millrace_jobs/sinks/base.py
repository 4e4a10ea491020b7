"""What a sink is: it takes the results of one batch, and takes them again after a crash without doubling them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

ADMITTED = "millrace_admitted"
"""Column in the results for a table: false where HAVING does not admit the row, which is then to be retracted."""

TIMES_AS_TEXT: Mapping[str, str] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How Spark writes times in csv and JSON: with all digits that they have; its own default leaves out microseconds."""


@dataclass(frozen=True)
class ResultBatch:
    """Which batch results are of.

    ``epoch`` is that of the plan it was pinned to. ``watermark`` is in milliseconds since 1970: windows that end at
    or before it are closed in this batch; 0 where there is none. ``require_lease`` raises MillraceError where another
    driver has, or may have, taken over the checkpoint: for sinks that cannot fence off an old driver otherwise.
    """

    number: int
    epoch: int
    watermark: int
    require_lease: Callable[[], None] = field(default=lambda: None, compare=False)


@dataclass(frozen=True)
class LastBatch:
    """What Spark's log says of the runs before: the last batch that was begun, and the last that was committed.

    ``elsewhere``: those runs had another sink, so that this one need not know of them.
    """

    begun: int | None
    committed: int | None
    elsewhere: bool = False

    @property
    def unfinished(self) -> int | None:
        """The batch that was begun and not committed, which will be run again; None where there is none."""
        return self.begun if self.begun != self.committed else None

    @property
    def next(self) -> int:
        """The batch that will be run next."""
        return 0 if self.committed is None else self.committed + 1


@dataclass(frozen=True)
class WindowColumn:
    """A result column from which the window of a row is known.

    ``part`` is what the column holds: the window itself, its start or its end; ``size`` is the window's length in
    microseconds.
    """

    name: str
    part: Literal["window", "start", "end"]
    size: int


@dataclass(frozen=True)
class ResultKeys:
    """What tells the rows of a query's results apart, and which of them go again.

    ``columns`` are the result columns of a row's key; there are none where all results are one row, and None where
    rows have no key. ``window`` is given where rows expire: every update is emitted, and a watermark lets windows
    go. ``retracts``: the results have the column ADMITTED.
    """

    columns: tuple[str, ...] | None = None
    window: WindowColumn | None = None
    retracts: bool = False


class Sink(Protocol):
    """Writes one batch at a time; called from Spark's ``foreachBatch``."""

    @property
    def place(self) -> str:
        """Where the results are, for the user."""
        ...

    def prepare(self, last: LastBatch) -> None:
        """Make ready before the first batch of a run. Raises MillraceError where results cannot be written."""
        ...

    def shape(self, results: DataFrame) -> DataFrame:
        """The streaming results as ``write`` takes them: a part of the query's own plan, not of one for each batch."""
        ...

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Write the shaped results of a batch in one action over all partitions; returns how many rows were written.

        After a crash Spark calls it again with the same batch number and the same results.
        """
        ...

    def withdraw(self) -> None:
        """Remove what ``prepare`` has made, if it was called: the run has failed before its first batch."""
        ...

    def close(self) -> None:
        """Let go of everything; called at every end of a run, also of one that failed."""
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
