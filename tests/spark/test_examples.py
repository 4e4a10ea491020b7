"""Every example, run as its first lines and the README say, comes to what DuckDB computes from the same data."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from .cli import Project
from .example_answers import EXAMPLES, TABLES, assert_answer, file_of, make_tables, write_recordings

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

REAL = {
    "rides.csv": "cppstream_debs_google_tpch/debs_frequent_route_compact_ride_10000.csv",
    "tasks.csv": "cppstream_debs_google_tpch/task_event_2_10000.csv",
}
"""Real recordings in the same form as the scripts', by the name that the examples know them by."""


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder with the data that the scripts write."""
    project = Project(tmp_path_factory.mktemp("examples"))
    write_recordings(project.folder)
    return project


@pytest.fixture(scope="session")
def tables(project: Project) -> Iterator[duckdb.DuckDBPyConnection]:
    """The data as DuckDB's tables."""
    with duckdb.connect() as connection:
        make_tables(connection, project.folder, TABLES)
        yield connection


@pytest.mark.parametrize("number", EXAMPLES, ids=[file_of(number).stem for number in EXAMPLES])
def test_an_example_comes_to_what_it_should(project: Project, tables: duckdb.DuckDBPyConnection, number: str) -> None:
    run(project, number)
    assert_answer(project.folder, EXAMPLES[number], tables)


@pytest.mark.data
@pytest.mark.parametrize("number", ["05", "06", "07", "08"], ids=lambda number: file_of(number).stem)
def test_an_example_on_the_real_recording_comes_to_what_it_should(tmp_path: Path, data: Any, number: str) -> None:
    project = Project(tmp_path)
    recording = "rides.csv" if number < "07" else "tasks.csv"
    (tmp_path / "out/data").mkdir(parents=True)
    shutil.copy(data(REAL[recording]), tmp_path / "out/data" / recording)
    run(project, number)
    name = recording.removesuffix(".csv")
    with duckdb.connect() as connection:
        make_tables(connection, tmp_path, {name: TABLES[name]})
        assert_answer(tmp_path, EXAMPLES[number], connection)


def run(project: Project, number: str) -> None:
    """``millrace run FILE --once``, with nothing lost on the way.

    An example whose own code opens a file by a relative path has a process of its own: code runs in the JVM's folder,
    and the JVM that tests share was started in that of another test.
    """
    command = ("run", str(file_of(number)), "--once")
    if EXAMPLES[number].opens_files:
        with project.start(*command) as running:
            result = running.finish()
    else:
        result = project.millrace(*command)
    assert (result.status, result.err) == (0, ""), result
    assert (result.summary["late"], result.summary["rejected"]) == ("0", "0")
