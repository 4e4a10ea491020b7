"""The interface of sinks: a sink writes the results of a batch, and does not duplicate them after a crash.

``run.loop`` hands over each batch; Spark commits it once the sink has written it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

ADMITTED = "millrace_admitted"
"""Boolean result column of table sinks: false for a row that HAVING does not admit and that must be retracted."""

NO_BATCH = -1
"""Number before that of the first batch."""

ShowTable = Callable[[str, Sequence[str], Sequence[Sequence[object]]], None]
"""Shows a table in the terminal: its title, the names of its columns, and its rows."""

TIMES_AS_TEXT: Mapping[str, str] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark options that write times in CSV and JSON with all their digits; Spark's default omits microseconds."""


@dataclass(frozen=True)
class ResultBatch:
    """The batch that a set of results belongs to.

    ``epoch`` is the epoch of the plan that the batch is pinned to. ``watermark`` is in milliseconds since 1970, or 0
    without a watermark: this batch closes the windows that end at or before it. ``may_have_results`` is false if it is
    known before it is computed that it has none. ``require_lease`` raises MillraceError if another driver has, or may
    have, taken over the checkpoint; it is for sinks that cannot fence off an old driver otherwise.
    """

    number: int
    epoch: int
    watermark: int
    may_have_results: bool = True
    require_lease: Callable[[], None] = field(default=lambda: None, compare=False)


@dataclass(frozen=True)
class LastBatch:
    """The last batches of earlier runs in Spark's log: the last one begun and the last one committed.

    ``elsewhere`` is true if those runs wrote to another sink, so that this sink need not know their batches.
    ``results`` is the number under which sinks know the last committed batch, if a repartition has given it another.
    """

    begun: int | None
    committed: int | None
    elsewhere: bool = False
    results: int | None = None

    @property
    def known(self) -> int:
        """The last batch that sinks must know of; ``NO_BATCH`` before the first."""
        committed = NO_BATCH if self.committed is None else self.committed
        return committed if self.results is None else self.results

    @property
    def unfinished(self) -> int | None:
        """The batch that was begun and not committed, and that will run again; None if all were committed."""
        return self.begun if self.begun != self.committed else None

    @property
    def newest(self) -> str:
        """What the log has, as messages say it."""
        return "no batch" if self.begun is None else f"no batch after {self.begun}"

    def lacks(self, batch: int) -> bool:
        """Return whether the log does not know a batch that a sink has, so that it is older than the results."""
        return batch > (NO_BATCH if self.begun is None else self.begun)

    @property
    def next(self) -> int:
        """The batch that will run next."""
        return 0 if self.committed is None else self.committed + 1


@dataclass(frozen=True)
class WindowColumn:
    """A result column that determines the window of a row.

    ``part`` names the column's content: the window itself, its start or its end. ``size`` is the window's length, and
    ``lag`` how long after its end a row can still change, both in microseconds.
    """

    name: str
    part: Literal["window", "start", "end"]
    size: int
    lag: int = 0

    @property
    def after(self) -> int:
        """How long after the time in the column a row can still change, in microseconds."""
        return self.lag + (self.size if self.part == "start" else 0)


@dataclass(frozen=True)
class ResultKeys:
    """The key that identifies a result row, and how rows expire or are retracted.

    ``columns`` are the result columns of the key. They are empty if all results are one row, and None if rows have no
    key. ``window`` is set if rows expire: every update is emitted, and a watermark expires windows. ``retracts`` is
    true if the results have the column ADMITTED, and ``weighted`` if they are changes with the column WEIGHT;
    ``versioned`` if these are of all versions, with the other columns of ``changes.CHANGE``, which a changelog in files
    has in any case; versions can then change as far behind the watermark as ``lag``, in microseconds.
    """

    columns: tuple[str, ...] | None = None
    window: WindowColumn | None = None
    retracts: bool = False
    weighted: bool = False
    versioned: bool = False
    lag: int = 0

    @property
    def rows_can_go(self) -> bool:
        """Whether a row of a table can be retracted or expire."""
        return self.retracts or self.window is not None


class Sink(Protocol):
    """A destination for results that writes one batch at a time, called from Spark's ``foreachBatch``.

    A sink inherits the steps that it does not need.
    """

    @property
    def place(self) -> str:
        """Location of the results, as shown to the user."""
        ...

    def prepare(self, last: LastBatch) -> None:
        """Prepare for the first batch of a run. Raises MillraceError if results cannot be written."""
        return

    def shape(self, results: DataFrame) -> DataFrame:
        """Return the streaming results in the form that ``write`` takes.

        This step is part of the query's own Spark plan, not of a new plan for each batch.
        """
        return results

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Write the shaped results of a batch in one action over all partitions; return the number of rows written.

        After a crash, Spark calls this again with the same batch number and the same results.
        """
        ...

    def withdraw(self) -> None:
        """Undo ``prepare``, if it was called; for a run that failed before its first batch."""
        return

    def close(self) -> None:
        """Release all resources; called whenever a run ends, even if it failed."""
        return


def quoted(name: str) -> str:
    """Return a name as Spark's SQL takes it literally."""
    return "`" + name.replace("`", "``") + "`"


def named(name: str) -> Column:
    """Return the column with exactly this name."""
    return F.col(quoted(name))
