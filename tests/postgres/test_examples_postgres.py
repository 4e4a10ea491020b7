"""The examples for PostgreSQL, with the tables that their first lines create, come to what DuckDB computes."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lab.postgres import DATABASE, PASSWORD, PostgresServer
from spark.answers import assert_same
from spark.cli import Project
from spark.example_answers import EXAMPLES, TABLES

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.in_turn]

FOLDER = Path(__file__).parents[2] / "examples"
COMMAND = re.compile(r"^#   CREATE TABLE .*?;$", re.MULTILINE | re.DOTALL)


def ran(server: PostgresServer, folder: Path, name: str, table: str) -> Project:
    """Run an example to its end, after the command of its first lines has created a table; return its project."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    command = COMMAND.search(text)
    assert command is not None
    if not server.execute("SELECT FROM pg_roles WHERE rolname = 'millrace'"):
        server.execute(f"CREATE USER millrace PASSWORD '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
    server.execute(command[0].replace("#", ""))
    for right in (f"ALL ON {table}", "CREATE, USAGE ON SCHEMA public"):
        server.execute(f"GRANT {right} TO millrace")
    # in a file: the process that runs commands has the environment of its own start
    (folder / "password").write_text(PASSWORD, encoding="utf-8")
    text = text.replace("env: DATABASE_PASSWORD", f"file: {folder}/password")
    subprocess.run([sys.executable, FOLDER / "rides.py", "out/data/rides.csv"], cwd=folder, check=True)
    project = Project(folder)
    project.write(name, text.replace("localhost", server.host).replace("database: rides", f"database: {DATABASE}"))
    result = project.millrace("run", name, "--once")
    assert (result.status, result.err) == (0, ""), result
    return project


def expected(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return DuckDB's answer to a question about the rides."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE rides AS {TABLES['rides'].replace('out/data', f'{folder}/out/data')}")
        return connection.sql(sql).fetchall()


def test_frequent_routes(server: PostgresServer, tmp_path: Path) -> None:
    ran(server, tmp_path, "31-postgres-frequent-routes.yaml", "frequent_routes")
    found = server.execute("SELECT * FROM frequent_routes")
    rows = [(until.replace(tzinfo=None), *rest) for until, *rest in found]
    assert_same(rows, expected(tmp_path, EXAMPLES["05"].sql), 5)


def test_rides_by_area(server: PostgresServer, tmp_path: Path) -> None:
    project = ran(server, tmp_path, "38-postgres-rides-by-area.yaml", "cells")
    sql = """SELECT date_trunc('hour', pickup), 'area ' || start_x // 5 || '-' || start_y // 5, count(*)
             FROM rides WHERE start_x BETWEEN 1 AND 300 AND start_y BETWEEN 1 AND 300 GROUP BY ALL"""
    found = [
        (datetime.fromisoformat(since).replace(tzinfo=None), area, int(rides))
        for since, area, rides in project.results("out/rides-by-area")
    ]
    assert_same(found, expected(tmp_path, sql), 2)
