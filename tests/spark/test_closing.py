"""The last windows of an input, where the process dies between the batch that closes them and the one that has them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from millrace_jobs.checkpoint.checkpoint import checkpoint_root
from millrace_jobs.checkpoint.spark_folder import SparkLog

from .answers import assert_same, duckdb_rows, rows_of
from .questions import Hop, Question
from .streams import Placing, Stream
from .tables import parquet, table_of

pytestmark = pytest.mark.spark

START = datetime(2024, 5, 1, 12)
SCHEMA = pa.schema([("moment", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
QUESTION = Question(
    keys={"key": "key"},
    values={"records": "count(*)", "total": "sum(value)"},
    window=Hop("moment", size=60, slide=25),
)
BATCHES = [
    [(START + timedelta(seconds=40 * batch + n), f"key {n % 3}", n) for n in range(0, 30, 2)] for batch in range(2)
]


def take_back_last_batch(stream: Stream, folder: Path) -> None:
    """Leave what there is when the process dies right after the commit of the batch before it."""
    spark = checkpoint_root(stream.query) / "spark"
    last = max(int(file.name) for file in (spark / "commits").glob("[0-9]*"))
    for log in ("commits", "offsets"):
        (spark / log / str(last)).unlink()
        (spark / log / f".{last}.crc").unlink()
    written = list((folder / "results").glob(f"batch-{last:010d}-*"))
    assert written, "the last batch had no results"
    for file in written:
        file.unlink()


def watermark(stream: Stream) -> int:
    return SparkLog(checkpoint_root(stream.query) / "spark").watermark_ms()


@pytest.mark.in_turn
@pytest.mark.parametrize("placing", [("pkg", 2, 2), ("native", 2, 2)])
def test_windows_that_a_dead_process_closed_and_did_not_write_are_written(spark, tmp_path, placing: Placing):
    stream = Stream(
        spark,
        tmp_path,
        schema="moment TIMESTAMP, key STRING, value BIGINT",
        sql=QUESTION.spark,
        watermark=("moment", "30s"),
        emit="OnWindowClose",
    )
    stream.feed([(placing, parquet(SCHEMA, batch)) for batch in BATCHES])
    stream.close_windows(placing)
    expected = rows_of(stream.results())
    whole = table_of(SCHEMA, [record for batch in BATCHES for record in batch])
    assert_same(expected, duckdb_rows(whole, QUESTION.duckdb), QUESTION.key_columns)

    take_back_last_batch(stream, tmp_path)
    assert len(rows_of(stream.results())) < len(expected)
    closed = watermark(stream)
    assert stream.close_windows(placing)
    assert_same(rows_of(stream.results()), expected, QUESTION.key_columns)
    assert watermark(stream) == closed + 1  # no later record is late for that

    assert stream.close_windows(placing) == []  # nothing is new, and nothing moves
    assert watermark(stream) == closed + 1
