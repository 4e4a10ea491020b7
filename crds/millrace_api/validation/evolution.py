"""Query evolution: which parts of a query may change between two runs on one checkpoint.

A checkpoint holds offsets, which are valid only for their own sources, and state, which is valid only for the
grouping, the window and the aggregates that built it. Everything else may change: the plan, the resources of the job,
the sink, and which results are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millrace_api.model.streamquery import StreamQuery
from millrace_api.sql.outline import Outline, outline
from millrace_api.sql.schema_ddl import Column, parse_schema


class SpecChange(Enum):
    """Kind of a field's change: FREE, limited (SCHEMA, SQL), or forbidden; its value is the reason in messages."""

    FREE = "it may change"
    NAME = "the sink identifies its earlier results by it"
    RECORDS = "the offsets in the checkpoint belong to other records"
    EMIT = "the state was built for another emit mode"
    STATE = "the state in the checkpoint depends on it"
    START = "it only applies to the first run"
    SCHEMA = "columns and fields may be added and removed, but none may change its type"
    SQL = "filter and output may change, but not what the state depends on"


_FIELDS = {
    SpecChange.FREE: """
        apiVersion kind metadata status
        spec.suspend spec.sink spec.sink.table.history.retention
        spec.batchInterval spec.partitioner spec.parallelism spec.executors spec.driver
        spec.scaling spec.checkpoint spec.s3 spec.azure spec.lookups spec.image spec.code
        spec.serviceAccountName spec.sparkConf
        spec.labels spec.eventLog spec.lineage spec.restartNonce
        spec.sources.*.files.maxFilesPerBatch spec.sources.*.corruptRecords
        spec.sources.*.avro.registry spec.sources.*.avro.login spec.sources.*.watermark.delay
        spec.sources.*.protobuf.registry spec.sources.*.protobuf.login
        spec.sources.*.replay.timeColumn spec.sources.*.replay.speed
        spec.sources.*.replay.rate
        spec.sources.*.kafka.connection
        spec.sources.*.kafka.bootstrapServers spec.sources.*.kafka.tls spec.sources.*.kafka.sasl
        spec.sources.*.kafka.options spec.sources.*.kafka.includeMetadata
        spec.sources.*.delta.otherCommits spec.sources.*.delta.maxFilesPerBatch
        spec.sources.*.iceberg.otherCommits spec.sources.*.iceberg.maxFilesPerBatch spec.sources.*.iceberg.location
        spec.sources.*.iceberg.catalog.rest.token spec.sources.*.iceberg.catalog.rest.clientId
        spec.sources.*.iceberg.catalog.rest.clientSecret spec.sources.*.iceberg.catalog.rest.tokenUri
        spec.sources.*.iceberg.catalog.rest.scope spec.sources.*.iceberg.catalog.postgres.host
        spec.sources.*.iceberg.catalog.postgres.user spec.sources.*.iceberg.catalog.postgres.password
        spec.sources.*.iceberg.catalog.postgres.tls
        spec.sources.*.kafka.maxRecordsPerBatch spec.sources.*.kafka.maxBytesPerBatch
        spec.additionalOutputs.*.sink.kafka.connection spec.additionalOutputs.*.sink.table.connection
        spec.additionalOutputs.*.sink.kafka.bootstrapServers spec.additionalOutputs.*.sink.kafka.tls
        spec.additionalOutputs.*.sink.kafka.sasl spec.additionalOutputs.*.sink.kafka.options
        spec.additionalOutputs.*.sink.table.bootstrapServers
        spec.additionalOutputs.*.sink.kafka.schemas spec.additionalOutputs.*.sink.kafka.transaction
        spec.additionalOutputs.*.sink.table.tls spec.additionalOutputs.*.sink.table.sasl
        spec.additionalOutputs.*.sink.table.options
        spec.additionalOutputs.*.sink.postgres.host spec.additionalOutputs.*.sink.postgres.user
        spec.additionalOutputs.*.sink.postgres.password spec.additionalOutputs.*.sink.postgres.tls
        spec.additionalOutputs.*.sink.mysql.host spec.additionalOutputs.*.sink.mysql.user
        spec.additionalOutputs.*.sink.mysql.password spec.additionalOutputs.*.sink.mysql.tls
        spec.additionalOutputs.*.sink.delta.sortBy spec.additionalOutputs.*.sink.delta.schemaEvolution
        spec.additionalOutputs.*.sink.delta.maintenance spec.additionalOutputs.*.sink.files.filesPerPartition
        spec.additionalOutputs.*.sink.iceberg.sortBy spec.additionalOutputs.*.sink.iceberg.schemaEvolution
        spec.additionalOutputs.*.sink.iceberg.maintenance
        spec.additionalOutputs.*.sink.iceberg.catalog.rest.token
        spec.additionalOutputs.*.sink.iceberg.catalog.rest.clientId
        spec.additionalOutputs.*.sink.iceberg.catalog.rest.clientSecret
        spec.additionalOutputs.*.sink.iceberg.catalog.rest.tokenUri
        spec.additionalOutputs.*.sink.iceberg.catalog.rest.scope
        spec.additionalOutputs.*.sink.iceberg.catalog.postgres.host
        spec.additionalOutputs.*.sink.iceberg.catalog.postgres.user
        spec.additionalOutputs.*.sink.iceberg.catalog.postgres.password
        spec.additionalOutputs.*.sink.iceberg.catalog.postgres.tls
    """,
    SpecChange.NAME: "metadata.name",
    SpecChange.RECORDS: """
        spec.sources.*.rate spec.sources.*.nexmark
        spec.sources.*.postgres spec.sources.*.mysql spec.sources.*.delta spec.sources.*.iceberg
        spec.sources.*.format spec.sources.*.timestampFormat spec.sources.*.timeFormats spec.sources.*.avro.writerSchema
        spec.sources.*.protobuf.message spec.sources.*.protobuf.descriptorFile spec.sources.*.protobuf.descriptorSet
        spec.sources.*.files.path spec.sources.*.files.format
        spec.sources.*.files.header spec.sources.*.files.delimiter
        spec.sources.*.files.partitionColumns spec.sources.*.files.order
        spec.sources.*.replay.path spec.sources.*.replay.format
        spec.sources.*.replay.header spec.sources.*.replay.delimiter
        spec.sources.*.kafka.topic spec.sources.*.kafka.topics
        spec.sources.*.kafka.topicPattern spec.sources.*.kafka.partitions
    """,
    SpecChange.START: """
        spec.sources.*.kafka.startingOffsets spec.sources.*.kafka.startingTimestamp
        spec.sources.*.kafka.endingOffsets spec.sources.*.kafka.endingTimestamp
        spec.sources.*.delta.startFrom spec.sources.*.delta.startingVersion
        spec.sources.*.iceberg.startFrom spec.sources.*.iceberg.startingSnapshot
    """,
    SpecChange.STATE: """
        spec.sources.*.watermark.column spec.sources.*.table spec.query.python spec.sink.table.history.topic
    """,
    SpecChange.SCHEMA: "spec.sources.*.schema",
    SpecChange.SQL: "spec.query.sql",
    SpecChange.EMIT: "spec.emit spec.additionalOutputs",
}
FIELDS = {field: change for change, fields in _FIELDS.items() for field in fields.split()}
"""Kind of change of every StreamQuery field, by its YAML path; a field that is not listed follows its parent.

The number of state partitions is not a field: it is fixed when the checkpoint is created, and only ``millrace state
repartition`` changes it.
"""

