"""Construction of the sources of a StreamQuery from their specs."""

from __future__ import annotations

import atexit
import math
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from millrace_api.errors import MillraceError, MissingInputError, Problem
from millrace_api.model.generators import NexmarkSourceSpec
from millrace_api.model.iceberg import IcebergSourceSpec
from millrace_api.model.kafka import KafkaOffsets, KafkaSourceSpec
from millrace_api.model.lakehouse import DeltaSourceSpec
from millrace_api.model.registries import Avro, Protobuf, RegistryLogin
from millrace_api.model.sources import (
    FileOrder,
    FilesSourceSpec,
    RecordFormat,
    ReplaySourceSpec,
    SourceSpec,
)
from millrace_api.model.status import FailureClass
from millrace_api.sql.schema_ddl import is_nested_time, parse_schema
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path, process_folder
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.option_check import require_options
from millrace_jobs.object_store import ObjectPath
from millrace_jobs.places import Place
from millrace_jobs.schemas.registry import RegistryCredentials, SchemaRegistry
from millrace_jobs.sources.base import CorruptRecords, Rejected, Source
from millrace_jobs.sources.files import FilesSource
from millrace_jobs.sources.formats.avro_records import AvroDecoder
from millrace_jobs.sources.formats.avro_schemas import AvroSchema, read_avro_schema, spark_type_of
from millrace_jobs.sources.formats.column_types import TIMESTAMP, arrow_schema, declared_schema, with_time_formats
from millrace_jobs.sources.formats.connect_json import ConnectJsonDecoder
from millrace_jobs.sources.formats.debezium import envelope_schema
from millrace_jobs.sources.formats.event_time_column import DecoderWithEventTime, field_type, with_event_time
from millrace_jobs.sources.formats.file_formats import file_format
from millrace_jobs.sources.formats.messages import MessageDecoder, RawDecoder, TextDecoder
from millrace_jobs.sources.generated import RateSource
from millrace_jobs.sources.kafka.available_offsets import ChosenPartition, Moment, Subscription
from millrace_jobs.sources.kafka.change_messages import ChangeDecoder
from millrace_jobs.sources.kafka.source import KafkaSource, TableColumns
from millrace_jobs.sources.pacing import RatePace, read_rate_trace
from millrace_jobs.sources.replay import ReplaySource, require_file
from millrace_jobs.sources.static_tables import RecordsAsTable, TableRead, WholeTable

if TYPE_CHECKING:
    from millrace_jobs.sources.formats.protobuf_records import ProtobufDecoder


def open_source(name: str, spec: SourceSpec, state: Place, cache: Path) -> Source:
    """Return the source that a spec describes.

    Args:
        name: the name of the source in the query.
        spec: the settings of the source.
        state: place for the state that the source keeps besides its position; stored with the checkpoint.
        cache: folder for data that the source can recreate.

    Raises:
        MillraceError: the data of the source does not exist, or its schema cannot be read.
    """
    if spec.rate is not None:
        rate, drift = spec.rate, spec.rate.drift.seconds if spec.rate.drift else None
        return RateSource(name, rate.records_per_second, keys=rate.keys, skew=rate.skew, drift=drift, seed=rate.seed)
    if spec.nexmark is not None:
        return _nexmark(name, spec, spec.nexmark)
    wanted = spec.corrupt_records
    letters = str(absolute_path(wanted.path)) if wanted.path else ""  # tasks may run in another folder
    corrupt = CorruptRecords(wanted.policy.value, letters, wanted.topic or "")
    if spec.kafka is not None:
        return _kafka(name, spec, spec.kafka, state, corrupt)
    if spec.files is not None:
        return _files(name, spec, spec.files, state, corrupt)
    if spec.lakehouse is not None:
        return _table(name, spec, spec.lakehouse, state)
    replay = spec.replay
    assert replay is not None
    return ReplaySource(
        name,
        replay.path,
        replay.format.value,
        schema_of(spec),
        replay.time_column,
        str(cache),
        speed=replay.speed or 1.0,
        rate=_pace(replay),
        header=replay.header,
        delimiter=replay.delimiter,
        timestamp_format=spec.timestamp_format.value,
        corrupt=corrupt,
        state=state,
    )


def open_table(name: str, spec: SourceSpec, workspace: Path) -> WholeTable:
    """Return a static table that can be read again and again.

    Args:
        name: the name of the source in the query.
        spec: the settings of the source.
        workspace: folder for what the source needs while it reads.

    Raises:
        MillraceError: the files of the table do not exist, or its columns cannot be read.
    """
    if spec.postgres is not None:
        from millrace_jobs.sources.postgres_table import PostgresTable  # the client library takes time to load

        return PostgresTable(name, spec.postgres, schema_of(spec))
    if spec.mysql is not None:
        from millrace_jobs.sources.mysql_table import MySqlTable  # so does this one

        return MySqlTable(name, spec.mysql, schema_of(spec))
    if spec.delta is not None:
        from millrace_jobs.sources.delta_snapshot import DeltaSnapshot  # so does this library

        return DeltaSnapshot(name, spec.delta, schema_of(spec))
    if spec.iceberg is not None:
        from millrace_jobs.sources.iceberg_snapshot import IcebergSnapshot  # and this one

        return IcebergSnapshot(name, spec.iceberg, schema_of(spec))
    return _FilesAsTable(name, spec, workspace / "static" / name)


