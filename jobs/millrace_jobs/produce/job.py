"""One run of ``millrace produce``: check the request, fill the topic, print the summary.

The topic is named on the command line, or taken from a query that reads it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.kafka import KafkaConnection, KafkaSourceSpec
from millrace_api.model.sources import RecordFormat, SourceSpec
from millrace_api.model.values import PositiveDuration
from millrace_api.validation.loading import load_queries
from millrace_jobs.kafka.cluster import KafkaCluster
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import error_of, patiently
from millrace_jobs.process.signals import on_shutdown_request, restore_default_action
from millrace_jobs.produce.delivery import Delivery, Messages, SendLimits, send_all
from millrace_jobs.produce.records import (
    Encode,
    RecordInput,
    avro_encoder,
    csv_encoder,
    file_input,
    generator_input,
    json_encoder,
    key_encoder,
)
from millrace_jobs.sources.pacing import RatePace, read_rate_trace

_CREATE_SECONDS = 10.0  # timeout of one request to create a topic, in seconds

_EVENT_RATE = 1000.0  # generated records per second of event time if the request gives no rate


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


def _named_target(topic: str | None, servers: str | None, format: str) -> ProduceTarget:
    """Return the topic of ``--topic`` on a cluster without login."""
    if not topic or not servers:  # an option may be empty: --topic "$TOPIC" with a variable that is not set
        missing = "--bootstrap-servers" if topic else "--topic"
        hint = "write both, or name the YAML file of a query that reads the topic"
        raise MillraceError(Problem(f"{missing} is missing", hint))
    if format not in ("json", "csv", "raw"):
        hint = "write json, csv or raw; for avro, name the YAML file of a query that has the writer schema"
        raise MillraceError(Problem(f"--format {format} is unknown", hint))
    return ProduceTarget(Connection.of(KafkaConnection(bootstrap_servers=servers)), topic, RecordFormat(format))


def _query_target(request: ProduceRequest, file: Path) -> ProduceTarget:
    """Return the topic that a query's Kafka source reads, with the source's cluster and format."""
    query, source = request.query, request.source
    queries = load_queries(file, request.connections or ())
    chosen = [each for each in queries if query in (None, each.name)]
    if not chosen:
        hint = f"write one of {', '.join(each.name for each in queries)}"
        raise MillraceError(Problem(f"the file has no query {query}", hint, str(file)))
    found = {
        f"{each.name}.{name}": spec
        for each in chosen
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
        request.topic or _only_topic(spec.kafka, file),
        spec.format or RecordFormat.JSON,
        spec.timestamp_format.value,
        spec.ddl,
        _writer_schema(spec, file),
    )


def require_topic(target: ProduceTarget, partitions: int | None) -> int:
    """Return the topic's number of partitions; create the topic with ``partitions`` if it does not exist.

    Raises MillraceError if the topic does not exist and ``partitions`` is None, or the cluster cannot be reached.
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
        raise MillraceError(Problem(message, "give the source avro.writerSchema", str(file)))
    return spec.avro.writer_schema


@dataclass(frozen=True)
class ProduceRequest:
    """The options of the command, as the user wrote them and under their names (``produce.command``)."""

    file: Path | None
    query: str | None
    connections: list[Path] | None
    source: str | None
    topic: str | None
    bootstrap_servers: str | None
    format: str | None
    partitions: int | None
    input: Path | None
    schema: str | None
    header: bool
    delimiter: str
    generate: str | None
    keys: int
    skew: float
    drift: str | None
    seed: int
    start: str | None
    key: str | None
    rate: float | None
    rate_trace: Path | None
    rate_scale: float
    count: int | None
    duration: str | None


