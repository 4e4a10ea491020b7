"""Aggregates of rows that are taken back, from tables into a Delta table, also after a kill, against DuckDB."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from lab.processes import Mark
from lab.waiting import wait_until
from spark.cli import Project
from spark.joined import FILES, as_tables, give, joining
from spark.killed_queries import Process

from .tables import content

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

NEWEST = "(SELECT who, max_by(n, {table}.at) AS n, max({table}.at) AS at FROM {table} GROUP BY who)"
COLUMNS = """max(p.n) AS most, min(p.n) AS least, max_by(p.who, p.n) AS by_whom, count(DISTINCT p.n % 5, p.who) AS kinds,
             round(stddev_pop(p.n), 6) AS spread, median(p.n) AS middle,
             try_element_at(max_by(p.n, p.n, 2), 2) AS second"""
IN_DUCKDB = {
    "try_element_at(max_by(p.n, p.n, 2), 2)": "max_by(p.n, p.n, 2)[2]",
    "DISTINCT p.n % 5, p.who": "DISTINCT (p.n % 5) || p.who",
}
PRICES = f"SELECT p.n % 3 AS kind, count(*) AS users, {COLUMNS} FROM prices p GROUP BY p.n % 3"
PLANS = (
    f"SELECT q.n AS plan, count(*) AS users, {COLUMNS} FROM plans q LEFT JOIN prices p ON p.who = q.who GROUP BY q.n"
)
MOST = """SELECT e.who, max(p.n) AS most, count(*) AS events
          FROM events e LEFT JOIN prices p ON p.who = e.who GROUP BY e.who"""


def in_delta(project: Project) -> Counter[tuple[str, ...]]:
    rows = content(str(project.folder / "table")).to_pylist()
    return Counter(tuple("" if value is None else str(value) for value in row.values()) for row in rows)


def latest_in_duckdb(project: Project, sql: str) -> Counter[tuple[str, ...]]:
    """Return the answer over the newest rows of the tables."""
    for ours, theirs in IN_DUCKDB.items():
        sql = sql.replace(ours, theirs)
    for table in ("prices", "plans"):
        for clause in ("FROM", "JOIN"):
            sql = sql.replace(f"{clause} {table}", f"{clause} {NEWEST.format(table=table)}")
    with as_tables(project.folder) as connection:
        rows = connection.execute(sql).fetchall()
    return Counter(tuple("" if value is None else str(value) for value in row) for row in rows)


@pytest.mark.parametrize(("sql", "key"), [(PRICES, "kind"), (PLANS, "plan")])
def test_extremes_of_tables_are_those_of_the_newest_rows_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, key: str
) -> None:
    monkeypatch.chdir(tmp_path)  # the paths of the sources are relative
    sink = {"delta": {"path": "table", "key": [key]}}
    project, file = joining(tmp_path, sql, files=range(2), sink=sink)
    command, mark = [str(Path(sys.executable).parent / "millrace"), "run", file], Mark()
    killed = Process(*command, log=tmp_path / "killed.log", mark=mark)
    killed.wait_for_batch()
    give(tmp_path, range(2, FILES))
    killed.kill()
    wait_until(lambda: not mark.processes(), "all processes of the killed run have ended")
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert in_delta(project) == latest_in_duckdb(project, sql)


def test_extremes_of_a_stream_with_a_table_are_corrected_by_late_upserts(tmp_path: Path) -> None:
    project, file = joining(tmp_path, MOST, sink={"delta": {"path": "table", "key": ["who"]}})
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    versions = "(SELECT *, lead(prices.at) OVER (PARTITION BY who ORDER BY prices.at) AS until FROM prices)"
    sql = MOST.replace(
        "JOIN prices p ON p.who = e.who",
        f"""JOIN {versions} p ON p.who = e.who
        AND p.at <= e.at AND (e.at < p.until OR p.until IS NULL)""",
    )
    with as_tables(tmp_path) as connection:
        rows = connection.execute(sql).fetchall()
    assert in_delta(project) == Counter(tuple("" if value is None else str(value) for value in row) for row in rows)
