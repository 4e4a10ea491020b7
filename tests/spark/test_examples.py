"""Every example, run as its first lines and the README say, comes to what DuckDB computes from the same data."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import yaml

from millrace_jobs.sinks.files import BATCH_ID

from .answers import assert_same, latest, rows_of, without_zones
from .cli import Project
from .example_answers import EXAMPLES, TABLES, Example

pytestmark = pytest.mark.spark

FOLDER = Path(__file__).parents[2] / "examples"
FILES = sorted(FOLDER.glob("[0-9]*.yaml"))
SCRIPTS = {
    "nexmark.py": "out/data",
    "words.py": "out/data/words.csv",
    "rides.py": "out/data/rides.csv",
    "tasks.py": "out/data/tasks.csv",
    "tpch.py": "out/data",
}
REAL = {
    "rides.csv": "cppstream_debs_google_tpch/debs_frequent_route_compact_ride_10000.csv",
    "tasks.csv": "cppstream_debs_google_tpch/task_event_2_10000.csv",
}
"""Real recordings in the same form as the scripts', by the name that the examples know them by."""


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder with the data that the scripts write."""
    project = Project(tmp_path_factory.mktemp("examples"))
    for script, target in SCRIPTS.items():
        subprocess.run([sys.executable, str(FOLDER / script), target], cwd=project.folder, check=True)
    return project


@pytest.fixture(scope="session")
def tables(project: Project) -> Iterator[duckdb.DuckDBPyConnection]:
    """The data as DuckDB's tables."""
    with duckdb.connect() as connection:
        _make_tables(connection, project.folder, TABLES)
        yield connection


def file_of(number: str) -> Path:
    (file,) = FOLDER.glob(f"{number}-*.yaml")
    return file


@pytest.mark.parametrize("number", EXAMPLES, ids=[file_of(number).stem for number in EXAMPLES])
def test_an_example_comes_to_what_it_should(project: Project, tables: duckdb.DuckDBPyConnection, number: str) -> None:
    run(project, number)
    assert_answer(project.folder, EXAMPLES[number], tables)


@pytest.mark.data
@pytest.mark.parametrize("number", ["05", "06", "07", "08"], ids=lambda number: file_of(number).stem)
def test_an_example_on_the_real_recording(tmp_path: Path, data: Any, number: str) -> None:
    project = Project(tmp_path)
    recording = "rides.csv" if number < "07" else "tasks.csv"
    (tmp_path / "out/data").mkdir(parents=True)
    shutil.copy(data(REAL[recording]), tmp_path / "out/data" / recording)
    run(project, number)
    name = recording.removesuffix(".csv")
    with duckdb.connect() as connection:
        _make_tables(connection, tmp_path, {name: TABLES[name]})
        assert_answer(tmp_path, EXAMPLES[number], connection)


def run(project: Project, number: str) -> None:
    """``millrace run FILE --once``, with nothing lost on the way."""
    result = project.millrace("run", str(file_of(number)), "--once")
    assert (result.status, result.err) == (0, ""), result
    assert (result.summary["late"], result.summary["rejected"]) == ("0", "0")


def assert_answer(folder: Path, example: Example, tables: duckdb.DuckDBPyConnection) -> None:
    """The results are DuckDB's, and there are some."""
    expected = rows_of(tables.sql(example.sql).to_arrow_table())
    assert expected
    found = results(folder / "out" / example.results)
    if example.updates:
        assert_same(latest(found, example.keys), expected, example.keys)
        return
    rows = rows_of(found.select([name for name in found.column_names if name != BATCH_ID]))
    if example.repeats:
        assert Counter(rows) == Counter(expected)
    else:
        assert_same(rows, expected, example.keys)


def results(folder: Path) -> pa.Table:
    """All files of results in a folder."""
    (suffix,) = {file.suffix for file in folder.glob("batch-*")}
    reader = {".csv": "read_csv", ".json": "read_json", ".parquet": "read_parquet"}[suffix]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        table: pa.Table = connection.sql(f"SELECT * FROM {reader}('{folder}/batch-*')").to_arrow_table()
    return without_zones(table)


def _make_tables(connection: duckdb.DuckDBPyConnection, folder: Path, tables: dict[str, str]) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    for name, sql in tables.items():
        table = connection.sql(sql.replace("out/data", f"{folder}/out/data")).to_arrow_table()
        connection.register("given", without_zones(table))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")


def test_no_example_is_left_out() -> None:
    tested = {file_of(number) for number in EXAMPLES}
    elsewhere = {"01", "02", "11", "23", "24", "25"}
    assert {file.name[:2] for file in FILES} == {file.name[:2] for file in tested} | elsewhere
    assert all(yaml.safe_load(file.read_text())["metadata"]["name"] for file in FILES)
