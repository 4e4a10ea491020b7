"""Query evolution: what of a query may change between two runs on one checkpoint, and what may not.

A checkpoint holds offsets, which are valid only for their own sources, and state, which is valid only for the
grouping, the window and the aggregates that built it. Everything else may change: the plan, the resources of the job,
the sink, and which results are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_api.model.streamquery import StreamQuery
from millrace_api.sql.schema_ddl import parse_schema
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.pipeline.aggregation import longest_window
from millrace_jobs.pipeline.state_layout import Outline, outline, same_sql


class SpecChange(Enum):
    """Kind of a field's change: FREE, limited (SCHEMA, SQL), or forbidden; its value is the reason in messages."""

    FREE = "it may change"
    NAME = "what the sink has written is known by it"
    RECORDS = "the offsets in the checkpoint are of other records"
    EMIT = "the state is kept for another way to emit"
    STATE = "the state in the checkpoint was built by it"
    START = "it only counts where a query begins"
    SCHEMA = "columns may come and go, but none may change its type"
    SQL = "filter and output may change, but not what the state is built by"


FIELDS: Mapping[str, SpecChange] = {
    "apiVersion": SpecChange.FREE,
    "kind": SpecChange.FREE,
    "metadata": SpecChange.FREE,
    "metadata.name": SpecChange.NAME,
    "status": SpecChange.FREE,
    "spec.state": SpecChange.FREE,
    "spec.sources.*.files.path": SpecChange.RECORDS,
    "spec.sources.*.files.format": SpecChange.RECORDS,
    "spec.sources.*.files.header": SpecChange.RECORDS,
    "spec.sources.*.files.delimiter": SpecChange.RECORDS,
    "spec.sources.*.files.maxFilesPerBatch": SpecChange.FREE,
    "spec.sources.*.replay.path": SpecChange.RECORDS,
    "spec.sources.*.replay.format": SpecChange.RECORDS,
    "spec.sources.*.replay.header": SpecChange.RECORDS,
    "spec.sources.*.replay.delimiter": SpecChange.RECORDS,
    "spec.sources.*.replay.timeColumn": SpecChange.FREE,
    "spec.sources.*.replay.speed": SpecChange.FREE,
    "spec.sources.*.replay.rate": SpecChange.FREE,
    "spec.sources.*.replay.rateTrace": SpecChange.FREE,
    "spec.sources.*.rate": SpecChange.RECORDS,
    "spec.sources.*.nexmark": SpecChange.RECORDS,
    "spec.sources.*.kafka.bootstrapServers": SpecChange.FREE,
    "spec.sources.*.kafka.tls": SpecChange.FREE,
    "spec.sources.*.kafka.sasl": SpecChange.FREE,
    "spec.sources.*.kafka.topic": SpecChange.RECORDS,
    "spec.sources.*.kafka.topics": SpecChange.RECORDS,
    "spec.sources.*.kafka.topicPattern": SpecChange.RECORDS,
    "spec.sources.*.kafka.partitions": SpecChange.RECORDS,
    "spec.sources.*.kafka.startingOffsets": SpecChange.START,
    "spec.sources.*.kafka.startingTimestamp": SpecChange.START,
    "spec.sources.*.kafka.endingOffsets": SpecChange.START,
    "spec.sources.*.kafka.endingTimestamp": SpecChange.START,
    "spec.sources.*.kafka.includeMetadata": SpecChange.FREE,
    "spec.sources.*.kafka.maxRecordsPerBatch": SpecChange.FREE,
    "spec.sources.*.kafka.maxBytesPerBatch": SpecChange.FREE,
    "spec.sources.*.format": SpecChange.RECORDS,
    "spec.sources.*.schema": SpecChange.SCHEMA,
    "spec.sources.*.avro.writerSchema": SpecChange.RECORDS,
    "spec.sources.*.avro.registry": SpecChange.FREE,
    "spec.sources.*.watermark.column": SpecChange.STATE,
    "spec.sources.*.watermark.delay": SpecChange.FREE,
    "spec.sources.*.timestampFormat": SpecChange.RECORDS,
    "spec.sources.*.corruptRecords": SpecChange.FREE,
    "spec.query.sql": SpecChange.SQL,
    "spec.query.python": SpecChange.STATE,
    "spec.sink": SpecChange.FREE,
    "spec.emit": SpecChange.EMIT,
    "spec.batchInterval": SpecChange.FREE,
    "spec.partitioner": SpecChange.FREE,
    "spec.parallelism": SpecChange.FREE,
    "spec.executors": SpecChange.FREE,
    "spec.driver": SpecChange.FREE,
    "spec.scaling": SpecChange.FREE,
    "spec.checkpoint": SpecChange.FREE,
    "spec.image": SpecChange.FREE,
    "spec.serviceAccountName": SpecChange.FREE,
    "spec.sparkConf": SpecChange.FREE,
    "spec.restartNonce": SpecChange.FREE,
    "spec.replanNonce": SpecChange.FREE,
}
"""Kind of change of every StreamQuery field, by its YAML path; a field that is not listed follows its parent.

The number of state partitions is not a field: it is fixed when the checkpoint is created, and only ``millrace state
repartition`` changes it.
"""


