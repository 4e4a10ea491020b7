"""Messages of Debezium, and the records of a table that a source makes of them."""

import json
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.base import CHANGED
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.kafka.source import KafkaSource

AT = datetime(2024, 5, 1, 12, 0, 0, 123456, UTC)
CHANGE = datetime(2024, 1, 1, 0, 0, 0, 250, UTC)
MICROS = 1_704_067_200_000_250
INT = "id BIGINT, n INT"


def decoder(schema, **more):
    spec = {
        "kafka": {"topic": "t", "bootstrapServers": "localhost:9092", "includeMetadata": more.pop("metadata", False)},
        "format": "debezium",
        "schema": schema,
        "watermark": {"column": "_changed_at", "delay": "0s"},
        "table": {"keys": more.pop("keys", ["id"])},
    }
    source = open_source("t", SourceSpec.model_validate(spec | more), Path("state"), Path("cache"))
    assert isinstance(source, KafkaSource)
    return source


def as_bytes(text):
    if text is None or isinstance(text, bytes):
        return text
    return (json.dumps(text) if isinstance(text, dict) else text).encode()


def read(messages, schema=INT, **more):
    """The records of (key, value) pairs by their order, and the reasons against messages by theirs."""
    source = decoder(schema, **more)
    given = [
        Message("t", 0, place, as_bytes(key), as_bytes(value), None, None, (TIMESTAMP_CREATE_TIME, 1_800_000_000_000))
        for place, (key, value) in enumerate(messages)
    ]
    reasons = {}
    records = []
    for batch in source._decoder.decode(given, lambda message, reason: reasons.__setitem__(message.offset(), reason)):
        assert batch.schema == source.schema
        assert batch.schema.names[-3:] == CHANGED.names
        records += batch.to_pylist()
    return sorted(records, key=lambda record: record["millrace_position"]), reasons


def rows(records, *columns):
    """The records that are rows or deletes: the columns, and whether the row is deleted."""
    return [
        (*(record[column] for column in columns), record["millrace_deleted"])
        for record in records
        if record["_changed_at"] is not None
    ]
