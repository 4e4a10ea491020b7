"""Structs, arrays and maps in JSON, Parquet and Avro: what is read, and what is refused, is settled here field by field."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_jobs.sources.formats.avro_records import AvroDecoder, read_avro_schema
from millrace_jobs.sources.formats.column_types import declared_schema
from millrace_jobs.sources.formats.decoding import decode
from millrace_jobs.sources.formats.file_formats import file_format
from millrace_jobs.sources.formats.json_parser import JsonParser
from millrace_jobs.sources.formats.messages import TextDecoder

WHO = "who STRUCT<country: STRING, age: INT, home: STRUCT<city: STRING, at: TIMESTAMP>>"
ITEMS = "items ARRAY<STRUCT<sku: STRING, price: DECIMAL(38,2)>>"
LABELS = "labels MAP<STRING, DOUBLE>"


def read_json(ddl, *lines, timestamp_format="iso"):
    """Return the good records of JSON lines as Python values, and the reasons why the others are bad."""
    schema = declared_schema(ddl)
    parser, bad = JsonParser(schema, timestamp_format), []
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines).encode()
    batch = decode(parser, schema, parser.layout(text), bad.append)
    batch.validate(full=True)
    assert batch.schema == schema
    return batch.to_pylist(), [each.reason for each in bad]


@pytest.mark.parametrize(
    ("ddl", "line", "value"),
    [
        (WHO, {}, None),
        (WHO, {"who": None}, None),
        (WHO, {"who": {}}, {"country": None, "age": None, "home": None}),
        (WHO, {"who": {"home": {}}}, {"country": None, "age": None, "home": {"city": None, "at": None}}),
        (WHO, {"who": {"Country": "NO", "more": {"country": 1}}}, {"country": None, "age": None, "home": None}),
        (
            WHO,
            {"who": {"home": {"at": "1500-01-01T00:00:00Z"}}},
            {"country": None, "age": None, "home": {"city": None, "at": datetime(1500, 1, 1, tzinfo=UTC)}},
        ),
        (ITEMS, {"items": []}, []),
        (ITEMS, {"items": [None, {}]}, [None, {"sku": None, "price": None}]),
        (ITEMS, {"items": [{"price": "1.005"}]}, [{"sku": None, "price": Decimal("1.01")}]),
        (ITEMS, '{"items": [{"price": 12345678901234567890123456789012345.67}]}',
         [{"sku": None, "price": Decimal("12345678901234567890123456789012345.67")}]),
        (LABELS, {"labels": {}}, []),
        (LABELS, {"labels": {"": None, "é": 0.5}}, [("", None), ("é", 0.5)]),
        (LABELS, {"labels": {"a": "-Infinity", "b": 1}}, [("a", float("-inf")), ("b", 1.0)]),
        ("a ARRAY<DOUBLE>", {"a": ["Infinity", None]}, [float("inf"), None]),
        ("a ARRAY<ARRAY<INT>>", {"a": [[1], None, []]}, [[1], None, []]),
        ("m MAP<STRING, MAP<STRING, DATE>>", {"m": {"x": {"y": "0044-03-15"}}}, [("x", [("y", date(44, 3, 15))])]),
        ("`a.b` STRUCT<`c.d`: INT>", {"a.b": {"c.d": 1}}, {"c.d": 1}),
        ("s STRUCT<b: BINARY>", {"s": {"b": "w6k="}}, {"b": b"\xc3\xa9"}),
        ("s STRUCT<n: BIGINT>", '{"s": {"n": 9007199254740993}}', {"n": 9007199254740993}),
    ],
)  # fmt: skip
def test_nested_json_is_read_field_by_field(ddl, line, value):
    [record], bad = read_json(ddl, line)
    assert (list(record.values()), bad) == ([value], [])


@pytest.mark.parametrize(
    ("ddl", "line", "reason"),
    [
        (WHO, {"who": "NO"}, "field who: string where STRUCT is expected: write an object"),
        (WHO, {"who": [1]}, "field who: array where STRUCT is expected: write an object"),
        (WHO, {"who": {"country": 5}}, "field who.country: number where STRING is expected"),
        (WHO, {"who": {"age": 2.5}}, "field who.age: 2.5 does not fit INT"),
        (WHO, {"who": {"home": {"at": 5}}}, "field who.home.at: number where TIMESTAMP is expected: set timestampForm"),
        (WHO, {"who": {"home": {"at": "noon"}}}, "column who.home.at (TIMESTAMP): 'noon' is not an ISO 8601 timestamp"),
        (WHO, '{"who": {"age": 1, "age": 2}}', "field who.age appears twice: write it once"),
        (WHO, '{"who": {"country": "\\ud83d"}}', "invalid JSON"),
        (ITEMS, {"items": {"sku": "a"}}, "field items: object where ARRAY is expected: write an array"),
        (ITEMS, {"items": ["a"]}, "field items[]: string where STRUCT is expected: write an object"),
        (ITEMS, {"items": [{}, {"sku": True}]}, "field items[].sku: boolean where STRING is expected"),
        (ITEMS, '{"items": [{"sku": "a", "sku": "a"}]}', "field items[].sku appears twice: write it once"),
        (LABELS, {"labels": [1]}, "field labels: array where MAP is expected: write an object"),
        (LABELS, {"labels": 1}, "field labels: number where MAP is expected: write an object"),
        (LABELS, {"labels": {"a": "x"}}, "field labels[value]: string where DOUBLE is expected"),
        (LABELS, '{"labels": {"a": 1, "a": 1}}', 'field labels: the key "a" appears twice: write it once'),
        (LABELS, '{"labels": {"a": 1}', "invalid JSON"),
        (LABELS, '{"labels": {"a": 1}} {}', "more than one JSON value"),
        (LABELS, '{"labels": {"\\ud83d": 1}}', "invalid JSON: half of a surrogate pair in a string"),
        (LABELS, "[" * 100_000, "invalid JSON"),
        (
            LABELS,
            f'{{"labels": {{"a": {"[" * 150}{"]" * 150}}}}}',
            "field labels[value]: array where DOUBLE is expected",
        ),
        (LABELS, f'{{"labels": {"[" * 9000}{"]" * 9000}}}', "invalid JSON: arrays or objects are too deep"),
    ],
)
def test_nested_json_that_does_not_fit_is_refused_with_its_field(ddl, line, reason):
    before, after = {"ignored": 1}, {}
    records, bad = read_json(ddl, before, line, after)
    assert len(records) == 2
    assert len(bad) == 1
    assert bad[0].startswith(reason), bad


def test_text_stays_text_where_a_number_elsewhere_has_its_name():
    ddl = "s STRUCT<x: STRING, y: STRUCT<x: DOUBLE>>, x FLOAT"
    line = {"s": {"x": "NaN", "y": {"x": "Infinity"}}, "x": "-Infinity"}
    assert read_json(ddl, line) == ([{"s": {"x": "NaN", "y": {"x": float("inf")}}, "x": float("-inf")}], [])


def test_times_within_structs_keep_their_digits():
    ddl = "s STRUCT<at: TIMESTAMP>, l ARRAY<TIMESTAMP>"
    line = '{"s": {"at": 253402300799.999999}, "l": [-62135596800, null]}'
    [record], bad = read_json(ddl, line, timestamp_format="seconds")
    latest, earliest = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)
    assert (record, bad) == ({"s": {"at": latest}, "l": [earliest, None]}, [])


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)
INTS = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "s": st.none() | st.fixed_dictionaries({}, optional={"t": st.none() | TEXTS, "n": st.none() | INTS}),
        "l": st.none() | st.lists(st.none() | st.fixed_dictionaries({}, optional={"t": st.none() | TEXTS}), max_size=3),
        "m": st.none() | st.dictionaries(TEXTS, st.none() | INTS, max_size=3),
        "ignored": st.none() | st.dictionaries(TEXTS, st.lists(INTS, max_size=2), max_size=2),
    },
)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(RECORDS, min_size=1, max_size=20), st.booleans())
def test_duckdb_reads_the_same_from_json(tmp_path_factory, records, with_map):
    file = tmp_path_factory.mktemp("j") / "records.json"
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    ddl = "s STRUCT<t: STRING, n: BIGINT>, l ARRAY<STRUCT<t: STRING>>" + ", m MAP<STRING, BIGINT>" * with_map
    types = "s: 'STRUCT(t VARCHAR, n BIGINT)', l: 'STRUCT(t VARCHAR)[]'" + ", m: 'MAP(VARCHAR, BIGINT)'" * with_map
    found, bad = read_json(ddl, *records)
    options = f"format = 'newline_delimited', columns = {{{types}}}"
    expected = duckdb.sql(f"SELECT * FROM read_json('{file}', {options})").fetchall()
    plain = [
        tuple(dict(value) if name == "m" and value is not None else value for name, value in row.items())
        for row in found
    ]
    assert (plain, bad) == (expected, [])


def test_a_message_may_have_line_breaks_between_fields():
    decoder = TextDecoder("json", declared_schema(f"{WHO}, {LABELS}"), "iso")
    refused: list[tuple[int, str]] = []
    message = b'{\n "who": {"age": 1},\r\n "labels":\n {"a": 1}\n}'
    values = [message, None, b'{"labels": 5}']
    records, indexes = decoder.decode(values, lambda index, reason: refused.append((index, reason)))
    assert records.to_pylist() == [{"who": {"country": None, "age": 1, "home": None}, "labels": [("a", 1.0)]}]
    assert indexes.tolist() == [0]
    assert refused == [(2, "field labels: number where MAP is expected: write an object")]


STORED = pa.table(
    {
        "who": pa.array(
            [
                {"country": "NO", "Age": 5, "at": datetime(1500, 1, 1), "more": {"list": [1, 2]}},
                None,
                {"country": None, "Age": None, "at": None, "more": None},
            ],
            pa.struct(
                [
                    ("country", pa.string()),
                    ("Age", pa.int64()),
                    ("at", pa.timestamp("us")),
                    ("more", pa.struct([("list", pa.large_list(pa.int8()))])),
                ]
            ),
        ),
        "items": pa.array(
            [[{"sku": "a", "price": 1.5}, None], None, []], pa.list_(pa.struct([("sku", pa.string()), ("price", pa.float64())]))
        ),
        "labels": pa.array([[(1, "x"), (2, None)], None, []], pa.map_(pa.int32(), pa.string())),
        "twice": pa.array([[("a", 1), ("a", 2)], None, []], pa.map_(pa.string(), pa.int32())),
        "nothing": pa.array([None] * 3, pa.struct([("x", pa.int8())])),
        "k": pa.array(["a", "b", "c"]),
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("p") / "stored.parquet"
    pq.write_table(STORED, path, row_group_size=2)
    return str(path)


def read_parquet(path, ddl):
    reader = file_format("parquet", declared_schema(ddl))
    reader.check(path)
    batches = [batch for at in range(0, 3, 2) for batch in reader.read(path, at, at + 2, lambda *_: None)]
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches).to_pylist()


@pytest.mark.parametrize(
    ("ddl", "duckdb_sql"),
    [
        ("who STRUCT<country: STRING, age: INT>", "CASE WHEN who IS NOT NULL THEN {country: who.country, age: who.age} END"),
        ("who STRUCT<more: STRUCT<list: ARRAY<BIGINT>>>", "CASE WHEN who IS NOT NULL THEN {more: who.more} END"),
        ("items ARRAY<STRUCT<price: DOUBLE>>", "[CASE WHEN i IS NOT NULL THEN {price: i.price} END FOR i IN items]"),
        ("items ARRAY<STRUCT<price: DECIMAL(9,2), sku: STRING>>",
         "[CASE WHEN i IS NOT NULL THEN {price: i.price::DECIMAL(9,2), sku: i.sku} END FOR i IN items]"),
        ("labels MAP<STRING, STRING>", "CASE WHEN labels IS NOT NULL THEN map_from_entries([(e.key::VARCHAR, e.value) "
                                       "FOR e IN map_entries(labels)]) END"),
        ("nothing STRUCT<other: STRING>", "NULL"),
    ],
)  # fmt: skip
def test_duckdb_reads_the_same_from_parquet(stored, ddl, duckdb_sql):
    [(name, *_)] = [ddl.split(" ")]
    expected = [value for (value,) in duckdb.sql(f"SELECT {duckdb_sql} FROM '{stored}'").fetchall()]
    found = [row[name] for row in read_parquet(stored, ddl)]
    if name == "labels":
        found = [None if value is None else dict(value) for value in found]
    assert found == expected


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("who STRUCT<city: STRING>", "column who (STRUCT): there is no field who.city; it has country, Age, at, more"),
        ("who STRUCT<country: INT>", "column who.country (INT): its type is STRING; write who.country STRING"),
        ("who STRUCT<more: STRING>", "column who.more (STRING): its type is STRUCT; write who.more STRUCT<...>"),
        ("who STRING", "column who (STRING): its type is STRUCT; write who STRUCT<...> in the schema"),
        ("k STRUCT<x: INT>", "column k (STRUCT): its type is STRING"),
        ("items ARRAY<STRUCT<price: INT>>", "column items[].price (INT): row 1: 1.5 does not fit"),
        ("who STRUCT<more: STRUCT<list: ARRAY<BOOLEAN>>>", "column who.more.list[] (BOOLEAN): row 1: 2 is neither 0 nor 1"),
        ("twice MAP<STRING, INT>", "column twice (MAP): row 1: [('a', 1), ('a', 2)] has a key twice"),
        ("labels MAP<STRING, INT>", "column labels[value] (INT): its type is STRING"),
    ],
)  # fmt: skip
def test_nested_parquet_that_does_not_fit_is_refused(stored, ddl, said):
    with pytest.raises(MillraceError) as refused:
        read_parquet(stored, ddl)
    assert said in str(refused.value)


def test_days_of_old_calendars_are_corrected_within_structs(tmp_path):
    days = (date(1500, 6, 11) - date(1970, 1, 1)).days  # 1500-06-01 in the Julian calendar
    table = pa.table({"s": pa.array([{"d": days, "n": 1}], pa.struct([("d", pa.int32()), ("n", pa.int32())]))})
    table = table.cast(pa.schema([("s", pa.struct([("d", pa.date32()), ("n", pa.int32())]))]))
    path = str(tmp_path / "old.parquet")
    marks = {"org.apache.spark.version": "2.4.8"}
    pq.write_table(table.replace_schema_metadata(marks), path)
    [row] = read_parquet(path, "s STRUCT<d: DATE>")
    assert row == {"s": {"d": date(1500, 6, 1)}}


AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {
            "name": "who",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "w",
                    "fields": [
                        {"name": "country", "type": ["null", "string"]},
                        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}},
                    ],
                },
            ],
        },
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
    ],
}  # fmt: skip


def avro_message(record):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record)
    return stream.getvalue()


def decode_avro(ddl, *records, schema=AVRO):
    decoder = AvroDecoder(declared_schema(ddl), "iso", read_avro_schema(json.dumps(schema)))
    bad: list[tuple[int, str]] = []
    found, _ = decoder.decode([avro_message(record) for record in records], lambda index, why: bad.append((index, why)))
    found.validate(full=True)
    return found.to_pylist(), bad


def test_avro_records_arrays_and_maps_are_read_by_name():
    moment, paid = datetime(1500, 1, 1, tzinfo=UTC), Decimal("-123456789012345678901234567890123456.78")
    records = [
        {"who": {"country": None, "at": moment, "paid": paid}, "tags": ["a", None], "counts": {"n": 2**53 + 1}},
        {"who": None, "tags": [], "counts": {}},
    ]
    ddl = """who STRUCT<paid: DECIMAL(38,2), at: TIMESTAMP, Country: STRING, missing: ARRAY<INT>>,
    tags ARRAY<STRING>, counts MAP<STRING, BIGINT>"""
    found, bad = decode_avro(ddl, *records)
    assert bad == []
    assert found == [
        {
            "who": {"paid": paid, "at": moment, "Country": None, "missing": None},
            "tags": ["a", None],
            "counts": [("n", 2**53 + 1)],
        },
        {"who": None, "tags": [], "counts": []},
    ]


def test_a_value_in_an_avro_record_that_does_not_fit_is_rejected():
    record = {"who": None, "tags": ["1"], "counts": {"n": 300}}
    found, bad = decode_avro("counts MAP<STRING, TINYINT>", record, record | {"counts": {"n": 3}})
    assert found == [{"counts": [("n", 3)]}]
    assert bad == [(0, "column counts[value] (TINYINT): 300 does not fit")]


def test_avro_types_that_are_too_deep_are_refused():
    deep: object = "int"
    for _ in range(17):
        deep = {"type": "array", "items": deep}
    schema = read_avro_schema(json.dumps(_record_of(deep)))
    decoder = AvroDecoder(declared_schema("x INT"), "iso", schema)
    with pytest.raises(ValueError, match="more than 16 levels"):
        decoder.check(schema)
    text = '{"type": "array", "items": ' * 20_000 + '"int"' + "}" * 20_000
    with pytest.raises(ValueError, match="too deep within each other"):
        read_avro_schema(text)


def _record_of(kind):
    return {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}


def test_csv_has_no_nested_columns():
    with pytest.raises(MillraceError, match="column who has the type STRUCT, which CSV cannot hold; write who STRING"):
        file_format("csv", declared_schema(WHO))
