"""Joins of streams and tables by their own operators give the results that DuckDB has for the whole input."""

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
_PRICES = [(_BEGIN + timedelta(seconds=40 * i), f"user {i % 9}", i) for i in range(40)]

NEAR = "c.at BETWEEN e.at - INTERVAL 20 SECONDS AND e.at + INTERVAL 1 MINUTE"


def as_csv(head: str, records: list[tuple[datetime, str, int]]) -> str:
    return head + "\n" + "".join(f"{at:%Y-%m-%dT%H:%M:%SZ},{who},{n}\n" for at, who, n in records)


def run(tmp_path: Path, sql: str, *, files_per_batch: int = 1, **spec: Any) -> tuple[Project, Counter[tuple[str, ...]]]:
    """Run the query over its inputs, each of which comes in five files; and return its results without ``_batch_id``."""
    project = Project(tmp_path)
    sources = {}
    for name, records in (("events", _EVENTS), ("clicks", _CLICKS), ("prices", _PRICES)):
        (tmp_path / name).mkdir()
        each = -(-len(records) // 5)
        for part in range(5):
            text = as_csv("at,who,n", records[part * each : (part + 1) * each])
            (tmp_path / name / f"{part}.csv").write_text(text, encoding="utf-8")
        if name in sql:
            sources[name] = {
                "files": {"path": name, "format": "csv", "maxFilesPerBatch": files_per_batch},
                "schema": "at TIMESTAMP, who STRING, n INT",
                "watermark": {"column": "at", "delay": "6 minutes" if name == "prices" or "prices" in sql else "10s"},
            }
    if "prices" in sources:
        sources["prices"]["table"] = {"keys": ["who"]}
    result = project.millrace("run", project.query(sql, sources=sources, **spec), "--once")
    assert (result.status, result.err) == (0, ""), result
    rows = project.results()
    if "emit" not in spec:
        rows = Counter(row[:-1] for row in rows.elements())
    return project, rows


def duckdb_rows(project: Project, sql: str) -> Counter[tuple[str, ...]]:
    with duckdb.connect() as connection:
        for table in ("events", "clicks", "prices"):
            files = project.folder / table / "*.csv"
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM read_csv('{files}')")
        rows = connection.execute(sql).fetchall()
    return Counter(tuple("" if value is None else str(value) for value in row) for row in rows)


@pytest.mark.parametrize(
    ("join", "spec"),
    [
        ("JOIN", {}),
        ("JOIN", {"emit": "OnWindowClose"}),
        ("LEFT JOIN", {"emit": "OnWindowClose"}),
        ("RIGHT JOIN", {"emit": "OnWindowClose"}),
        ("FULL JOIN", {}),
    ],
)
def test_a_join_of_two_streams(tmp_path, join, spec):
    sql = f"SELECT e.n, e.who, c.n AS m FROM events e {join} clicks c ON e.who = c.who AND {NEAR} AND c.n > 300"
    project, rows = run(tmp_path, sql, **spec)
    assert rows == duckdb_rows(project, sql)


def test_conditions_of_where_and_both_sides(tmp_path):
    sql = f"""
        SELECT e.n + c.n AS total, upper(who2) AS who FROM (SELECT events.at, who AS who2, n FROM events WHERE n % 7 < 5) e
        JOIN clicks c ON who2 = c.who AND {NEAR} WHERE e.n * 10 <> c.n AND c.n < 1500 AND e.n > 3"""
    project, rows = run(tmp_path, sql)
    assert rows == duckdb_rows(project, sql)


def test_a_chain_of_joins(tmp_path):
    sql = f"""
        SELECT e.n, c.n AS m, p.n AS price FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}
        JOIN prices p ON p.who = e.who"""
    project, rows = run(tmp_path, sql)
    # DuckDB's ASOF takes one column on each side
    nested = f"""
        SELECT x.n, x.m, p.n FROM (SELECT e.n, c.n AS m, e.who, greatest(e.at, c.at) AS at FROM events e
        JOIN clicks c ON e.who = c.who AND {NEAR}) x ASOF JOIN prices p ON p.who = x.who AND x.at >= p.at"""
    assert rows == duckdb_rows(project, nested)


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_a_stream_with_the_version_of_a_table_at_its_own_time(tmp_path, join):
    sql = f"SELECT e.n, e.who, p.n AS price FROM events e {join} prices p ON p.who = e.who"
    project, rows = run(tmp_path, sql)
    asof = sql.replace(join, f"ASOF {join}").replace("ON p.who = e.who", "ON p.who = e.who AND e.at >= p.at")
    assert rows == duckdb_rows(project, asof)
