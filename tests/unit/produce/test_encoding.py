"""What is encoded is what the Kafka source's parsers decode, for every type and every odd value."""

import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_schemas import a_schema
from millrace_api.errors import MillraceError
from millrace_jobs.produce.records import avro_encoder, csv_encoder, json_encoder, key_encoder
from millrace_jobs.sources.formats.csv_parser import CsvParser
from millrace_jobs.sources.formats.json_parser import JsonParser

SCHEMA = a_schema(
    [
        ("text", "STRING"),
        ('odd "name"', "INT"),
        ("big", "BIGINT"),
        ("real", "DOUBLE"),
        ("good", "BOOLEAN"),
        ("price", "DECIMAL(12,3)"),
        ("day", "DATE"),
        ("moment", "TIMESTAMP"),
        ("bytes", "BINARY"),
    ]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moments(unit):
    """Times in whole units, from the year 1 on; doubles hold microseconds until 2255 only."""
    return st.integers(-62_135_596_800 * 10**6 // unit + 1, 9_007_199_254_740_992 // unit).map(
        lambda count: EPOCH + timedelta(microseconds=count * unit)
    )


def rows(text, moment, bytes):
    return st.lists(
        st.tuples(
            st.none() | text,
            st.none() | st.integers(-(2**31), 2**31 - 1),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.booleans(),
            st.none() | st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
            st.none() | st.dates(),
            st.none() | moment,
            st.none() | bytes,
        ),
        min_size=1,
        max_size=20,
    )


def batch(rows, schema=SCHEMA):
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""Also quotes, backslashes and control characters."""
UNITS = {"iso": 1, "seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}


@pytest.mark.parametrize("unit", UNITS)
@given(data=st.data())
def test_json_comes_back_as_it_was(unit, data):
    records = batch(data.draw(rows(TEXT, moments(UNITS[unit]), st.binary())))
    parser = JsonParser(SCHEMA, unit)
    for row, message in enumerate(json_encoder(SCHEMA, unit)(records)):
        assert set(json.loads(message)) == set(SCHEMA.names)
        assert parser.parse(message + b"\n").equals(records.slice(row, 1))


@pytest.mark.parametrize("unit", UNITS)
@given(data=st.data())
def test_csv_comes_back_as_it_was(unit, data):
    records = batch(data.draw(rows(TEXT, moments(UNITS[unit]), TEXT.map(str.encode))))
    parser = CsvParser(SCHEMA, SCHEMA.names, ",", unit)
    for row, message in enumerate(csv_encoder(SCHEMA, unit)(records)):
        assert parser.parse(message + b"\n").equals(records.slice(row, 1))


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_a_part_of_a_batch_is_encoded_like_a_batch(cut):
    schema = a_schema([("text", "STRING")])
    texts = ["plain", 'say "hi"', "tab\there", "back\\slash", None]
    part = batch([(text,) for text in texts], schema).slice(cut, 2)
    assert [json.loads(message)["text"] for message in json_encoder(schema, "iso")(part)] == texts[cut : cut + 2]


def test_times_are_written_in_the_unit_that_is_asked_for():
    schema = a_schema([("at", "TIMESTAMP")])
    at = datetime(2024, 5, 1, 12, 30, 15, 250_000, UTC)
    written = {unit: json_encoder(schema, unit)(batch([(at,)], schema)) for unit in UNITS}
    assert written == {
        "iso": [b'{"at":"2024-05-01T12:30:15.250000Z"}'],
        "seconds": [b'{"at":1714566615.25}'],
        "milliseconds": [b'{"at":1714566615250}'],
        "microseconds": [b'{"at":1714566615250000}'],
    }
    whole = batch([(at.replace(microsecond=0),), (None,)], schema)
    assert json_encoder(schema, "seconds")(whole) == [b'{"at":1714566615}', b'{"at":null}']


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), -0.0])
def test_numbers_that_json_has_no_literal_for_come_back(number):
    schema = a_schema([("x", "DOUBLE"), ("y", "FLOAT")])
    records = batch([(number, number), (1.5, None)], schema)
    for encode, parser in (
        (json_encoder, JsonParser(schema, "iso")),
        (csv_encoder, CsvParser(schema, schema.names, ",", "iso")),
    ):
        for row, message in enumerate(encode(schema, "iso")(records)):
            assert str(parser.parse(message + b"\n").to_pylist()) == str(records.slice(row, 1).to_pylist())
    assert json.loads(json_encoder(schema, "iso")(records)[1]) == {"x": 1.5, "y": None}


def test_bytes_that_are_no_text_are_for_json():
    schema = a_schema([("bytes", "BINARY"), ("n", "INT")])
    with pytest.raises(MillraceError, match=r"column bytes has bytes that are not text in UTF-8.*produce json"):
        csv_encoder(schema, "iso")(batch([(b"\xff", 1)], schema))


def test_csv_of_one_column_has_no_blank_line():
    schema = a_schema([("text", "STRING")])
    encode, parser = csv_encoder(schema, "iso"), CsvParser(schema, schema.names, ",", "iso")
    texts = ["a", "", "  ", "\n"]
    messages = encode(batch([(text,) for text in texts], schema))
    assert messages == [b'"a"', b'""', b'"  "', b'"\n"']
    assert [parser.parse(message + b"\n").column(0)[0].as_py() for message in messages] == texts
    with pytest.raises(
        MillraceError, match=r"column text has a NULL, which a line of CSV .* cannot hold; produce json"
    ):
        encode(batch([("a",), (None,)], schema))
    numbers = a_schema([("n", "INT")])
    assert csv_encoder(numbers, "iso")(batch([(1,), (None,)], numbers)) == [b"1", b'""']


def test_keys_are_values_as_text():
    records = batch([("zwölf", 1, 2, 0.5, True, Decimal("1.5"), date(2024, 5, 1), EPOCH, b"x"), (None,) * 9])
    keys = [key_encoder(name, "iso")(records) for name in SCHEMA.names]
    assert [key for key, _ in keys] == [
        "zwölf".encode(),
        b"1",
        b"2",
        b"0.5",
        b"true",
        b"1.500",
        b"2024-05-01",
        b"1970-01-01T00:00:00.000000Z",
        b"x",
    ]
    assert {key for _, key in keys} == {None}


AVRO = json.dumps(
    {
        "type": "record",
        "name": "ride",
        "fields": [
            {"name": "taxi", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "tip", "type": ["null", "double"], "default": None},
        ],
    }
)
RIDES = a_schema([("taxi", "STRING"), ("at", "TIMESTAMP"), ("tip", "DOUBLE")])


def test_avro_is_what_another_reader_of_the_schema_gets():
    rides = [("a", datetime(2024, 5, 1, 1, 2, 3, 4, UTC), 1.5), ("b", EPOCH, None)]
    schema = fastavro.parse_schema(json.loads(AVRO))
    messages = avro_encoder(AVRO)(batch(rides, RIDES))
    found = [fastavro.schemaless_reader(io.BytesIO(message), schema) for message in messages]
    assert [tuple(ride.values()) for ride in found] == rides


@pytest.mark.parametrize("schema", ["{", '{"type": "nonsense"}', '"long"'])
def test_what_is_no_avro_schema_of_a_record_is_refused(schema):
    with pytest.raises(MillraceError, match=r"avro\.writerSchema cannot be used: it is not "):
        avro_encoder(schema)


def test_a_record_that_does_not_fit_the_avro_schema_is_refused():
    with pytest.raises(MillraceError, match=r"record .*None.* does not fit avro.writerSchema"):
        avro_encoder(AVRO)(batch([(None, EPOCH, 1.0)], RIDES))


@pytest.mark.parametrize(
    ("wanted", "kind", "value"),
    [
        ("boolean", pa.bool_(), None),
        ("int", pa.int64(), 2**31),
        ("long", pa.float64(), 1.5),
        ("long", pa.float64(), float("inf")),
    ],
)
def test_a_value_that_avro_cannot_hold_is_refused_and_not_changed(wanted, kind, value):
    schema = {"type": "record", "name": "ride", "fields": [{"name": "x", "type": wanted}]}
    encode = avro_encoder(json.dumps(schema))
    with pytest.raises(
        MillraceError, match=r"record .* does not fit avro\.writerSchema: .*; correct the writer schema"
    ):
        encode(pa.record_batch({"x": pa.array([value], kind)}))
