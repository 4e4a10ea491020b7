"""SQL that is not routed runs as Spark's own streaming plan, to the results DuckDB has for the same input."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from .cli import Project

pytestmark = pytest.mark.spark

_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_EVENTS = [(_BEGIN + timedelta(seconds=7 * i), f"user {i * i % 11}", i) for i in range(200)]
_CLICKS = [(at + timedelta(seconds=n % 5), who, n * 10) for at, who, n in _EVENTS if n % 3]


def as_csv(head: str, records: list[tuple[datetime, str, int]]) -> str:
    return head + "\n" + "".join(f"{at:%Y-%m-%dT%H:%M:%SZ},{who},{n}\n" for at, who, n in records)


def run(tmp_path: Path, sql: str, **spec: Any) -> tuple[Project, Counter[tuple[str, ...]]]:
    """Results of the query over both inputs, with ``clicks`` as a second source where the SQL names it.

    The column ``_batch_id``, which results have unless they are final, is left out.
    """
    project = Project(tmp_path)
    project.give("events.csv", as_csv("at,who,n", _EVENTS))
    project.write("clicks.csv", as_csv("at,who,n", _CLICKS))
    events = {
        "files": {"path": "in", "format": "csv"},
        "schema": "at TIMESTAMP, who STRING, n INT",
        "watermark": {"column": "at", "delay": "10s"},
    }
    clicks = events | {"files": {"path": "clicks.csv", "format": "csv"}}
    sources = {"events": events} | ({"clicks": clicks} if "clicks" in sql else {})
    result = project.millrace("run", project.query(sql, sources=sources, **spec), "--once")
    assert (result.status, result.err) == (0, ""), result
    rows = project.results()
    if "emit" not in spec:
        rows = Counter(row[:-1] for row in rows.elements())
    return project, rows


def duckdb_rows(project: Project, sql: str) -> Counter[tuple[str, ...]]:
    """The same by DuckDB, all values as text."""
    with duckdb.connect() as connection:
        for table, file in (("events", project.inbox / "events.csv"), ("clicks", project.folder / "clicks.csv")):
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM read_csv('{file}')")
        return Counter(tuple(str(value) for value in row) for row in connection.execute(sql).fetchall())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT who, n * 2 AS twice FROM events WHERE n % 7 = 3",
        "SELECT DISTINCT who FROM events WHERE n < 100",
    ],
)
def test_sql_over_one_source_runs_natively(tmp_path: Path, sql: str) -> None:
    project, rows = run(tmp_path, sql)
    assert rows == duckdb_rows(project, sql)


def test_a_join_of_two_streams_runs_natively(tmp_path: Path) -> None:
    sql = """
    SELECT e.who, e.n, c.n AS clicked FROM events e JOIN clicks c
    ON e.who = c.who AND c.at BETWEEN e.at AND e.at + INTERVAL 5 SECONDS
    """
    project, rows = run(tmp_path, sql)
    assert sum(rows.values()) >= len(_CLICKS)
    assert rows == duckdb_rows(project, sql)


def test_session_windows_run_natively(tmp_path: Path) -> None:
    sql = """
    SELECT session_window.start AS began, who, count(*) AS records FROM events
    GROUP BY session_window(at, '30 seconds'), who
    """
    _, rows = run(tmp_path, sql, emit="OnWindowClose")
    expected: Counter[tuple[str, ...]] = Counter()
    for person in {who for _, who, _ in _EVENTS}:
        times = [at for at, who, _ in _EVENTS if who == person]
        begins = [i for i, at in enumerate(times) if not i or at - times[i - 1] >= timedelta(seconds=30)]
        for begin, end in zip(begins, [*begins[1:], len(times)], strict=True):
            expected[f"{times[begin]:%Y-%m-%dT%H:%M:%S.000000Z}", person, str(end - begin)] += 1
    assert rows == expected
