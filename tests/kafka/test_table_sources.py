"""Topics that are read as tables: a message without a value deletes the row of its key."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import duckdb
import pytest
from confluent_kafka import Producer

from lab.topics import PATIENCE, committed, fill, rows
from millrace_api.errors import MillraceError
from spark.cli import Project
from spark.joined import TOWNS, held_back, joining

from .sources import opened, slices

pytestmark = pytest.mark.kafka

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
TABLE = {
    "format": "json",
    "schema": "who STRING, n INT, at TIMESTAMP",
    "watermark": {"column": "at", "delay": "0s"},
    "table": {"keys": ["who"]},
}


def record(who, n, second):
    return {"who": who, "n": n, "at": f"2024-01-01T00:00:{second:02}Z"}


def read(source):
    start = source.initial()
    [(found, rejected)] = slices(source, start, source.latest(start, everything=True))
    return found, rejected


def test_records_and_deletes_have_their_places(broker, topic, tmp_path):
    keys = ["a", '{"who": "b"}', "a", '{"who": "b"}', "c"]
    fill(broker, topic, [record("a", 1, 0), record("b", 2, 1), None, None, record("c", 3, 2)], keys=keys)
    found, rejected = read(opened(broker, tmp_path, {"topic": topic}, **TABLE))
    assert rejected == 0
    at = [BEGIN.replace(second=second) for second in range(3)]
    assert [row for row in found if not row[3]] == [
        ("a", 1, at[0], False, False, 0),
        ("b", 2, at[1], False, False, 1),
        ("c", 3, at[2], False, False, 4),
    ]
    deletes = [row for row in found if row[3]]
    assert [(who, n, position) for who, n, *_, position in deletes] == [("a", None, 2), ("b", None, 3)]
    assert all(at.year > 2024 for _, _, at, *_ in deletes)
    assert not any(estimated for *_, estimated, _ in deletes)


def test_deletes_without_a_key_of_the_table_are_corrupt(broker, make_topic, tmp_path):
    topic, letters = make_topic(), make_topic()
    fill(broker, topic, [None, None, record("a", 1, 0)], keys=[None, '{"id": 1}', "a"])
    with pytest.raises(MillraceError, match=r"offset 0\): the tombstone deletes no row: it has no key"):
        read(opened(broker, tmp_path / "fail", {"topic": topic}, **TABLE))
    policy = {"policy": "DeadLetter", "topic": letters}
    found, rejected = read(opened(broker, tmp_path / "letters", {"topic": topic}, **TABLE, corruptRecords=policy))
    assert (len(found), rejected) == (1, 2)
    assert [letter.headers["millrace-reason"] for letter in committed(broker, letters)] == [
        b"the tombstone deletes no row: it has no key",
        b"the tombstone deletes no row: its key has no who",
    ]


def test_the_value_need_not_be_text(broker, topic, tmp_path):
    fill(broker, topic, [b"\xff", None], keys=[b"\xfe", b"\xfe"])
    kafka = {"topic": topic, "includeMetadata": True}
    table = {"watermark": {"column": "_timestamp", "delay": "0s"}, "table": {"keys": ["_key"]}}
    found, _ = read(opened(broker, tmp_path, kafka, **table))
    assert [(value, key, deleted) for value, key, *_, deleted, _, _ in found] == [
        (b"\xff", b"\xfe", False),
        (None, b"\xfe", True),
    ]


@pytest.mark.spark
def test_a_stream_meets_no_row_after_its_delete(broker, topic, tmp_path):
    def write(key, value, second):
        producer.produce(topic, value and json.dumps(value), key, timestamp=int(BEGIN.timestamp() + second) * 1000)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    write("a", record("a", 1, 0), 30)
    write("a", None, 20)
    write("a", record("a", 2, 40), 40)
    write("b", record("b", 3, 0), 0)
    assert producer.flush(PATIENCE) == 0
    project = Project(tmp_path)
    times = [(who, second) for who in "ab" for second in (10, 19, 20, 39, 40, 50)]
    lines = [f"2024-01-01T00:00:{second}Z,{who},{second}\n" for who, second in times]
    project.give("events.csv", "at,who,n\n" + "".join(lines))
    events = {
        "files": {"path": "in", "format": "csv"},
        "schema": "at TIMESTAMP, who STRING, n INT",
        "watermark": {"column": "at", "delay": "1m"},
    }
    table = TABLE | {"kafka": {"bootstrapServers": broker.bootstrap, "topic": topic}}
    file = project.query(
        "SELECT e.who, e.n, t.n AS m FROM events e JOIN t ON t.who = e.who", sources={"events": events, "t": table}
    )
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    found = {row[:3] for row in project.results()}
    assert {row for row in found if row[0] == "a"} == {
        ("a", "10", "1"),
        ("a", "19", "1"),
        ("a", "40", "2"),
        ("a", "50", "2"),
    }
    assert {row for row in found if row[0] == "b"} == {("b", str(second), "3") for who, second in times if who == "b"}


SHOWN = """SELECT p.who AS user, p.n AS price, q.n AS plan, greatest(p.at, q.at) AS at
    FROM prices p JOIN plans q ON p.who = q.who WHERE p.n % 2 = 0"""
TOWN = "SELECT s.user, s.price, s.plan, t.town FROM shown s LEFT JOIN towns t ON t.who = s.user"


@pytest.mark.in_turn
@pytest.mark.spark
def test_a_query_reads_the_table_of_another_with_its_deletes(broker, make_topic, tmp_path):
    topics = [make_topic(2, cleanup_policy="compact") for _ in range(2)]
    sinks = [{"table": {"bootstrapServers": broker.bootstrap, "topic": topic, "key": ["user"]}} for topic in topics]
    writer, writing = joining(tmp_path / "writer", SHOWN, sink=sinks[0])
    later = held_back(writer, prices=2, plans=2)
    reader = Project(tmp_path / "reader")
    reader.write("towns.csv", TOWNS)
    shown = {
        "kafka": {"bootstrapServers": broker.bootstrap, "topic": topics[0]},
        "schema": "user STRING, price INT, plan INT, at TIMESTAMP",
        "watermark": {"column": "at", "delay": "10s"},
        "table": {"keys": ["user"]},
    }
    towns = {
        "files": {"path": "towns.csv", "format": "csv"},
        "schema": "who STRING, town STRING",
        "table": {"keys": ["who"], "static": True},
    }
    reading = reader.query(TOWN, sources={"shown": shown, "towns": towns}, sink=sinks[1])
    for files in ({}, later):
        for file, text in files.items():
            file.write_text(text, encoding="utf-8")
        for project, query in ((writer, writing), (reader, reading)):
            result = project.millrace("run", query, "--once")
            assert (result.status, result.err) == (0, ""), result
        expected = newest(writer)
        assert len(expected) > 1
        assert Counter(tuple(row.values()) for row in rows(broker, topics[1])) == expected
    for topic in topics:
        assert any(message.value is None for message in committed(broker, topic)), "no row was deleted"


def newest(project):
    """The rows of ``TOWN`` over the newest rows of the writer's tables."""
    with duckdb.connect() as connection:
        for table in ("prices", "plans"):
            files = f"(SELECT * FROM read_csv('{project.folder / table / '*.csv'}')) x"
            newest = "QUALIFY row_number() OVER (PARTITION BY x.who ORDER BY x.at DESC) = 1"
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM {files} {newest}")
        connection.execute(f"CREATE TABLE towns AS SELECT * FROM read_csv('{project.folder / 'towns.csv'}')")
        return Counter(connection.execute(f"WITH shown AS ({SHOWN}) {TOWN}").fetchall())
