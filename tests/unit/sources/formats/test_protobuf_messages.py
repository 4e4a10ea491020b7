"""Protobuf messages as records: what Protobuf's own parser finds in a message is what the columns have."""

import pickle
import random
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from google.protobuf.message import DecodeError

from millrace_jobs.schemas.protobuf_schemas import ProtobufSchema
from millrace_jobs.sources.formats.column_types import declared_schema
from millrace_jobs.sources.formats.protobuf_records import ProtobufDecoder, columns_of
from protobuf import SET, Order, Reading

ORDER = ProtobufSchema(SET, "shop.orders.Order")
READING = ProtobufSchema(SET, "shop.legacy.Reading")
DDL = (
    "id BIGINT, parent BIGINT, customer STRING, at TIMESTAMP, took DECIMAL(21,9), channel STRING, referrer STRING, "
    "seen ARRAY<STRING>, "
    "items ARRAY<STRUCT<sku: STRING, count: BIGINT, price: STRUCT<currency: STRING, units: BIGINT, nanos: INT>, "
    "serials: ARRAY<BIGINT>>>, totals MAP<STRING, STRUCT<currency: STRING, units: BIGINT>>, notes MAP<STRING, STRING>, "
    "coupon STRING, points DECIMAL(20,0), card STRING, cash STRUCT<units: BIGINT>, free BOOLEAN, "
    "serial DECIMAL(20,0), hash DECIMAL(20,0), blob BINARY, weight DOUBLE, ratio FLOAT, gift BOOLEAN, small BIGINT, "
    "tags ARRAY<STRING>, replaced STRUCT<id: BIGINT, replaced: STRUCT<id: BIGINT>>, ways MAP<STRING, STRING>, "
    "stops ARRAY<TIMESTAMP>"
)


def decoded(ddl, values, schema=ORDER):
    """Return rows, the indexes of their messages, and the reasons of the others."""
    bad = {}
    decoder = pickle.loads(pickle.dumps(ProtobufDecoder(declared_schema(ddl), "iso", schema)))
    found, origins = decoder.decode(values, bad.__setitem__)
    found.validate(full=True)
    return found.to_pylist(), origins.tolist(), bad


def one(ddl, message, schema=ORDER):
    """Return the only row of a message, or the reason why there is none."""
    value = message if isinstance(message, bytes) else message.SerializePartialToString()
    rows, _, bad = decoded(ddl, [value], schema)
    return rows[0] if rows else bad[0]


def name_of(number):
    found = Order.DESCRIPTOR.fields_by_name["channel"].enum_type.values_by_number.get(number)
    return str(number) if found is None else found.name


def moment(value):
    return datetime.fromtimestamp(0, UTC) + (value.ToDatetime() - datetime(1970, 1, 1))


def money(value, *names):
    return {name: getattr(value, name) for name in names}


def expected(order):
    """Return the row of an order, taken from Protobuf's own object."""
    plain = ("id", "customer", "serial", "hash", "blob", "weight", "ratio", "gift", "small")
    row = {name: getattr(order, name) for name in plain}
    row |= {name: getattr(order, name) if order.HasField(name) else None for name in ("parent", "card", "free")}
    row |= {name: getattr(order, name).value if order.HasField(name) else None for name in ("coupon", "points")}
    row["at"] = moment(order.at) if order.HasField("at") else None
    took = order.took
    row["took"] = took.seconds + Decimal(took.nanos).scaleb(-9) if order.HasField("took") else None
    row["channel"] = name_of(order.channel)
    row["referrer"] = name_of(order.referrer) if order.HasField("referrer") else None
    row["seen"] = [name_of(number) for number in order.seen]
    row["items"] = [
        {
            "sku": item.sku,
            "count": item.count,
            "price": money(item.price, "currency", "units", "nanos") if item.HasField("price") else None,
            "serials": list(item.serials),
        }
        for item in order.items
    ]
    row["totals"] = {key: money(each, "currency", "units") for key, each in order.totals.items()}
    row["notes"] = {str(key): each for key, each in order.notes.items()}
    row["ways"] = {key: name_of(each) for key, each in order.ways.items()}
    row["cash"] = money(order.cash, "units") if order.HasField("cash") else None
    row["tags"] = list(order.tags)
    row["stops"] = [moment(each) for each in order.stops]
    row["replaced"] = None
    if order.HasField("replaced"):
        inner = order.replaced
        within = {"id": inner.replaced.id} if inner.HasField("replaced") else None
        row["replaced"] = {"id": inner.id, "replaced": within}
    return row