_FILTER_CHANGED = "the filter has changed: the state keeps what was counted under the old one"


@dataclass(frozen=True)
class ForbiddenChange:
    """A changed field with which a query cannot use its checkpoint; as text, it follows "it was made"."""

    field: str
    difference: str
    reason: str

    def __str__(self) -> str:
        return f"{self.difference}: {self.reason}"


def compare(before: StreamQuery, now: StreamQuery) -> tuple[tuple[ForbiddenChange, ...], tuple[str, ...]]:
    """Return the forbidden changes of a query, and remarks on changes that are allowed but have side effects."""
    forbidden, remarks = [], []
    for field, old, new in differences(before.to_document(), now.to_document()):
        change = change_of(field)
        if change is SpecChange.SQL and old and new:
            objections = _compare_sql(_outline(before), _outline(now))
            if not objections and _outline(before).where != _outline(now).where and _outline(now).state:
                remarks.append(f"{field}: {_FILTER_CHANGED}")
        elif change is SpecChange.SCHEMA and old and new:
            objections = _compare_schemas(old, new)
        elif change is SpecChange.FREE or _is_of_static_table(field, before, now):
            objections = []
        else:
            objections = [_difference(old, new)]
        forbidden += [ForbiddenChange(field, each, change.value) for each in objections]
    return tuple(forbidden), tuple(remarks)


