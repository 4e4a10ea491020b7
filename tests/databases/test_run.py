"""Whole queries into databases by ``millrace run``, killed at random moments, against DuckDB's answer."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from lab.mariadb import MariaDbServer
from lab.processes import Mark
from lab.waiting import wait_until
from spark.answers import assert_same, duckdb_rows, with_zones
from spark.cli import Project
from spark.killed_queries import QUESTION as ALL_GROUPS
from spark.killed_queries import Process, choose_plan, document, recording
from spark.questions import Hop, Question

from .conftest import KINDS
from .sinks import Server, spec

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

RECORDS = 50_000
RATE = 2_500

QUESTION = Question(
    keys={"key": "key"},
    values={"records": "count(*)", "total": "sum(value)", "last": "max(moment)"},
    window=Hop("moment", size=300, slide=120),
    having="sum(value) > 0",
)
"""Groups come and go: values are as often negative as positive."""

COLUMNS = "window_start {time}, window_end {time}, {key} {text}, records bigint, total bigint, last {time}"
KEY = ["window_start", "window_end", "key"]


def query(folder: Path, sink: dict[str, Any], emit: str) -> dict[str, Any]:
    """Return the query over the recording, with its results in a table."""
    found = document(folder, emit)
    found["spec"]["sources"]["events"]["replay"]["rate"] = RATE
    return found | {"spec": found["spec"] | {"query": {"sql": QUESTION.spark}, "sink": sink}}


def in_table(server: Server, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table, with times without a zone."""
    rows = server.execute(f"SELECT * FROM {table}")
    return [tuple(each.replace(tzinfo=None) if isinstance(each, datetime) else each for each in row) for row in rows]


def columns(server: Server, key: Sequence[str] = ()) -> str:
    """Return the columns of a table for the results."""
    words = ("datetime(6)", "`key`") if isinstance(server, MariaDbServer) else ("timestamptz", "key")
    listed = COLUMNS.replace("{time}", words[0]).replace("{key}", words[1])
    return f"{listed}, PRIMARY KEY ({', '.join(key).replace(' key', f' {words[1]}')})" if key else listed


def sink(server: Server, table: str, **fields: Any) -> dict[str, Any]:
    """Return the sink of a query."""
    return {"mysql" if isinstance(server, MariaDbServer) else "postgres": spec(server, table, **fields)}


@pytest.mark.parametrize("server", KINDS[:1], indirect=True)
def test_two_outputs_of_one_computation_fill_two_tables(server: Server, make_table, tmp_path: Path) -> None:
    events = recording(seed=1).slice(0, 20_000)
    pq.write_table(with_zones(events), tmp_path / "recording.parquet")
    live, final = make_table(columns(server, KEY)), make_table(columns(server))
    asked = query(tmp_path, sink(server, live, key=KEY), "OnUpdate")
    asked["spec"]["query"] = {"sql": ALL_GROUPS.spark}
    asked["spec"]["additionalOutputs"] = {"final": {"emit": "OnWindowClose", "sink": sink(server, final)}}
    (tmp_path / "query.yaml").write_text(yaml.safe_dump(asked), encoding="utf-8")
    result = Project(tmp_path).millrace("run", "query.yaml", "--once")
    assert (result.status, result.err) == (0, ""), result
    expected = duckdb_rows(events, ALL_GROUPS.duckdb)
    for table in (live, final):
        assert_same(in_table(server, table), expected, ALL_GROUPS.key_columns)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("server", "emit", "key"),
    [
        pytest.param(*KINDS[0].values, "OnUpdate", KEY, id="upserted and deleted", marks=KINDS[0].marks),
        pytest.param(*KINDS[0].values, "OnWindowClose", [], id="appended", marks=KINDS[0].marks),
        pytest.param(*KINDS[1].values, "OnUpdate", KEY, id="upserted and deleted in MySQL", marks=KINDS[1].marks),
    ],
    indirect=["server"],
)
def test_a_query_that_is_killed_again_and_again_writes_each_result_once(
    server: Server, make_table, tmp_path: Path, emit, key
):
    chance = random.Random(emit)
    events = recording(seed=len(emit)).slice(0, RECORDS)
    pq.write_table(with_zones(events), tmp_path / "recording.parquet")
    table = make_table(columns(server, key))
    file, plan_file = tmp_path / "query.yaml", tmp_path / "plan.yaml"
    given = sink(server, table, **({"key": key} if key else {}))
    file.write_text(yaml.safe_dump(query(tmp_path, given, emit)), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "millrace"), "run", str(file), "--plan", str(plan_file)]
    mark = Mark()
    for number in range(3):
        choose_plan(plan_file, chance, number)
        run = Process(*command, log=tmp_path / f"{number}.log", mark=mark)
        run.wait_for_batch()
        run.sleep(chance.uniform(0, 2.5))
        run.kill()
    last = Process(*command, "--once", log=tmp_path / "last.log", mark=mark)
    assert last.wait() == 0, last.output
    wait_until(lambda: not mark.processes(), "all processes of the killed runs have ended")
    assert_same(in_table(server, table), duckdb_rows(events, QUESTION.duckdb), QUESTION.key_columns)
    assert f"results=table {table} in {spec(server, table)['database']} at {server.host}" in last.output.replace(
        '"', ""
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", KINDS[:1], indirect=True)
def test_a_table_goes_on_after_the_state_was_repartitioned(server: Server, make_table, tmp_path: Path) -> None:
    """Beside the query, and twice while it is stopped: a repartition is a batch that the table never gets."""
    events = recording(seed=7).slice(0, RECORDS)
    pq.write_table(with_zones(events), tmp_path / "recording.parquet")
    table, file, mark = make_table(columns(server, KEY)), tmp_path / "query.yaml", Mark()
    asked = query(tmp_path, sink(server, table, key=KEY), "OnUpdate")
    asked["spec"] |= {"batchInterval": "2s", "parallelism": {"max": 8}}
    asked["spec"]["sources"]["events"]["replay"]["rate"] = 500
    file.write_text(yaml.safe_dump(asked), encoding="utf-8")
    millrace = str(Path(sys.executable).parent / "millrace")

    def run(*command: str, log: str) -> Process:
        return Process(millrace, *command, log=tmp_path / log, mark=mark)

    def repartition(partitions: int) -> None:
        command = run("state", "repartition", str(file), "--partitions", str(partitions), log=f"to-{partitions}.log")
        assert command.wait() == 0, command.output

    first = run("run", str(file), log="first.log")
    first.wait_for_batch()
    repartition(5)
    first.wait_for_batch()
    first.stop()
    for partitions in (3, 6):
        repartition(partitions)
    last = run("run", str(file), "--once", log="last.log")
    assert last.wait() == 0, first.output + last.output
    wait_until(lambda: not mark.processes(), "all processes of the runs have ended")
    assert_same(in_table(server, table), duckdb_rows(events, QUESTION.duckdb), QUESTION.key_columns)