@dataclass(frozen=True)
class _FilesAsTable:
    """Files as a table; each read forgets which files the one before has seen."""

    name: str
    spec: SourceSpec
    workspace: Path

    def read(self, known: str | None) -> TableRead:
        self.workspace.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=self.workspace))
        try:
            opened = RecordsAsTable(open_source(self.name, self.spec, folder, folder)).read(known)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

        def records() -> Iterator[pa.RecordBatch | Rejected]:
            try:
                yield from opened.records
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        return TableRead(opened.version, records())


def check_input(name: str, spec: SourceSpec, state: Path) -> None:
    """Check the files of a source without reading records, or the columns of a table without asking for it.

    Args:
        name, spec, state: as for ``open_source``.

    Raises:
        MillraceError: the files do not exist, or the columns of the first one do not match the schema.
    """
    if spec.files is not None or (spec.lakehouse is not None and not spec.is_static):
        open_source(name, spec, state, state)
    elif spec.replay is not None:
        replay = spec.replay
        require_file(name, replay.path)
        file_format(
            replay.format.value,
            schema_of(spec),
            header=replay.header,
            delimiter=replay.delimiter,
            timestamp_format=spec.timestamp_format.value,
        ).check(replay.path)
        _pace(replay)
    elif spec.is_whole:
        open_table(name, spec, state)


def schema_of(spec: SourceSpec) -> pa.Schema:
    """Return the Arrow schema of a source's records, with the metadata of Kafka where it has that.

    Raises:
        MillraceError: the schema does not parse, or a type in it cannot be read from records.
    """
    assert spec.schema_text is not None
    if spec.kafka is None or not spec.kafka.include_metadata:
        return _with_event_time(_with_formats(declared_schema(spec.schema_text), spec), spec)
    from millrace_jobs.sources.kafka.metadata import METADATA  # the client library takes time to load

    columns = [(column.name, column.type) for column in parse_schema(spec.schema_text)]
    declared = arrow_schema([each for each in columns if each[0] not in METADATA.names])
    return pa.schema([*_with_event_time(_with_formats(declared, spec), spec), *METADATA])


def _with_formats(schema: pa.Schema, spec: SourceSpec) -> pa.Schema:
    return with_time_formats(schema, spec.time_formats)


def _with_event_time(schema: pa.Schema, spec: SourceSpec) -> pa.Schema:
    """Return the schema with a column for the event time of the source, if that is a field of a struct."""
    watermark = spec.watermark
    nested = watermark is not None and is_nested_time(watermark.column)
    return with_event_time(schema, watermark.column) if watermark is not None and nested else schema


def _nexmark(name: str, spec: SourceSpec, nexmark: NexmarkSourceSpec) -> Source:
    from millrace_jobs.sources.nexmark import NexmarkSource  # building its text tables takes half a second

    return NexmarkSource(
        name,
        schema_of(spec),
        nexmark.stream.value,
        nexmark.records_per_second,
        skew=nexmark.skew,
        drift=nexmark.drift.seconds if nexmark.drift else None,
        seed=nexmark.seed,
    )


def _files(name: str, spec: SourceSpec, files: FilesSourceSpec, state: Place, corrupt: CorruptRecords) -> FilesSource:
    mirrored = state if isinstance(state, ObjectPath) else None
    folder = state if isinstance(state, Path) else _working_folder()
    source = FilesSource(
        name,
        files.path,
        files.format.value,
        schema_of(spec),
        str(folder),
        max_files_per_batch=files.max_files_per_batch,
        header=files.header,
        delimiter=files.delimiter,
        timestamp_format=spec.timestamp_format.value,
        corrupt=corrupt,
        mirrored=mirrored,
        in_path=files.partition_columns,
        by_name=files.order is FileOrder.BY_NAME,
    )
    try:
        source.check()
    except MillraceError as error:
        error.failure = FailureClass.SOURCE  # the class that the batch reading the file would report
        raise
    return source


def _table(name: str, spec: SourceSpec, table: DeltaSourceSpec | IcebergSourceSpec, state: Place) -> Source:
    from millrace_jobs.sources.lakehouse.source import LakehouseSource  # only these queries load it

    source = LakehouseSource(name, table, schema_of(spec), state, spec.timestamp_format.value)
    try:
        source.check()
    except MillraceError as error:
        error.failure = FailureClass.SOURCE_MISSING if isinstance(error, MissingInputError) else FailureClass.SOURCE
        raise
    return source


