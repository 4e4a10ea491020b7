"""Batches that are said to have no results have none, whatever plan they run under, and the others have all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from millrace_jobs.run.loop import RunLoop

from .answers import assert_same, duckdb_rows, rows_of
from .questions import Hop, Question
from .streams import Placing, Stream
from .tables import parquet, table_of

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("moment", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
COLUMNS = "moment TIMESTAMP, key STRING, value BIGINT"
START = datetime(2024, 5, 1, 12)
VALUES = {"records": "count(*)", "total": "sum(value)"}
QUESTIONS = {
    "groups": Question(keys={"key": "key"}, values=VALUES, window=Hop("moment", size=20, slide=20)),
    "moments": Question(keys={"moment": "moment"}, values=VALUES, window=Hop("moment", size=20, slide=20)),
    "windows alone": Question(keys={}, values=VALUES, window=Hop("moment", size=25, slide=20)),
}
RECORDS = [[(START + timedelta(seconds=6 * batch + n), f"key {n % 3}", n) for n in range(10)] for batch in range(8)]


@pytest.fixture
def batches(monkeypatch) -> Iterator[list[tuple[bool, int]]]:
    """Whether each batch may have results, and how many it has."""
    found = []
    write = RunLoop._write

    def watched(run, results, number):
        sink, given = run.query.sink, []
        monkeypatch.setattr(
            sink, "write", lambda rows, batch: given.append(batch) or type(sink).write(sink, rows, batch)
        )
        before = run.results
        write(run, results, number)
        found.append((given[0].may_have_results, run.results - before))

    monkeypatch.setattr(RunLoop, "_write", watched)
    return found


ROUTED, NATIVE = ("pkg", 2, 2), ("native", 2, 2)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("asked", "placings"),
    [
        ("groups", [ROUTED, NATIVE]),
        ("moments", [ROUTED, NATIVE]),
        ("windows alone", [ROUTED]),
        ("windows alone", [NATIVE]),
    ],
)
def test_results_come_only_in_batches_that_close_windows(spark, tmp_path, batches, asked: str, placings: list[Placing]):
    question = QUESTIONS[asked]
    stream = Stream(
        spark, tmp_path, schema=COLUMNS, sql=question.spark, watermark=("moment", "5s"), emit="OnWindowClose"
    )
    shuffled = [random.Random(batch).sample(records, len(records)) for batch, records in enumerate(RECORDS)]
    files = [
        (placings[n * len(placings) // len(RECORDS)], parquet(SCHEMA, records)) for n, records in enumerate(shuffled)
    ]
    stream.feed(files[:5])
    stream.feed(files[5:])
    stream.close_windows(placings[0])
    whole = table_of(SCHEMA, [record for records in RECORDS for record in records])
    assert_same(rows_of(stream.results()), duckdb_rows(whole, question.duckdb), question.key_columns)
    assert {rows for may_have_results, rows in batches if not may_have_results} == {0}
    assert sum(not may_have_results for may_have_results, _ in batches) >= 3
    assert sum(rows > 0 for _, rows in batches) >= 3
