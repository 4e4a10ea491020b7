"""Avro messages: one schema that is known, or a registry's framing; every type a column can have."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.sources.formats.avro_records import read_avro_schema
from millrace_jobs.sources.formats.column_types import TIMESTAMP

from .avro_messages import decoded, decoder_of, field, written

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "city", "type": ["null", "string"], "default": None},
    {"name": "fare", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "until", "type": [{"type": "long", "logicalType": "timestamp-micros"}, "null"]},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "again", "type": "Kind"},
    {"name": "blob", "type": "bytes"},
    {"name": "good", "type": "boolean"},
    {"name": "size", "type": "float"},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
    {
        "name": "place",
        "type": {
            "type": "record",
            "name": "Place",
            "fields": [{"name": "since", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
        },
    },
]
TEXT = json.dumps({"type": "record", "name": "trips.Trip", "fields": FIELDS})
INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
MILLIS = INSTANTS.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000))
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "city": st.none() | st.text(max_size=5),
            "fare": st.none() | st.decimals(-(10**7), 10**7, places=2),
            "at": MILLIS,
            "until": st.none() | INSTANTS,
            "day": st.none() | st.dates(),
            "kind": st.sampled_from("AB"),
            "again": st.sampled_from("AB"),
            "blob": st.binary(max_size=5),
            "good": st.booleans(),
            "size": st.floats(width=32, allow_nan=False),
            "tags": st.lists(st.text(max_size=3), max_size=3),
            "counts": st.dictionaries(st.text(max_size=3), st.integers(-(2**31), 2**31 - 1), max_size=2),
            "place": st.fixed_dictionaries({"since": MILLIS}),
        }
    ),
    max_size=10,
)


@given(RECORDS, st.data())
def test_every_type_comes_out_as_it_went_in(records, data):
    values = []
    for record in records:
        while data.draw(st.booleans()):
            values.append(None)
        values.append(written(TEXT, record))
    found, origins, bad = decoded(decoder_of(TEXT), values)
    for row in found:
        row["counts"] = dict(row["counts"])
    assert found == records
    assert origins == [index for index, value in enumerate(values) if value is not None]
    assert bad == {}


def test_columns_have_the_types_of_spark():
    assert decoder_of(TEXT).schema == pa.schema(
        [
            ("id", pa.int64()),
            ("city", pa.string()),
            ("fare", pa.decimal128(10, 2)),
            ("at", TIMESTAMP),
            ("until", TIMESTAMP),
            ("day", pa.date32()),
            ("kind", pa.string()),
            ("again", pa.string()),
            ("blob", pa.binary()),
            ("good", pa.bool_()),
            ("size", pa.float32()),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int32())),
            ("place", pa.struct([("since", TIMESTAMP)])),
        ]
    )


TRIP = '{"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": %s}]}'
MICROS = TRIP % '{"type": "long", "logicalType": "timestamp-micros"}'


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "it ends before its record does"),
        (written(MICROS, {"id": 300, "at": 7})[:2], "it ends before its record does"),
        (written(MICROS, {"id": 1, "at": 7}) + b"x", "1 bytes follow its record"),
        (written(MICROS, {"id": 1, "at": 2**62}), "us since 1970 is outside the years 1 to 9999"),
        (b'{"id": 1}', "bytes follow its record"),
    ],
)
def test_a_bad_message_between_good_ones_is_rejected_alone(message, reason):
    good = [written(MICROS, {"id": number, "at": number}) for number in range(5)]
    found, origins, bad = decoded(decoder_of(MICROS), [*good[:3], message, *good[3:]])
    assert [row["id"] for row in found] == [0, 1, 2, 3, 4]
    assert origins == [0, 1, 2, 4, 5]
    assert list(bad) == [3]
    assert reason in bad[3]


def test_declared_columns_are_taken_by_name_and_cast():
    text = TRIP % '"long"'
    columns = [("at", "TIMESTAMP"), ("id", "DECIMAL(20,1)")]
    seconds = int(timedelta(days=1).total_seconds())
    found, _, _ = decoded(decoder_of(text, columns, "seconds"), [written(text, {"id": 5, "at": seconds})])
    assert found == [{"at": datetime(1970, 1, 2, tzinfo=UTC), "id": Decimal("5.0")}]


def test_a_value_too_large_for_its_column_is_rejected():
    text = TRIP % '"long"'
    values = [written(text, {"id": number, "at": 0}) for number in (1, 2**40, 3)]
    found, origins, bad = decoded(decoder_of(text, [("id", "INT")]), values)
    assert found == [{"id": 1}, {"id": 3}]
    assert origins == [0, 2]
    assert bad[1].startswith("column id (INT): ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not JSON"),
        ('"string"', "it is not the schema of a record"),
        ('{"type": "record", "name": "T"', "it is not JSON"),
        ('{"type": "record", "name": "T", "fields": [{"name": "a", "type": "strng"}]}', "it is not an Avro schema"),
        ('{"type": "record", "name": "T", "fields": [{"name": "a"}]}', "it is not an Avro schema"),
    ],
)
def test_a_text_that_is_no_record_schema_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_avro_schema(text)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ('["null"]', "a union of nothing but null"),
        ('["int", "null", "Trip"]', "a union whose member1 is of type Trip, which contains itself"),
        ('"null"', "null"),
        ('["null", "Trip"]', "of type Trip, which contains itself"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 50}', "a decimal of 50 digits"),
        ('{"type": "bytes", "logicalType": "decimal"}', "a decimal without a precision"),
        (
            '{"type": "array", "items": ["string", "null", {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}]}',
            "a union whose member1 is a duration",
        ),
    ],
)
def test_a_field_that_no_column_can_hold_is_told_and_need_not_be_read(kind, reason):
    assert read_avro_schema(TRIP % kind).types["at"] == reason
    assert decoder_of(TRIP % kind, [("id", "BIGINT")]).schema.names == ["id"]
    with pytest.raises(ValueError, match="column at is"):
        decoder_of(TRIP % kind, [("at", "STRING")])


def test_a_declared_column_that_the_schema_does_not_have_is_refused():
    with pytest.raises(ValueError, match="column fare is not in the Avro schema; it has id, at"):
        decoder_of(MICROS, [("fare", "DOUBLE")])


def test_days_are_dates():
    text = TRIP % '{"type": "int", "logicalType": "date"}'
    found, _, _ = decoded(decoder_of(text), [written(text, {"id": 1, "at": date(2024, 2, 29)})])
    assert found[0]["at"] == date(2024, 2, 29)


def logical(kind, logical_type, **more):
    return {"type": kind, "logicalType": logical_type} | more


TOO_LATE = 253465545600
"""10002-01-01 in seconds since 1970."""
READ_AS = [
    ("bytes", "STRING", "é".encode(), "é"),
    ("string", "BINARY", "QUJD", b"QUJD"),
    ("double", "INT", 2.0, 2),
    ("int", "DOUBLE", 7, 7.0),
    (logical("bytes", "decimal", precision=9, scale=3), "DECIMAL(9,2)", Decimal("1.500"), Decimal("1.50")),
    (logical("int", "time-millis"), "STRING", 36_000_500, "10:00:00.500"),
    (logical("long", "time-micros"), "STRING", 1, "00:00:00.000001"),
    (logical("string", "uuid"), "STRING", "a", "a"),
    (logical("fixed", "uuid", name="U", size=16), "STRING", bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    (logical("fixed", "uuid", name="U", size=16), "BINARY", bytes(range(16)), bytes(range(16))),
    (logical("long", "timestamp-nanos"), "TIMESTAMP", -1, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    (logical("long", "local-timestamp-millis"), "TIMESTAMP", 1, datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
    (logical("long", "timestamp-millis"), "DATE", -86_400_000, date(1969, 12, 31)),
    (logical("int", "date"), "TIMESTAMP", 1, datetime(1970, 1, 2, tzinfo=UTC)),
    ("long", "STRING", -7, "-7"),
    ("double", "STRING", 0.1, "0.1"),
    ("boolean", "STRING", True, "true"),
    ("boolean", "INT", True, 1),
    ("int", "BOOLEAN", 0, False),
    ("int", "DATE", -1, date(1969, 12, 31)),
    ("double", "FLOAT", 0.1, 0.10000000149011612),
    (logical("int", "date"), "STRING", -1, "1969-12-31"),
    (logical("int", "date"), "INT", -1, -1),
    (logical("bytes", "decimal", precision=9, scale=2), "STRING", Decimal("1.50"), "1.50"),
    (logical("long", "timestamp-millis"), "STRING", 1, "1970-01-01 00:00:00.001Z"),
    (logical("long", "local-timestamp-micros"), "STRING", 1, "1970-01-01 00:00:00.000001"),
    (logical("long", "timestamp-millis"), "BIGINT", 1_700_000_000_000, 1_700_000_000_000),
    (logical("int", "time-millis"), "INT", 36_000_000, 36_000_000),
    (logical("int", "time-millis"), "BIGINT", 36_000_000, 36_000_000),
    (logical("long", "time-micros"), "BIGINT", 36_000_000_000, 36_000_000_000),
]


def plain(kind):
    """The type without its logical type, as which fastavro writes the stored value."""
    return {"type": kind["type"]} | ({} if kind["type"] != "fixed" else {"name": "U", "size": kind["size"]})


def stored(kind, value):
    is_number = isinstance(kind, dict) and kind["logicalType"] != "decimal"
    return written(field(plain(kind) if is_number else kind), {"a": value})


@pytest.mark.parametrize(("kind", "declared", "value", "expected"), READ_AS)
def test_a_value_is_read_as_another_type_if_nothing_is_lost(kind, declared, value, expected):
    found, _, bad = decoded(decoder_of(field(kind), [("a", declared)]), [stored(kind, value)])
    assert (found, bad) == ([{"a": expected}], {})


@pytest.mark.parametrize(
    ("kind", "declared", "value", "reason"),
    [
        ("double", "INT", 1.5, "column a (INT): 1.5 does not fit"),
        ("double", "FLOAT", 1 / 3, "column a (FLOAT): 0.3333333333333333 does not fit"),
        ("int", "BOOLEAN", 2, "column a (BOOLEAN): 2 is neither 0 nor 1"),
        ("bytes", "STRING", b"\xff", "column a (STRING): b'\\xff' is not UTF-8"),
        (logical("int", "time-millis"), "STRING", 86_400_000, "is not a time of day"),
        (logical("long", "timestamp-millis"), "TIMESTAMP", TOO_LATE * 1000, "is outside the years 1 to 9999"),
        (logical("long", "timestamp-millis"), "TIMESTAMP", 2**60, "does not fit"),
        (logical("long", "timestamp-micros"), "DATE", 1, "has a time of day"),
        (logical("int", "date"), "DATE", 2933629, "is outside the years 1 to 9999"),
    ],
)
def test_a_value_that_would_change_is_rejected(kind, declared, value, reason):
    found, _, bad = decoded(decoder_of(field(kind), [("a", declared)]), [stored(kind, value)])
    assert found == []
    assert reason in bad[0]


@pytest.mark.parametrize(
    ("kind", "declared", "message"),
    [
        ("boolean", "DATE", r"column a \(DATE\): its type is BOOLEAN: write a BOOLEAN in the schema"),
        ("string", "BIGINT", r"column a \(BIGINT\): its type is STRING: write a STRING in the schema"),
        ("long", "TIMESTAMP", r"column a \(TIMESTAMP\): its type is BIGINT: set timestampFormat"),
        (logical("int", "time-millis"), "DATE", r"column a \(DATE\): its type is TIME: write a STRING in the schema"),
        (logical("fixed", "duration", name="D", size=12), "BINARY", "column a is a duration, which no column can hold"),
    ],
)
def test_a_type_that_means_something_else_is_refused_before_anything_is_read(kind, declared, message):
    with pytest.raises(ValueError, match=message):
        decoder_of(field(kind), [("a", declared)])


UUID = logical("fixed", "uuid", name="U", size=16)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "array", "items": UUID}, [bytes(16), bytes(range(16))]),
        ({"type": "map", "values": UUID}, {"x": bytes(range(16))}),
        ({"type": "record", "name": "R", "fields": [{"name": "u", "type": ["null", UUID]}]}, {"u": bytes(range(16))}),
    ],
    ids=["array", "map", "record"],
)
def test_a_uuid_inside_a_nested_column_is_its_bytes(kind, value):
    without = json.loads(json.dumps(kind).replace('"logicalType": "uuid", ', ""))
    found, _, bad = decoded(decoder_of(field(kind)), [written(field(without), {"a": value})])
    assert (found, bad) == ([{"a": list(value.items()) if "values" in kind else value}], {})


@pytest.mark.parametrize(
    ("kind", "inferred"),
    [
        (logical("int", "time-millis"), pa.int32()),
        (logical("long", "time-micros"), pa.int64()),
        (UUID, pa.binary()),
    ],
)
def test_without_a_schema_times_of_day_and_uuids_are_what_avro_stores(kind, inferred):
    decoder = decoder_of(field(kind))
    assert decoder.schema.field("a").type == inferred
    value = bytes(range(16)) if kind is UUID else 36_000_000
    assert decoded(decoder, [stored(kind, value)])[0] == [{"a": value}]


def test_times_inside_a_nested_column_are_times_of_spark():
    moment = logical("long", "timestamp-nanos")
    place = {"type": "record", "name": "P", "fields": [{"name": "since", "type": ["null", moment]}]}
    kind = ["null", {"type": "map", "values": {"type": "array", "items": ["null", place]}}]
    plain_kind = json.loads(json.dumps(kind).replace(', "logicalType": "timestamp-nanos"', ""))
    values = [{"a": None}, {"a": {"x": [None, {"since": -1}, {"since": None}], "y": []}}]
    found, _, bad = decoded(decoder_of(field(kind)), [written(field(plain_kind), value) for value in values])
    assert bad == {}
    late = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert found == [{"a": None}, {"a": [("x", [None, {"since": late}, {"since": None}]), ("y", [])]}]
    millis = json.loads(json.dumps(plain_kind))
    text = field(json.loads(json.dumps(kind).replace("nanos", "millis")))
    _, _, bad = decoded(decoder_of(text), [written(field(millis), {"a": {"x": [{"since": TOO_LATE * 1000}]}})])
    assert "is outside the years 1 to 9999" in bad[0]