def without_order(row):
    return {name: dict(value) if name in ("totals", "notes", "ways") else value for name, value in row.items()}


def same(one, two):
    return one == two or (one != one and two != two)


def drawn(chance, depth=0):
    """Return an order in which each field is there by chance."""
    order, whole = Order(), lambda bits: chance.choice([0, 1, 2**bits - 1, chance.randrange(2**bits)])
    text = lambda: chance.choice(["", "é😀", "x" * 40, str(chance.random())])  # noqa: E731
    signed = lambda bits: whole(bits) - 2 ** (bits - 1)  # noqa: E731
    plain = {
        "id": lambda: signed(64),
        "parent": lambda: signed(64),
        "customer": text,
        "channel": lambda: chance.choice([0, 1, 2, -3, 9]),
        "referrer": lambda: chance.choice([0, 1, -3, 77]),
        "card": text,
        "free": lambda: chance.random() < 0.5,
        "serial": lambda: whole(64),
        "hash": lambda: whole(64),
        "blob": lambda: chance.randbytes(3),
        "weight": lambda: chance.choice([0.0, -0.5, 1e300, float("inf")]),
        "ratio": lambda: chance.choice([0.0, 0.25, float("-inf")]),
        "gift": lambda: chance.random() < 0.5,
        "small": lambda: whole(32),
    }
    for name, value in plain.items():
        if chance.random() < 0.5:
            setattr(order, name, value())
    for _ in range(chance.randrange(3)):
        order.seen.append(chance.choice([0, 1, 2, 55]))
        order.tags.append(text())
        order.stops.add(seconds=chance.randrange(-(10**10), 10**11), nanos=chance.randrange(10**6) * 1000)
        item = order.items.add(sku=text(), count=whole(32), serials=[signed(64)] * chance.randrange(3))
        if chance.random() < 0.5:
            item.price.nanos = signed(32)
        order.notes[signed(32)] = text()
        order.ways[text()] = chance.choice([0, 1, 12])
        order.totals[text()].units = signed(64) * chance.randrange(2)
    if chance.random() < 0.5:
        order.at.FromMicroseconds(chance.choice([0, -62135596800000000, 253402300799999999, -1]))
    if chance.random() < 0.5:
        sign = chance.choice([-1, 1])
        order.took.seconds, order.took.nanos = sign * chance.randrange(315_576_000_000), sign * chance.randrange(10**9)
    for name in ("coupon", "points", "cash"):
        if chance.random() < 0.3:
            getattr(order, name).SetInParent()
    if chance.random() < 0.3:
        order.points.value = 2**64 - 1
    if depth < 3 and chance.random() < 0.5:
        order.replaced.CopyFrom(drawn(chance, depth + 1))
    return order


def test_rows_are_what_protobufs_own_parser_finds_also_in_messages_that_were_joined():
    chance = random.Random(5)
    values = []
    for _ in range(400):
        value = drawn(chance).SerializeToString()
        values.append(value + drawn(chance).SerializeToString() if chance.random() < 0.3 else value)
    rows, origins, bad = decoded(DDL, values)
    assert (origins, bad) == (list(range(400)), {})
    assert [without_order(row) for row in rows] == [expected(Order.FromString(value)) for value in values]


