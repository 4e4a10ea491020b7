"""The order of a query's sources at a start: its tables are read to their ends, and then its streams.

A record of a stream is joined with the version of a table at its own event time, and its result is not corrected any
more once the watermark has passed it. Only streams move the watermark. If both kinds of sources were read at once, a
stream's backlog could be finished before the table's, and its results would miss the rows that were still to come.
"""

from __future__ import annotations

from millrace_api.model.streamquery import Spec
from millrace_jobs.pipeline.progress import BatchReport


class TableLoading:
    """The sources that wait at a start until the tables have been read to their ends.

    Args:
        spec: the spec of the query.
        once: whether the run processes the available input and ends. A Spark query then reads the tables and ends, and
            the next one reads the streams.
        replayed: the batch that an earlier run began and did not finish; the backlogs in its report are that run's.
    """

    def __init__(self, spec: Spec, *, once: bool, replayed: int | None) -> None:
        self._once = once
        self._replayed = replayed
        self.tables = tuple(name for name, source in spec.sources.items() if source.is_evolving)
        streams = tuple(name for name, source in spec.sources.items() if source.table is None)
        self.waiting = streams if self.tables else ()
        """The streams that offer no records yet."""

    def learn_from(self, report: BatchReport) -> None:
        """Learn from a finished batch: the streams begin if it has left nothing in the tables."""
        if report.batch != self._replayed and not any(report.waiting_in.get(table) for table in self.tables):
            self.idle()

    def idle(self) -> None:
        """Learn that the sources that do not wait had nothing to offer."""
        if not self._once:
            self.waiting = ()

    def ended(self) -> bool:
        """Learn that Spark's query has ended by itself; return whether streams are still to be read, by another one."""
        were_waiting, self.waiting = bool(self.waiting), ()
        return were_waiting
