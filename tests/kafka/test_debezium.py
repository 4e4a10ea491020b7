"""Changes of a database's table, as Debezium writes them to a topic, joined with a stream at their times."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from datetime import UTC, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition

from change_messages import BEGIN, ChangedTable, envelope
from lab.topics import PATIENCE, admin, committed, fill
from spark.cli import Project

from .sources import opened, slices, transaction

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.in_turn]

CUSTOMERS = {
    "format": "debezium",
    "schema": "id BIGINT, name STRING, level BIGINT",
    "watermark": {"column": "_changed_at", "delay": "0s"},
    "table": {"keys": ["id"]},
}
KEY = ['{"id": 1}']
SQL = "SELECT c.n, c.customer, t.name, t.level FROM clicks c LEFT JOIN customers t ON t.id = c.customer"
ANSWER = """
    WITH versions AS (
        SELECT *, lead("at", 1, 'infinity') OVER (PARTITION BY id ORDER BY place) AS until FROM changes
    )
    SELECT c.n, c.customer, v.name, v.level FROM clicks c
    LEFT JOIN versions v ON v.id = c.customer AND v."at" <= c."at" AND c."at" < v.until AND v.level >= 0
"""

EXAMPLE = "36-clicks-by-tier.yaml"
EXAMPLE_ANSWER = """
    WITH versions AS (
        SELECT *, lead("at", 1, 'infinity') OVER (PARTITION BY id ORDER BY place) AS until FROM changes
    )
    SELECT strftime(time_bucket(INTERVAL '10 minutes', c."at"), '%Y-%m-%dT%H:%M:%S'), v.tier, count(*)
    FROM read_csv('{}', types = {{'at': 'TIMESTAMPTZ'}}) c
    JOIN versions v ON v.id = c.customer AND v."at" <= c."at" AND c."at" < v.until AND v.op <> 'd'
    GROUP BY ALL
"""


def filled(broker, topic, table, partitions=1):
    """Write the messages of a table: those of a key to one partition, at the time of writing, after their changes."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number, (key, value) in enumerate(table.texts()):
        producer.produce(topic, value, key, sum(key.encode()) % partitions)
        if number % 100 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE) == 0


def clicks(seconds, count):
    choose = random.Random(7)
    times = sorted(choose.randrange(seconds * 1000) for _ in range(count))
    keys = [*range(12), *range(106, 300, 2)]
    return [(BEGIN + timedelta(milliseconds=at), choose.choice(keys), n) for n, at in enumerate(times)]


def expected(table, records):
    """What DuckDB joins: each click with the version of its customer that was valid then."""
    changes = [(place, *version) for place, version in enumerate(table.versions)]
    with duckdb.connect() as connection:
        columns = zip(*changes, strict=True)
        connection.register("changes", pa.table(list(map(list, columns)), names=["place", "id", "name", "level", "at"]))
        columns = zip(*records, strict=True)
        connection.register("clicks", pa.table(list(map(list, columns)), names=["at", "customer", "n"]))
        return Counter(tuple(map(_text, row)) for row in connection.sql(ANSWER).fetchall())


def _text(value):
    return "" if value is None else str(value)


def joined(broker, topic, records, project):
    """Run the join of clicks with the table in a topic, and return the result of the command and the rows."""
    lines = [f"{at:%Y-%m-%dT%H:%M:%S.%fZ},{customer},{n}\n" for at, customer, n in records]
    project.give("clicks.csv", "at,customer,n\n" + "".join(lines))
    source = {
        "files": {"path": "in", "format": "csv"},
        "schema": "at TIMESTAMP, customer BIGINT, n INT",
        "watermark": {"column": "at", "delay": "1m"},
    }
    kafka = {"bootstrapServers": broker.bootstrap, "topic": topic, "maxRecordsPerBatch": 40}
    file = project.query(SQL, sources={"clicks": source, "customers": CUSTOMERS | {"kafka": kafka}})
    result = project.millrace("run", file, "--once")
    assert result.status == 0, result
    return result, Counter(row[:4] for row in project.results().elements())


