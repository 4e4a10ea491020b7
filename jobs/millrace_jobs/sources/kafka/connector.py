"""The connector of the source ``kafka``."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.kafka import EndingOffsets, KafkaOffsets, KafkaSourceSpec
from millrace_api.model.registries import Avro, Protobuf, RegistryLogin
from millrace_api.model.sources import RecordFormat, SourceSpec
from millrace_api.sql.schema_ddl import parse_schema
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.option_check import require_options
from millrace_jobs.schemas.registry import RegistryCredentials, SchemaRegistry
from millrace_jobs.sources.base import Source
from millrace_jobs.sources.connector import SourceConnector, SourceContext, completed_schema, with_event_time_of
from millrace_jobs.sources.formats.avro_records import AvroDecoder, columns_of_avro, read_avro_schema
from millrace_jobs.sources.formats.column_types import TIMESTAMP, arrow_schema, declared_schema, with_time_formats
from millrace_jobs.sources.formats.connect_json import ConnectJsonDecoder
from millrace_jobs.sources.formats.debezium import envelope_schema
from millrace_jobs.sources.formats.format_reader import DecoderWithEventTime, field_type
from millrace_jobs.sources.formats.messages import MessageDecoder, RawDecoder, TextDecoder
from millrace_jobs.sources.kafka.message_records import METADATA, ChangeDecoder
from millrace_jobs.sources.kafka.offsets import ChosenPartition, Moment, Subscription
from millrace_jobs.sources.kafka.source import KafkaSource, TableColumns

if TYPE_CHECKING:
    from millrace_jobs.sources.formats.protobuf_records import ProtobufDecoder


class KafkaConnector(SourceConnector[KafkaSourceSpec]):
    """Opens topics."""

    def schema(self, source: SourceSpec) -> pa.Schema:
        """Return the schema of the records of a source, with the columns about messages where it has them."""
        if source.kafka is None or not source.kafka.include_metadata:
            return super().schema(source)
        assert source.schema_text is not None
        columns = parse_schema(source.schema_text)
        declared = arrow_schema([column for column in columns if column.name not in METADATA.names])
        return pa.schema([*completed_schema(declared, source), *METADATA])

    def open(self, spec: KafkaSourceSpec, context: SourceContext) -> Source:
        """Return the source without contacting Kafka, so that a query can be explained offline."""
        name, source = context.name, context.source
        require_options(spec, f"spec.sources.{name}.kafka")
        table = None
        if source.table is not None and source.watermark is not None:
            table = TableColumns(source.table.keys, source.watermark.column, source.timestamp_format.value)
        return KafkaSource(
            name,
            Connection.of(spec),
            _subscription(name, spec),
            _changes(name, source) if source.is_debezium else _decoder_with_time(name, source),
            context.state,
            include_metadata=spec.include_metadata,
            max_records_per_batch=spec.max_records_per_batch,
            max_bytes_per_batch=spec.max_bytes_per_batch.bytes if spec.max_bytes_per_batch else None,
            corrupt=context.corrupt,
            table=table,
        )


def _subscription(name: str, kafka: KafkaSourceSpec) -> Subscription:
    field = f"spec.sources.{name}.kafka"
    chosen = tuple(
        ChosenPartition(Partition(each.topic, each.partition), each.starting_offset, each.ending_offset)
        for each in kafka.partitions or ()
    )
    return Subscription(
        topics=(kafka.topic,) if kafka.topic else kafka.topics or (),
        pattern=kafka.topic_pattern,
        chosen=chosen,
        starting=_moment(kafka.starting_offsets, kafka.starting_timestamp, f"{field}.startingTimestamp") or "earliest",
        ending=_moment(kafka.ending_offsets, kafka.ending_timestamp, f"{field}.endingTimestamp"),
    )


def _moment(offsets: KafkaOffsets | EndingOffsets | None, timestamp: str | None, field: str) -> Moment | None:
    if timestamp is not None:
        try:
            return math.ceil(datetime.fromisoformat(timestamp).timestamp() * 1000)
        except ValueError as error:
            message = f"the time {timestamp} does not exist: {error}"
            raise MillraceError(Problem(message, "correct the date or the time", field=field)) from None
    if offsets is None:
        return None
    return "earliest" if offsets is KafkaOffsets.EARLIEST else "latest"


def _decoder_with_time(name: str, spec: SourceSpec) -> MessageDecoder:
    """Return a decoder that also yields the event time, if that is a field of a struct."""
    decoder = _decoder(name, spec)
    schema = with_event_time_of(decoder.schema, spec)
    return decoder if schema is decoder.schema else DecoderWithEventTime(decoder, schema)


def _decoder(name: str, spec: SourceSpec) -> MessageDecoder:
    if spec.record_format is RecordFormat.RAW:
        return RawDecoder()
    if spec.avro is not None:
        return _avro(name, spec, spec.avro)
    if spec.protobuf is not None:
        return _protobuf(name, spec, spec.protobuf)
    format: Literal["csv", "json"] = "csv" if spec.record_format is RecordFormat.CSV else "json"
    return TextDecoder(format, _declared(spec), spec.timestamp_format.value)


def _changes(name: str, spec: SourceSpec) -> ChangeDecoder:
    assert spec.table is not None
    assert spec.kafka is not None
    columns = _declared(spec)
    keys = pa.schema([columns.field(key) for key in spec.table.keys])
    written = spec.timestamp_format.value
    values: ConnectJsonDecoder | AvroDecoder
    message_keys: ConnectJsonDecoder | AvroDecoder
    if spec.avro is None:
        values, message_keys = (ConnectJsonDecoder(each, written) for each in (envelope_schema(columns), keys))
    else:
        assert spec.avro.registry is not None
        registry = _registry(spec.avro.registry, spec.avro.login, f"spec.sources.{name}.avro")
        values, message_keys = (
            AvroDecoder(each, written, registry, of_connect=True) for each in (envelope_schema(columns), keys)
        )
    return ChangeDecoder(columns, spec.table.keys, values, message_keys, include_metadata=spec.kafka.include_metadata)


def _avro(name: str, spec: SourceSpec, avro: Avro) -> AvroDecoder:
    field = f"spec.sources.{name}"
    if avro.registry is not None:
        registry = _registry(avro.registry, avro.login, f"{field}.avro")
        return AvroDecoder(_declared(spec), spec.timestamp_format.value, registry)
    assert avro.writer_schema is not None
    try:
        writer = read_avro_schema(avro.writer_schema)
        schema = (
            _declared(spec) if spec.ddl is not None else with_time_formats(columns_of_avro(writer), spec.time_formats)
        )
        decoder = AvroDecoder(schema, spec.timestamp_format.value, writer)
        decoder.check(writer)
    except ValueError as error:
        hint = "correct it, or declare schema: with the columns to be read"
        raise MillraceError(Problem(f"the Avro schema cannot be used: {error}", hint, field=f"{field}.avro")) from None
    _check_columns(field, spec, schema, "the Avro schema")
    return decoder


def _protobuf(name: str, spec: SourceSpec, protobuf: Protobuf) -> ProtobufDecoder:
    from millrace_jobs.schemas.protobuf_schemas import (
        ProtobufSchema,
        check_schema,
        read_descriptor_file,
        read_descriptor_text,
    )
    from millrace_jobs.sources.formats.protobuf_records import ProtobufDecoder, columns_of

    field = f"spec.sources.{name}"
    if protobuf.registry is not None:
        registry = _registry(protobuf.registry, protobuf.login, f"{field}.protobuf")
        return ProtobufDecoder(_declared(spec), spec.timestamp_format.value, registry, protobuf.message)
    assert protobuf.message is not None
    try:
        if protobuf.descriptor_file is not None:
            files = read_descriptor_file(protobuf.descriptor_file)
        else:
            files = read_descriptor_text(protobuf.descriptor_set or "")
        writer = ProtobufSchema(files, protobuf.message)
        check_schema(writer)
        schema = _declared(spec) if spec.ddl is not None else with_time_formats(columns_of(writer), spec.time_formats)
        decoder = ProtobufDecoder(schema, spec.timestamp_format.value, writer)
        decoder.check(writer)
    except ValueError as error:
        message, hint = f"the descriptor set cannot be used: {error}", "correct it, or declare schema: with the columns"
        raise MillraceError(Problem(message, f"{hint} to be read", field=f"{field}.protobuf")) from None
    _check_columns(field, spec, schema, f"the message {protobuf.message}")
    return decoder


def _registry(url: str, login: RegistryLogin | None, field: str) -> SchemaRegistry:
    try:
        return SchemaRegistry(url, RegistryCredentials.of(login), f"{field}.registry")
    except MillraceError as error:
        raise MillraceError(*(replace(each, field=f"{field}.registry") for each in error.problems)) from None


def _check_columns(field: str, spec: SourceSpec, schema: pa.Schema, what: str) -> None:
    """Raise MillraceError unless the event time and the key of a table are columns of what messages are written by."""
    watermark = spec.watermark.column if spec.watermark else None
    if watermark is not None and field_type(schema, watermark) != TIMESTAMP:
        message = f"{watermark} is not a timestamp of {what}"
        raise MillraceError(Problem(message, "name one that is", field=f"{field}.watermark.column"))
    for key in spec.table.keys if spec.table else ():
        if key not in schema.names:
            message, hint = f"{key} is not a column of {what}", f"write some of {', '.join(schema.names)}"
            raise MillraceError(Problem(message, hint, field=f"{field}.table.keys"))


def _declared(spec: SourceSpec) -> pa.Schema:
    assert spec.ddl is not None
    return with_time_formats(declared_schema(spec.ddl), spec.time_formats)
