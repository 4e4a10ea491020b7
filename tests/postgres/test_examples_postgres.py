"""The example for PostgreSQL, with the table that its first lines create, comes to what DuckDB computes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from lab.postgres import DATABASE, PASSWORD, PostgresServer
from spark.answers import assert_same
from spark.cli import Project
from spark.example_answers import EXAMPLES, TABLES

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.in_turn]

FOLDER = Path(__file__).parents[2] / "examples"
NAME = "31-postgres-frequent-routes.yaml"
COMMAND = re.compile(r"^#   CREATE TABLE .*?;$", re.MULTILINE | re.DOTALL)


def test_frequent_routes(server: PostgresServer, tmp_path: Path) -> None:
    text = (FOLDER / NAME).read_text(encoding="utf-8")
    command = COMMAND.search(text)
    assert command is not None
    server.execute(f"CREATE USER millrace PASSWORD '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
    server.execute(command[0].replace("#", ""))
    for right in ("ALL ON frequent_routes", "CREATE, USAGE ON SCHEMA public"):
        server.execute(f"GRANT {right} TO millrace")
    # in a file: the process that runs commands has the environment of its own start
    (tmp_path / "password").write_text(PASSWORD, encoding="utf-8")
    text = text.replace("env: DATABASE_PASSWORD", f"file: {tmp_path}/password")
    subprocess.run([sys.executable, FOLDER / "rides.py", "out/data/rides.csv"], cwd=tmp_path, check=True)
    project = Project(tmp_path)
    project.write(NAME, text.replace("localhost", server.host).replace("database: rides", f"database: {DATABASE}"))
    result = project.millrace("run", NAME, "--once")
    assert (result.status, result.err) == (0, ""), result
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE rides AS {TABLES['rides'].replace('out/data', f'{tmp_path}/out/data')}")
        expected = connection.sql(EXAMPLES["05"].sql).fetchall()
    found = server.execute("SELECT * FROM frequent_routes")
    assert_same([(until.replace(tzinfo=None), *rest) for until, *rest in found], expected, 5)
