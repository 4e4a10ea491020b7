"""Checking and opening the sink of a StreamQuery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from millrace_api.model.databases import DatabaseSinkSpec
from millrace_api.model.mysql import MySqlSinkSpec
from millrace_api.model.registries import MessageFormat, ResultSchemas
from millrace_api.model.sinks import KafkaSinkSpec
from millrace_api.model.streamquery import Emit, Spec, StreamQuery
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.option_check import require_options
from millrace_jobs.sinks.base import ResultKeys, Sink
from millrace_jobs.sinks.console import ConsoleSink, ShowTable
from millrace_jobs.sinks.files import FilesSink, require_folder
from millrace_jobs.sinks.kafka.history import TableHistory
from millrace_jobs.sinks.kafka.sink import KafkaSink
from millrace_jobs.sinks.kafka.table import TableSink
from millrace_jobs.sinks.kafka.table_view import TableView
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.outputs import Output, OutputSinks, errors_of

if TYPE_CHECKING:
    from millrace_jobs.sinks.databases.dialect import Dialect


def check_sinks(spec: Spec) -> None:
    """Check as much of the sinks as possible before Spark starts.

    Raises:
        MillraceError: results cannot be written to a folder.
    """
    for field, output in spec.outputs.items():
        if output.sink.files is not None and output.sink.files.is_local:
            with errors_of(field):
                require_folder(output.sink.files.path)
        if output.sink.delta is not None and output.sink.delta.is_local:
            with errors_of(field):
                require_folder(output.sink.delta.path, "spec.sink.delta.path")
        iceberg = output.sink.iceberg
        if iceberg is not None and iceberg.location is not None and iceberg.is_local:
            with errors_of(field):
                require_folder(iceberg.location, "spec.sink.iceberg.location")


def open_sinks(
    query: StreamQuery,
    keys: Mapping[str, ResultKeys],
    checkpoint_id: str,
    show: ShowTable,
    view: TableView | None = None,
    results: StructType | None = None,
) -> Sink:
    """Return the sink of a query, which has the sinks of all its outputs.

    ``keys`` are by the field of their output, as in ``Spec.outputs``. The other arguments are those of ``open_sink``;
    the view is that of ``spec.sink``.
    """
    outputs = []
    for field, spec in query.spec.outputs.items():
        alone = query.model_copy(update={"spec": spec})
        if field == "spec":
            sink = open_sink(alone, keys[field], checkpoint_id, show, view, results)
        else:
            own_id = f"{checkpoint_id}-{field.rpartition('.')[2]}"
            sink = open_sink(alone, keys[field], own_id, show, results=results)
        outputs.append(Output(sink, keys[field].weighted, field))
    return OutputSinks(outputs) if len(outputs) > 1 else outputs[0].sink


def open_sink(
    query: StreamQuery,
    keys: ResultKeys,
    checkpoint_id: str,
    show: ShowTable,
    view: TableView | None = None,
    results: StructType | None = None,
) -> Sink:
    """Return the sink of a query; it writes nothing and contacts no server before its ``prepare``.

    Args:
        query: the query.
        keys: the key of its result rows.
        checkpoint_id: id of the checkpoint that the query runs on; a run on another checkpoint is another writer.
        show: shows a table in the terminal.
        view: the view that a result table keeps for look-ups; other sinks have none.
        results: columns of the results; only a sink that checks their types needs them.
    """
    sink = query.spec.sink
    if sink.files is not None:
        updates = query.spec.emit is not Emit.ON_WINDOW_CLOSE
        if not sink.files.is_local:
            from millrace_jobs.sinks.object_files import ObjectFilesSink  # only these queries load the client

            assert results is not None, "files in an object store have the types of the results"
            return ObjectFilesSink(sink.files, results, checkpoint_id, updates=updates)
        return FilesSink(
            sink.files.path,
            sink.files.format.value,
            checkpoint_id,
            updates=updates,
            partition_by=sink.files.partition_by,
            files=sink.files.files_per_partition,
        )
    if sink.console is not None:
        return ConsoleSink(sink.console.rows, show)
    if sink.database is not None:
        from millrace_jobs.sinks.databases.sink import DatabaseSink  # only these queries load the client

        assert results is not None, "a table in a database is checked against the results"
        return DatabaseSink(_dialect(sink.database), sink.database.table, keys, results, query.name, checkpoint_id)
    if sink.delta is not None:
        from millrace_jobs.sinks.lakehouse.delta_sink import DeltaSink  # only these queries load the library

        assert results is not None, "a table is checked against the results"
        return DeltaSink(sink.delta, keys, results, query.name, checkpoint_id)
    if sink.iceberg is not None:
        from millrace_jobs.sinks.lakehouse.iceberg_sink import IcebergSink  # only these queries load the library

        assert results is not None, "a table is checked against the results"
        return IcebergSink(sink.iceberg, keys, results, query.name, checkpoint_id)
    spec = sink.kafka or sink.table
    assert spec is not None
    require_options(spec, f"spec.sink.{sink.kind}")
    topic = TargetTopic(spec.topic, Connection.of(spec), f"spec.sink.{sink.kind}.topic")
    if sink.table is not None:
        history = None
        if sink.table.history is not None:
            place = TargetTopic(sink.table.history.topic, topic.connection, "spec.sink.table.history.topic")
            history = TableHistory(place, sink.table.history.retention.microseconds, keys.lag)
        return TableSink(topic, keys, query.name, checkpoint_id, view, history)
    if sink.kafka is not None and sink.kafka.schemas is not None:
        return _registered(sink.kafka, sink.kafka.schemas, topic, keys, query.name, checkpoint_id, results)
    return KafkaSink(topic, keys, query.name, checkpoint_id)


def _dialect(spec: DatabaseSinkSpec) -> Dialect:
    if isinstance(spec, MySqlSinkSpec):
        from millrace_jobs.mysql.connection import MySqlConnection
        from millrace_jobs.sinks.mysql.dialect import MySqlDialect

        return MySqlDialect(MySqlConnection.of(spec))
    from millrace_jobs.postgres.connection import PostgresConnection
    from millrace_jobs.sinks.postgres.dialect import PostgresDialect

    return PostgresDialect(PostgresConnection.of(spec))


def _registered(
    spec: KafkaSinkSpec,
    schemas: ResultSchemas,
    topic: TargetTopic,
    keys: ResultKeys,
    query: str,
    checkpoint_id: str,
    results: StructType | None,
) -> KafkaSink:
    from millrace_jobs.sinks.kafka.registered.result_schema import ResultFormat, ResultSchema, record_name
    from millrace_jobs.sinks.kafka.registered.sink import RegisteredSink

    assert results is not None, "the schema of results follows from their columns"
    format: ResultFormat
    if spec.format is MessageFormat.AVRO:
        from millrace_jobs.sinks.kafka.registered.avro_results import AvroResults

        format = AvroResults()
    else:
        from millrace_jobs.sinks.kafka.registered.protobuf_results import ProtobufResults  # loads Protobuf

        format = ProtobufResults()
    schema = ResultSchema(format, schemas, spec.topic, schemas.record or record_name(query), results)
    return RegisteredSink(topic, keys, query, checkpoint_id, schema)
