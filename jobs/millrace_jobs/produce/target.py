"""The topic to fill: named on the command line, or taken from a query that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.kafka import KafkaConnection, KafkaSourceSpec
from millrace_api.model.sources import RecordFormat, SourceSpec
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import load_queries
from millrace_jobs.kafka.cluster import KafkaCluster
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import error_of, patiently

_CREATE_SECONDS = 10.0
"""Timeout of one request to create a topic, in seconds."""


@dataclass(frozen=True)
class ProduceTarget:
    """A topic, the connection to its cluster, and the encoding of its messages."""

    connection: Connection
    topic: str
    format: RecordFormat
    timestamp_format: str = "iso"
    schema: str | None = None
    """Spark DDL of the records; None if the input determines the columns."""
    writer_schema: str | None = None
    """Avro schema of the records as JSON text; only for format avro."""


def named_target(topic: str | None, servers: str | None, format: str) -> ProduceTarget:
    """Return the topic of ``--topic`` on a cluster without login.

    Raises:
        MillraceError: the topic or the servers are missing, or the format is unknown.
    """
    if not topic or not servers:  # an option may be empty: --topic "$TOPIC" with a variable that is not set
        missing = "--bootstrap-servers" if topic else "--topic"
        hint = "write both, or name the YAML file of a query that reads the topic"
        raise MillraceError(Problem(f"{missing} is missing", hint))
    if format not in ("json", "csv", "raw"):
        hint = "write json, csv or raw; for avro, name the YAML file of a query that has the writer schema"
        raise MillraceError(Problem(f"--format {format} is unknown", hint))
    return ProduceTarget(Connection.of(KafkaConnection(bootstrap_servers=servers)), topic, RecordFormat(format))


def query_target(
    file: Path, query: str | None, source: str | None, topic: str | None, connections: Sequence[Path] = ()
) -> ProduceTarget:
    """Return the topic that a query's Kafka source reads, with the source's cluster and format.

    Raises:
        MillraceError: the file has problems, or the source or topic is ambiguous or missing.
    """
    found = {
        f"{each.name}.{name}": spec
        for each in _chosen(load_queries(file, connections), query, file)
        for name, spec in each.spec.sources.items()
        if spec.kafka is not None and source in (None, name)
    }
    if not found:
        what = f"no Kafka source {source}" if source is not None else "no Kafka source"
        hint = "write another --source or --query, or write --topic and --bootstrap-servers instead of the file"
        raise MillraceError(Problem(f"the file has {what}", hint, str(file)))
    if len(found) > 1:
        message = f"the file has the Kafka sources {', '.join(found)}"
        raise MillraceError(Problem(message, "choose one with --query and --source", str(file)))
    (spec,) = found.values()
    assert spec.kafka is not None
    if spec.time_formats:
        message = (
            f"the source has timeFormats for {', '.join(spec.time_formats)}, which millrace produce does not write"
        )
        raise MillraceError(Problem(message, "produce messages for a source with timestampFormat alone", str(file)))
    if spec.is_debezium:
        message = "the source has format debezium, whose messages only Debezium writes"
        raise MillraceError(Problem(message, "write --topic and --format json instead of the file", str(file)))
    if spec.protobuf is not None:
        message = "the source's messages are Protobuf, which millrace produce does not write"
        raise MillraceError(Problem(message, "produce them with a program of yours, or write format: json", str(file)))
    return ProduceTarget(
        Connection.of(spec.kafka),
        topic or _only_topic(spec.kafka, file),
        spec.format or RecordFormat.JSON,
        spec.timestamp_format.value,
        spec.ddl,
        _writer_schema(spec, file),
    )


def require_topic(target: ProduceTarget, partitions: int | None) -> int:
    """Return the topic's number of partitions; create the topic with ``partitions`` if it does not exist.

    Raises:
        MillraceError: the topic does not exist and ``partitions`` is None, or the cluster cannot be reached.
    """
    cluster = KafkaCluster(target.connection)
    topic = cluster.topics([target.topic], None).get(target.topic)
    if topic is not None:
        return len(topic.partitions)
    if partitions is None:
        message = f"Kafka at {target.connection.servers} has no topic {target.topic}"
        raise MillraceError(Problem(message, "add --partitions N to create it, or correct its name"))
    admin = AdminClient(target.connection.settings())

    def create() -> None:
        (created,) = admin.create_topics([NewTopic(target.topic, partitions)], request_timeout=_CREATE_SECONDS).values()
        try:
            created.result()
        except KafkaException as error:
            if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:  # an earlier attempt created it after all
                raise

    patiently(create, f"creating topic {target.topic}", target.connection)
    return partitions


def _chosen(queries: Sequence[StreamQuery], name: str | None, file: Path) -> list[StreamQuery]:
    chosen = [query for query in queries if name in (None, query.name)]
    if not chosen:
        names = ", ".join(query.name for query in queries)
        raise MillraceError(Problem(f"the file has no query {name}", f"write one of {names}", str(file)))
    return chosen


def _only_topic(kafka: KafkaSourceSpec, file: Path) -> str:
    topics = kafka.topics or tuple({partition.topic for partition in kafka.partitions or ()})
    if kafka.topic is not None or len(topics) == 1:
        return kafka.topic or topics[0]
    raise MillraceError(Problem("the source may read several topics", "choose one with --topic", str(file)))


def _writer_schema(spec: SourceSpec, file: Path) -> str | None:
    if spec.avro is None:
        return None
    if spec.avro.writer_schema is None:
        message = "the source's messages have the framing of a schema registry, which produce does not write"
        raise MillraceError(Problem(message, "write avro.writerSchema instead of avro.registry", str(file)))
    return spec.avro.writer_schema
