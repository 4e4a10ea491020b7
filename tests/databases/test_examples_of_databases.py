"""The examples for databases, with the tables that their first lines create, come to what DuckDB computes."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lab import mariadb, postgres
from lab.mariadb import MariaDbServer
from lab.postgres import PASSWORD
from spark.answers import assert_same
from spark.cli import Project
from spark.example_answers import EXAMPLES, TABLES

from .conftest import KINDS
from .sinks import Server

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

FOLDER = Path(__file__).parents[2] / "examples"
COMMAND = re.compile(r"^#   CREATE TABLE .*?;$", re.MULTILINE | re.DOTALL)

BY_AREA = """SELECT date_trunc('hour', pickup), 'area ' || start_x // 5 || '-' || start_y // 5, count(*)
             FROM rides WHERE start_x BETWEEN 1 AND 300 AND start_y BETWEEN 1 AND 300 GROUP BY ALL"""


def ran(server: Server, folder: Path, name: str, *tables: str) -> Project:
    """Run an example to its end, after the commands of its first lines have created tables; return its project."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    commands = [each.replace("#", "") for each in COMMAND.findall(text)]
    assert len(commands) == len(tables)
    login = PASSWORD.replace("'", "''")
    if isinstance(server, MariaDbServer):
        database = mariadb.DATABASE
        rights = [
            f"CREATE USER IF NOT EXISTS millrace IDENTIFIED BY '{login}'",
            f"GRANT ALL ON {database}.* TO millrace",
        ]
    else:
        database = postgres.DATABASE
        rights = [f"GRANT ALL ON {table} TO millrace" for table in tables]
        rights.append("GRANT CREATE, USAGE ON SCHEMA public TO millrace")
        if not server.execute("SELECT FROM pg_roles WHERE rolname = 'millrace'"):
            server.execute(f"CREATE USER millrace PASSWORD '{login}'")
    for command in (*commands, *rights):
        server.execute(command)
    # in a file: the process that runs commands has the environment of its own start
    (folder / "password").write_text(PASSWORD, encoding="utf-8")
    text = text.replace("env: DATABASE_PASSWORD", f"file: {folder}/password")
    subprocess.run([sys.executable, FOLDER / "rides.py", "out/data/rides.csv"], cwd=folder, check=True)
    project = Project(folder)
    project.write(name, text.replace("localhost", server.host).replace("database: rides", f"database: {database}"))
    result = project.millrace("run", name, "--once")
    assert (result.status, result.err) == (0, ""), result
    return project


def expected(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return DuckDB's answer to a question about the rides."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE rides AS {TABLES['rides'].replace('out/data', f'{folder}/out/data')}")
        return connection.sql(sql).fetchall()


@pytest.mark.parametrize("server", KINDS[:1], indirect=True)
def test_the_example_of_frequent_routes_fills_a_postgres_table(server: Server, tmp_path: Path) -> None:
    ran(server, tmp_path, "31-postgres-frequent-routes.yaml", "frequent_routes")
    found = server.execute("SELECT * FROM frequent_routes")
    rows = [(until.replace(tzinfo=None), *rest) for until, *rest in found]
    assert_same(rows, expected(tmp_path, EXAMPLES["05"].sql), 5)


@pytest.mark.parametrize("server", KINDS[:1], indirect=True)
def test_the_example_of_rides_by_area_joins_a_postgres_table(server: Server, tmp_path: Path) -> None:
    project = ran(server, tmp_path, "38-postgres-rides-by-area.yaml", "cells")
    found = [
        (datetime.fromisoformat(since).replace(tzinfo=None), area, int(rides))
        for since, area, rides in project.results("out/rides-by-area")
    ]
    assert_same(found, expected(tmp_path, BY_AREA), 2)


@pytest.mark.parametrize("server", KINDS[1:], indirect=True)
def test_the_example_of_rides_by_area_joins_and_fills_mysql_tables(server: Server, tmp_path: Path) -> None:
    ran(server, tmp_path, "40-mysql-rides-by-area.yaml", "cells", "rides_by_area")
    assert_same(server.execute("SELECT since, area, rides FROM rides_by_area"), expected(tmp_path, BY_AREA), 2)