@pytest.mark.parametrize("full", [False, True])
def test_clicks_meet_the_row_at_their_time(broker, make_topic, tmp_path, full):
    topic = make_topic(2)
    table = ChangedTable(seed=3, full=full)
    table.change(150, seconds=300)
    filled(broker, topic, table, partitions=2)
    records = clicks(310, 400)
    result, found = joined(broker, topic, records, Project(tmp_path))
    skipped = sum(value is not None and "op" not in value for _, value in table.messages)
    assert f"incomplete={skipped}: these records" in result.out
    assert found == expected(table, records)
    assert sum(1 for row in found if row[3]) > 50
    assert sum(1 for row in found if not row[3]) > 50


def test_changes_that_a_connector_writes_once_more_leave_newer_rows(broker, make_topic, tmp_path):
    topic = make_topic(2)
    table = ChangedTable(seed=3)
    table.change(150, seconds=300)
    table.write_again(until=200)
    filled(broker, topic, table, partitions=2)
    records = clicks(310, 400)
    _, found = joined(broker, topic, records, Project(tmp_path))
    assert found == expected(table, records)


def test_a_tombstone_counts_only_without_its_delete(broker, topic, tmp_path):
    delete = envelope("d", {"id": 1, "name": None, "level": None}, None, 1)
    fill(broker, topic, [envelope("c", None, {"id": 1, "name": "a", "level": 1}, 1), delete, None], keys=KEY * 3)
    with transaction(broker, topic) as producer:
        producer.produce(topic, json.dumps(delete), KEY[0])
    fill(broker, topic, [None, None], keys=[KEY[0], '{"id": 2}'])
    source = opened(broker, tmp_path, {"topic": topic}, **CUSTOMERS)
    assert source.latest(source.initial(), everything=True) == {topic: {"0": 7}}

    def read(begin, end, replicas=1):
        found = slices(source, {topic: {"0": begin}}, {topic: {"0": end}}, replicas)
        return [(row[0], *row[-3:]) for rows, _ in found for row in rows]

    others = [(1, False, False, 0), (1, True, False, 1), (1, True, False, 3), (2, True, True, 6)]
    assert read(0, 7) == read(0, 7, replicas=7) == others  # there is a marker at 4
    assert [read(at, at + 1) for at in (2, 5, 6)] == [[], [], others[-1:]]
    client = admin(broker)  # which must live until the answer is there
    [removed] = client.delete_records([TopicPartition(topic, 0, 5)]).values()
    removed.result(PATIENCE)
    assert read(5, 6) == [(1, True, True, 5)]


def test_the_example_joins_clicks_with_customers_at_their_times(broker, make_topic, tmp_path):
    topic = make_topic()
    folder = Path(__file__).parents[2] / "examples"
    clicks_file = tmp_path / "out/data/clicks.csv"
    fill = [sys.executable, folder / "shop.py", broker.bootstrap, clicks_file, "--topic", topic]
    subprocess.run(fill, check=True)
    text = (folder / EXAMPLE).read_text(encoding="utf-8")
    project = Project(tmp_path)
    project.write(EXAMPLE, text.replace("localhost:9092", broker.bootstrap).replace("shop.public.customers", topic))
    result = project.millrace("run", EXAMPLE, "--once")
    assert (result.status, result.err) == (0, ""), result
    messages = [(place, json.loads(each.value)) for place, each in enumerate(committed(broker, topic)) if each.value]
    rows = [(place, each["op"], each["after"] or each["before"], each["source"]["ts_ms"]) for place, each in messages]
    changes = [
        {"place": place, "id": row["id"], "tier": row["tier"], "op": op, "at": BEGIN.fromtimestamp(ms / 1000, UTC)}
        for place, op, row, ms in rows
    ]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("changes", pa.Table.from_pylist(changes))
        expected = connection.sql(EXAMPLE_ANSWER.format(clicks_file)).fetchall()
    found = project.results("out/clicks-by-tier")
    assert Counter((since[:19], tier, int(clicks)) for since, tier, clicks in found.elements()) == Counter(expected)
    assert len(expected) == 36
