"""``millrace run`` with results in S3: killed at random moments and disturbed, what DuckDB reads is there once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import duckdb
import pytest

from lab.s3_server import BUCKET, S3Server
from lab.store_proxy import Disturbance
from lab.waiting import wait_until
from millrace_jobs.stores.objects import ObjectPath
from spark.answers import assert_same, duckdb_rows, latest, rows_of
from spark.killed_queries import QUESTION

from .store_runs import Run, batches

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.in_turn]


def results(s3: S3Server, place: ObjectPath):
    """All rows, as a reader finds them who knows nothing of Millrace."""
    pattern = s3.folder / "objects" / BUCKET / f"{place.key}-out" / "**" / "*.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql(f"SELECT * FROM read_parquet('{pattern}')").to_arrow_table()


def test_a_query_that_is_killed_and_disturbed_writes_each_result_once(
    tmp_path: Path, place: ObjectPath, s3: S3Server
) -> None:
    chance = random.Random(3)
    sink = {"files": {"path": f"{place}-out", "filesPerPartition": 2}}
    run = Run(tmp_path, place, sink=sink)

    def disturb(_: object) -> Disturbance | None:
        drawn = chance.random()
        return Disturbance(status=503) if drawn < 0.02 else Disturbance(loses_answer=True) if drawn < 0.04 else None

    for _ in range(2):
        process = run.start()
        wait_until(lambda process=process: batches(process) >= 2, "it finishes two batches", seconds=300)
        with s3.disturbed(disturb):
            time.sleep(chance.uniform(0, 3))
            process.kill()
        found = results(s3, place)
        keys = [*found.column_names[: QUESTION.key_columns], "_batch_id"]
        assert found.group_by(keys).aggregate([]).num_rows == found.num_rows, "no row of a batch is there twice"
    said = run.finish()
    assert f"{place}-out/*.parquet" in said.replace("\n", "")
    found = results(s3, place)
    assert_same(latest(found, QUESTION.key_columns), duckdb_rows(run.events, QUESTION.duckdb), QUESTION.key_columns)
    keys = [*found.column_names[: QUESTION.key_columns], "_batch_id"]
    assert found.group_by(keys).aggregate([]).num_rows == len(rows_of(found))
    assert not list(ObjectPath.of(f"{place}-out/_millrace/staged").objects())
    assert "nothing new" in run.finish()
