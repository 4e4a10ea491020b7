"""Tombstones of a table's topic as records: which row they delete, and from when on."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from millrace_jobs.sources.base import CHANGED
from millrace_jobs.sources.formats.column_types import declared_schema
from millrace_jobs.sources.kafka.message_records import METADATA, TombstoneDecoder

SCHEMA = declared_schema("id BIGINT, who STRING, size DECIMAL(4,1), day DATE, at TIMESTAMP")
WRITTEN = (TIMESTAMP_CREATE_TIME, 1_700_000_000_000)
NO_TIME = (TIMESTAMP_NOT_AVAILABLE, 0)
AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def tombstone(key, *, headers=None, time=WRITTEN):
    return Message("rows", 0, 7, key, None, headers, None, time)


def decoded(keys, *messages, time="at", schema=SCHEMA, timestamp_format="iso"):
    """The records, and the reasons against the others."""
    reasons = []
    decoder = TombstoneDecoder(schema, keys, time, timestamp_format)
    records = decoder.decode(messages, lambda _, reason: reasons.append(reason))
    assert records.schema == pa.schema([*schema, *CHANGED])
    return records.to_pylist(), reasons


def only(*arguments, **options):
    [record], reasons = decoded(*arguments, **options)
    assert reasons == []
    return record


def times_of(message):
    """The event time of a delete, and whether it is an estimate."""
    record = only(["id"], message)
    return record["at"], record["millrace_estimated"]


def test_a_tombstone_has_a_key_and_a_time_and_nothing_else():
    record = only(["who", "id"], tombstone(b'{"id":3,"who":"a"}'))
    others = {"size": None, "day": None, "millrace_deleted": True, "millrace_estimated": False, "millrace_position": 7}
    assert record == {"id": 3, "who": "a", "at": AT, **others}


@pytest.mark.parametrize(
    ("column", "key", "value"),
    [
        ("id", b"12", "12"),
        ("who", b'a, "b"', 'a, "b"'),
        ("who", b"", ""),
        ("who", b'{"who": "a"}', "a"),
        ("size", b"1.5", "1.5"),
        ("day", b"2024-02-29", "2024-02-29"),
    ],
)
def test_a_single_key_may_be_text(column, key, value):
    assert str(only([column], tombstone(key))[column]) == value


def test_the_time_of_the_query_that_wrote_it_comes_before_that_of_the_message():
    headers = [("millrace-batch", b"3"), ("millrace-watermark", b"1600000000000")]
    at = datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
    assert times_of(tombstone(b"1", headers=headers)) == (at, True)
    assert times_of(tombstone(b"1", headers=headers, time=NO_TIME)) == (at, True)
    assert times_of(tombstone(b"1", headers=[("millrace-watermark", b"soon")])) == (AT, False)
    before = datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert times_of(tombstone(b"1", headers=[("millrace-watermark", b"-1000")])) == (before, True)
    start = (TIMESTAMP_CREATE_TIME, 0)
    assert times_of(tombstone(b"1", time=start)) == (datetime(1970, 1, 1, tzinfo=UTC), False)


def test_a_time_in_the_key_counts():
    key = b'{"who": "a", "at": "2024-01-01T00:00:00.000000Z"}'
    record = only(["who", "at"], tombstone(key, headers=[("millrace-watermark", b"1")]), time="AT")
    assert record["at"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert only(["at"], tombstone(b"1700000000"), timestamp_format="seconds")["at"] == AT


def test_a_tombstone_may_have_key_and_time_of_the_message_itself():
    raw = pa.schema([("value", pa.binary()), *METADATA])
    record = only(["_key"], tombstone(b"\xff", headers=[("millrace-watermark", b"1")]), schema=raw, time="_timestamp")
    assert (record["_key"], record["value"], record["_timestamp"], record["_offset"]) == (b"\xff", None, AT, 7)


@pytest.mark.parametrize(
    ("keys", "message", "reason"),
    [
        (["id"], tombstone(None), "it has no key"),
        (["id"], tombstone(b"1", time=NO_TIME), "it has no time"),
        (["id"], tombstone(b"one"), "invalid JSON"),
        (["who"], tombstone(b"\xff"), "'utf-8' codec can't decode"),
        (["id"], tombstone(b'{"number": 1}'), "its key has no id"),
        (["id", "who"], tombstone(b"1"), "its key has no id and no who"),
        (["id", "who"], tombstone(b"{"), "Expecting property name"),
        (["id", "who"], tombstone(b'{"id": "1", "who": "a"}'), "field id"),
    ],
)
def test_what_deletes_no_row_is_rejected(keys, message, reason):
    records, reasons = decoded(keys, message, tombstone(b'{"id": 2, "who": "b"}'))
    assert [tuple(record[key] for key in keys) for record in records] == [tuple({"id": 2, "who": "b"}[k] for k in keys)]
    assert len(reasons) == 1
    assert reason in reasons[0]


def test_without_the_time_that_counts_nothing_is_deleted():
    raw = pa.schema([("value", pa.binary()), *METADATA])
    message = tombstone(b"k", headers=[("millrace-watermark", b"1")], time=NO_TIME)
    assert decoded(["_key"], message, schema=raw, time="_timestamp") == (
        [],
        ["the tombstone deletes no row: it has no time"],
    )


def test_null_is_a_key_that_no_row_has():
    assert only(["id", "who"], tombstone(b'{"id": null, "who": "a"}'))["id"] is None
