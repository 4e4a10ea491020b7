"""Messages of Debezium as records of a table; ``messages_of_debezium`` has what its 2.7.4 wrote of PostgreSQL 15."""

import json
import math
import pickle
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Message

from change_messages import envelope

from .debezium_messages import AT, CHANGE, INT, MICROS, decoder, read, rows

FOLDER = Path(__file__).parent / "messages_of_debezium"


def recorded(name, *tables):
    """The keys and values of the recorded messages of tables, or of all topics."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        found = json.loads(text)

        def whole(part):
            return part and f'{{"schema":{found["schemas"][part[0]]},"payload":{part[1]}}}'

        messages = [(each["topic"], whole(each["key"]), whole(each["value"])) for each in found["messages"]]
    else:
        messages = [(each["topic"], each["key"], each["value"]) for each in map(json.loads, text.splitlines())]
    return [(key, value) for topic, key, value in messages if not tables or topic.rpartition(".")[2] in tables]


def folded(records):
    """The names by key that remain, after all records in their order."""
    left = {}
    for record in records:
        if record["_changed_at"] is not None:
            left.pop(record["id"], None)
            if not record["millrace_deleted"]:
                left[record["id"]] = record["name"]
    return left


@pytest.mark.parametrize("name", ["plain.jsonl", "wrapped.json", "decimals_as_text.jsonl", "connect_times.jsonl"])
def test_recorded_messages_leave_the_rows_of_the_database(name):
    records, reasons = read(recorded(name, "customers"), "id BIGINT, name STRING")
    assert reasons == {}
    assert folded(records) == {1: "Ann B", 4: None, 7: "n2", 9: 'Bob "q" ü'}
    deletes = [(record["id"], record["millrace_estimated"]) for record in records if record["millrace_deleted"]]
    assert deletes == [(2, False), (3, False)]


def test_the_time_of_a_change_is_that_of_its_transaction():
    records, _ = read(recorded("plain.jsonl", "customers"), "id BIGINT, name STRING")
    times = {(each["id"], each["name"]): each["_changed_at"] for each in records if not each["millrace_deleted"]}
    assert times[1, "n1"] == times[4, None] == datetime(2026, 11, 27, 7, 8, 48, 729087, UTC)
    assert times[1, "Ann B"] == datetime(2026, 11, 27, 7, 8, 51, 331973, UTC)
    deleted = [each["_changed_at"] for each in records if each["millrace_deleted"] and not each["millrace_estimated"]]
    assert deleted[0] == times[7, "n2"]  # the row has got another key


TYPES = """
    id BIGINT, born DATE, at TIMESTAMP, at3 TIMESTAMP, tz TIMESTAMP, t BIGINT, flag BOOLEAN, raw BINARY, u STRING,
    j STRING, tags ARRAY<STRING>, f FLOAT, d DOUBLE, si SMALLINT, iv BIGINT
