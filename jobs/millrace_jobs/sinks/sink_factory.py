"""Checking and opening the sinks of a StreamQuery, by the connectors of their kinds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from millrace_api.model.sinks import SinkSpec
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_jobs.connectors import connector
from millrace_jobs.sinks.base import ResultKeys, ShowTable, Sink
from millrace_jobs.sinks.connector import SinkConnector, SinkContext
from millrace_jobs.sinks.local_copies import copies_of
from millrace_jobs.sinks.outputs import Output, OutputSinks, errors_of

if TYPE_CHECKING:
    from millrace_jobs.sinks.kafka.table_view import TableView

SINKS = "millrace.sinks"
"""Entry points of connectors for sinks, by the field of ``spec.sink``."""


def check_sinks(spec: Spec) -> None:
    """Check as much of the sinks as possible before Spark starts.

    Raises:
        MillraceError: results cannot be written.
    """
    for field, output in spec.outputs.items():
        with errors_of(field):
            _connector(output.sink).check(output.sink.given)


def open_sinks(
    query: StreamQuery,
    keys: Mapping[str, ResultKeys],
    checkpoint_id: str,
    show: ShowTable,
    view: TableView | None = None,
    results: StructType | None = None,
    copies: Path | None = None,
    *,
    partitions: int | None = None,
) -> Sink:
    """Return the sink of a query, which has the sinks of all its outputs.

    ``keys`` are by the field of their output, as in ``Spec.outputs``. The other arguments are those of ``SinkContext``;
    the view is that of ``spec.sink``.
    """
    outputs = []
    for field, spec in query.spec.outputs.items():
        alone = query.model_copy(update={"spec": spec})
        if field == "spec":
            sink = open_sink(alone, keys[field], checkpoint_id, show, view, results, copies, partitions=partitions)
        else:
            own_id = f"{checkpoint_id}-{field.rpartition('.')[2]}"
            own = None if copies is None else copies_of(copies, field)
            sink = open_sink(alone, keys[field], own_id, show, results=results, copies=own, partitions=partitions)
        outputs.append(Output(sink, keys[field].weighted, field))
    return OutputSinks(outputs) if len(outputs) > 1 else outputs[0].sink


def open_sink(
    query: StreamQuery,
    keys: ResultKeys,
    checkpoint_id: str,
    show: ShowTable,
    view: TableView | None = None,
    results: StructType | None = None,
    copies: Path | None = None,
    *,
    partitions: int | None = None,
) -> Sink:
    """Return the sink of ``spec.sink``; the arguments are those of ``SinkContext``."""
    context = SinkContext(query, keys, checkpoint_id, show, view, results, copies, partitions)
    return _connector(query.spec.sink).open(query.spec.sink.given, context)


def _connector(sink: SinkSpec) -> SinkConnector[Any]:
    found: SinkConnector[Any] = connector(SINKS, sink.kind)
    return found
