"""The example for Delta tables comes to what DuckDB computes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from spark.answers import assert_same
from spark.cli import Project
from spark.example_answers import EXAMPLES, TABLES

from .tables import asked, delta_table

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

FOLDER = Path(__file__).parents[2] / "examples"
NAME = "32-delta-frequent-routes.yaml"


def test_frequent_routes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "rides.py", "out/data/rides.csv"], cwd=tmp_path, check=True)
    project = Project(tmp_path)
    project.write(NAME, (FOLDER / NAME).read_text(encoding="utf-8"))
    result = project.millrace("run", NAME, "--once")
    assert (result.status, result.err) == (0, ""), result
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE rides AS {TABLES['rides'].replace('out/data', f'{tmp_path}/out/data')}")
        expected = connection.sql(EXAMPLES["05"].sql).fetchall()
    place = str(tmp_path / "out/frequent-routes-delta")
    found = asked(place, "SELECT until, start_x, start_y, end_x, end_y, rides FROM results WHERE day = until::DATE")
    assert_same([(until.replace(tzinfo=None), *rest) for until, *rest in found], expected, 5)
    assert delta_table(place).metadata().partition_columns == ["day"]
