"""Results that a function of the user's own writes: the example, a crash, several outputs, and large batches."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from code_packages import entry, zipped
from millrace_api.errors import MillraceError
from millrace_api.model.status import REPORT_VARIABLE
from millrace_jobs.own_code.sink_functions import SinkBatch, SinkFunction
from millrace_jobs.sinks import fetching
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sinks.python import connector
from millrace_jobs.sinks.python.connector import PythonSink

from .cli import MILLRACE, Project
from .example_answers import FOLDER, TABLES, make_tables

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

CODE = """
import json
from pathlib import Path
import pyarrow as pa
from millrace import SinkBatch

def write(results: pa.Table, batch: SinkBatch, *, path: str) -> None:
    file = Path(path) / f"{batch.key}.json"
    again = file.exists()
    file.write_text(json.dumps([batch.number, results.select(["who", "n"]).to_pylist()]))
    if not again:
        raise OSError("the first time fails")
"""
GROUPS = "SELECT window.start AS since, who, sum(n) AS n FROM events GROUP BY window(at, '1 minute'), who"


def test_the_example_appends_what_duckdb_finds(tmp_path: Path) -> None:
    project = Project(tmp_path)
    script = [sys.executable, str(FOLDER / "rides.py"), "out/data/rides.csv"]
    subprocess.run(script, cwd=tmp_path, check=True)
    result = project.millrace("run", str(FOLDER / "43-expensive-rides.yaml"), "--once")
    assert (result.status, result.err) == (0, ""), result
    with duckdb.connect() as connection, sqlite3.connect(tmp_path / "out/rides.db") as written:
        make_tables(connection, tmp_path, {"rides": TABLES["rides"]})
        sql = "SELECT strftime(pickup, '%Y-%m-%d %H:%M:%S'), taxi, miles, fare, tip FROM rides WHERE fare > 40"
        expected = connection.sql(sql).fetchall()
        assert expected
        assert sorted(written.execute("SELECT * FROM expensive_rides").fetchall()) == sorted(expected)
        assert len(written.execute("SELECT * FROM batches").fetchall()) == 1


def test_a_batch_whose_function_fails_is_written_again_with_the_same_key_and_results(tmp_path: Path) -> None:
    project = Project(tmp_path)
    archive = zipped({"alerts.py": CODE})
    (tmp_path / "alerts.zip").write_bytes(archive)
    project.give("1.csv", "at,who,n\n2024-01-01T00:00:01Z,a,1\n2024-01-01T00:01:05Z,b,3\n2024-01-01T00:01:06Z,b,4\n")
    written = tmp_path / "written"
    written.mkdir()
    sink = {"python": {"write": "alerts:write", "options": {"path": str(written)}}}
    outputs = {"early": {"emit": "OnUpdate", "sink": sink}}
    file = project.query(
        GROUPS, code=[entry("file:alerts.zip", archive)], emit="OnWindowClose", additionalOutputs=outputs
    )

    report = tmp_path / "report.json"
    failed = run(project, file, report)
    said = "the function alerts:write failed on batch 0: OSError: the first time fails (alerts.py, line "
    assert (failed.returncode, said in failed.stderr) == (1, True), failed.stderr
    assert json.loads(report.read_text())["failure"] == "UserCodeFailed"
    (first,) = written.iterdir()
    before = first.read_text()

    again = run(project, file, report)
    assert (again.returncode, "error" in again.stderr) == (0, False), again.stderr
    assert first in written.iterdir()
    assert [each.name[-7:] for each in written.iterdir()] == ["-0.json"]
    assert json.loads(before)[0] == json.loads(first.read_text())[0] == 0
    rows = sorted((row["who"], row["n"]) for row in json.loads(first.read_text())[1])
    assert rows == sorted((row["who"], row["n"]) for row in json.loads(before)[1]) == [("a", 1), ("b", 7)]
    assert {(who, n) for _, who, n in project.results()} == {("a", "1"), ("b", "7")}


def run(project: Project, file: str, report: Path) -> subprocess.CompletedProcess[str]:
    """A run in a process of its own, whose failure is written to ``report``."""
    environment = os.environ | {REPORT_VARIABLE: str(report)}
    command = [MILLRACE, "run", file, "--once"]
    return subprocess.run(
        command, cwd=project.folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def got() -> Iterator[list[Any]]:
    """What functions of this module got; empty at first."""
    GOT.clear()
    yield GOT
    GOT.clear()


GOT: list[Any] = []


def as_table(results: pa.Table, batch: SinkBatch) -> None:
    GOT.append((batch.number, results))


def as_reader(results: pa.RecordBatchReader, batch: SinkBatch) -> None:
    GOT.extend((batch.number, piece) for piece in results)


def sink(name: str) -> PythonSink:
    return PythonSink(SinkFunction(f"{__name__}:{name}", {}), "q", "a-checkpoint", jumps=True)


def written(spark: SparkSession, name: str, rows: int) -> int:
    """Write a batch of so many rows in three partitions; return the number that the sink reports."""
    function = sink(name)
    results = spark.range(0, rows, 1, 3).selectExpr("id", "struct(id AS a) AS s", "timestamp_seconds(id) AS at")
    return function.write(function.shape(results), ResultBatch(4, 1, 0))


@pytest.mark.parametrize("name", ["as_table", "as_reader"])
def test_large_results_are_read_in_pieces_with_their_types(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, got: list[Any], name: str
) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("s", pa.struct([pa.field("a", pa.int64(), False)])), ("at", pa.timestamp("us", "UTC"))]
    )
    for most in (1000, 10):
        got.clear()
        monkeypatch.setattr(fetching, "MOST_ROWS", most)
        assert written(spark, name, 30) == 30
        assert len(got) == (3 if (name, most) == ("as_reader", 10) else 1)
        assert [number for number, _ in got] == [4] * len(got)
        assert sorted(n for _, piece in got for n in piece.column("id").to_pylist()) == list(range(30))
        assert [(field.name, field.type) for field in got[0][1].schema] == [
            (field.name, field.type) for field in schema
        ]


def test_a_batch_without_results_makes_no_call(spark: SparkSession, got: list[Any]) -> None:
    assert (written(spark, "as_table", 0), written(spark, "as_reader", 0), got) == (0, 0, [])


def test_results_that_are_too_large_for_a_table_are_refused_before_the_call(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, got: list[Any]
) -> None:
    monkeypatch.setattr(connector, "MOST_BYTES", 100)
    with pytest.raises(MillraceError, match=r"the results of batch 4 are larger than the 0 MiB of a table; annotate"):
        written(spark, "as_table", 30)
    assert got == []
    assert written(spark, "as_reader", 30) == 30