def differences(old: Any, new: Any, field: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields in which two documents differ, each with the old and the new value; None if not given."""
    if old == new:
        return
    if field and not _has_parts(field):
        yield field, old, new
        return
    old, new = old or {}, new or {}
    for name in dict.fromkeys([*old, *new]):
        yield from differences(old.get(name), new.get(name), f"{field}.{name}" if field else name)


def change_of(field: str) -> SpecChange:
    """Return a field's kind of change. Raises KeyError if neither the field nor a parent is in the table."""
    parts = _pattern(field).split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in FIELDS:
            return FIELDS[".".join(parts[:length])]
    raise KeyError(field)


def _compare_schemas(old: str, new: str) -> list[str]:
    """Describe the columns whose type has changed, each with its old and its new type; structs by their fields."""
    types = dict(_types(parse_schema(old)))
    changed = ((name, kind) for name, kind in _types(parse_schema(new)) if types.get(name, kind) != kind)
    return [f"with {name} {types[name]}, not with {name} {kind}" for name, kind in changed]


def _types(columns: Sequence[Column], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the types of columns and of all that is in them, by paths in lower case; of a nested one only its kind."""
    for column in columns:
        path = prefix + column.name.lower()
        yield path, column.type if column.is_scalar else column.type.partition("<")[0]
        yield from _types(column.parts, f"{path}.")


def _compare_sql(before: Outline, now: Outline) -> list[str]:
    """Describe the changed parts of the SQL that built the state, each with its old and its new text."""
    parts = dict.fromkeys([*before.state, *now.state])
    pairs = ((part, before.state.get(part, "nothing"), now.state.get(part, "nothing")) for part in parts)
    return [f"with {part} {old or 'nothing'}, not with {new or 'nothing'}" for part, old, new in pairs if old != new]


def _outline(query: StreamQuery) -> Outline:
    schemas = [source.schema_text for source in query.spec.sources.values() if source.schema_text]
    columns = frozenset(column.name.lower() for schema in schemas for column in parse_schema(schema))
    return outline(query.spec.query.sql or "", columns)


def _difference(old: Any, new: Any) -> str:
    """Describe a changed field; None stands for a field that is not given."""
    if new is None:
        return f"with {old!r}, which is missing now"
    return f"without {new!r}" if old is None else f"with {old!r}, not with {new!r}"


def _is_of_static_table(field: str, *queries: StreamQuery) -> bool:
    """Whether a field belongs to a source that all these queries read again at each start."""
    parts = field.split(".")
    if parts[:2] != ["spec", "sources"] or len(parts) < 4:
        return False
    sources = [query.spec.sources.get(parts[2]) for query in queries]
    return all(source is not None and source.is_static for source in sources)


def _has_parts(field: str) -> bool:
    """Whether the table lists parts of a field."""
    return any(known.startswith(f"{_pattern(field)}.") for known in FIELDS)


def _pattern(field: str) -> str:
    """Return a field with ``*`` for the name of a source or an output."""
    parts = field.split(".")
    if parts[:2] in (["spec", "sources"], ["spec", "additionalOutputs"]) and len(parts) > 2:
        parts[2] = "*"
    return ".".join(parts)