"""
VALUES = {
    "born": date(1969, 12, 31),
    "at": AT,
    "at3": AT.replace(microsecond=123000),
    "tz": AT.replace(hour=10),
    "t": 36_001_500_000,
    "flag": True,
    "raw": b"\0\xff",
    "u": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "j": '{"a": 1}',
    "tags": ["x", "y"],
    "d": 0.1,
    "si": 3,
    "iv": 93_600_000_000,
}


def test_types_follow_from_the_schema_of_a_message():
    schema = f"{TYPES}, balance DECIMAL(12,2), amount DECIMAL(38,9), money DOUBLE"
    records, reasons = read(recorded("wrapped.json", "customers")[:4], schema)
    amounts = {"amount": Decimal("123456789012345678901.000000001"), "money": 12.3, "balance": Decimal("1.50")}
    assert {name: records[0][name] for name in VALUES | amounts} == VALUES | amounts
    assert reasons == {3: "column after.born (DATE): -622191234 days since 1970 does not fit"}
    texts, _ = read(
        recorded("wrapped.json", "customers")[:1], "id STRING, amount STRING, balance STRING, born STRING, t STRING"
    )
    assert [texts[0][name] for name in ("id", "amount", "balance", "born", "t")] == [
        "1",
        "123456789012345678901.000000001",
        "1.50",
        "1969-12-31",
        "10:00:01.500000",
    ]


def test_types_without_a_schema_are_those_that_are_declared():
    formats = {"at": "microseconds", "at3": "milliseconds"}
    messages = recorded("decimals_as_text.jsonl", "customers")[:1]
    schema = f"{TYPES}, balance DECIMAL(10,2), amount DECIMAL(38,9)"
    records, reasons = read(messages, schema, timeFormats=formats)
    amounts = {"amount": Decimal("123456789012345678901.000000001"), "balance": Decimal("1.50")}
    assert reasons == {}
    assert {name: records[0][name] for name in VALUES | amounts} == VALUES | amounts
    records, _ = read(recorded("connect_times.jsonl", "customers"), "id BIGINT, balance DECIMAL(10,2), d DOUBLE")
    assert records[0]["balance"] == Decimal("1.50")
    assert math.isnan(records[3]["d"])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("id BIGINT, balance DECIMAL(10,2)", r"field after.balance: .* decimal.handling.mode: string"),
        ("id BIGINT, at TIMESTAMP", "field after.at: number where TIMESTAMP .* set timestampFormat to the unit"),
        ("id BIGINT, name INT", "field after.name: string where INT is expected"),
    ],
)
def test_encodings_that_need_more_are_refused(schema, reason):
    _, reasons = read(recorded("plain.jsonl", "customers")[:1], schema)
    assert list(reasons) == [0]
    assert re.search(reason, reasons[0]), reasons


def test_a_date_may_be_text():
    change = envelope("c", None, {"id": 1, "day": "2024-02-29"}, MICROS)
    records, _ = read([({"id": 1}, change)], "id BIGINT, day DATE", timeFormats={"day": "iso"})
    assert records[0]["day"] == date(2024, 2, 29)
    _, reasons = read([({"id": 1}, change)], "id BIGINT, day DATE")
    assert reasons[0].endswith("a DATE is a number of days unless timeFormats has a format for it")


def test_messages_about_no_row_are_skipped():
    beats = [*recorded("plain.jsonl", "transaction", "shop"), (None, {"ts_ms": 1, "ts_us": 1000, "ts_ns": 1000000})]
    logical = envelope("m", None, None, MICROS) | {"message": {"prefix": "a", "content": "QQ=="}}
    schema_change = {
        "source": {"ts_ms": 1},
        "databaseName": "shop",
        "ddl": "CREATE TABLE t (id INT)",
        "tableChanges": [],
    }
    messages = [*beats, ({"prefix": "a"}, logical), ({"databaseName": "shop"}, schema_change)]
    records, reasons = read(messages)
    assert reasons == {}
    assert len(records) == len(messages) > 15
    assert {(record["id"], record["_changed_at"]) for record in records} == {(None, None)}
    wrapped, reasons = read(recorded("wrapped.json", "transaction", "shop"))
    assert reasons == {}
    assert {record["id"] for record in wrapped} == {None}


ROW = {"id": 1, "n": 2}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (envelope("t", None, None, MICROS), "op t truncates the table"),
        (envelope("x", None, ROW, MICROS), "its op is 'x', which is none of c, r, u, d, t and m"),
        (envelope("u", ROW, None, MICROS), "its op is u, and it has no after"),
        (envelope("c", None, ROW, MICROS) | {"source": {}}, "it has no source.ts_ms, ts_us or ts_ns"),
        (
            envelope("c", None, ROW, MICROS) | {"source": {"ts_us": 10**18}},
            "it has no source.ts_ms, ts_us or ts_ns in the years",
        ),
        (envelope("c", None, ROW, MICROS) | {"source": None}, "it has no source.ts_ms, ts_us or ts_ns"),
        (envelope("c", None, ROW, -1), "it has no source.ts_ms, ts_us or ts_ns in the years 1970 to 9999"),
        (ROW, "it is no change of Debezium: it has no op: write the messages without"),
        ({"id": 1, "status": "paid"}, "it is no change of Debezium"),
        (envelope("c", None, ROW | {"n": "2"}, MICROS), "field after.n: string where INT is expected"),
        (envelope("c", None, '{"_id": 1}', MICROS), "field after: string where STRUCT is expected"),
        ("", "the message is empty"),
        ("[1]", "array where a JSON object is expected"),
        ('{"schema":{"type":"struct","fields":[{"type":"blob","field":"after"}]},"payload":{}}', "has the type 'blob'"),
        ('{"schema":{"type":"string"},"payload":{"a":1}}', "it is the schema of a string, not of a struct"),
    ],
)
def test_what_is_no_change_of_a_row_is_refused(value, reason):
    records, reasons = read([({"id": 1}, envelope("c", None, ROW, MICROS)), ({"id": 1}, value)])
    assert rows(records, "id", "n") == [(1, 2, False)]
    assert list(reasons) == [1]
    assert reason in reasons[1]


@pytest.mark.parametrize(
    ("source", "micros"),
    [
        ({"ts_ms": 1_704_067_200_000}, 1_704_067_200_000_000),
        ({"ts_ms": 1, "ts_ns": MICROS * 1000 + 999}, MICROS),
        ({"ts_ms": 1, "ts_us": MICROS, "ts_ns": 7}, MICROS),
        ({"ts_ms": 0}, 0),
    ],
)
def test_the_most_exact_time_counts(source, micros):
    records, _ = read([({"id": 1}, envelope("r", None, ROW, MICROS) | {"source": source})])
    assert records[0]["_changed_at"].timestamp() * 1_000_000 == micros


def test_the_key_of_a_delete_may_be_that_of_the_message():
    wrapped_key = '{"schema":{"type":"struct","fields":[{"type":"int64","field":"id"}]},"payload":{"id":3}}'
    messages = [
        ({"id": 1}, envelope("d", {"id": 1, "n": None}, None, MICROS)),
        ({"id": 2}, envelope("d", None, None, MICROS)),
        (wrapped_key, envelope("d", None, None, MICROS)),
        ({"id": 4}, envelope("d", {"id": None, "n": None}, None, MICROS)),
        (None, envelope("d", None, None, MICROS)),
        ({"other": 5}, envelope("d", None, None, MICROS)),
        ("Struct{id=6}", envelope("d", None, None, MICROS)),
    ]
    records, reasons = read(messages)
    assert rows(records, "id", "n") == [(key, None, True) for key in (1, 2, 3, 4)]
    assert {record["_changed_at"] for record in records} == {CHANGE}
    assert reasons[4] == "before has no key of the table, and it has no key"
    assert reasons[5].startswith("before has no key of the table, and its key has no id: write REPLICA IDENTITY FULL")
    assert reasons[6].startswith("before has no key of the table, and its key does not decode")


def test_tombstones_delete_at_a_time_before_all_changes():
    records, reasons = read([({"id": 1}, None), ({"id": 2}, '{"schema":null,"payload":null}'), (None, None)])
    assert [(each["id"], each["millrace_estimated"], each["_changed_at"].year) for each in records] == [
        (1, True, 1970),
        (2, True, 1970),
    ]
    assert reasons == {2: "the tombstone deletes no row: it has no key"}


def test_another_key_deletes_the_row_of_the_key_before():
    before = {"id": 1, "n": 2}
    messages = [({"id": 1}, envelope("u", before, {"id": 1, "n": 3}, MICROS))]
    assert rows(read(messages, keys=["n"])[0], "n") == [(3, False), (2, True)]
    assert rows(read(messages, keys=["id"])[0], "id") == [(1, False)]
    unknown = [({"id": 1}, envelope("u", {"id": 1, "n": None}, {"id": 1, "n": 3}, MICROS))]
    assert rows(read(unknown, keys=["n"])[0], "n") == [(3, False)]


def test_unsent_values_are_taken_from_the_row_before_or_refused():
    missing = "__debezium_unavailable_value"
    schema = "id BIGINT, doc STRING, raw BINARY, tags ARRAY<STRING>"
    after = {"id": 1, "doc": missing, "raw": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "tags": [missing]}
    before = {"id": 1, "doc": "text", "raw": "QQ==", "tags": ["a"]}
    change = envelope("u", before, after, MICROS)
    records, reasons = read([({"id": 1}, change)], schema)
    assert (rows(records, "doc", "raw", "tags"), reasons) == ([("text", b"A", ["a"], False)], {})
    for row in (None, after):
        records, reasons = read([({"id": 1}, change | {"before": row})], schema)
        assert rows(records, "id") == []
        assert "REPLICA IDENTITY FULL" in reasons[0]
    records, reasons = read(recorded("plain.jsonl", "big"), "id INT, region STRING, doc STRING", keys=["id", "region"])
    assert reasons[1].startswith("the database has sent no value of doc")
    records, reasons = read(recorded("plain.jsonl", "big"), "id INT, region STRING, n INT", keys=["id", "region"])
    assert (rows(records, "id", "region", "n"), reasons) == ([(1, "eu", 1, False), (1, "eu", 2, False)], {})


def test_a_table_without_a_primary_key_has_rows_by_declared_columns():
    records, reasons = read(recorded("plain.jsonl", "nokey"), "a INT, b STRING", keys=["a"])
    assert rows(records, "a", "b") == [(1, "a", False)]
    assert list(reasons) == [1]


def test_odd_wrappers_are_read_alike():
    row = json.dumps(envelope("c", None, {"id": 1, "n": 12345678}, MICROS))
    types = [{"type": "int64", "field": "id"}, {"type": "int32", "field": "n", "default": ',"payload":'}]
    after = {"type": "struct", "fields": types, "field": "after"}
    times = {"type": "struct", "fields": [{"type": "int64", "field": "ts_us"}], "field": "source"}
    schema = json.dumps({"type": "struct", "fields": [after, times, {"type": "string", "field": "op"}]})
    compact = schema.replace(": ", ":").replace(", ", ",")
    messages = [
        ({"id": 1}, f'{{"schema":{compact},"payload":{row}}}'),
        ({"id": 1}, f' {{ "payload" : {row}, "schema" : {schema} }}'),
        ({"id": 1}, f'{{"schema":null,"payload":{row}}}'),
        ({"id": 1}, row),
    ]
    records, reasons = read(messages)
    assert reasons == {}
    assert rows(records, "id", "n") == [(1, 12345678, False)] * 4
    assert {record["_changed_at"] for record in records} == {CHANGE}


def test_whole_numbers_may_have_a_scale_of_their_own():
    number = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []}
    after = {"type": "struct", "fields": [number | {"field": "id"}, number | {"field": "n"}], "field": "after"}
    times = {"type": "struct", "fields": [{"type": "int64", "field": "ts_ms"}], "field": "source"}
    schema = {"type": "struct", "fields": [after, times, {"type": "string", "field": "op"}]}
    values = [{"scale": 0, "value": "BQ=="}, {"scale": 1, "value": "Hg=="}, {"scale": 1, "value": "Hw=="}]
    rows_of = [{"id": values[0], "n": value} for value in values]
    messages = [
        (None, {"schema": schema, "payload": {"after": row, "op": "c", "source": {"ts_ms": 1}}}) for row in rows_of
    ]
    records, reasons = read(messages)
    assert rows(records, "id", "n") == [(5, 5, False), (5, 3, False)]
    assert reasons == {2: "3.1 is not a whole number"}


def test_records_of_changes_may_have_metadata_of_their_messages():
    records, _ = read([({"id": 1}, envelope("c", None, ROW, MICROS)), ({"id": 1}, None)], metadata=True)
    assert [(each["_offset"], each["_key"]) for each in records] == [(0, b'{"id": 1}'), (1, b'{"id": 1}')]


def test_a_source_that_has_read_can_be_sent_to_a_task():
    source = decoder(INT)
    value = recorded("wrapped.json", "customers")[0][1].encode()
    list(source._decoder.decode([Message("t", 0, 0, b'{"id":1}', value)], lambda *_: None))
    assert pickle.loads(pickle.dumps(source)).schema == pa.schema([*source.schema])
