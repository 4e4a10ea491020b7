"""Where records come from: files, recordings, generators, Kafka, classes in Python, tables that are read as a whole."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, at_most_one, exactly_one
from millrace_api.model.changes import FREE, RECORDS, CheckpointChange
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.files import FileFormat, FilesSourceSpec, ReplaySourceSpec
from millrace_api.model.generators import NexmarkSourceSpec, RateSourceSpec
from millrace_api.model.iceberg import IcebergSourceSpec
from millrace_api.model.kafka import KafkaSourceSpec
from millrace_api.model.lakehouse import DeltaSourceSpec
from millrace_api.model.mysql import MySqlSourceSpec
from millrace_api.model.postgres import PostgresSourceSpec
from millrace_api.model.python_source import PYTHON_SOURCE_RULES, PythonSourceSpec
from millrace_api.model.registries import Avro, Protobuf
from millrace_api.model.tables import CHANGED_AT, STATIC_TABLE_RULES, WHOLE_TABLES, TableSpec
from millrace_api.model.values import (
    ColumnPath,
    Duration,
    Path,
    Text,
    TimeFormat,
    Topic,
)


class RecordFormat(StrEnum):
    """How a record is written in a Kafka message."""

    JSON = "json"
    CSV = "csv"
    AVRO = "avro"
    DEBEZIUM = "debezium"
    PROTOBUF = "protobuf"
    RAW = "raw"


class Watermark(Model):
    """How late records may be."""

    column: Annotated[ColumnPath, CheckpointChange.STATE] = Field(
        description="TIMESTAMP column with the event time, or a field of a STRUCT, such as event.time.",
        examples=["pickup"],
    )
    delay: Annotated[Duration, FREE] = Field(
        description="How long after the latest event time records still count.", examples=["30s"]
    )


class TimestampFormat(StrEnum):
    """How a TIMESTAMP is written in text: ISO 8601, or a number since 1970-01-01 UTC."""

    ISO = "iso"
    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    MICROSECONDS = "microseconds"


class CorruptPolicy(StrEnum):
    """What happens to a record that does not decode."""

    FAIL = "Fail"
    DROP = "Drop"
    DEAD_LETTER = "DeadLetter"


class CorruptRecordsSpec(Model):
    """What to do with records that do not decode."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "policy DeadLetter needs a place for the records",
            "add path: a folder for them (or, for Kafka, topic: a topic)",
            ("policy",),
            "self.policy != 'DeadLetter' || has(self.path) || has(self.topic)",
            lambda c: c.policy is not CorruptPolicy.DEAD_LETTER or c.path is not None or c.topic is not None,
        ),
        Rule(
            "path and topic are for policy DeadLetter only",
            "write policy: DeadLetter, or leave them out",
            ("policy", "path", "topic"),
            "self.policy == 'DeadLetter' || (!has(self.path) && !has(self.topic))",
            lambda c: c.policy is CorruptPolicy.DEAD_LETTER or (c.path is None and c.topic is None),
        ),
        at_most_one("path", "topic", hint="keep one place for the records"),
    )

    policy: CorruptPolicy = Field(
        default=CorruptPolicy.FAIL,
        description="Fail the query, Drop and count the record, or write it to path or topic (DeadLetter).",
    )
    path: Annotated[Path | None, External(ExternalKind.FILES)] = Field(
        default=None, description="Folder for the records as JSON lines, for DeadLetter."
    )
    topic: Topic | None = Field(default=None, description="Kafka topic for the records, for DeadLetter.")


_KAFKA_METADATA = (
    "_key BINARY, _headers ARRAY<STRUCT<key: STRING, value: BINARY>>, _topic STRING, _partition INT, "
    "_offset BIGINT, _timestamp TIMESTAMP"
)


_KINDS = ("files", "replay", "rate", "kafka", "nexmark", *WHOLE_TABLES, "python")


