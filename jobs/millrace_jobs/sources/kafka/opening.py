"""Construction of a Kafka source from its spec, without contacting Kafka: a query can be explained offline."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.kafka import KafkaOffsets
from millrace_api.model.kafka import KafkaSourceSpec as KafkaSpec
from millrace_api.model.sources import Avro, RecordFormat, SourceSpec
from millrace_api.sql.schema_ddl import parse_schema
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.formats.avro_records import AvroDecoder
from millrace_jobs.sources.formats.avro_schema import AvroSchema, read_avro_schema, spark_type_of
from millrace_jobs.sources.formats.messages import MessageDecoder, RawDecoder, TextDecoder
from millrace_jobs.sources.formats.schema import TIMESTAMP, arrow_schema
from millrace_jobs.sources.formats.schema_registry import SchemaRegistry
from millrace_jobs.sources.kafka.frontier import Chosen, Moment, Subscription
from millrace_jobs.sources.kafka.source import KafkaSource


def open_kafka(name: str, spec: SourceSpec, state: Path, corrupt: CorruptRecords) -> KafkaSource:
    """Return the Kafka source that a spec describes. Raises MillraceError if the spec contradicts itself."""
    kafka = spec.kafka
    assert kafka is not None
    return KafkaSource(
        name,
        Connection.of(kafka),
        _subscription(kafka),
        _decoder(name, spec),
        str(state),
        include_metadata=kafka.include_metadata,
        max_records_per_batch=kafka.max_records_per_batch,
        max_bytes_per_batch=kafka.max_bytes_per_batch.bytes if kafka.max_bytes_per_batch else None,
        corrupt=corrupt,
    )


def _subscription(kafka: KafkaSpec) -> Subscription:
    chosen = tuple(
        Chosen(Partition(each.topic, each.partition), each.starting_offset, each.ending_offset)
        for each in kafka.partitions or ()
    )
    return Subscription(
        topics=(kafka.topic,) if kafka.topic else kafka.topics or (),
        pattern=kafka.topic_pattern,
        chosen=chosen,
        starting=_moment(kafka.starting_offsets, kafka.starting_timestamp) or "earliest",
        ending=_moment(kafka.ending_offsets, kafka.ending_timestamp),
    )


def _moment(offsets: KafkaOffsets | None, timestamp: str | None) -> Moment | None:
    if timestamp is not None:
        return math.ceil(datetime.fromisoformat(timestamp).timestamp() * 1000)
    if offsets is None:
        return None
    return "earliest" if offsets is KafkaOffsets.EARLIEST else "latest"


def _decoder(name: str, spec: SourceSpec) -> MessageDecoder:
    if spec.record_format is RecordFormat.RAW:
        return RawDecoder()
    if spec.avro is not None:
        return _avro(name, spec, spec.avro)
    assert spec.ddl is not None
    schema = _declared(spec.ddl)
    if spec.record_format is RecordFormat.CSV:
        return TextDecoder.csv(schema, spec.timestamp_format.value)
    return TextDecoder.json(schema, spec.timestamp_format.value)


def _avro(name: str, spec: SourceSpec, avro: Avro) -> AvroDecoder:
    field = f"spec.sources.{name}"
    if avro.registry is not None:
        assert spec.ddl is not None
        return AvroDecoder(_declared(spec.ddl), spec.timestamp_format.value, SchemaRegistry(avro.registry))
    assert avro.writer_schema is not None
    try:
        writer = read_avro_schema(avro.writer_schema)
        schema = _declared(spec.ddl) if spec.ddl is not None else _columns_of(writer)
        decoder = AvroDecoder(schema, spec.timestamp_format.value, writer)
        decoder.check(writer)
    except ValueError as error:
        hint = "correct it, or declare schema: with the columns to be read"
        raise MillraceError(Problem(f"the Avro schema cannot be used: {error}", hint, field=f"{field}.avro")) from None
    watermark = spec.watermark.column if spec.watermark else None
    if watermark is not None and (watermark not in schema.names or schema.field(watermark).type != TIMESTAMP):
        message = f"{watermark} is not a timestamp of the Avro schema"
        raise MillraceError(Problem(message, "name one that is", field=f"{field}.watermark.column"))
    return decoder


def _columns_of(writer: AvroSchema) -> pa.Schema:
    """Return all fields of an Avro schema as columns. Raises ValueError if no column can hold a field."""
    for name, kind in writer.types.items():
        if isinstance(kind, str):
            raise ValueError(f"field {name} is {kind}, which no column can hold")
    return pa.schema([(name, spark_type_of(kind)) for name, kind in writer.types.items()])


def _declared(ddl: str) -> pa.Schema:
    return arrow_schema([(column.name, column.type) for column in parse_schema(ddl)])