def run(request: ProduceRequest) -> None:
    """Fill the topic and print a summary.

    Raises MillraceError if the request is invalid, or messages could not be delivered.
    """
    target = _target(request)
    pace = _pace(request)
    source = _input(request, target, pace)
    encode = _encoder(request, target, source.schema)
    limits = _limits(request, pace)
    partitions = require_topic(target, request.partitions)
    delivery = Delivery(target.connection, target.topic)
    console = Console()
    began = time.monotonic()
    with _stop_on_signals() as stop, _progress(Console(stderr=True)) as bar:
        task = bar.add_task(target.topic, total=limits.count, rate="-")

        def advanced(messages: int) -> None:
            elapsed = max(time.monotonic() - began, 1e-9)
            bar.update(task, advance=messages, rate=f"{delivery.delivered / elapsed:,.0f}")

        send_all(source.records(), encode, delivery, pace=pace, limits=limits, stop=stop, advanced=advanced)
        delivery.flush()
        outcome = "stopped" if stop.is_set() else "finished"
    seconds = time.monotonic() - began
    _print_summary(console, outcome, target.topic, partitions, delivery, seconds)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} messages/s"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _print_summary(
    console: Console, outcome: str, topic: str, partitions: int, delivery: Delivery, seconds: float
) -> None:
    per_second = delivery.delivered / seconds if seconds else 0.0
    if console.is_terminal:
        text = (
            f"{topic}: {delivery.delivered:,} messages delivered in {seconds:.1f} s"
            f" ({per_second:,.0f} messages/s, {decimal(delivery.bytes)}, {partitions} partitions)"
        )
        if outcome == "stopped":
            text += "; stopped before the end"
    else:
        text = (
            f"{outcome}={topic} messages={delivery.sent} delivered={delivery.delivered} bytes={delivery.bytes}"
            f" partitions={partitions} seconds={seconds:.1f} messages_per_s={per_second:.0f}"
        )
    console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Provide an event that Ctrl-C and SIGTERM set; repeating the same signal ends the process."""
    stop = threading.Event()

    def request(number: int) -> None:
        stop.set()
        restore_default_action(number)

    restore = on_shutdown_request(request)
    try:
        yield stop
    finally:
        restore()


def _target(request: ProduceRequest) -> ProduceTarget:
    if request.file is None:
        return _named_target(request.topic, request.bootstrap_servers, request.format or "json")
    for option, value in (("--bootstrap-servers", request.bootstrap_servers), ("--format", request.format)):
        if value is not None:
            raise MillraceError(Problem(f"{option} {value} is set by the query", "leave it out", str(request.file)))
    return _query_target(request, request.file)


def _pace(request: ProduceRequest) -> RatePace | None:
    if request.rate is not None and request.rate_trace is not None:
        raise MillraceError(Problem("--rate and --rate-trace exclude one another", "keep one of them"))
    for option, value in (("--rate", request.rate), ("--rate-scale", request.rate_scale)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise MillraceError(Problem(f"{option} is {value:g}", "write a number above 0"))
    if request.rate_trace is not None:
        return read_rate_trace(str(request.rate_trace), scale=request.rate_scale)
    return RatePace.constant(request.rate) if request.rate is not None else None


def _input(request: ProduceRequest, target: ProduceTarget, pace: RatePace | None) -> RecordInput:
    if (request.input is None) == (request.generate is None):
        raise MillraceError(
            Problem("exactly one of --input and --generate is needed", "write --input FILE, or --generate rate")
        )
    if request.input is not None:
        return file_input(
            request.input,
            request.schema or target.schema,
            raw=target.format is RecordFormat.RAW,
            header=request.header,
            delimiter=request.delimiter,
            timestamp_format=target.timestamp_format,
        )
    assert request.generate is not None
    if target.format is RecordFormat.RAW:
        raise MillraceError(Problem("format raw sends the lines of a file as they are", "write --input FILE"))
    return generator_input(
        request.generate,
        pace or RatePace.constant(_EVENT_RATE),
        keys=request.keys,
        skew=request.skew,
        drift=_seconds(request.drift, "--drift"),
        seed=request.seed,
        start=_moment(request.start),
    )


def _encoder(request: ProduceRequest, target: ProduceTarget, schema: pa.Schema) -> Callable[[pa.RecordBatch], Messages]:
    if request.key is not None and request.key not in schema.names:
        raise MillraceError(
            Problem(f"--key {request.key} is not a column of the records", f"write one of {', '.join(schema.names)}")
        )
    values = _value_encoder(target, schema)
    keys = key_encoder(request.key, target.timestamp_format) if request.key is not None else None
    return lambda records: (values(records), keys(records) if keys is not None else None)


def _value_encoder(target: ProduceTarget, schema: pa.Schema) -> Encode:
    if target.format is RecordFormat.RAW:
        return lambda records: records.column(0).to_pylist()
    if target.format is RecordFormat.AVRO:
        assert target.writer_schema is not None
        return avro_encoder(target.writer_schema)
    encoder = csv_encoder if target.format is RecordFormat.CSV else json_encoder
    return encoder(schema, target.timestamp_format)


def _limits(request: ProduceRequest, pace: RatePace | None) -> SendLimits:
    duration = _seconds(request.duration, "--duration")
    if duration is None and request.rate_trace is not None and pace is not None:
        duration = float(pace.times[-1]) or None
    return SendLimits(request.count, duration)


def _seconds(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    try:
        return PositiveDuration(text).seconds
    except ValueError:
        hint = "write whole numbers, each with a unit, such as 500ms, 30s or 1h30m"
        raise MillraceError(Problem(f"{option} {text} is not a duration longer than zero", hint)) from None


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "write it as 2026-01-31T12:00:00Z"
        raise MillraceError(Problem(f"--start {text} is not a time", hint)) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