class SourceSpec(Model):
    """One named stream of records; its name is the table's name in the SQL."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one(*_KINDS, hint='write one kind, such as files: {path: "data/*.csv"}'),
        Rule(
            "schema is missing",
            "write the columns and their types, such as schema: city STRING, fare DOUBLE, at TIMESTAMP",
            (),
            "has(self.schema) || !(has(self.files) || has(self.replay) || (has(self.kafka) && "
            "(!has(self.format) || self.format in ['json', 'csv'] || "
            "(has(self.avro) && !has(self.avro.writerSchema)))))",
            lambda s: s.ddl is not None or s.protobuf is not None or not (s.files or s.replay or s.needs_schema),
        ),
        Rule(
            "schema is missing: messages name their own, which may be many",
            "write the columns to be read and their types, such as schema: id BIGINT, at TIMESTAMP",
            ("protobuf",),
            "!has(self.protobuf) || has(self.protobuf.descriptorFile) || has(self.protobuf.descriptorSet) || "
            "has(self.schema)",
            lambda s: s.ddl is not None or s.protobuf is None or s.protobuf.registry is None,
        ),
        Rule(
            "schema is fixed for rate, nexmark and format raw",
            "leave schema out",
            ("ddl",),
            "!has(self.schema) || !(has(self.rate) || has(self.nexmark) || (has(self.format) && self.format == 'raw'))",
            lambda s: s.ddl is None or not (s.rate or s.nexmark or s.format is RecordFormat.RAW),
        ),
        Rule(
            "format beside the kind is for kafka only",
            "write it inside the kind, such as files: {path: ..., format: csv}, or leave it out",
            ("format",),
            "!has(self.format) || has(self.kafka)",
            lambda s: s.format is None or s.kafka is not None,
        ),
        Rule(
            "avro and format: avro belong together",
            "write both, or neither",
            ("format", "avro"),
            "has(self.avro) == (has(self.format) && self.format == 'avro') || "
            "(has(self.format) && self.format == 'debezium')",
            lambda s: (s.avro is not None) == (s.format is RecordFormat.AVRO) or s.is_debezium,
        ),
        Rule(
            "Debezium's messages in Avro name their schema in a registry",
            "write avro: {}, and connection: NAME of a Connection with a registry",
            ("avro",),
            "!has(self.format) || self.format != 'debezium' || !has(self.avro) || !has(self.avro.writerSchema)",
            lambda s: not s.is_debezium or s.avro is None or s.avro.registry is not None,
        ),
        Rule(
            "format debezium is that of a table, whose rows change at the times of their changes in the database",
            f"write schema, table: {{keys: [...]}} and watermark: {{column: {CHANGED_AT}, delay: 0s}}",
            ("format", "table", "watermark"),
            "!has(self.format) || self.format != 'debezium' || (has(self.schema) && has(self.table) && "
            f"!self.table.static && has(self.watermark) && self.watermark.column == '{CHANGED_AT}')",
            lambda s: (
                not s.is_debezium
                or (
                    s.ddl is not None and s.is_evolving and s.watermark is not None and s.watermark.column == CHANGED_AT
                )
            ),
        ),
        Rule(
            "protobuf and format: protobuf belong together",
            "write both, or neither",
            ("format", "protobuf"),
            "!has(self.protobuf) || (has(self.format) && self.format == 'protobuf')",
            lambda s: s.protobuf is None or s.format is RecordFormat.PROTOBUF,
        ),
        Rule(
            "format: protobuf needs the descriptors of the messages",
            "add protobuf: {message: ..., descriptorFile: ...}, or protobuf: {} by the registry of the connection",
            ("format",),
            "!has(self.format) || self.format != 'protobuf' || has(self.protobuf)",
            lambda s: s.protobuf is not None or s.format is not RecordFormat.PROTOBUF,
        ),
        Rule(
            "a table needs a watermark, whose column is the time from which a record is the row of its key",
            "add watermark: {column: ..., delay: 0s}",
            ("table",),
            "!has(self.table) || self.table.static || has(self.watermark) || has(self.delta) || has(self.iceberg)",
            lambda s: s.table is None or s.table.static or s.watermark is not None or s.lakehouse is not None,
        ),
        Rule(
            "the event time of a table is a field of a struct",
            "write a TIMESTAMP column of its own: each change of a table has one",
            ("table", "watermark"),
            None,
            lambda s: s.table is None or s.watermark is None or "." not in s.watermark.column,
        ),
        *STATIC_TABLE_RULES,
        Rule(
            "the rows of a database or a lakehouse are no text that has to be decoded",
            "leave timestampFormat, timeFormats and corruptRecords out",
            (),
            None,
            lambda s: not s.is_whole or not s.describes_text,
        ),
        *PYTHON_SOURCE_RULES,
        Rule(
            "a dead-letter topic needs a kafka source",
            "write corruptRecords.path instead",
            ("corrupt_records",),
            "!has(self.corruptRecords) || !has(self.corruptRecords.topic) || has(self.kafka)",
            lambda s: s.corrupt_records.topic is None or s.kafka is not None,
        ),
        Rule(
            "the dead-letter topic is one that the source reads, so every dead letter would be read again",
            "write another topic",
            ("corrupt_records",),
            None,
            lambda s: s.kafka is None or s.corrupt_records.topic is None or not s.kafka.reads(s.corrupt_records.topic),
        ),
    )

    files: FilesSourceSpec | None = Field(default=None, description="Existing files, and files that arrive.")
    replay: ReplaySourceSpec | None = Field(default=None, description="A recording replayed as a stream.")
    rate: Annotated[RateSourceSpec | None, RECORDS] = Field(
        default=None, description="Generated records timestamp, key, value."
    )
    kafka: KafkaSourceSpec | None = Field(default=None, description="Kafka topics.")
    nexmark: Annotated[NexmarkSourceSpec | None, RECORDS] = Field(
        default=None, description="Generated records of the NEXMark benchmark."
    )
    postgres: Annotated[PostgresSourceSpec | None, RECORDS] = Field(
        default=None, description="A table of a PostgreSQL database, for table: {static: true}."
    )
    mysql: Annotated[MySqlSourceSpec | None, RECORDS] = Field(
        default=None, description="A table of a MySQL or MariaDB database, for table: {static: true}."
    )
    delta: Annotated[DeltaSourceSpec | None, RECORDS] = Field(
        default=None,
        description="A Delta table and rows that are added to it; with table, its rows and their changes, from its "
        "change data feed, or its rows alone for static: true.",
    )
    iceberg: Annotated[IcebergSourceSpec | None, RECORDS] = Field(
        default=None,
        description="An Iceberg table and rows that are added to it; with table, its rows and their changes, if files "
        "are rewritten for these (copy-on-write), or its rows alone for static: true.",
    )
    python: Annotated[PythonSourceSpec | None, RECORDS] = Field(
        default=None, description="Records that a Python class reads."
    )
    format: Annotated[RecordFormat | None, RECORDS] = Field(
        default=None,
        description="How kafka messages are written; default json. debezium: changes of a database's table, with their "
        "time in the column _changed_at.",
    )
    ddl: Annotated[Text | None, CheckpointChange.SCHEMA] = Field(
        default=None,
        validation_alias="schema",
        serialization_alias="schema",
        description="Columns as Spark DDL, such as: city STRING, fare DOUBLE, at TIMESTAMP, user STRUCT<id BIGINT>; "
        "STRUCT, ARRAY and MAP not in csv.",
    )
    avro: Avro | None = Field(
        default=None, description="Schema of the messages, for format avro, and for debezium in Avro."
    )
    protobuf: Protobuf | None = Field(default=None, description="Descriptors of the messages, for format protobuf.")
    watermark: Watermark | None = Field(default=None, description="Event time and how late records may be.")
    table: Annotated[TableSpec | None, CheckpointChange.STATE] = Field(
        default=None,
        description="Read the source as a table with one row of each key, not as a stream. A Kafka message without a "
        "value deletes the row of its key. The rows of a Delta or Iceberg table change as its commits do.",
    )
    timestamp_format: Annotated[TimestampFormat, RECORDS] = Field(
        default=TimestampFormat.ISO, description="How TIMESTAMP columns are written in text formats."
    )
    time_formats: Annotated[dict[ColumnPath, TimeFormat], RECORDS] = Field(
        default={},
        max_length=64,
        description="How times are written in text in a column, or a field such as event.time, if not as "
        "timestampFormat says: iso, seconds, milliseconds, microseconds, or a pattern such as dd.MM.yyyy HH:mm:ss; "
        "for a DATE, iso or a pattern.",
        examples=[{"pickup": "milliseconds"}],
    )
    corrupt_records: Annotated[CorruptRecordsSpec, FREE] = Field(
        default=CorruptRecordsSpec(), description="What to do with records that do not decode."
    )

    @property
    def kind(self) -> str:
        """The kind that is given, as in YAML, such as files or kafka."""
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)

    @property
    def given(self) -> Model:
        """The settings of the kind that is given."""
        found: Model = getattr(self, self.kind)
        return found

    @property
    def is_whole(self) -> bool:
        """Whether the source is a table of a database or a lakehouse."""
        return any(getattr(self, kind) is not None for kind in WHOLE_TABLES)

    @property
    def describes_text(self) -> bool:
        """Whether the source says how values are written in text, or what to do with records that do not decode."""
        described = (self.timestamp_format, len(self.time_formats), self.corrupt_records)
        return described != (TimestampFormat.ISO, 0, CorruptRecordsSpec())

    @property
    def lakehouse(self) -> DeltaSourceSpec | IcebergSourceSpec | None:
        """The table of a lakehouse, if the source is one."""
        return self.delta or self.iceberg

    @property
    def is_static(self) -> bool:
        """Whether the source is a table that is read as a whole: when the query starts, and at each refresh."""
        return self.table is not None and self.table.static

    @property
    def has_contents(self) -> bool:
        """Whether a checkpoint has the contents of the static table, so that a batch that is repeated has the same."""
        return self.table is not None and self.table.static and (self.is_whole or self.table.refresh_every is not None)

    @property
    def is_evolving(self) -> bool:
        """Whether the source is a table that records change while the query runs."""
        return self.table is not None and not self.table.static

    @property
    def record_format(self) -> RecordFormat | None:
        """How messages are written, for kafka; None for the other kinds."""
        return (self.format or RecordFormat.JSON) if self.kafka is not None else None

    @property
    def file_format(self) -> FileFormat | None:
        """How the files are written, for files and replay; None for the other kinds."""
        files = self.files or self.replay
        return None if files is None else files.format

    @property
    def needs_schema(self) -> bool:
        """Whether the columns of Kafka messages are known only by ``schema``."""
        written = self.avro or self.protobuf
        from_registry = written is not None and written.registry is not None
        return from_registry or self.record_format in (RecordFormat.JSON, RecordFormat.CSV)

    @property
    def is_debezium(self) -> bool:
        """Whether messages are changes in Debezium's format."""
        return self.format is RecordFormat.DEBEZIUM

    @property
    def has_change_times(self) -> bool:
        """Whether records are changes of rows, each with its time in a column that the rows do not have."""
        return self.is_debezium or (self.lakehouse is not None and self.is_evolving)

    @property
    def schema_text(self) -> str | None:
        """Spark DDL of all columns, also where the kind fixes them; None if only messages' own schema has them."""
        if self.rate is not None:
            return "timestamp TIMESTAMP, key STRING, value DOUBLE"
        if self.nexmark is not None:
            return self.nexmark.schema_text
        base = "value BINARY" if self.format is RecordFormat.RAW else self.ddl
        if base is not None and self.has_change_times:
            base = f"{base}, {CHANGED_AT} TIMESTAMP"
        if base is None or self.kafka is None or not self.kafka.include_metadata:
            return base
        return f"{base}, {_KAFKA_METADATA}"
