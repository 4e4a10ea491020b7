"""Joins whose results change, as tables in a topic: each batch leaves there what DuckDB has in the end."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from lab.topics import committed, rows
from spark.joined import NEAR, duckdb_rows, held_back, joining

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark]

STREAMS = f"SELECT e.n, e.who, c.n AS m FROM events e {{join}} clicks c ON e.who = c.who AND {NEAR} AND c.n > 300"
VERSIONS = "SELECT e.n, e.who, p.n AS price FROM events e {join} prices p ON p.who = e.who"
LATEST = """
    SELECT coalesce(p.who, q.who) AS user, p.n AS price, q.n AS plan FROM prices p {join} plans q ON p.who = q.who"""
COMPARED = """
    SELECT p.who AS user, q.who AS planned, p.n AS price, q.n AS plan FROM prices p {join} plans q
    ON p.who = q.who AND p.n > 10 * q.n"""
COMMON = "SELECT who AS user, p.n AS price, q.n AS plan FROM prices p {join} plans q USING (who)"
EXISTING = """
    SELECT p.who AS user, p.n AS price FROM prices p
    WHERE {join} (SELECT 1 FROM plans q WHERE q.who = p.who AND p.n > 10 * q.n)"""
PAIRS = f"FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}"
GROUPED = [
    # what users spend at most on an event, on average: groups of groups
    (
        f"""SELECT who, avg(most) AS mean, count(*) AS events
            FROM (SELECT e.who, e.n, max(c.n) AS most {PAIRS} GROUP BY e.who, e.n) GROUP BY who""",
        ["who"],
    ),
    # results that are taken back
    (
        f"""SELECT e.who, count(*) AS events, count(c.n) AS pairs, sum(c.n) AS total
            FROM events e LEFT JOIN clicks c ON e.who = c.who AND {NEAR} GROUP BY e.who""",
        ["who"],
    ),
    (f"SELECT e.who, max_by(c.n, struct(c.n % 7, e.n, c.n)) AS best {PAIRS} GROUP BY e.who", ["who"]),
    (f"SELECT count(*) AS pairs, sum(c.n) AS total {PAIRS} HAVING sum(c.n) % 2 = 0 OR count(*) > 100", []),
    # windows that still change
    (
        """SELECT e.minute, e.who, e.events, c.clicks
            FROM (SELECT minute(t.at) AS minute, who, count(*) AS events FROM events t GROUP BY minute(t.at), who) e
            JOIN (SELECT minute(t.at) AS minute, who, count(*) AS clicks FROM clicks t GROUP BY minute(t.at), who) c
            ON e.who = c.who AND e.minute = c.minute""",
        ["minute", "who"],
    ),
    # groups of a table lose rows, and end
    ("SELECT n AS plan, count(*) AS users FROM plans p GROUP BY n", ["plan"]),
    (
        """SELECT q.n AS plan, count(*) AS users, sum(p.n) AS total
           FROM prices p JOIN plans q ON p.who = q.who GROUP BY q.n HAVING total > 30""",
        ["plan"],
    ),
    (
        """SELECT q.n AS plan, max(p.n) AS most, min_by(p.who, p.n) AS least
           FROM prices p JOIN plans q ON p.who = q.who GROUP BY q.n""",
        ["plan"],
    ),
]
NEWEST = "SELECT who, max_by(n, {table}.at) AS n FROM {table} GROUP BY who"


def duckdb_version(sql, join):
    """The same query for DuckDB, which has no tables with versions."""
    if "plans" in sql:
        newest = {table: NEWEST.format(table=table) for table in ("prices", "plans")}
        return sql.replace("FROM prices p", f"FROM ({newest['prices']}) p").replace(
            " plans q", f" ({newest['plans']}) q"
        )
    if "prices" in sql:
        return sql.replace(join, f"ASOF {join}").replace("ON p.who = e.who", "ON p.who = e.who AND e.at >= p.at")
    return sql


@pytest.mark.parametrize(
    ("question", "join", "key", "is_updated"),
    [
        (STREAMS, "JOIN", ["n", "m"], False),
        (STREAMS, "LEFT JOIN", ["n", "m"], True),
        (STREAMS, "FULL JOIN", ["n", "m"], True),
        (VERSIONS, "JOIN", ["n"], False),
        (VERSIONS, "LEFT JOIN", ["n"], False),
        (VERSIONS, "RIGHT JOIN", ["n", "price"], True),
        (VERSIONS, "FULL JOIN", ["n", "price"], True),
        (COMPARED, "FULL JOIN", ["user", "planned"], True),
        (COMMON, "FULL JOIN", ["user"], True),
        (EXISTING, "EXISTS", ["user"], True),
        (EXISTING, "NOT EXISTS", ["user"], True),
        (LATEST, "JOIN", ["user"], True),
        (LATEST, "LEFT JOIN", ["user"], True),
        (LATEST, "FULL JOIN", ["user"], True),
    ],
)
def test_the_table_of_a_join_has_the_rows_of_the_whole_input(
    broker, make_topic, tmp_path, question, join, key, is_updated
):
    topic = make_topic(2, cleanup_policy="compact")
    sql = question.format(join=join)
    sink = {"table": {"bootstrapServers": broker.bootstrap, "topic": topic, "key": key}}
    project, file = joining(tmp_path, sql, sink=sink)
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    messages = committed(broker, topic)
    table = Counter(tuple("" if v is None else str(v) for v in row.values()) for row in rows(broker, topic))
    assert table == duckdb_rows(project, duckdb_version(sql, join))
    changed = Counter(message.key for message in messages)
    assert (max(changed.values()) > 1 or any(m.value is None for m in messages)) == is_updated
    assert_each_key_once_per_batch(messages, key)


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_upserts_that_come_after_their_records_correct_the_results(broker, make_topic, tmp_path, join):
    topic = make_topic(2, cleanup_policy="compact")
    sql = VERSIONS.format(join=join)
    sink = {"table": {"bootstrapServers": broker.bootstrap, "topic": topic, "key": ["n"]}}
    project, file = joining(tmp_path, sql, sink=sink)
    later = held_back(project, events=1, prices=1)  # of these prices, each is later than these events
    assert project.millrace("run", file, "--once").status == 0
    assert all(row["price"] is None for row in rows(broker, topic))
    for path, text in later.items():
        path.write_text(text, encoding="utf-8")
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    table = Counter(tuple("" if v is None else str(v) for v in row.values()) for row in rows(broker, topic))
    assert table == duckdb_rows(project, duckdb_version(sql, join))


def assert_each_key_once_per_batch(messages, key):
    for number in {int(message.headers["millrace-batch"]) for message in messages}:
        of_batch = [m.key for m in messages if int(m.headers["millrace-batch"]) == number]
        assert len(of_batch) == len(set(of_batch)), "a batch wrote a key twice"
        assert all(set(json.loads(each)) == set(key) for each in of_batch)


@pytest.mark.parametrize(("sql", "key"), GROUPED)
def test_the_table_of_groups_has_the_rows_of_the_whole_input(broker, make_topic, tmp_path, sql, key):
    topic = make_topic(2, cleanup_policy="compact")
    sink = {"table": {"bootstrapServers": broker.bootstrap, "topic": topic}}
    project, file = joining(tmp_path, sql, sink=sink)
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    table = Counter(tuple(str(v) for v in row.values()) for row in rows(broker, topic))
    assert table == duckdb_rows(project, in_duckdb(sql))
    assert_each_key_once_per_batch(committed(broker, topic), key)


HELD_BACK = [
    # one stream, whose records are routed; what comes late takes groups out of the table
    (
        """SELECT {start} AS since, e.who, count(*) AS n, max(e.n) AS most
           FROM events e GROUP BY {window}, e.who HAVING count(*) % 2 = 1""",
        ["since", "who"],
        True,
    ),
    # versions of prices come late, too, and replace results without a partner
    (
        """SELECT {start} AS since, e.who, count(*) AS events, count(p.n) AS priced, sum(p.n) AS total
           FROM events e LEFT JOIN prices p ON p.who = e.who GROUP BY {window}, e.who""",
        ["since", "who"],
        True,
    ),
    # inner groups that late records correct are taken out of the extreme, and put in again
    (
        """SELECT since, max(n) AS most, count(*) AS users
           FROM (SELECT {start} AS since, e.who, count(*) AS n FROM events e GROUP BY {window}, e.who) GROUP BY since""",
        ["since"],
        True,
    ),
]
IN_DUCKDB = {
    "start": "strftime(make_timestamp(epoch_us(time_bucket(INTERVAL 1 MINUTE, e.at))), '%Y-%m-%dT%H:%M:%S.%fZ')",
    "window": "since",
}


@pytest.mark.parametrize(("question", "key", "is_corrected"), HELD_BACK)
def test_groups_that_are_held_back_until_their_window_ends_stay_in_the_table(
    broker, make_topic, tmp_path, question, key, is_corrected
):
    """Rows stay when their window closes, unlike those of OnUpdate."""
    topic = make_topic(2, cleanup_policy="compact")
    sink = {"table": {"bootstrapServers": broker.bootstrap, "topic": topic, "key": key}}
    sql = question.format(start="window.start", window="window(e.at, '1 minute')")
    project, file = joining(tmp_path, sql, late=True, sink=sink, emit="OnWindowEnd")
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    table = Counter(tuple("" if v is None else str(v) for v in row.values()) for row in rows(broker, topic))
    assert table == duckdb_rows(project, duckdb_version(question.format(**IN_DUCKDB), "LEFT JOIN"))
    messages = committed(broker, topic)
    assert (max(Counter(message.key for message in messages).values()) > 1) == is_corrected
    assert any(message.value is None for message in messages) == ("HAVING" in question)
    assert_each_key_once_per_batch(messages, key)


def in_duckdb(sql):
    """The same query for DuckDB, which reads the newest rows of tables."""
    for table in ("prices", "plans"):
        sql = sql.replace(f"FROM {table} ", f"FROM ({NEWEST.format(table=table)}) ")
        sql = sql.replace(f"JOIN {table} ", f"JOIN ({NEWEST.format(table=table)}) ")
    return sql.replace("struct(", "row(").replace("HAVING total", "HAVING sum(p.n)")
