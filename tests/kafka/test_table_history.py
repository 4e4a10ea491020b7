"""Earlier versions of a table: for each time and key, what look-ups find in the topics is what DuckDB has by then."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lab.kafka import Broker
from lab.topics import PATIENCE
from lab.waiting import wait_until
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.lookups.keys import time_of
from millrace_jobs.lookups.store import NotReadyError, TableSnapshot, TableStore
from millrace_jobs.sinks.kafka.table_view import TableView
from millrace_jobs.sinks.kafka.topic import LastWritten, TargetTopic
from spark.joined import BEGIN, NEAR, as_tables, give, joining, sources_of

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark]

TIMES = [BEGIN + timedelta(seconds=each) for each in range(-10, 1800, 37)]
NEWEST = "(SELECT who, max_by(n, t.at) AS n FROM {table} t WHERE t.at <= $time GROUP BY who)"
QUESTIONS = {
    "groups of a stream": (
        "SELECT who, count(*) AS n, sum(n) AS total, max(n) AS most FROM events GROUP BY who",
        "SELECT who, count(*) AS n, sum(n) AS total, max(n) AS most FROM events e WHERE e.at <= $time GROUP BY who",
        ["who"],
    ),
    "groups that HAVING admits at times": (
        "SELECT who, count(*) AS n FROM events GROUP BY who HAVING count(*) % 3 = 1",
        "SELECT who, count(*) AS n FROM events e WHERE e.at <= $time GROUP BY who HAVING count(*) % 3 = 1",
        ["who"],
    ),
    "windows, until they end": (
        "SELECT window.end AS until, who, count(*) AS n FROM events GROUP BY window(at, '2 minutes'), who",
        """SELECT strftime(time_bucket(INTERVAL 2 MINUTE, e.at::TIMESTAMP) + INTERVAL 2 MINUTE,
                           '%Y-%m-%dT%H:%M:%S.%fZ') AS until, who, count(*) AS n
           FROM events e WHERE e.at <= $time AND $time < time_bucket(INTERVAL 2 MINUTE, e.at::TIMESTAMP) + INTERVAL 2 MINUTE
           GROUP BY until, who""",
        ["until", "who"],
    ),
    "groups of results that are taken back": (
        f"SELECT e.who, count(*) AS n, count(c.n) AS m FROM events e LEFT JOIN clicks c ON e.who = c.who AND {NEAR} GROUP BY e.who",
        f"""SELECT who, count(*) AS n, count(m) AS m
            FROM (SELECT e.who, c.n AS m, greatest(e.at, coalesce(c.at, e.at)) AS at
                  FROM events e LEFT JOIN clicks c ON e.who = c.who AND {NEAR}) r
            WHERE r.at <= $time GROUP BY who""",
        ["who"],
    ),
    "two tables": (
        "SELECT coalesce(p.who, q.who) AS user, p.n AS price, q.n AS plan FROM prices p FULL JOIN plans q ON p.who = q.who",
        f"""SELECT coalesce(p.who, q.who) AS user, p.n AS price, q.n AS plan
            FROM {NEWEST.format(table="prices")} p FULL JOIN {NEWEST.format(table="plans")} q ON p.who = q.who""",
        ["user"],
    ),
}
"""Queries, with what DuckDB has for them at a time, and the key of the result."""

WINDOWS = "windows, until they end"
RESTARTED = (WINDOWS, "groups of results that are taken back")
WATERMARK = BEGIN + timedelta(seconds=7 * 199) - timedelta(minutes=15)
"""The last one: the time of the last event, less the delay."""


@contextmanager
def table_in(broker: Broker, topics: Sequence[str], folder: Path) -> Iterator[TableSnapshot]:
    """The rows and their versions that a driver has after a start."""
    folder.mkdir()
    store = TableStore(folder, has_history=True)
    view = TableView(store)
    reader = store.reader()

    def is_read() -> bool:
        try:
            with reader.snapshot():
                return True
        except NotReadyError:
            return False

    try:
        view.rebuild(
            [TargetTopic(topic, Connection(broker.bootstrap), "-") for topic in topics], "readers", LastWritten()
        )
        wait_until(is_read, "the table has been read", PATIENCE)
        with reader.snapshot() as table:
            yield table
    finally:
        view.close()


@pytest.mark.parametrize("question", QUESTIONS)
def test_look_ups_find_the_rows_of_the_table_at_any_time(
    broker: Broker, make_topic: Any, tmp_path: Path, question: str
) -> None:
    sql, at_time, key = QUESTIONS[question]
    topics = [make_topic(3, cleanup_policy="compact"), make_topic(2)]
    sink = {"bootstrapServers": broker.bootstrap, "topic": topics[0], "key": key}
    sink["history"] = {"topic": topics[1], "retention": "1d"}
    project, file = joining(tmp_path, sql, range(2), late=True, sink={"table": sink})
    for files in [range(2), range(5)] if question in RESTARTED else [range(5)]:
        give(tmp_path, files, late=True)
        result = project.millrace("run", file, "--once")
        assert (result.status, result.err) == (0, ""), result
    with as_tables(tmp_path) as connection, table_in(broker, topics, tmp_path / "table") as table:
        expected = {time: rows_at(connection, at_time, time, key) for time in TIMES}
        keys = sorted({each for rows in expected.values() for each in rows})
        found = {
            time: {each: row for each in keys if (row := table.get_at(each, time_of(time.isoformat()))) is not None}
            for time in TIMES
        }
    if question == WINDOWS:  # an open window is in the table, too, when its time is over
        ends = {each: datetime.fromisoformat(json.loads(each)["until"]) for each in keys}
        assert 0 < sum(end <= WATERMARK for end in ends.values()) < len(ends)
        found = {
            time: {each: row for each, row in rows.items() if ends[each] <= WATERMARK or each in expected[time]}
            for time, rows in found.items()
        }
    assert found == expected
    assert len({frozenset(rows.items()) for rows in found.values()}) > len(TIMES) / 3


@pytest.mark.parametrize("comes", [True, False])
def test_a_history_neither_comes_nor_goes_while_there_is_a_state(
    broker: Broker, make_topic: Any, tmp_path: Path, comes: bool
) -> None:
    topics = [make_topic(1, cleanup_policy="compact"), make_topic(1)]
    without = {"bootstrapServers": broker.bootstrap, "topic": topics[0]}
    sinks = [without, without | {"history": {"topic": topics[1], "retention": "1d"}}]
    sql, *_ = QUESTIONS["groups of a stream"]
    project, file = joining(tmp_path, sql, range(2), sink={"table": sinks[not comes]})
    assert project.millrace("run", file, "--once").status == 0
    give(tmp_path, range(5))
    project.query(sql, sources=sources_of(sql), sink={"table": sinks[comes]})
    result = project.millrace("run", file, "--once")
    result.assert_failed(
        "spec.sink.table.history.topic: ", "the state in the checkpoint depends on it", "to start over"
    )


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"cleanup_policy": "compact"}, "is compacted: of a history it would keep one version of each row"),
        ({"retention_ms": 3_600_000}, "keeps messages for 3600000 ms, of a history of 86400000 ms"),
        ({"retention_bytes": 1_000_000}, "drops messages by size, whatever the retention of the history"),
    ],
)
def test_a_topic_that_would_lose_versions_is_refused(
    broker: Broker, make_topic: Any, tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    topics = [make_topic(1, cleanup_policy="compact"), make_topic(1, **config)]
    sink = {"bootstrapServers": broker.bootstrap, "topic": topics[0]}
    sink["history"] = {"topic": topics[1], "retention": "1d"}
    project, file = joining(tmp_path, QUESTIONS["groups of a stream"][0], sink={"table": sink})
    result = project.millrace("run", file, "--once")
    result.assert_failed("spec.sink.table.history.topic: ", f"topic {topics[1]} {said}", "kafka-configs")


def rows_at(connection: duckdb.DuckDBPyConnection, sql: str, time: datetime, key: Sequence[str]) -> dict[bytes, bytes]:
    """The rows that DuckDB has at a time, as text by the text of their keys."""
    answer = connection.execute(sql, {"time": time.replace(tzinfo=None)})
    names = [each[0] for each in answer.description or ()]
    rows = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
    return {_text({name: row[name] for name in key}): _text(row) for row in rows}


def _text(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()
