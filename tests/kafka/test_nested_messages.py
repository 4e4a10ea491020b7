"""Messages with structs, arrays and maps, in JSON and Avro, whose event time is a field: what a source's slices give."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import fastavro
import pytest

from lab import topics

from .sources import opened, slices

pytestmark = pytest.mark.kafka

SCHEMA = "event STRUCT<time: TIMESTAMP>, items ARRAY<STRUCT<sku: STRING>>, labels MAP<STRING, BIGINT>"
START = datetime(2024, 5, 1, tzinfo=UTC)
AVRO = {
    "type": "record",
    "name": "order",
    "fields": [
        {
            "name": "event",
            "type": {
                "type": "record",
                "name": "event",
                "fields": [{"name": "time", "type": {"type": "long", "logicalType": "timestamp-micros"}}],
            },
        },
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "item", "fields": [{"name": "sku", "type": "string"}]},
            },
        },
        {"name": "labels", "type": {"type": "map", "values": "long"}},
    ],
}


def order(number):
    return {
        "event": {"time": START + timedelta(seconds=number)},
        "items": [{"sku": f"s{i}"} for i in range(number % 3)],
        "labels": {"n": 2**53 + number},
    }


def in_json(record):
    return json.dumps(record, default=datetime.isoformat).encode()


def in_avro(record):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("write", "spec"),
    [
        (in_json, {"format": "json", "schema": SCHEMA}),
        (in_avro, {"format": "avro", "schema": SCHEMA, "avro": {"writerSchema": json.dumps(AVRO)}}),
        (in_avro, {"format": "avro", "avro": {"writerSchema": json.dumps(AVRO)}}),
    ],
    ids=["json", "avro", "avro without schema"],
)
@pytest.mark.parametrize("metadata", [False, True])
def test_the_event_time_is_a_column_behind_those_of_the_messages(broker, make_topic, tmp_path, write, spec, metadata):
    topic = make_topic(partitions=2)
    orders = [order(number) for number in range(40)]
    for partition in range(2):
        topics.fill(broker, topic, map(write, orders[partition::2]), partition=partition)
    topics.fill(broker, topic, [b'{"event": 5}'], partition=0)
    watermark = {"column": "event.time", "delay": "1s"}
    source = opened(
        broker,
        tmp_path,
        {"topic": topic, "includeMetadata": metadata},
        watermark=watermark,
        corruptRecords={"policy": "Drop"},
        **spec,
    )
    assert source.schema.names[:4] == ["event", "items", "labels", "millrace_event_time"]
    start = source.initial()
    found = list(slices(source, start, source.latest(start, everything=True), 3))
    rows = sorted((row[:4] for rows, _ in found for row in rows), key=lambda row: row[3])
    assert rows == [(each["event"], each["items"], [*each["labels"].items()], each["event"]["time"]) for each in orders]
    assert sum(rejected for _, rejected in found) == 1
