"""Where results go: files, the terminal, Kafka, a table in Kafka, in a database or of a lakehouse, a function."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, exactly_one
from millrace_api.model.changes import FREE, CheckpointChange
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.files import FileFormat
from millrace_api.model.functions import FunctionPath
from millrace_api.model.iceberg import IcebergSinkSpec
from millrace_api.model.kafka import REFERENCE_RULES, KafkaReference
from millrace_api.model.lakehouse import OBJECTS, DeltaSinkSpec, LakehouseSinkSpec
from millrace_api.model.mysql import MySqlSinkSpec
from millrace_api.model.postgres import PostgresSinkSpec
from millrace_api.model.registries import MessageFormat, ResultSchemas
from millrace_api.model.sink_kind import ResultFiles, SinkKind
from millrace_api.model.sources import SourceSpec
from millrace_api.model.values import ColumnName, Count, Path, PositiveDuration, Topic, WholeNumber

FileCount = Annotated[Count, Field(le=1000)]

BATCH_ID = "_batch_id"
"""Column that files of results have beside these, unless the results are final: the number of the batch."""


def result_file(batch: int, index: int, format: str) -> str:
    """Return the name of one of the files that a batch's results are written to."""
    return f"batch-{batch:010d}-{index:04d}.{format}"


class FilesSinkSpec(SinkKind):
    """Appends to files: results, or with a key the changelog of a table; not only final ones have ``_batch_id``."""

    path: Annotated[Path, External(ExternalKind.DATA)] = Field(
        description="Folder for the results, or s3a:// with a bucket and a prefix.",
        examples=["out/results", "s3a://lake/results"],
    )
    format: FileFormat = Field(default=FileFormat.PARQUET, description="Format of the files.")
    partition_by: tuple[ColumnName, ...] = Field(
        default=(),
        max_length=8,
        description="Columns whose values name folders, such as day=2026-01-01, in which the files lack them.",
        examples=[["day"]],
    )
    files_per_partition: Annotated[FileCount | None, FREE] = Field(
        default=None,
        description="Maximum number of files that a batch adds to each of these folders, or to the path without "
        "partitionBy; default: one with partitionBy, else one of each task.",
        examples=[1],
    )
    key: tuple[ColumnName, ...] = Field(
        default=(),
        max_length=32,
        description="Columns that identify a row. With a key, the files are the changelog of a table: for each row "
        "that a batch adds, replaces or removes, one row with the columns _operation, _time and _batch_id.",
        examples=[["customer"]],
    )
    compact_every: Annotated[WholeNumber, FREE] = Field(
        default=0,
        description="With a key: batches after which files of earlier ones are merged, and rows are removed that have "
        "a newer row of their key; a tenth of them if a window has closed. Default: 0, never, which keeps all changes.",
        examples=[100],
    )

    @property
    def is_local(self) -> bool:
        """Whether the files are in a folder."""
        return not self.path.startswith(OBJECTS)

    @property
    def first_file(self) -> str:
        """Path of its first file of results; folders of partitions are named without their values."""
        folders = "".join(f"{name}=/" for name in self.partition_by)
        return f"{self.path.rstrip('/')}/{folders}{result_file(0, 0, self.format)}"

    @property
    def result_files(self) -> ResultFiles:
        """The files of the results."""
        return ResultFiles("path", self.path, self.first_file)

    def is_place_of(self, other: SinkKind) -> bool:
        """Return whether both write to the same folder."""
        return isinstance(other, FilesSinkSpec) and PurePosixPath(self.path) == PurePosixPath(other.path)


class ConsoleSinkSpec(SinkKind):
    """Shows results in the terminal."""

    rows: Count = Field(default=20, description="Maximum number of rows shown per batch.")

    def is_place_of(self, other: SinkKind) -> bool:
        """Return whether both write to the terminal."""
        return isinstance(other, ConsoleSinkSpec)


class TransactionScope(StrEnum):
    """What the results of one Kafka transaction are: those of a batch, or those of one partition of its state."""

    BATCH = "Batch"
    PARTITION = "Partition"


class TransactionSetting(StrEnum):
    """What a spec writes for the results of a topic: one of the scopes, or ``Auto`` by the number of partitions."""

    BATCH = "Batch"
    PARTITION = "Partition"
    AUTO = "Auto"


class _TopicSink(SinkKind, KafkaReference):
    """What the sinks that write to a topic have."""

    topic: Topic = Field(description="Topic for the results.", examples=["trips-by-cell"])

    def is_place_of(self, other: SinkKind) -> bool:
        """Return whether both write to the same topic."""
        return isinstance(other, _TopicSink) and self.topic == other.topic and self.is_cluster_of(other)


