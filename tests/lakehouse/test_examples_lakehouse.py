"""The examples for tables of a lakehouse come to what DuckDB computes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from spark.answers import assert_same
from spark.cli import Project
from spark.example_answers import EXAMPLES, TABLES

from .iceberg_tables import iceberg_asked, iceberg_table
from .tables import asked, delta_table

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

FOLDER = Path(__file__).parents[2] / "examples"
COLUMNS = "until, start_x, start_y, end_x, end_y, rides"
SHOWN = f"SELECT {COLUMNS} FROM results"


def ran(folder: Path, name: str) -> list[tuple[Any, ...]]:
    """Run an example in a folder, and return the answer to its question."""
    subprocess.run([sys.executable, FOLDER / "rides.py", "out/data/rides.csv"], cwd=folder, check=True)
    project = Project(folder)
    project.write(name, (FOLDER / name).read_text(encoding="utf-8"))
    result = project.millrace("run", name, "--once")
    assert (result.status, result.err) == (0, ""), result
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE rides AS {TABLES['rides'].replace('out/data', f'{folder}/out/data')}")
        return connection.sql(EXAMPLES["05"].sql).fetchall()


def test_the_example_of_frequent_routes_reads_a_delta_table(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "rides_table.py", "out/data/rides-delta"], cwd=tmp_path, check=True)
    expected = ran(tmp_path, "39-delta-routes.yaml")
    with duckdb.connect() as connection:
        found = connection.sql(f"FROM '{tmp_path}/out/delta-routes/*.parquet' SELECT {COLUMNS}").fetchall()
    assert_same([(until.replace(tzinfo=None), *rest) for until, *rest in found], expected, 5)


def test_the_example_of_frequent_routes_fills_a_delta_table(tmp_path: Path) -> None:
    expected = ran(tmp_path, "32-delta-frequent-routes.yaml")
    place = str(tmp_path / "out/frequent-routes-delta")
    found = asked(place, f"{SHOWN} WHERE day = until::DATE")
    assert_same([(until.replace(tzinfo=None), *rest) for until, *rest in found], expected, 5)
    assert delta_table(place).metadata().partition_columns == ["day"]


def test_the_example_of_frequent_routes_fills_an_iceberg_table(tmp_path: Path) -> None:
    expected = ran(tmp_path, "34-iceberg-frequent-routes.yaml")
    fields = {"catalog": {"file": str(tmp_path / "out/catalog.db")}, "table": "rides.frequent_routes"}
    found = iceberg_asked(fields, SHOWN)
    assert_same([(until.replace(tzinfo=None), *rest) for until, *rest in found], expected, 5)
    assert [str(field.transform) for field in iceberg_table(fields).spec().fields] == ["day"]
