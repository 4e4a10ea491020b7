"""Aggregators that SQL calls give DuckDB's results beside Spark's own aggregates, under plans that change."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pytest

from .answers import assert_same, duckdb_rows, latest, rows_of
from .disorder import COLUMNS, HOPS, SCHEMA, disordered
from .questions import Both, Question
from .streams import Stream, assert_placed
from .tables import parquet

pytestmark = pytest.mark.spark

MIXED = [("pkg", 7, 3), ("native", 2, 2), ("shuffle", 1, 1), ("hash", 16, 3), ("native", 1, 1), ("am", 2, 2)]
"""Plans that change in mid-stream; ``native`` has each replica combine its own slice."""

AGGREGATES = {
    "spread": {"python": "spark.aggregators:Spread", "options": {"column": "value"}},
    "top_keys": {"builtin": "TopK", "options": {"k": 2}},
    "counts": {"builtin": "Histogram", "options": {"edges": [3, 6]}},
}
CALLS = {
    "records": "count(*)",
    "mean": "avg(value)",
    "spread": Both("spread(value).spread", "max(value) - min(value)"),
    "twice": Both("Spread(value * 2).seen + 1", "count(value) + 1"),
    "low": Both("counts(double(value))[0]", "count(*) FILTER (WHERE value < 3)"),
    "top": Both(
        "transform(top_keys(key), each -> concat(each.value, ' ', each.count))",
        "(SELECT list(key || ' ' || n ORDER BY n DESC, key)[:2] FROM "
        "(SELECT key, count(*) AS n FROM events WHERE value <> 4 GROUP BY key))",
    ),
}
BY_KEY = {name: CALLS[name] for name in ("records", "mean", "spread", "twice", "low")}
QUESTIONS = {
    "hopping": Question(keys={"key": "key"}, values=BY_KEY, window=HOPS["hopping"], having="spread(value).seen > 1"),
    "one group": Question(values=BY_KEY | {"top": CALLS["top"]}, where="value <> 4"),
    # Arrow lacks reverse, so Spark projects the records
    "projected by Spark": Question(keys={"k": "reverse(key)"}, values=BY_KEY),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_plan_gives_what_duckdb_gives(spark, tmp_path, name):
    question = QUESTIONS[name]
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=question.spark, aggregates=AGGREGATES)
    batches = disordered(seed=1)
    reports = stream.feed([(placing, parquet(SCHEMA, batch)) for placing, batch in zip(MIXED, batches, strict=True)])
    assert_placed(reports, MIXED)
    events = pa.table(list(zip(*chain(*batches), strict=True)), schema=SCHEMA)
    expected = duckdb_rows(events, question.duckdb.replace("spread(value).seen", "count(value)"))
    assert_same(latest(stream.results(), question.key_columns), expected, question.key_columns)


@pytest.mark.parametrize("emit", ["OnWindowClose", "OnWindowEnd"])
def test_windows_are_emitted_when_they_end_and_when_they_close(spark, tmp_path, emit):
    question = Question(keys={"key": "key"}, values=BY_KEY, window=HOPS["tumbling"])
    stream = Stream(
        spark,
        tmp_path,
        schema=COLUMNS,
        sql=question.spark,
        aggregates=AGGREGATES,
        emit=emit,
        watermark=("moment", "5m"),
    )
    batches = disordered(seed=2)
    stream.feed([(placing, parquet(SCHEMA, batch)) for placing, batch in zip(MIXED, batches, strict=True)])
    stream.close_windows(("pkg", 2, 2))
    events = pa.table(list(zip(*chain(*batches), strict=True)), schema=SCHEMA)
    results = stream.results()
    # a window that closes is emitted once, and so without the number of the batch
    rows = rows_of(results) if emit == "OnWindowClose" else latest(results, 3)
    assert_same(rows, duckdb_rows(events, question.duckdb), 3)