class KafkaSinkSpec(_TopicSink):
    """Appends to a Kafka topic, by one transaction per batch or by one per partition of the state."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *REFERENCE_RULES,
        Rule(
            "schemas are for a format that has some",
            "write format: avro or format: protobuf, or leave schemas out",
            ("format", "schemas"),
            "!has(self.schemas) || (has(self.format) && self.format in ['avro', 'protobuf'])",
            lambda kafka: kafka.schemas is None or kafka.format in (MessageFormat.AVRO, MessageFormat.PROTOBUF),
        ),
        Rule(
            "the format needs a registry for the schema of the results",
            "add schemas: {}, and connection: NAME of a Connection with a registry, or leave format out for JSON",
            ("format",),
            "!has(self.format) || self.format == 'json' || has(self.schemas)",
            lambda kafka: kafka.format in (None, MessageFormat.JSON) or kafka.schemas is not None,
        ),
        Rule(
            "values with a schema of a registry are written by the driver, in one transaction per batch",
            "write transaction: Batch, or leave schemas out",
            ("transaction",),
            "!has(self.transaction) || self.transaction != 'Partition' || !has(self.schemas)",
            lambda kafka: kafka.transaction is not TransactionSetting.PARTITION or kafka.schemas is None,
        ),
    )

    key: tuple[ColumnName, ...] = Field(
        default=(),
        max_length=32,
        description="Columns that make the message key; default: the grouping columns.",
    )
    format: MessageFormat | None = Field(
        default=None, description="How values are written, default json; keys are JSON in every format."
    )
    schemas: Annotated[ResultSchemas | None, FREE] = Field(
        default=None,
        description="Schema of the values in the registry of the connection, for format avro and protobuf.",
    )
    transaction: Annotated[TransactionSetting | None, FREE] = Field(
        default=None,
        description="What becomes visible at once. Batch (default): all results of a batch, which the driver writes. "
        "Partition: those of one partition of the state, which the task that merges it writes. Auto: Partition where "
        "the state has one partition, otherwise Batch.",
    )

    def scope(self, partitions: int | None) -> TransactionScope:
        """Return BATCH or PARTITION, for a state of so many partitions; None is a query without state.

        With one partition, both let a batch appear as a whole. So ``Auto`` promises readers what ``Batch`` does.
        """
        if self.transaction is not TransactionSetting.AUTO:
            return TransactionScope(self.transaction or TransactionScope.BATCH)
        one = partitions == 1 and self.schemas is None
        return TransactionScope.PARTITION if one else TransactionScope.BATCH


class HistorySpec(Model):
    """Earlier versions of a table's rows by event time, for look-ups with ``--at``."""

    topic: Annotated[Topic, CheckpointChange.STATE] = Field(
        description="Topic that holds the versions that newer ones have replaced; not compacted.",
        examples=["trips-by-cell-history"],
    )
    retention: Annotated[PositiveDuration, FREE] = Field(
        description="How far before the watermark versions can be looked up.", examples=["1h"]
    )


class OutputTableSinkSpec(_TopicSink):
    """A table of an additional output: an upsert changelog in a compacted Kafka topic."""

    rules: ClassVar[tuple[Rule, ...]] = REFERENCE_RULES

    topic: Topic = Field(description="Compacted topic that holds the table.", examples=["trips-by-cell"])
    key: tuple[ColumnName, ...] = Field(
        default=(),
        max_length=32,
        description="Primary key of the table; default: the grouping columns, or the key of the tables that are read.",
    )


class TableSinkSpec(OutputTableSinkSpec):
    """An upsert changelog in a compacted Kafka topic, readable as a table by key."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *OutputTableSinkSpec.rules,
        Rule(
            "the history is in the table's own topic",
            "give it a topic of its own",
            ("topic", "history"),
            "!has(self.history) || self.history.topic != self.topic",
            lambda table: table.history is None or table.history.topic != table.topic,
        ),
        Rule(
            "the driver writes earlier versions, in the transaction of their batch",
            "write transaction: Batch, or leave history out",
            ("transaction",),
            "!has(self.transaction) || self.transaction != 'Partition' || !has(self.history)",
            lambda table: not table.by_partition or table.history is None,
        ),
    )

    history: HistorySpec | None = Field(
        default=None, description="Keeps earlier versions of rows, by event time; default: only the latest rows."
    )
    transaction: Annotated[TransactionScope | None, FREE] = Field(
        default=None,
        description="What becomes visible at once. Batch (default): all rows of a batch, which the driver writes. "
        "Partition: those of one partition of the state, which the task that merges it writes; for tables whose rows "
        "stay, and without look-ups.",
    )

    @property
    def by_partition(self) -> bool:
        """Whether tasks write the table, each its partition of the state."""
        return self.transaction is TransactionScope.PARTITION


class PythonSinkSpec(SinkKind):
    """Calls a Python function with the results of each batch, as an Arrow table or reader, and the batch's number."""

    write: FunctionPath = Field(description="The function, module:function.", examples=["mypackage.alerts:write"])
    options: dict[str, Any] = Field(default={}, description="Keyword arguments of the function.")

    def is_place_of(self, other: SinkKind) -> bool:
        """Return whether both call the same function with the same options."""
        return self == other


