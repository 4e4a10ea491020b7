"""Protobuf messages by a registry: framing, several schemas and types of one topic, and imported schemas."""

import base64

import pytest
from google.protobuf import descriptor_pb2

from millrace_jobs.schemas.registry import SchemaRegistry
from millrace_jobs.sources.formats.column_types import declared_schema
from millrace_jobs.sources.formats.protobuf_records import ProtobufDecoder
from protobuf import FILES, SET, Order, message_class
from registry import Registry, running_registry

TEXT = FILES.with_name("orders.proto").read_text()
ORDER, MONEY, ITEM = b"\x02\x02", b"\0", b"\x04\x02\0"
"""Message indexes: the second message of the file, the first one in short, and the first one within the second."""


@pytest.fixture
def registry():
    with running_registry(Registry()) as started:
        yield started


def decoded(registry, ddl, values, message=None):
    """Return the rows by the index of their messages, and the reasons of the others."""
    bad = {}
    decoder = ProtobufDecoder(declared_schema(ddl), "iso", SchemaRegistry(registry.url), message)
    found, origins = decoder.decode(values, bad.__setitem__)
    return dict(zip(origins.tolist(), found.to_pylist(), strict=True)), bad


def framed(number, indexes, message):
    return b"\0" + number.to_bytes(4, "big") + indexes + message.SerializeToString()


def test_each_message_is_read_by_its_own_schema_and_type(registry):
    first = registry.add("orders-value", TEXT, "PROTOBUF")
    newer = registry.add("orders-value", TEXT.replace("int64 id = 1;", "int64 id = 1; string city = 40;"), "PROTOBUF")
    order = Order(id=2)
    city = order.SerializeToString() + b"\xc2\x02\x04Oslo"
    money = message_class("shop.orders.Money")(units=5)
    item = Order.Item(sku="s")
    values = [
        framed(first, ORDER, Order(id=1)),
        b"\0" + newer.to_bytes(4, "big") + ORDER + city,
        framed(first, MONEY, money),
        framed(first, ITEM, item),
        None,
        framed(first, b"\x02\0", money),
    ]
    found, bad = decoded(registry, "id BIGINT, city STRING, units BIGINT, sku STRING", values)
    empty = dict.fromkeys(("id", "city", "units", "sku"))
    assert found == {
        0: empty | {"id": 1},
        1: empty | {"id": 2, "city": "Oslo"},
        2: empty | {"units": 5},
        3: empty | {"sku": "s"},
        5: empty | {"units": 5},
    }
    assert bad == {}
    _, bad = decoded(registry, "id BIGINT", values, "shop.orders.Order")
    assert bad[2] == f"schema {first} of the registry: it is a shop.orders.Money, not a shop.orders.Order"
    assert sorted(bad) == [2, 3, 5]
    assert len(registry.asked) == 2  # each schema once in a process


def test_messages_that_are_not_framed_or_name_what_is_not_there_are_bad_alone(registry):
    number = registry.add("orders-value", TEXT, "PROTOBUF")
    avro = registry.add("avro-value", "{}")
    broken = registry.add("broken-value", "message A {", "PROTOBUF")
    start = b"\0" + number.to_bytes(4, "big")
    values = [
        framed(number, ORDER, Order(id=1)),
        b"\x08\x01",
        start,
        start + b"\x03\x02",
        start + b"\x02",
        start + b"\x02\x80\x80\x80\x80\x80\x01",
        start + b"\x02\x12",
        framed(77, ORDER, Order(id=1)),
        framed(avro, ORDER, Order(id=1)),
        framed(broken, ORDER, Order(id=1)),
        start + ORDER + b"\x08",
    ]
    found, bad = decoded(registry, "id BIGINT", values)
    assert found == {0: {"id": 1}}
    indexes = "its message indexes are not those of a schema registry's framing"
    assert bad == {
        1: "it does not begin with the framing of a schema registry",
        2: indexes,
        3: indexes,
        4: indexes,
        5: indexes,
        6: f"schema {number} of the registry cannot be used: it has no message at 9",
        7: "the registry has no schema 77",
        8: f"schema {avro} of the registry is AVRO, not Protobuf",
        9: f"schema {broken} of the registry cannot be used: its text ends too early",
        10: "it is not a message shop.orders.Order: Wire format was corrupt",
    }


def test_schemas_may_import_others_in_text_and_serialized(registry):
    base = 'syntax = "proto3"; package geo; message Place { double lat = 1; }'
    middle = 'syntax = "proto3"; package geo; import "geo/place.proto"; message Area { repeated Place corners = 1; }'
    files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(SET).file}
    serialized = base64.b64encode(files["orders.proto"].SerializeToString()).decode()
    main = """syntax = "proto3"; package trips; import "geo/area.proto"; import "geo/place.proto"; import "shop.proto";
    message Trip { geo.Area area = 1; .geo.Place at = 2; shop.orders.Money fare = 3; }"""
    registry.add("place", base, "PROTOBUF")
    registry.add("area", middle, "PROTOBUF", [{"name": "geo/place.proto", "subject": "place", "version": 1}])
    registry.add("shop", serialized, "PROTOBUF")
    references = [
        {"name": "geo/area.proto", "subject": "area", "version": 1},
        {"name": "geo/place.proto", "subject": "place", "version": 1},
        {"name": "shop.proto", "subject": "shop", "version": 1},
    ]
    number = registry.add("trips-value", main, "PROTOBUF", references)
    ddl = "area STRUCT<corners: ARRAY<STRUCT<lat: DOUBLE>>>, at STRUCT<lat: DOUBLE>, fare STRUCT<units: BIGINT>"
    payload = b"\x0a\x0b\x0a\x09\x09" + b"\0" * 6 + b"\xf0\x3f" + b"\x1a\x02\x10\x07"
    found, bad = decoded(registry, ddl, [b"\0" + number.to_bytes(4, "big") + b"\0" + payload])
    assert bad == {}
    assert found == {0: {"area": {"corners": [{"lat": 1.0}]}, "at": None, "fare": {"units": 7}}}


def test_a_schema_whose_import_is_gone_makes_its_messages_bad(registry):
    references = [{"name": "a.proto", "subject": "a", "version": 4}]
    number = registry.add("trips-value", 'syntax = "proto3"; import "a.proto";', "PROTOBUF", references)
    _, bad = decoded(registry, "id BIGINT", [framed(number, MONEY, Order(id=1))])
    said = "it refers to version 4 of a, which the registry does not have"
    assert bad == {0: f"schema {number} of the registry cannot be used: {said}"}