_FILTER_CHANGED = "the filter has changed: what the state holds was counted under the old one, and stays in it"


def changes(before: StreamQuery, now: StreamQuery, log: SparkLog) -> tuple[str, ...]:
    """Check the changes of a query, and return remarks on those that are allowed but have side effects.

    Raises:
        MillraceError: the query has forbidden changes, with one problem for each.
    """
    problems, remarks = [], []
    for field, old, new in differences(before.to_document(), now.to_document()):
        change = change_of(field)
        if change is SpecChange.SQL and old and new:
            objections = _compare_sql(_outline(before), _outline(now))
            if not objections and _outline(before).where != _outline(now).where and _outline(now).state:
                remarks.append(f"{field}: {_FILTER_CHANGED}")
        elif change is SpecChange.SCHEMA and old and new:
            objections = _compare_schemas(old, new)
        else:
            objections = [] if change is SpecChange.FREE else [(_shown(old), _shown(new))]
        for was, becomes in objections:
            message = f"the checkpoint {log.spark.parent} was made with {was}, not with {becomes}: {change.value}"
            problems.append(Problem(message, _way_out(before, log), field=field))
    if problems:
        raise MillraceError(*problems)
    return tuple(remarks)


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


def check_layout(before: Mapping[str, Any] | None, now: Mapping[str, Any], log: SparkLog) -> None:
    """Compare the state layouts of two runs; ``before`` is None if it was not recorded.

    Raises:
        MillraceError: the layouts differ.
    """
    if before is None:
        return
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if not same_sql(old, new):
            what = f"the state's {name} was {_shown(old)} when the checkpoint was made, and would now be {_shown(new)}"
            hint = f"write the query as it was, or start over with {ANOTHER_CHECKPOINT}"
            raise MillraceError(Problem(f"the checkpoint {log.spark.parent} cannot go on: {what}", hint))


def _compare_schemas(old: str, new: str) -> list[tuple[str, str]]:
    """Return the columns whose type has changed, each as it was and as it is."""
    types = {column.name.lower(): column.type for column in parse_schema(old)}
    changed = (column for column in parse_schema(new) if types.get(column.name.lower(), column.type) != column.type)
    return [(f"{column.name} {types[column.name.lower()]}", f"{column.name} {column.type}") for column in changed]


def _compare_sql(before: Outline, now: Outline) -> list[tuple[str, str]]:
    """Return the changed parts of the SQL that the state was built by, each as it was and as it is."""
    parts = dict.fromkeys([*before.state, *now.state])
    pairs = ((part, before.state.get(part, "nothing"), now.state.get(part, "nothing")) for part in parts)
    return [(f"{part} {old or 'nothing'}", f"{new or 'nothing'}") for part, old, new in pairs if old != new]


def _outline(query: StreamQuery) -> Outline:
    return outline(query.spec.query.sql or "", _columns(query))


def _columns(query: StreamQuery) -> frozenset[str]:
    texts = [source.schema_text for source in query.spec.sources.values()]
    return frozenset(column.name.lower() for text in texts if text for column in parse_schema(text))


def _way_out(query: StreamQuery, log: SparkLog) -> str:
    """Return the hint of what to do instead; for Kafka it includes the time to read again from."""
    checkpoint = query.spec.checkpoint
    claimed = checkpoint is not None and checkpoint.claim is not None
    other = "give the query another name" if claimed else "choose another spec.checkpoint.uri"
    hint = f"write it as it was, or {other} to start over"
    watermark = log.watermark_ms()
    if not watermark or not all(source.kafka is not None for source in query.spec.sources.values()):
        return hint
    begun = datetime.fromtimestamp((watermark - _longest_window_ms(query)) // 1000, UTC)
    return f"{hint}, with startingTimestamp: {begun:%Y-%m-%dT%H:%M:%SZ} from the oldest window that was not closed"


def _longest_window_ms(query: StreamQuery) -> int:
    if query.spec.query.sql is not None:
        return longest_window(query.spec.query.sql) // 1000
    window = query.spec.query.python.window if query.spec.query.python is not None else None
    return window.size.microseconds // 1000 if window is not None else 0


def _shown(value: Any) -> str:
    return "not given" if value is None else repr(value)


def _has_parts(field: str) -> bool:
    """Whether the table lists parts of a field."""
    return any(known.startswith(f"{_pattern(field)}.") for known in FIELDS)


def _pattern(field: str) -> str:
    """Return a field with ``*`` for the name of a source."""
    parts = field.split(".")
    if parts[:2] == ["spec", "sources"] and len(parts) > 2:
        parts[2] = "*"
    return ".".join(parts)