def test_each_changed_byte_is_read_or_refused_as_by_protobufs_own_parser():
    chance = random.Random(6)
    values = [None]
    for _ in range(1500):
        value = bytearray(drawn(chance).SerializeToString())
        for _ in range(chance.randrange(3)):
            if value:
                value[chance.randrange(len(value))] = chance.randrange(256)
        values.append(bytes(value[: chance.randrange(len(value) + 1)] if chance.random() < 0.3 else value))
    rows, origins, bad = decoded(DDL, values)
    found = dict(zip(origins, rows, strict=True))
    refused = 0
    for index, value in enumerate(values[1:], start=1):
        try:
            order = Order.FromString(value)
        except DecodeError:
            assert bad[index].startswith("it is not a message shop.orders.Order: ")
            refused += 1
            continue
        if index in bad:
            assert "google.protobuf." in bad[index], bad[index]
        else:
            row, wanted = without_order(found[index]), expected(order)
            assert [name for name in wanted if not same(row[name], wanted[name])] == []
    assert 100 < refused < 1400
    assert len(found) + len(bad) == 1500


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\x08", "Wire format was corrupt"),
        (b"\x1a\x02\xff\xfe", "String field had bad UTF-8"),
        (Order(customer="Ada").SerializeToString()[:-1], "Wire format was corrupt"),
        (b"\x83\x06" * 200_000 + b"\x84\x06" * 200_000, "Wire format was corrupt"),
        (b"\xca\x01\x05" + b"\xca\x01\x03", "Wire format was corrupt"),
    ],
)
def test_what_is_no_message_is_refused_with_its_reason(value, said):
    assert one("id BIGINT", value) == f"it is not a message shop.orders.Order: {said}"


def test_unknown_fields_and_fields_in_another_encoding_are_ignored():
    unknown = b"\xa2\x06\x03abc" + b"\x83\x06\x08\x01\x84\x06" + b"\x0a\x01x"
    assert one("id BIGINT, customer STRING", unknown + Order(id=4).SerializeToString()) == {"id": 4, "customer": ""}


def test_an_unsigned_number_beyond_the_column_is_refused_and_never_changed():
    order = Order(serial=2**63)
    assert one("serial DECIMAL(20,0)", order) == {"serial": Decimal(2**63)}
    assert one("serial STRING", order) == {"serial": str(2**63)}
    assert one("serial BIGINT", Order(serial=2**63 - 1)) == {"serial": 2**63 - 1}
    assert one("serial BIGINT", order) == "column serial (BIGINT): 9223372036854775808 does not fit"
    assert one("small INT", Order(small=2**31)).startswith("column small (INT): 2147483648 does not fit")


@pytest.mark.parametrize(
    ("field", "seconds", "nanos", "found"),
    [
        ("at", 253402300799, 999_999_999, datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("at", -1, 999_999_999, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("at", 253402300800, 0, "a google.protobuf.Timestamp has 253402300800 seconds and 0 nanos, which are out of"),
        ("at", 0, -1, "a google.protobuf.Timestamp has 0 seconds and -1 nanos, which are out of its range"),
        ("took", -1, -500_000_000, Decimal("-1.5")),
        ("took", 1, -1, "a google.protobuf.Duration has seconds and nanos of different signs"),
        ("took", 315576000001, 0, "a google.protobuf.Duration has 315576000001 seconds and 0 nanos, which are out of"),
    ],
)
def test_times_and_durations_are_read_to_their_ends_and_refused_beyond(field, seconds, nanos, found):
    order = Order()
    getattr(order, field).seconds, getattr(order, field).nanos = seconds, nanos
    row = one(f"{field} {'TIMESTAMP' if field == 'at' else 'DECIMAL(21,9)'}", order)
    if isinstance(found, str):
        assert row.startswith(found)
    else:
        assert row == {field: found}


def test_an_enum_is_its_number_where_the_column_is_a_number():
    order = Order(channel=9, seen=[1, 55])
    assert one("channel INT, seen ARRAY<STRING>", order) == {"channel": 9, "seen": ["WEB", "55"]}


def test_fields_of_the_older_syntax_have_their_defaults_and_presence():
    ddl = (
        "sensor INT, value INT, unit STRING, plain DOUBLE, level STRING, levels ARRAY<STRING>, unpacked ARRAY<INT>, "
        "packed ARRAY<INT>"
    )
    empty = {"value": 7, "unit": "mm", "plain": None, "level": "HIGH", "levels": [], "unpacked": [], "packed": []}
    assert one(ddl, Reading(sensor=0), READING) == {"sensor": 0} | empty
    full = Reading(sensor=1, value=0, unit="", plain=0.0, level=1, levels=[2, 1], unpacked=[1, 2], packed=[3])
    full.place.name = "x"
    row = {"value": 0, "unit": "", "plain": 0.0, "level": "LOW", "levels": ["HIGH", "LOW"], "unpacked": [1, 2]}
    assert one(ddl, full, READING) == {"sensor": 1} | row | {"packed": [3]}
    unknown = Reading(sensor=1).SerializeToString() + b"\x28\x09\x30\x09\x30\x01"
    assert one("level STRING, levels ARRAY<STRING>", unknown, READING) == {"level": "HIGH", "levels": ["LOW"]}
    assert one(ddl, Reading(), READING) == ("it is not a message shop.legacy.Reading: it lacks required fields: sensor")


def test_a_field_that_the_writer_does_not_have_is_null():
    assert one("id BIGINT, gone STRING, items ARRAY<STRUCT<colour: STRING>>", Order(id=1, items=[{}])) == {
        "id": 1,
        "gone": None,
        "items": [{"colour": None}],
    }


def test_columns_without_a_schema_are_those_of_the_message():
    found = columns_of(READING_WITHOUT_GROUP)
    assert [(field.name, str(field.type)) for field in found][:4] == [
        ("currency", "string"),
        ("units", "int64"),
        ("nanos", "int32"),
    ]


READING_WITHOUT_GROUP = ProtobufSchema(SET, "shop.orders.Money")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (ORDER, "field replaced is of type shop.orders.Order, which contains itself, which no column can hold"),
        (READING, "field place is a group, which no column can hold"),
    ],
)
def test_a_message_of_which_not_all_fields_are_columns_needs_a_schema(schema, said):
    with pytest.raises(ValueError, match=said):
        columns_of(schema)


