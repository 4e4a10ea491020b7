"""The lineage of one run: its events at the start, at its end, and between them after some batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pyarrow as pa
from pyspark import __version__ as spark_version
from pyspark.sql.types import DataType, StructType

from millrace_api.model.reporting import LineageSpec
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.sql.schema_ddl import Column, parse_schema
from millrace_jobs.lineage.columns import derived_columns
from millrace_jobs.lineage.datasets import inputs, outputs
from millrace_jobs.lineage.events import Json, RunDescription, RunState
from millrace_jobs.lineage.sender import LineageSender
from millrace_jobs.lineage.transports import transport_of
from millrace_jobs.run.failures import class_of
from millrace_jobs.run.inputs import user_schemas
from millrace_jobs.run.reports import RunProgress
from millrace_jobs.sources.base import Position, Source
from millrace_jobs.sources.kafka.offsets import PLACED
from millrace_support.run_figures import Outcome

_STATES: Mapping[Outcome, RunState] = {
    "finished": RunState.COMPLETE,
    "drained": RunState.ABORT,
    "failed": RunState.FAIL,
}


class RunLineage:
    """Sends the events of one run.

    Args:
        query: the query as the user wrote it.
        spec: what it says about lineage.
        message: shows the user a message.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self,
        query: StreamQuery,
        spec: LineageSpec,
        message: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sender = LineageSender(transport_of(spec), message)
        self._spec = query.spec
        self._interval, self._clock = spec.interval.seconds, clock
        namespace = spec.namespace or query.metadata.namespace or "default"
        self._run = RunDescription(namespace, query.name, query.spec.query.sql, spark_version)
        self._columns: Mapping[str, tuple[Column, ...]] = {}
        self._results: tuple[Column, ...] = ()
        self._progress: RunProgress | None = None
        self._rows = 0
        self._last = 0.0

    def started(self, spec: Spec, sources: Mapping[str, Source], results: StructType, progress: RunProgress) -> None:
        """Send the event of the start; ``results`` is the schema of the results."""
        self._columns = _source_columns(self._spec, user_schemas(spec, sources))
        self._results, self._progress = _columns_of(results), progress
        self._send(RunState.START)

    def batch(self, rows: int) -> None:
        """Count a batch that has read so many records, and send an event if the last one is long ago."""
        self._rows += rows
        if self._clock() - self._last >= self._interval and not self.sender.is_behind:
            self._send(RunState.RUNNING)

    def ended(self, outcome: Outcome, error: Exception | None) -> None:
        """Send the event of the end, if the run has started."""
        if self._progress is not None:
            self._send(_STATES[outcome], _failure(error) if error is not None else None)

    def _send(self, state: RunState, error: str | None = None) -> None:
        self._last = self._clock()
        at, rows, progress = datetime.now(UTC), self._rows, self._progress
        positions = {} if progress is None else progress.positions
        results = 0 if progress is None else progress.results

        def make() -> Json:
            by_source = inputs(self._spec, self._columns, _topics(self._spec, positions))
            read = list(dict.fromkeys(each for datasets in by_source.values() for each in datasets))
            written = outputs(self._spec, self._results)
            single = {name: datasets[0] for name, datasets in by_source.items() if len(datasets) == 1}
            begun = state is not RunState.START
            return self._run.event(
                state,
                at,
                read,
                written,
                read=rows if begun and len(read) == 1 else None,
                written=results if begun and len(written) == 1 else None,
                error=error,
                derived=derived_columns(self._spec, self._columns, single),
            )

        self.sender.send(make)


def _topics(spec: Spec, positions: Mapping[str, Position]) -> dict[str, tuple[str, ...]]:
    """Return the topics that sources have read from, which a query with a pattern does not name."""
    kafka = {name for name, source in spec.sources.items() if source.kafka is not None}
    return {
        name: tuple(topic for topic in position if topic != PLACED)
        for name, position in positions.items()
        if name in kafka
    }


def _source_columns(spec: Spec, schemas: Mapping[str, pa.Schema]) -> dict[str, tuple[Column, ...]]:
    """Return the columns of each source: as declared, else as its messages have them, with the types of Arrow."""
    return {
        name: parse_schema(source.schema_text)
        if source.schema_text is not None
        else tuple(Column(each.name, str(each.type).upper()) for each in schemas.get(name, ()))
        for name, source in spec.sources.items()
    }


def _columns_of(schema: DataType) -> tuple[Column, ...]:
    """Return the columns of a schema of Spark, and the fields of structs."""
    fields = schema.fields if isinstance(schema, StructType) else ()
    return tuple(
        Column(each.name, each.dataType.simpleString().upper(), each.nullable, _columns_of(each.dataType))
        for each in fields
    )


def _failure(error: Exception) -> str:
    """Return class and fields of a failure: its message may quote records."""
    problems = getattr(error, "problems", ())
    fields = list(dict.fromkeys(each.field for each in problems if each.field))
    return f"{class_of(error).value}{': ' if fields else ''}{', '.join(fields)}"
