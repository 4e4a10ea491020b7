"""The connectors of the sinks ``kafka`` and ``table``."""

from __future__ import annotations

from millrace_api.model.registries import MessageFormat, ResultSchemas
from millrace_api.model.sinks import KafkaSinkSpec, TableSinkSpec, TransactionScope
from millrace_api.model.streamquery import Emit
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.option_check import require_options
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.connector import SinkConnector, SinkContext
from millrace_jobs.sinks.kafka.sink import AppendSink, TaskWrites
from millrace_jobs.sinks.kafka.table import TableSink
from millrace_jobs.sinks.kafka.table_results import TableHistory
from millrace_jobs.sinks.kafka.topic import COMPACTED, TargetTopic


class KafkaSinkConnector(SinkConnector[KafkaSinkSpec]):
    """Opens topics to which results are appended."""

    def check_server(self, spec: KafkaSinkSpec) -> None:
        """Check that the topic exists."""
        _topic(spec, "spec.sink.kafka").settings()

    def open(self, spec: KafkaSinkSpec, context: SinkContext) -> Sink:
        """Return the sink of a topic. Raises MillraceError if the Kafka client refuses its options."""
        topic = _topic(spec, "spec.sink.kafka")
        if spec.schemas is not None:
            return _registered(spec, spec.schemas, topic, context)
        by_partition = spec.scope(context.partitions) is TransactionScope.PARTITION
        tasks = TaskWrites(context.partitions, by_partition)
        jumps = context.query.spec.emit is not Emit.ON_UPDATE
        return AppendSink(topic, context.keys, context.query.name, context.checkpoint_id, tasks, jumps=jumps)


class TableSinkConnector(SinkConnector[TableSinkSpec]):
    """Opens compacted topics that are tables."""

    def check_server(self, spec: TableSinkSpec) -> None:
        """Check that the topic exists."""
        _topic(spec, "spec.sink.table").settings(create_with=COMPACTED)

    def open(self, spec: TableSinkSpec, context: SinkContext) -> Sink:
        """Return the sink of a table. Raises MillraceError if the Kafka client refuses its options."""
        topic = _topic(spec, "spec.sink.table")
        history = None
        if spec.history is not None:
            place = TargetTopic(spec.history.topic, topic.connection, "spec.sink.table.history.topic")
            history = TableHistory(place, spec.history.retention.microseconds, context.keys.lag)
        query, checkpoint, keys = context.query.name, context.checkpoint_id, context.keys
        partitions = None if keys.rows_can_go or keys.weighted else context.partitions
        tasks = TaskWrites(partitions, spec.by_partition)
        jumps = context.query.spec.emit is not Emit.ON_UPDATE
        return TableSink(topic, keys, query, checkpoint, context.view, history, context.copies, tasks, jumps=jumps)


def _topic(spec: KafkaSinkSpec | TableSinkSpec, field: str) -> TargetTopic:
    require_options(spec, field)
    return TargetTopic(spec.topic, Connection.of(spec), f"{field}.topic")


def _registered(spec: KafkaSinkSpec, schemas: ResultSchemas, topic: TargetTopic, context: SinkContext) -> Sink:
    from millrace_jobs.sinks.kafka.registered.sink import RegisteredSink, ResultFormat, ResultSchema, record_name

    format: ResultFormat
    if spec.format is MessageFormat.AVRO:
        from millrace_jobs.sinks.kafka.registered.avro_results import AvroResults

        format = AvroResults()
    else:
        from millrace_jobs.sinks.kafka.registered.protobuf_results import ProtobufResults  # loads Protobuf

        format = ProtobufResults()
    query = context.query.name
    schema = ResultSchema(format, schemas, spec.topic, schemas.record or record_name(query), context.columns)
    return RegisteredSink(topic, context.keys, query, context.checkpoint_id, schema)