_KINDS = ("files", "console", "kafka", "table", "postgres", "mysql", "delta", "iceberg", "python")


class OutputSinkSpec(Model):
    """Where the results of an additional output go."""

    rules: ClassVar[tuple[Rule, ...]] = (exactly_one(*_KINDS, hint="write one kind, such as console: {}"),)

    files: FilesSinkSpec | None = Field(default=None, description="Files.")
    console: ConsoleSinkSpec | None = Field(default=None, description="The terminal.")
    kafka: KafkaSinkSpec | None = Field(default=None, description="A Kafka topic.")
    table: OutputTableSinkSpec | None = Field(default=None, description="A table, stored as a changelog in Kafka.")
    postgres: PostgresSinkSpec | None = Field(default=None, description="A table in PostgreSQL.")
    mysql: MySqlSinkSpec | None = Field(default=None, description="A table in MySQL or MariaDB.")
    delta: DeltaSinkSpec | None = Field(default=None, description="A Delta table.")
    iceberg: IcebergSinkSpec | None = Field(default=None, description="An Iceberg table.")
    python: PythonSinkSpec | None = Field(default=None, description="A Python function.")

    @property
    def kind(self) -> str:
        """The kind that is given, as in YAML: one of the fields."""
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)

    @property
    def given(self) -> SinkKind:
        """The settings of the kind that is given."""
        found: SinkKind = getattr(self, self.kind)
        return found

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns that the user has written; empty for kinds that have none."""
        keyed = self.files or self.kafka or self.table or self.database or self.lakehouse
        return () if keyed is None else keyed.key

    @property
    def replaces_rows(self) -> bool:
        """Whether results are rows of a table, which later results replace and remove."""
        keyed = self.files or self.database or self.lakehouse
        return self.table is not None or (keyed is not None and bool(keyed.key))

    @property
    def has_changelog(self) -> bool:
        """Whether results are rows of a table whose changes are appended to files."""
        return self.files is not None and bool(self.files.key)

    @property
    def appends_once(self) -> bool:
        """Whether results are rows of a table without a key, which nothing replaces or removes."""
        keyed = self.database or self.lakehouse
        return keyed is not None and not keyed.key

    @property
    def database(self) -> PostgresSinkSpec | MySqlSinkSpec | None:
        """The table of a database that results go to, of whatever kind."""
        return self.postgres or self.mysql

    @property
    def lakehouse(self) -> LakehouseSinkSpec | None:
        """The table of a lakehouse that results go to, of whatever format."""
        return self.delta or self.iceberg

    @property
    def records_batches(self) -> bool:
        """Whether the place of the results itself knows which batches it has, and lacks those of another place."""
        in_objects = self.files is not None and not self.files.is_local
        return in_objects or any(each is not None for each in (self.kafka, self.table, self.database, self.lakehouse))

    def is_streamed_by(self, source: SourceSpec) -> bool:
        """Return whether a source streams the rows of the table that results go to."""
        if source.table is not None:
            return False
        if self.delta is not None and source.delta is not None:
            return self.delta.is_table_of(source.delta)
        return self.iceberg is not None and source.iceberg is not None and self.iceberg.is_table_of(source.iceberg)

    def is_place_of(self, other: OutputSinkSpec) -> bool:
        """Return whether both write to the same place."""
        return self.given.is_place_of(other.given)


class SinkSpec(OutputSinkSpec):
    """Where the results go."""

    table: TableSinkSpec | None = Field(default=None, description="A table, stored as a changelog in Kafka.")

    @property
    def by_partition(self) -> bool:
        """Whether the tasks that merge are to write the results, each its partition of the state."""
        kafka = self.kafka is not None and self.kafka.transaction is TransactionSetting.PARTITION
        return kafka or (self.table is not None and self.table.by_partition)

    @property
    def has_history(self) -> bool:
        """Whether the result is a table that keeps earlier versions of its rows."""
        return self.table is not None and self.table.history is not None
