"""Whole queries into tables of a lakehouse by ``millrace run``, killed at random moments, against DuckDB's answer."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from lab.processes import Mark
from lab.waiting import wait_until
from spark.answers import assert_same, duckdb_rows, rows_of, with_zones
from spark.cli import Project
from spark.killed_queries import QUESTION as ALL_GROUPS
from spark.killed_queries import Process, choose_plan, document, recording
from spark.questions import Hop, Question

from .iceberg_tables import iceberg_content, iceberg_table
from .tables import content, delta_table

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

RECORDS = 20_000
RATE = 2_500

QUESTION = Question(
    keys={"key": "key"},
    values={"records": "count(*)", "total": "sum(value)", "last": "max(moment)"},
    window=Hop("moment", size=300, slide=120),
    having="sum(value) > 0",
)
"""Groups come and go: values are as often negative as positive."""

KEY = ["window_start", "window_end", "key"]


def query(folder: Path, sink: dict[str, Any], emit: str, kind: str = "delta") -> dict[str, Any]:
    """Return the query over the recording, with its results in a table."""
    found = document(folder, emit)
    found["spec"]["sources"]["events"]["replay"]["rate"] = RATE
    return found | {"spec": found["spec"] | {"query": {"sql": QUESTION.spark}, "sink": {kind: sink}}}


def in_table(place: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table, with times without a zone."""
    return rows_of(content(place))


def test_two_outputs_of_one_computation_fill_two_tables(tmp_path: Path) -> None:
    events = recording(seed=1).slice(0, 10_000)
    pq.write_table(with_zones(events), tmp_path / "recording.parquet")
    live, final = {"path": "live", "key": KEY}, {"path": "final", "sortBy": ["key"]}
    asked = query(tmp_path, live, "OnUpdate")
    asked["spec"]["query"] = {"sql": ALL_GROUPS.spark}
    asked["spec"]["additionalOutputs"] = {"final": {"emit": "OnWindowClose", "sink": {"delta": final}}}
    (tmp_path / "query.yaml").write_text(yaml.safe_dump(asked), encoding="utf-8")
    project = Project(tmp_path)
    result = project.millrace("run", "query.yaml", "--once")
    assert (result.status, result.err) == (0, ""), result
    expected = duckdb_rows(events, ALL_GROUPS.duckdb)
    for table in ("live", "final"):
        assert_same(in_table(str(tmp_path / table)), expected, ALL_GROUPS.key_columns)
    again = project.millrace("run", "query.yaml", "--once")
    assert "nothing new" in again.out + again.err
    assert str(tmp_path / "live") in (again.out + again.err).replace("\n", "")


def killed_and_killed(tmp_path: Path, emit: str, kind: str, sink: dict[str, Any], seed: int) -> Any:
    """Run a query that is killed at random moments and then ends; return the answer, and what the last run has said."""
    chance = random.Random(seed)
    events = recording(seed=seed).slice(0, RECORDS)
    pq.write_table(with_zones(events), tmp_path / "recording.parquet")
    file, plan_file = tmp_path / "query.yaml", tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(query(tmp_path, sink, emit, kind)), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "millrace"), "run", str(file), "--plan", str(plan_file)]
    mark = Mark()
    for number in range(2):
        choose_plan(plan_file, chance, number)
        run = Process(*command, log=tmp_path / f"{number}.log", mark=mark)
        run.wait_for_batch()
        run.sleep(chance.uniform(0, 2.5))
        run.kill()
    last = Process(*command, "--once", log=tmp_path / "last.log", mark=mark)
    assert last.wait() == 0, last.output
    wait_until(lambda: not mark.processes(), "all processes of the killed runs have ended")
    return duckdb_rows(events, QUESTION.duckdb), last.output.replace('"', "")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("emit", "key", "placed"),
    [("OnUpdate", KEY, "folder"), ("OnWindowClose", [], "s3")],
    ids=["upserted and deleted", "appended in S3"],
)
def test_a_query_into_delta_that_is_killed_again_and_again_writes_each_result_once(
    tmp_path: Path, request, emit: str, key: list[str], placed: str
):
    place = str(tmp_path / "table") if placed == "folder" else request.getfixturevalue("in_s3")
    sink = {"path": place, "key": key, "maintenance": {"compactEvery": 2}}
    expected, said = killed_and_killed(tmp_path, emit, "delta", sink, len(emit))
    assert_same(in_table(place), expected, QUESTION.key_columns)
    assert delta_table(place).version() > 3
    assert "results=Delta table" in said


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("emit", "key", "kind"),
    [("OnUpdate", KEY, "rest"), ("OnWindowClose", [], "postgres")],
    ids=["upserted and deleted by a REST catalog", "appended in S3 by a catalog in PostgreSQL"],
)
def test_a_query_into_iceberg_that_is_killed_again_and_again_writes_each_result_once(
    tmp_path: Path, request, emit: str, key: list[str], kind: str
):
    if kind == "rest":
        catalog, place = {"uri": request.getfixturevalue("rest_catalog")}, str(tmp_path / "table")
    else:
        catalog, place = request.getfixturevalue("postgres_catalog"), request.getfixturevalue("in_s3")
    fields = {"catalog": {kind: catalog}, "table": f"killed.{kind}", "location": place}
    sink = fields | {"key": key, "maintenance": {"compactEvery": 2}}
    expected, said = killed_and_killed(tmp_path, emit, "iceberg", sink, len(emit) + 1)
    assert_same(rows_of(iceberg_content(fields)), expected, QUESTION.key_columns)
    found = iceberg_table(fields).properties
    assert [number for name, number in found.items() if name.endswith(".driver")] == ["3"]
    assert f"results=Iceberg table killed.{kind}" in said
