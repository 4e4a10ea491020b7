"""``millrace run`` between topics whose messages are Protobuf and Avro, by descriptors and by a schema registry."""

from __future__ import annotations

import base64
import io
import json
from collections import Counter

import fastavro
import pytest

from lab import topics
from lab.topics import committed
from protobuf import FILES, SET, Order, message_class
from registry import Registry, running_registry
from spark.cli import Project

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.in_turn]

COLUMNS = "id BIGINT, customer STRING, at TIMESTAMP, channel STRING, items ARRAY<STRUCT<sku: STRING, count: BIGINT>>"
SQL = (
    "SELECT customer, channel, count(*) AS orders, sum(size(items)) AS items, max(at) AS last FROM orders GROUP BY ALL"
)
BAD = b"\x0a"


@pytest.fixture(scope="module")
def registry():
    with running_registry(Registry()) as started:
        yield started


def orders():
    made = []
    for number in range(60):
        order = Order(id=number, customer=f"c{number % 4}", channel=number % 3)
        order.at.seconds = 1_700_000_000 + number
        for place in range(number % 3):
            order.items.add(sku=f"s{place}", count=place)
        made.append(order)
    return made


def expected():
    found = {}
    for order in orders():
        name = Order.DESCRIPTOR.fields_by_name["channel"].enum_type.values_by_number[order.channel].name
        count, items, last = found.get((order.customer, name), (0, 0, 0))
        found[order.customer, name] = (count + 1, items + len(order.items), max(last, order.at.seconds))
    return found


def framed(number, payload, indexes=b"\0"):
    return b"\0" + number.to_bytes(4, "big") + indexes + payload


def run(project, broker, topic, source, sink, registry):
    connection = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "Connection",
        "metadata": {"name": "orders"},
        "spec": {"kafka": {"bootstrapServers": broker.bootstrap, "registry": {"url": registry.url}}},
    }
    connections = project.write("connections.yaml", json.dumps(connection))
    document = {
        "kafka": {"connection": "orders", "topic": topic},
        "schema": COLUMNS,
        "corruptRecords": {"policy": "Drop"},
        **source,
    }
    file = project.query(SQL, name="orders-by-customer", sources={"orders": document}, sink=sink)
    return project.millrace("run", file, "--once", "--connections", connections)


@pytest.mark.parametrize("from_registry", [False, True])
def test_protobuf_is_read_and_written(broker, make_topic, tmp_path, registry, from_registry):
    topic, out = make_topic(), make_topic()
    payloads = [order.SerializeToString() for order in orders()]
    if from_registry:
        base = FILES.with_name("orders.proto").read_text()
        number = registry.add("orders-value", base, "PROTOBUF")
        payloads = [framed(number, each, b"\x02\x02") for each in payloads]  # Order is the second message of the file
        source = {"format": "protobuf", "protobuf": {"message": "shop.orders.Order"}}
    else:
        descriptors = {"descriptorSet": base64.b64encode(SET).decode()}
        source = {"format": "protobuf", "protobuf": {"message": "shop.orders.Order"} | descriptors}
    topics.fill(broker, topic, [*payloads, BAD, b"\0\0\0\0\7\0x"])
    sink = {
        "kafka": {
            "connection": "orders",
            "topic": out,
            "key": ["customer", "channel"],
            "format": "protobuf",
            "schemas": {"record": "shop.Customers"},
        }
    }
    project = Project(tmp_path)
    result = run(project, broker, topic, source, sink, registry)
    assert (result.status, result.err) == (0, ""), result
    assert result.summary["rejected"] == "2"
    (number,) = registry.subjects[f"{out}-value"]
    customers = registered_class(registry.schemas[number - 1]["schema"], "shop.Customers")
    found = {}
    for message in committed(broker, out):
        assert message.value[:6] == framed(number, b"")
        row = customers.FromString(message.value[6:])
        assert json.loads(message.key) == {"customer": row.customer, "channel": row.channel}
        found[row.customer, row.channel] = (row.orders, row.items, row.last.seconds)
    assert found == expected()


def registered_class(text, name):
    """Return Protobuf's own class of a message of a registered file."""
    from google.protobuf import descriptor_pb2

    from millrace_jobs.schemas.proto_text import read_proto

    own = descriptor_pb2.FileDescriptorSet.FromString(SET)
    own.file.append(read_proto(text))
    return message_class(name, own.SerializeToString())


def test_avro_is_written_by_the_schema_that_is_registered(broker, make_topic, tmp_path, registry):
    topic, out = make_topic(), make_topic()
    topics.fill(broker, topic, [order.SerializeToString() for order in orders()])
    fields = [
        {"name": "last", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "channel", "type": ["null", "string"]},
        {"name": "orders", "type": "long"},
        {"name": "items", "type": ["null", "long"]},
        {"name": "note", "type": "string", "default": "none"},
    ]
    schema = {"type": "record", "name": "shop.Customers", "fields": fields}
    number = registry.add("shop.Customers", json.dumps(schema))
    schemas = {"subjects": "RecordName", "record": "shop.Customers", "register": False}
    kafka = {"connection": "orders", "topic": out, "format": "avro", "schemas": schemas}
    source = {"format": "protobuf", "protobuf": {"message": "shop.orders.Order", "descriptorFile": str(FILES)}}
    result = run(Project(tmp_path), broker, topic, source, {"kafka": kafka}, registry)
    assert (result.status, result.err) == (0, ""), result
    assert registry.subjects["shop.Customers"] == [number]
    parsed = fastavro.parse_schema(schema)
    rows = [
        fastavro.schemaless_reader(io.BytesIO(message.value[5:]), parsed, None) for message in committed(broker, out)
    ]
    assert Counter(row["note"] for row in rows) == {"none": len(rows)}
    assert {
        (row["customer"], row["channel"]): (row["orders"], row["items"], int(row["last"].timestamp())) for row in rows
    } == expected()


@pytest.mark.parametrize(
    ("schemas", "said"),
    [
        ({"register": False}, "has no schema in the registry; register a schema there, or write register: true"),
        ({"record": "Bad"}, "does not accept the schema of the results: field 1 has another type; keep the names"),
    ],
)
def test_what_the_registry_does_not_accept_ends_the_run_before_its_first_batch(
    broker, make_topic, tmp_path, registry, monkeypatch, schemas, said
):
    topic, out = make_topic(), make_topic()
    topics.fill(broker, topic, [order.SerializeToString() for order in orders()])
    if "record" in schemas:
        registry.add(f"{out}-value", 'syntax = "proto3"; message Bad { bytes customer = 1; }', "PROTOBUF")
        monkeypatch.setattr(registry, "judge", lambda before, now: ["field 1 has another type"])
    source = {"format": "protobuf", "protobuf": {"message": "shop.orders.Order", "descriptorFile": str(FILES)}}
    sink = {"kafka": {"connection": "orders", "topic": out, "format": "protobuf", "schemas": schemas}}
    run(Project(tmp_path), broker, topic, source, sink, registry).assert_failed(
        f"spec.sink.kafka.schemas: the subject {out}-value {said}"
    )
    assert committed(broker, out) == []
