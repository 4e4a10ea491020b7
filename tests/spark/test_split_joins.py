"""A join whose hot key is matched by workers, under one plan after another, gives the results that DuckDB has."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from millrace_jobs.partitioners.hot_key_units import CHUNK

from .cli import Project
from .joined import as_csv

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
HOT = 2 * int(CHUNK**0.5)
"""Records of the hot key in each file, all of which match: four chunks."""

SQL = """
SELECT e.who, e.n, c.n AS m FROM events e {} JOIN clicks c
ON e.who = c.who AND c.at BETWEEN e.at - INTERVAL 10 SECONDS AND e.at + INTERVAL 10 SECONDS
"""


def records(batch: int, step: int) -> str:
    at = BEGIN + timedelta(minutes=batch)
    rows = [(at + timedelta(seconds=i % 4), "hot", 1000 * batch + i) for i in range(HOT)]
    rows += [(at + timedelta(seconds=i % 9), f"user {step * i % 50}", 1000 * batch + HOT + i) for i in range(100)]
    return as_csv("at,who,n", rows)


def give(project: Project, batch: int) -> None:
    project.write(f"events/{batch}.csv", records(batch, 3))
    project.write(f"clicks/{batch}.csv", records(batch, 7))


def joining(project: Project, sql: str, **spec: object) -> str:
    sources = {}
    for name in ("events", "clicks"):
        (project.folder / name).mkdir()
        sources[name] = {
            "files": {"path": name, "format": "csv"},
            "schema": "at TIMESTAMP, who STRING, n INT",
            "watermark": {"column": "at", "delay": "10s"},
        }
    return project.query(sql, sources=sources, batchInterval="100ms", **spec)


def expected(project: Project, sql: str) -> Counter[tuple[str, ...]]:
    with duckdb.connect() as connection:
        for table in ("events", "clicks"):
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM read_csv('{project.folder / table}/*.csv')")
        rows = connection.execute(sql).fetchall()
    return Counter(tuple("" if value is None else str(value) for value in row) for row in rows)


def test_a_split_join_is_right_under_plans_that_change(tmp_path):
    project = Project(tmp_path)
    sql = SQL.format("")
    query = joining(project, sql)
    plans = [("hash", 2), ("shuffle", 3), ("prompt", 2), ("pkg", 5), ("hash", 3)]
    epochs = [f"{{algorithm: {algorithm}, replicas: 1, parallelism: {n}}}\n" for algorithm, n in plans]
    project.write("plan.yaml", epochs[0])
    give(project, 0)
    with project.start("run", query, "--plan", "plan.yaml") as run:
        run.wait_for("plan=hash/1/2")
        for batch, (plan, text) in enumerate(zip(plans[1:], epochs[1:], strict=True), 1):
            project.write("plan.yaml", text)
            run.wait_for(rf"plan {batch + 1}: {plan[0]}, m=1, n={plan[1]}, from the next batch on\n")
            give(project, batch)
            run.wait_for(rf"rows=[1-9]\d* .*plan={plan[0]}/1/{plan[1]} ")
        run.process.terminate()
        assert run.finish().status == 0
    assert project.millrace("run", query, "--once").status == 0  # reads what the run has left
    assert Counter(row[:-1] for row in project.results().elements()) == expected(project, sql)


def test_an_outer_join_that_is_split_from_the_start_is_right(tmp_path):
    project = Project(tmp_path)
    sql = SQL.format("FULL")
    query = joining(project, sql, partitioner={"algorithm": "wchoices"}, emit="OnWindowClose")
    for batch in range(2):
        give(project, batch)
    result = project.millrace("run", query, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert project.results() == expected(project, sql)
