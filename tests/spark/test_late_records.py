"""Records behind the watermark: what is dropped and counted is what the definition says, batch by batch.

A batch runs under the watermark that the batches before it left: their latest event time, of all records that were
read, less the delay. A record is dropped for the windows that had ended by the watermark of the batch before its own.
"""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from .answers import assert_same, duckdb_rows, latest, rows_of
from .disorder import COLUMNS, DELAY, HOPS, SCHEMA, START, VALUES, Record, disordered
from .late_records import Model
from .questions import Hop, Question
from .streams import Placing, Stream
from .tables import parquet

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]


PLACINGS: dict[str, list[Placing]] = {
    "native": [("native", 2, m) for m in (1, 3, 2, 1, 3, 1)],
    "shuffle": [("shuffle", n, m) for n, m in ((7, 3), (1, 1), (16, 3), (2, 1), (7, 1), (2, 3))],
    "pkg": [("pkg", n, m) for n, m in ((2, 1), (16, 3), (1, 3), (7, 1), (2, 3), (7, 3))],
}


@pytest.mark.parametrize("algorithm", PLACINGS)
@pytest.mark.parametrize("shape", HOPS)
def test_late_records_are_dropped_and_counted(spark, tmp_path, shape, algorithm):
    hop, emit = HOPS[shape], "OnWindowClose" if shape == "hopping" else "OnUpdate"
    question = Question(keys={"key": "key"}, values=VALUES, window=hop)
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=question.spark, watermark=("moment", "30s"), emit=emit)
    batches = disordered(seed=len(shape))
    reports = stream.feed(
        [(placing, parquet(SCHEMA, batch)) for placing, batch in zip(PLACINGS[algorithm], batches, strict=True)]
    )
    model = Model(hop, reports, batches)
    assert [report.watermark and report.watermark.replace(tzinfo=None) for report in reports] == model.watermarks
    assert sum(model.late) > 20
    if algorithm != "native":
        assert [report.late for report in reports if report.rows] == model.late
    if emit == "OnWindowClose":
        stream.close_windows((algorithm, 2, 2))
        actual = rows_of(stream.results())
    else:
        actual = latest(stream.results(), 3)
    end = f"make_timestamp(window_start + {hop.size * 1_000_000})"
    expected = duckdb_rows(
        model.table(),
        f"SELECT make_timestamp(window_start), {end}, key, count(*), sum(value), max(moment) FROM events GROUP BY ALL",
    )
    assert_same(actual, expected, 3)


@pytest.mark.parametrize("algorithm", ["native", "shuffle"])
@pytest.mark.parametrize("where", ["value < 5", "length(key) = 1"], ids=["by_arrow", "by_spark"])
def test_records_that_the_filter_leaves_out_move_the_watermark(spark, tmp_path, where, algorithm):
    """Else a stream of rare events would never close a window."""
    question = Question(keys={"key": "key"}, values={"records": "count(*)"}, window=Hop("moment", 20, 20), where=where)
    stream = Stream(
        spark, tmp_path, schema=COLUMNS, sql=question.spark, watermark=("moment", "30s"), emit="OnWindowClose"
    )
    batches: list[list[Record]] = [
        [(START, "a", 1), (START, "b", 2)],
        [(START + timedelta(minutes=5), "left out", 7)],
        [(START + timedelta(seconds=1), "a", 1)],
    ]
    reports = stream.feed([((algorithm, 2, 2), parquet(SCHEMA, batch)) for batch in batches])
    assert reports[-1].watermark is not None
    assert reports[-1].watermark.replace(tzinfo=None) == START + timedelta(minutes=5) - DELAY
    assert sorted(row[2:] for row in rows_of(stream.results())) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("algorithm", ["native", "shuffle"])
def test_no_record_is_late_for_a_window_over_another_column_than_the_watermark(spark, tmp_path, algorithm):
    """The watermark says nothing about that column, so nothing is late by it."""
    schema = pa.schema([("moment", pa.timestamp("us")), ("other", pa.timestamp("us"))])
    question = Question(values={"records": "count(*)"}, window=Hop("other", 60, 60))
    stream = Stream(
        spark, tmp_path, schema="moment TIMESTAMP, other TIMESTAMP", sql=question.spark, watermark=("moment", "30s")
    )
    hour = timedelta(hours=1)
    batches = [[(START, START + hour)], [(START + hour, START)], [(START + 2 * hour, START)]]
    stream.feed([((algorithm, 2, 1), parquet(schema, batch)) for batch in batches])
    assert sorted(row[2] for row in latest(stream.results(), 2)) == [1, 2]