def _working_folder() -> Path:
    """Return a new folder, which is removed at the end of this process."""
    folder, _ = process_folder("millrace-files-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _pace(replay: ReplaySourceSpec) -> float | RatePace | None:
    if replay.rate_trace is None:
        return replay.rate
    trace = replay.rate_trace
    require_data(trace.path)
    return read_rate_trace(trace.path, time_column=trace.time_column, rate_column=trace.rate_column, scale=trace.scale)


def _kafka(name: str, spec: SourceSpec, kafka: KafkaSourceSpec, state: Place, corrupt: CorruptRecords) -> KafkaSource:
    """Return the Kafka source of a spec without contacting Kafka, so that a query can be explained offline."""
    require_options(kafka, f"spec.sources.{name}.kafka")
    table = None
    if spec.table is not None and spec.watermark is not None:
        table = TableColumns(spec.table.keys, spec.watermark.column, spec.timestamp_format.value)
    return KafkaSource(
        name,
        Connection.of(kafka),
        _subscription(name, kafka),
        _changes(name, spec) if spec.is_debezium else _timed(_decoder(name, spec), spec),
        state,
        include_metadata=kafka.include_metadata,
        max_records_per_batch=kafka.max_records_per_batch,
        max_bytes_per_batch=kafka.max_bytes_per_batch.bytes if kafka.max_bytes_per_batch else None,
        corrupt=corrupt,
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


def _moment(offsets: KafkaOffsets | None, timestamp: str | None, field: str) -> Moment | None:
    if timestamp is not None:
        try:
            return math.ceil(datetime.fromisoformat(timestamp).timestamp() * 1000)
        except ValueError as error:
            message = f"the time {timestamp} does not exist: {error}"
            raise MillraceError(Problem(message, "correct the date or the time", field=field)) from None
    if offsets is None:
        return None
    return "earliest" if offsets is KafkaOffsets.EARLIEST else "latest"


def _timed(decoder: MessageDecoder, spec: SourceSpec) -> MessageDecoder:
    """Return a decoder that also yields the event time, if that is a field of a struct."""
    schema = _with_event_time(decoder.schema, spec)
    return decoder if schema is decoder.schema else DecoderWithEventTime(decoder, schema)


def _decoder(name: str, spec: SourceSpec) -> MessageDecoder:
    if spec.record_format is RecordFormat.RAW:
        return RawDecoder()
    if spec.avro is not None:
        return _avro(name, spec, spec.avro)
    if spec.protobuf is not None:
        return _protobuf(name, spec, spec.protobuf)
    assert spec.ddl is not None
    schema = _with_formats(declared_schema(spec.ddl), spec)
    format: Literal["csv", "json"] = "csv" if spec.record_format is RecordFormat.CSV else "json"
    return TextDecoder(format, schema, spec.timestamp_format.value)


def _changes(name: str, spec: SourceSpec) -> ChangeDecoder:
    assert spec.ddl is not None
    assert spec.table is not None
    assert spec.kafka is not None
    columns = _with_formats(declared_schema(spec.ddl), spec)
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
        assert spec.ddl is not None
        registry = _registry(avro.registry, avro.login, f"{field}.avro")
        return AvroDecoder(_with_formats(declared_schema(spec.ddl), spec), spec.timestamp_format.value, registry)
    assert avro.writer_schema is not None
    try:
        writer = read_avro_schema(avro.writer_schema)
        schema = declared_schema(spec.ddl) if spec.ddl is not None else _columns_of(writer)
        schema = _with_formats(schema, spec)
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
        assert spec.ddl is not None
        registry = _registry(protobuf.registry, protobuf.login, f"{field}.protobuf")
        schema = _with_formats(declared_schema(spec.ddl), spec)
        return ProtobufDecoder(schema, spec.timestamp_format.value, registry, protobuf.message)
    assert protobuf.message is not None
    try:
        if protobuf.descriptor_file is not None:
            files = read_descriptor_file(protobuf.descriptor_file)
        else:
            files = read_descriptor_text(protobuf.descriptor_set or "")
        writer = ProtobufSchema(files, protobuf.message)
        check_schema(writer)
        schema = _with_formats(declared_schema(spec.ddl) if spec.ddl is not None else columns_of(writer), spec)
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


def _columns_of(writer: AvroSchema) -> pa.Schema:
    """Return all fields of an Avro schema as columns. Raises ValueError if no column can hold a field."""
    for name, kind in writer.types.items():
        if isinstance(kind, str):
            raise ValueError(f"field {name} is {kind}, which no column can hold")
    return pa.schema([(name, spark_type_of(kind)) for name, kind in writer.types.items()])
