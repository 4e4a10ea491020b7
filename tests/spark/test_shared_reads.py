"""A CTE that both sides of a join read, computed once by Spark's stages: the changelog is that of computing it twice."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from .cli import Project

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

COUNTS = "WITH counts AS {} (SELECT n, count(*) AS users FROM events GROUP BY n) "
QUERIES = {
    "beside": (
        COUNTS + "SELECT a.n, b.n AS m, a.users FROM counts a JOIN counts b ON a.users = b.users AND a.n < b.n",
        "n, m",
    ),
    "above": (
        COUNTS + "SELECT c.n, c.users, m.most FROM counts c JOIN (SELECT max(users) AS most FROM counts WHERE n > 0) m "
        "ON c.users >= m.most - 1",
        "n",
    ),
}
ROWS = [(f"2024-01-01T00:0{minute}:{second:02}Z", f"user{(minute * 7 + second) % 11}", (minute + second) % 4)
        for minute in range(4) for second in range(0, 60, 7)]  # fmt: skip


def changes(folder: Path, how: str, sql: str, key: str) -> list[tuple[object, ...]]:
    """Run a query over the rows as a table by user, in four batches, and return its changelog."""
    project = Project(folder)
    for number in range(4):
        lines = (f"{at},{who},{n}\n" for at, who, n in ROWS[number::4])
        project.give(f"{number}.csv", "at,who,n\n" + "".join(lines))
    source = {"files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1}, "table": {"keys": ["who"]}}
    sink = {"files": {"path": "out", "format": "parquet", "key": key.split(", ")}}
    run = project.millrace("run", project.query(sql.format(how), source=source, sink=sink), "--once")
    assert run.status == 0, run
    with duckdb.connect() as reader:
        return sorted(
            reader.execute(f"SELECT * FROM read_parquet('{folder / 'out' / '*.parquet'}')").fetchall(), key=str
        )


def expected(sql: str) -> set[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE arrived (since TIMESTAMPTZ, who VARCHAR, n INT)")
        connection.executemany("INSERT INTO arrived VALUES (?, ?, ?)", ROWS)
        connection.execute("CREATE VIEW events AS SELECT who, max_by(n, since) AS n FROM arrived GROUP BY who")
        return set(connection.execute(sql.format("")).fetchall())


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_computed_once_makes_the_changes_of_what_is_computed_twice(tmp_path: Path, name: str) -> None:
    sql, key = QUERIES[name]
    once, twice = (changes(tmp_path / how, how, sql, key) for how in ("MATERIALIZED", "NOT MATERIALIZED"))
    assert once == twice
    newest = {row[: len(key.split(", "))]: row for row in sorted(once, key=lambda row: row[-1])}
    assert {row[:3] for row in newest.values() if "upsert" in row} == expected(sql)
