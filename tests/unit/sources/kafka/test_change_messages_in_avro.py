"""Messages of Debezium in Avro, with schemas as the converter of Kafka Connect registers them."""

import json
from datetime import date
from decimal import Decimal
from io import BytesIO

import pytest
from fastavro import parse_schema, schemaless_writer

from millrace_jobs.schemas.registry import SchemaRegistry

from .debezium_messages import AT, CHANGE, MICROS, read, rows

ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "born", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "tz", "type": ["null", {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}]},
        {
            "name": "balance",
            "type": [
                "null",
                {
                    "type": "bytes",
                    "scale": 2,
                    "precision": 10,
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                    "logicalType": "decimal",
                },
            ],
        },
    ],
    "connect.name": "shop.public.customers.Value",
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [{"name": "ts_ms", "type": "long"}, {"name": "ts_us", "type": ["null", "long"], "default": None}],
}
SCHEMAS = {
    1: {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.customers",
        "fields": [
            {"name": "before", "type": ["null", ROW], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": SOURCE},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    },
    2: {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]},
    3: {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]},
    4: {"type": "record", "name": "Flat", "fields": [{"name": "id", "type": "long"}]},
}
TYPES = "id BIGINT, born DATE, at TIMESTAMP, tz TIMESTAMP, balance DECIMAL(10,2)"


@pytest.fixture
def registry(monkeypatch):
    """A registry with the schemas, at an address that nothing else in this process has asked."""

    def answer(_, path):
        return {"schema": json.dumps(SCHEMAS[int(path.rpartition("/")[2])])}

    monkeypatch.setattr(SchemaRegistry, "request", answer)
    return {"registry": "http://registry-of-debezium"}


def framed(number, record):
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(SCHEMAS[number]), record)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def change(op, before, after):
    return framed(1, {"before": before, "after": after, "source": {"ts_ms": 1, "ts_us": MICROS}, "op": op, "ts_ms": 2})


def test_changes_are_read_from_avro(registry):
    micros = int(AT.timestamp()) * 1_000_000 + AT.microsecond
    row = {"id": 1, "born": -1, "at": micros, "tz": "2024-05-01T14:00:00.123456+02:00", "balance": Decimal("1.50")}
    gone = dict.fromkeys(row) | {"id": 2}
    messages = [
        (framed(2, {"id": 1}), change("r", None, row)),
        (framed(2, {"id": 2}), change("d", gone, None)),
        (framed(2, {"id": 2}), None),
        (framed(2, {"id": 3}), change("d", None, None)),
        (framed(2, {"id": 3}), framed(3, {"ts_ms": 5})),
        (framed(2, {"id": 4}), framed(4, {"id": 4})),
        (b"{}", change("d", None, None)),
        (framed(2, {"id": 5}), b'{"op": "c"}'),
        (framed(2, {"id": 6}), None),
    ]
    records, reasons = read(messages, TYPES, avro=registry)
    assert rows(records, "id", "born", "at", "tz", "balance") == [
        (1, date(1969, 12, 31), AT, AT, Decimal("1.50"), False),
        *[(key, None, None, None, None, True) for key in (2, 3, 6)],
    ]
    assert {record["_changed_at"] for record in records if not record["millrace_estimated"]} == {CHANGE, None}
    assert sorted(reasons) == [5, 6, 7]
    assert reasons[5].startswith("it is no change of Debezium: it has no op")
    assert reasons[6].startswith("before has no key of the table, and its key does not decode: it does not begin")


def test_types_that_do_not_fit_are_refused(registry):
    row = {"id": 1, "born": None, "at": None, "tz": None, "balance": None}
    records, reasons = read([(framed(2, {"id": 1}), change("c", None, row))], "id BIGINT, tz INT", avro=registry)
    assert records == []
    assert "column before.tz (INT): its type is STRING" in reasons[0]