@pytest.mark.parametrize(
    ("ddl", "schema", "said"),
    [
        ("idd BIGINT", ORDER, "column idd is not a field of shop.orders.Order; it has id, parent, customer"),
        ("id TIMESTAMP", ORDER, r"column id \(TIMESTAMP\): its type is BIGINT: set timestampFormat"),
        ("items STRING", ORDER, r"column items \(STRING\): its type is ARRAY: write items ARRAY<...> in the schema"),
        ("at STRUCT<x: INT>", ORDER, "its type is TIMESTAMP"),
        ("took TIMESTAMP", ORDER, r"its type is DECIMAL\(21,9\)"),
        ("place STRUCT<name: STRING>", READING, "column place is a group, which no column can hold"),
        ("replaced STRING", ORDER, "its type is STRUCT"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_a_message_is_read(ddl, schema, said):
    with pytest.raises(ValueError, match=said):
        ProtobufDecoder(declared_schema(ddl), "iso", schema).check(schema)


@pytest.mark.parametrize(
    ("files", "message", "said"),
    [
        (b"", "a.B", "it is empty"),
        (b"\x0a", "a.B", "it is not a descriptor set, as protoc"),
        (SET, "shop.orders.Ordr", "it has no message shop.orders.Ordr; it has .*shop.orders.Order"),
        (SET[len(SET) // 2 :], "a.B", "it is not a descriptor set"),
    ],
)
def test_what_is_no_descriptor_set_is_refused(files, message, said):
    from millrace_jobs.schemas.protobuf_schemas import check_schema

    with pytest.raises(ValueError, match=said):
        check_schema(ProtobufSchema(files, message))


def test_a_set_without_an_imported_file_says_how_to_write_it():
    from google.protobuf import descriptor_pb2

    from millrace_jobs.schemas.protobuf_schemas import check_schema, descriptor_set

    files = list(descriptor_pb2.FileDescriptorSet.FromString(SET).file)
    own = [file for file in files if not file.name.startswith("google/")]
    check_schema(ProtobufSchema(descriptor_set(own), "shop.orders.Order"))  # Protobuf's own files need not be there
    own[0].dependency.append("shop/other.proto")
    with pytest.raises(
        ValueError, match=r"shop/other\.proto, which another one imports, is not in it: .*include_imports"
    ):
        check_schema(ProtobufSchema(descriptor_set(own), "shop.orders.Order"))
    own[0].dependency[-1] = own[0].name
    with pytest.raises(ValueError, match="imports itself"):
        check_schema(ProtobufSchema(descriptor_set(own), "shop.orders.Order"))
