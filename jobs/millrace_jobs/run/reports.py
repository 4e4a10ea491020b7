"""What a run reports to tools beside Prometheus: Spark's event log, and lineage. Neither delays or fails the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_jobs.sources.base import Position, Source
from millrace_support.run_figures import Outcome

if TYPE_CHECKING:
    from millrace_jobs.event_log import EventLog, EventLogKeeper
    from millrace_jobs.run.run_lineage import RunLineage

LINEAGE_EVENTS, LINEAGE_DROPPED = "millrace_lineage_events_total", "millrace_lineage_dropped_events_total"


class RunProgress(Protocol):
    """How far a run is."""

    @property
    def positions(self) -> Mapping[str, Position]:
        """Where the sources are."""

    @property
    def results(self) -> int:
        """The number of results written so far."""


class RunReports:
    """The event log and the lineage of one run, as far as its query asks for them.

    Args:
        query: the query of the run.
        checkpoint: the place of its checkpoint.
        message: shows the user a message.
    """

    def __init__(self, query: StreamQuery, checkpoint: str, message: Callable[[str], None]) -> None:
        self._message = message
        self._log: EventLog | None = None
        self._keeper: EventLogKeeper | None = None
        self._lineage: RunLineage | None = None
        self._has_failed = False
        self.query = query
        """The query as Spark is started for it: without an event log, if that cannot be written."""
        if query.spec.event_log is not None:
            self._open_log(query, checkpoint)
        if query.spec.lineage is not None:
            from millrace_jobs.run.run_lineage import RunLineage

            self._lineage = RunLineage(query, query.spec.lineage, message)

    @property
    def counts(self) -> dict[str, Callable[[], int]]:
        """What the metrics of lineage count; empty without lineage."""
        lineage = self._lineage
        if lineage is None:
            return {}
        return {LINEAGE_EVENTS: lambda: lineage.sender.sent, LINEAGE_DROPPED: lambda: lineage.sender.dropped}

    def _open_log(self, query: StreamQuery, checkpoint: str) -> None:
        from millrace_jobs.event_log import EventLog

        log = EventLog.of(query, checkpoint)
        assert log is not None
        try:
            log.prepare()
            self._log = log
        except (OSError, MillraceError) as error:
            self.query = without_event_log(query)
            self._message(f"this run has no event log: {log.place} cannot be written: {error}")

    def spark_started(self, spark: SparkSession) -> None:
        """Begin to keep the event log small, if Spark writes one."""
        if self._log is not None:
            from millrace_jobs.event_log import EventLogKeeper

            self._keeper = EventLogKeeper(self._log, spark.sparkContext.applicationId, self._message)

    def started(self, spec: Spec, sources: Mapping[str, Source], results: StructType, progress: RunProgress) -> None:
        """Report the start of a run, with the schema of its results."""
        lineage = self._lineage
        if lineage is not None:
            self._safely(lambda: lineage.started(spec, sources, results, progress))

    def batch(self, rows: int) -> None:
        """Report a batch that has read so many records."""
        lineage = self._lineage
        if lineage is not None:
            self._safely(lambda: lineage.batch(rows))

    def ended(self, outcome: Outcome, error: Exception | None = None) -> None:
        """Report the end of the run."""
        lineage = self._lineage
        if lineage is not None:
            self._safely(lambda: lineage.ended(outcome, error))

    def _safely(self, action: Callable[[], None]) -> None:
        """Do something that must not end the run."""
        try:
            action()
        except Exception as error:  # whatever it is, the query goes on
            if not self._has_failed:
                self._message(f"lineage: an event could not be made, and the query goes on: {error!r}")
            self._has_failed = True

    def close(self) -> None:
        """Stop; what waits for a receiver is delivered within seconds, or dropped."""
        if self._keeper is not None:
            self._keeper.close()
        if self._lineage is not None:
            self._lineage.sender.close()


def without_event_log(query: StreamQuery) -> StreamQuery:
    """Return a query whose Spark writes no event log."""
    return query.model_copy(update={"spec": query.spec.model_copy(update={"event_log": None})})
