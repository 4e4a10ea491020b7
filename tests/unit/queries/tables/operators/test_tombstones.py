"""Tombstones of a topic, from the message to the versions of the table: definition 58 wherever their time is from.

``scanned`` has the weights and positions of ``build.RelationBuilder``, which needs Spark.
"""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from hypothesis import given
from hypothesis import strategies as st

from change_tables import Replay, changes_from, rows_of
from dual_streaming.streams import Record
from dual_streaming.tables import EvolvingTable
from millrace_jobs.changes import BEGINNING, changes_of
from millrace_jobs.queries.tables.operators.upserts import DELETE, ESTIMATED_DELETE, UpsertedTable
from millrace_jobs.sources.base import DELETED, ESTIMATED, POSITION
from millrace_jobs.sources.formats.column_types import declared_schema
from millrace_jobs.sources.kafka.message_records import TombstoneDecoder

SCHEMA = declared_schema("k STRING, v BIGINT, at TIMESTAMP")
VALUES = pa.schema([("k", pa.string()), ("v", pa.int64())])
START = datetime(2026, 1, 1, tzinfo=UTC)
MIDNIGHT = int(START.timestamp()) * 1000
EVENTS = st.lists(st.tuples(st.integers(0, 59), st.sampled_from("AB"), st.none() | st.integers(1, 3)), max_size=12)


def tombstone(offset, second, key, place):
    """The tombstone of a key at a second of the table's clock, which is in this place of the message."""
    at = START + timedelta(seconds=second)
    written = MIDNIGHT + second * 1000 if place == "message" else MIDNIGHT + 86_400_000
    text = f'{{"k": "{key}", "at": "{at.isoformat()}"}}' if place == "key" else f'{{"k": "{key}"}}'
    headers = [("millrace-watermark", str(MIDNIGHT + second * 1000).encode())] if place == "header" else None
    return Message("rows", 0, offset, text.encode(), None, headers, None, (TIMESTAMP_CREATE_TIME, written))


def decoded(messages, place):
    """The deletes that the source reads from tombstones; a key with the time has it among the primary key's columns."""
    keys = ["k", "at"] if place == "key" else ["k"]
    decoder = TombstoneDecoder(SCHEMA, keys, "at", "iso")
    return decoder.decode(messages, lambda _, reason: pytest.fail(reason)).to_pylist()


def scanned(events, place):
    """The upserts of ``(second, key, value)``, of which None is a tombstone, in the order of arrival."""
    deletes = [tombstone(offset, t, k, place) for offset, (t, k, v) in enumerate(events) if v is None]
    rows = [(k, v, t, offset, 1) for offset, (t, k, v) in enumerate(events) if v is not None]
    for row in decoded(deletes, place):
        assert row[DELETED]
        second = int((row["at"] - START).total_seconds())
        rows.append((row["k"], None, second, row[POSITION], ESTIMATED_DELETE if row[ESTIMATED] else DELETE))
    return changes_from(rows, changes_of(VALUES))


@pytest.mark.parametrize("place", ["key", "message"])
@given(events=EVENTS)
def test_a_tombstone_that_says_its_time_ends_the_version_of_that_time_alone(place, events):
    replay = Replay(UpsertedTable(VALUES, ("k",), versions=True))
    replay.batch([scanned(events, place)], BEGINNING)
    assert replay.rows == dict.fromkeys(rows_of(EvolvingTable(Record(*event) for event in events)), 1)


@pytest.mark.parametrize(("place", "left"), [("key", 7), ("message", 7), ("header", None)])
@pytest.mark.parametrize("versions", [True, False])
def test_only_the_watermark_of_another_query_deletes_a_later_row(place, left, versions):
    replay = Replay(UpsertedTable(VALUES, ("k",), versions=versions))
    replay.batch([scanned([(50, "A", 7), (20, "A", None)], place)], BEGINNING)
    assert [row[1] for row in replay.rows] == ([] if left is None else [left])
