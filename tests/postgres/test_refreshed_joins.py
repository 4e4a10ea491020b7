"""Streams joined with tables of PostgreSQL that change: each batch has one content, and the same one if repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from databases import sinks, tables
from lab.postgres import PASSWORD, PostgresServer
from lab.waiting import wait_until
from spark.cli import Project, Running

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.in_turn]

MakeTable = Callable[[str], str]
SQL = "SELECT e.n, c.tier FROM events e JOIN customers c ON c.id = e.who"


@pytest.fixture
def customers(server: PostgresServer, make_table: MakeTable) -> str:
    """A table with the tier of each customer."""
    table = make_table("id text PRIMARY KEY, tier text, notes text")
    server.execute(f"INSERT INTO {table} VALUES ('a', 'basic'), ('b', 'basic')")
    return table


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project in a folder, with the password in a file."""
    project = Project(tmp_path)
    project.write("password", PASSWORD)
    return project


def query(project: Project, server: PostgresServer, table: str, sql: str = SQL, **spec: Any) -> str:
    """Write a query that joins events with the customers, which it reads again each second."""
    login = {"table": table, "password": {"file": str(project.folder / "password")}}
    read = tables.source(server, "id STRING, tier STRING", ["id"], **login)
    read["table"]["refreshEvery"] = "1s"
    events = {
        "files": {"path": "in", "format": "csv"},
        "schema": "at TIMESTAMP, who STRING, n INT",
        "watermark": {"column": "at", "delay": "0s"},
    }
    return project.query(sql, sources={"events": events, "customers": read}, **spec)


def give(project: Project, number: int) -> None:
    """Add a file with an event of customer a, which has this number."""
    project.give(f"{number:05d}.csv", f"at,who,n\n2024-01-01T00:{number // 60:02d}:{number % 60:02d}Z,a,{number}\n")


def tiers(project: Project) -> list[str]:
    """Return the tier that each event was joined with, in the order of the events."""
    rows = sorted(project.results(), key=lambda row: int(row[0]))
    assert [int(row[0]) for row in rows] == list(range(len(rows)))
    assert set(project.results().values()) <= {1}
    return [row[1] for row in rows]


def give_until(project: Project, tier: str) -> None:
    """Give one event after the other until one was joined with this tier, and none with an older one after that."""
    while True:
        known = len(tiers(project))
        give(project, known)
        wait_until(lambda known=known: len(tiers(project)) > known, f"event {known} was joined")  # type: ignore[misc]
        if tiers(project)[-1] == tier:
            return


def test_each_refresh_reaches_the_next_batches(server: PostgresServer, customers: str, project: Project) -> None:
    file = query(project, server, customers)
    explained = project.millrace("explain", file).out
    assert "source   customers (postgres), a table by id, read at the start and every 1s" in explained
    give(project, 0)
    with project.start("run", file) as run:
        wait_until(lambda: tiers(project) == ["basic"], "the first event was joined")
        server.execute(f"UPDATE {customers} SET tier = 'gold'")
        give_until(project, "gold")
        server.execute(f"ALTER TABLE {customers} RENAME COLUMN tier TO level")
        said = run.wait_for("cannot be refreshed")
        assert 'has no such column (column "tier" does not exist)' in said
        give_until(project, "gold")
        server.execute(f"UPDATE {customers} SET level = 'silver'")
        server.execute(f"ALTER TABLE {customers} RENAME COLUMN level TO tier")
        run.wait_for("customers: refreshed again")
        give_until(project, "silver")
        server.execute(f"ALTER TABLE {customers} ALTER tier TYPE text[] USING ARRAY[tier]")
        said = run.wait_for("cannot be refreshed", times=2)
        assert f"column tier of table {customers} is text[], which has no values of a single column" in said
        give_until(project, "silver")
        assert run.wait_for("cannot be refreshed").count("cannot be refreshed") == 2, "what fails again is said once"
    found = tiers(project)
    assert found == sorted(found, key=["basic", "gold", "silver"].index)


def test_a_repeated_batch_joins_the_old_content(
    server: PostgresServer, customers: str, make_table: MakeTable, project: Project
) -> None:
    results = make_table("n integer PRIMARY KEY, tier text")
    login = {"password": {"file": str(project.folder / "password")}}
    file = query(project, server, customers, sink={"postgres": sinks.spec(server, results, key=["n"], **login)})
    give(project, 0)
    offsets = project.folder / "checkpoint" / "spark" / "offsets"
    commits = project.folder / "checkpoint" / "spark" / "commits"
    with project.start("run", file) as run:
        wait_until(lambda: (commits / "0").exists(), "the first batch is committed")
        with server.connect() as other, other.transaction():
            other.execute(f"LOCK TABLE {results} IN ACCESS EXCLUSIVE MODE")
            give(project, 1)
            wait_until(lambda: (offsets / "1").exists(), "the second batch is planned")
            kill(run)
    assert not (commits / "1").exists()
    server.execute(f"UPDATE {customers} SET tier = 'gold'")
    give(project, 2)
    ended = project.millrace("run", file, "--once")
    assert (ended.status, ended.err) == (0, ""), ended
    assert sinks.rows(server, results) == [(0, "basic"), (1, "basic"), (2, "gold")]
    contents = sorted(each.name for each in (project.folder / "checkpoint" / "tables" / "customers").glob("*.parquet"))
    assert len(contents) == 2


def kill(run: Running) -> None:
    """End a run and all of its processes at once."""
    run.__exit__()


def test_groups_of_a_join_have_the_values_of_the_table(
    server: PostgresServer, customers: str, project: Project
) -> None:
    sql = """SELECT window.start AS since, c.tier, count(*) AS k
             FROM events e LEFT JOIN customers c ON c.id = e.who GROUP BY window(e.at, '1 minute'), c.tier"""
    file = query(project, server, customers, sql, emit="OnWindowClose")
    lines = "".join(f"2024-01-01T00:00:{n:02d}Z,{'abc'[n % 3]},{n}\n" for n in range(30))
    project.give("all.csv", f"at,who,n\n{lines}")
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert sorted((row[1], row[2]) for row in project.results()) == [("", "10"), ("basic", "20")]


def test_a_refused_login_and_a_missing_table_end_a_start(
    server: PostgresServer, customers: str, project: Project
) -> None:
    give(project, 0)
    project.write("password", "another")
    file = query(project, server, customers)
    project.millrace("run", file, "--once").assert_failed(
        "spec.sources.customers.postgres.password", "refuses the login (password authentication failed"
    )
    project.write("password", PASSWORD)
    missing = query(project, server, "nowhere.customers")
    project.millrace("run", missing, "--once").assert_failed("has no such table")
    assert not (project.folder / "checkpoint").exists()
    file = query(project, server, customers)
    assert project.millrace("run", file, "--once").status == 0
    project.write("password", "another")
    give(project, 1)
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert "table customers cannot be refreshed, so it stays as of" in result.out
    assert tiers(project) == ["basic", "basic"]
