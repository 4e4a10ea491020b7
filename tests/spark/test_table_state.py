"""The state of a query by operators on tables, as its batches report it and as Spark's state store has it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millrace_jobs.checkpoint.checkpoint import checkpoint_root
from millrace_jobs.queries.tables.operators import state

from .streams import Placing, Stream
from .tables import parquet

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

START = datetime(2024, 5, 1, 12)
SCHEMA = pa.schema([("moment", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
SQL = """
SELECT window.start AS since, e.key, count(*) AS pairs, sum(a.value * p.value) AS total
FROM events e JOIN answers a ON a.key = e.key AND a.moment BETWEEN e.moment AND e.moment + INTERVAL 20 SECONDS
JOIN prices p ON p.key = e.key GROUP BY window(e.moment, '1 minute'), e.key
"""
STAGES = 3
PLACINGS: list[Placing] = [("pkg", 2, 2), ("hash", 1, 3)]


def batches() -> list[list[tuple[datetime, str, int]]]:
    """Batches a minute apart with records that are up to 25 s old; in three more, keys have one record each, hours later."""
    chance = random.Random(18)
    made = [
        [
            (
                START + timedelta(minutes=number, seconds=-round(chance.uniform(0, 25), 6)),
                f"key {chance.randrange(3)}",
                1,
            )
            for _ in range(40)
        ]
        for number in range(5)
    ]
    return [*made, *([(START + timedelta(hours=hour), f"key {key}", 1) for key in range(3)] for hour in (1, 2, 3))]


def rows_in_store(spark: SparkSession, stream: Stream, stage: int) -> int:
    """Return the rows in the state of a stage, from the indexes of its buckets."""
    reader = spark.read.format("statestore").option("operatorId", stage).option("stateVarName", "tables")
    pieces = reader.load((checkpoint_root(stream.query) / "spark").as_uri())
    found = pieces.where("user_map_key.name LIKE '%index'").select("user_map_key.name", "user_map_value.block")
    rows = 0
    for name, block in found.collect():
        schema = state._SLOT_COLUMNS if name == "index" else state._INDEX
        rows += sum(pa.ipc.read_record_batch(pa.py_buffer(bytes(block)), schema).column("rows").to_pylist())
    return rows


def test_the_state_is_reported_and_bounded(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(
        spark,
        tmp_path,
        schema="moment TIMESTAMP, key STRING, value BIGINT",
        sql=SQL,
        watermark=("moment", "30s"),
        emit="OnWindowClose",
        others={"answers": {}, "prices": {"table": {"keys": ["key"]}}},
    )
    made = batches()
    reports = stream.feed([(PLACINGS[number % 2], parquet(SCHEMA, batch)) for number, batch in enumerate(made)])
    reports += stream.close_windows(PLACINGS[0])
    kept = [report.state_rows for report in reports if report.state_rows is not None]  # unknown as a run begins
    assert kept[-1] == sum(rows_in_store(spark, stream, stage) for stage in range(STAGES))
    assert kept[-1] <= 2 * 3 * STAGES < len(made[0]) < max(kept), kept
