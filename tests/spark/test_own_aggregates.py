"""Aggregators that SQL calls give DuckDB's results beside Spark's own aggregates, under plans that change."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from .answers import assert_same, duckdb_rows, latest, rows_of
from .cli import Project
from .die_between_sinks import die_between_sinks
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


def test_a_keyed_table_loses_rows_that_having_no_longer_admits_and_final_rows_agree_after_a_crash(tmp_path):
    project = Project(tmp_path)
    for number, records in enumerate(("1Z,a,1 2Z,a,4 3Z,b,5", "4Z,c,7", "5Z,a,2", "6Z,b,9")):
        lines = [f"2024-01-01T00:00:0{record}\n" for record in records.split()]
        project.give(f"{number}.csv", "".join(["at,who,n\n", *lines]))
    file = project.query(
        query={
            "aggregates": {"spread": {"python": "spark.aggregators:Spread", "options": {"column": "n"}}},
            "sql": "SELECT window.start AS since, who, spread(n).seen AS seen, spread(n).spread AS spread FROM events "
            "GROUP BY window(at, '1 minute'), who HAVING spread(n).seen < 3",
        },
        source={"files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1}},
        sink={"delta": {"path": str(tmp_path / "table"), "key": ["since", "who"]}},
        additionalOutputs={
            name: {"emit": emit, "sink": {"files": {"path": name, "format": "csv"}}}
            for name, emit in (("final", "OnWindowClose"), ("all", "OnUpdate"))
        },
    )
    die_between_sinks(tmp_path, file, 2)
    again = project.millrace("run", file, "--once")
    assert (again.status, again.err) == (0, "")
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().select(["who", "seen", "spread"]).to_pylist()
    kept = [("b", 2, 4), ("c", 1, 0)]
    assert sorted(tuple(row.values()) for row in rows) == kept
    final = [row[1:4] for row in project.results("final").elements()]
    assert sorted(final) == [tuple(map(str, row)) for row in kept]
