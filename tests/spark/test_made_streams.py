"""Small tables with everything odd in them, as streams: the answer is DuckDB's, whatever the plans were."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from millrace_jobs.partitioners.registry import ALGORITHMS
from millrace_jobs.sinks.files.sink import BATCH_ID

from .answers import assert_same, duckdb_rows, expected_rows, latest, rows_of, with_zones
from .questions import Estimate, Hop, Question, decimal_average
from .streams import FOREVER, Placing, Stream
from .tables import parquet, table_of

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SCHEMA = pa.schema(
    [
        ("moment", pa.timestamp("us")),
        ("name", pa.string()),
        ("kind", pa.string()),
        ("size", pa.int64()),
        ("amount", pa.float64()),
        ("price", pa.decimal128(9, 2)),
    ]
)
COLUMNS = "moment TIMESTAMP, name STRING, kind STRING, size BIGINT, amount DOUBLE, price DECIMAL(9,2)"
Row = tuple[Any, ...]
Batches = Sequence[tuple[Placing, Sequence[Row]]]

START = datetime(2020, 2, 29, 23, 59, 30)
NAN, INF = float("nan"), float("inf")

AMOUNTS = st.sampled_from([None, NAN, -0.0, 0.0, 0.5, -3.25, INF]) | st.integers(-1000, 1000).map(lambda k: k / 8)
TIMES = st.sampled_from([0, 1, 9_999_999, 10_000_000, 60_000_000]) | st.integers(0, 300_000_000)
ROWS = st.tuples(
    st.none() | TIMES.map(lambda us: START + timedelta(microseconds=us)),
    st.sampled_from([None, "", "a", "A", " a", "é", "e\u0301", "日本", "\U0001f600", "ß"]) | st.text(max_size=3),
    st.sampled_from([None, "", "x", "X", "why"]),
    st.none() | st.integers(-3, 3) | st.integers(-(2**40), 2**40),
    AMOUNTS,
    st.none() | st.integers(0, 999_999_999).map(lambda cents: Decimal(cents) / 100),
)
PLACINGS = st.tuples(st.sampled_from(ALGORITHMS), st.sampled_from([1, 2, 7, 16]), st.sampled_from([1, 3]))


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    """A table of 20 to 60 rows with repetitions, cut at random places into four files, some of them empty."""
    rows = draw(st.lists(ROWS, min_size=20, max_size=40))
    rows += draw(st.lists(st.sampled_from(rows), max_size=20))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), min_size=3, max_size=3)))
    pieces = [rows[low:high] for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    return [(draw(PLACINGS), piece) for piece in pieces]


ODD: Batches = [
    (("pkg", 7, 3), [(None, None, None, None, None, None)] * 4),
    (
        ("shuffle", 16, 3),
        [
            (START, "", "x", 1, -0.0, Decimal("0.01")),
            (START, None, "X", -1, 0.0, Decimal("0.02")),
            (START + timedelta(seconds=60), "é", None, None, NAN, None),
            (START - timedelta(seconds=90), "e\u0301", "why", 2**40, NAN, Decimal("9999999.99")),
            (START, "", "x", 1, -0.0, Decimal("0.01")),
            (START + timedelta(microseconds=1), "a", "x", 3, None, Decimal("5.00")),
        ],
    ),
    (("native", 2, 1), [(START + timedelta(seconds=30), "only filtered out", "x", None, -5.0, None)] * 3),
    (
        ("hash", 2, 1),
        [
            (START, "a", "", -3, INF, Decimal("0.05")),
            (START, "a", "", 3, -INF, Decimal("0.06")),
            (START + timedelta(seconds=59, microseconds=999_999), "日本", "x", 0, 2.125, Decimal("1.00")),
        ],
    ),
]

VALUES = {
    "all_rows": "count(*)",
    "sizes": "count(size)",
    "total": "sum(size)",
    "least": "min(amount)",
    "most": "max(amount)",
    "amounts": "sum(amount)",
    "mean": "avg(amount) FILTER (WHERE size > 0)",
    "prices": "sum(price)",
    "price": decimal_average("price", 2),
    "first": "min(moment)",
    "last": "max(moment)",
    "low": "min(name)",
    "high": "max(name)",
    "deviation": "stddev(amount) FILTER (WHERE amount BETWEEN -125 AND 125)",
    "different": Estimate("size"),
}

WINDOWED = Question(keys={"name": "name"}, values=VALUES, window=Hop("moment", size=60, slide=25, start=10))
KEYED = Question(
    keys={"amount": "amount", "kind": "upper(kind)"}, values=VALUES, where="name IS NULL OR length(name) < 3"
)
ROUTED_WITHOUT_KEY = {name: value for name, value in VALUES.items() if name != "deviation"}
GLOBAL = Question(values=ROUTED_WITHOUT_KEY, where="amount > -4 AND size IS NOT NULL")

STREAMS = settings(
    max_examples=3,
    phases=[Phase.explicit, Phase.generate],  # an example takes seconds: as it was found is small enough
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def fed(spark: SparkSession, folder: Any, batches: Batches, **query: Any) -> Stream:
    """A stream that has got all batches."""
    stream = Stream(spark, folder, schema=COLUMNS, watermark=("moment", FOREVER), **query)
    reports = stream.feed([(placing, parquet(SCHEMA, rows)) for placing, rows in batches])
    assert [report.rows for report in reports if report.rows] == [len(rows) for _, rows in batches if rows]
    return stream


def whole(batches: Batches) -> pa.Table:
    """All rows in one table."""
    return table_of(SCHEMA, [row for _, rows in batches for row in rows])


@STREAMS
@given(batches())
@example(ODD)
def test_a_hopping_window_has_the_rows_of_duckdb_when_it_closes(spark, tmp_path_factory, batches):
    stream = fed(spark, tmp_path_factory.mktemp("s"), batches, sql=WINDOWED.spark, emit="OnWindowClose")
    stream.close_windows(("native", 1, 1))
    assert_same(rows_of(stream.results()), expected_rows(spark, whole(batches), WINDOWED), WINDOWED.key_columns)


@STREAMS
@given(batches())
@example(ODD)
def test_doubles_and_upper_case_can_be_keys(spark, tmp_path_factory, batches):
    stream = fed(spark, tmp_path_factory.mktemp("s"), batches, sql=KEYED.spark)
    expected = expected_rows(spark, whole(batches), KEYED)
    assert_same(latest(stream.results(), KEYED.key_columns), expected, KEYED.key_columns)


@STREAMS
@given(batches())
@example(ODD)
def test_a_query_without_key_and_window_has_one_group(spark, tmp_path_factory, batches):
    stream = fed(spark, tmp_path_factory.mktemp("s"), batches, sql=GLOBAL.spark)
    assert_same(latest(stream.results(), 0), expected_rows(spark, whole(batches), GLOBAL), 0)


@STREAMS
@given(batches())
@example(ODD)
def test_a_python_aggregator_sees_the_records_of_each_window(spark, tmp_path_factory, batches):
    python = {
        "aggregator": "spark.aggregators:Spread",
        "options": {"column": "size"},
        "groupBy": ["amount", "name"],
        "window": {"column": "moment", "size": "60s", "slide": "25s"},
    }
    stream = fed(spark, tmp_path_factory.mktemp("s"), batches, python=python)
    question = Question(
        keys={"amount": "amount", "name": "name"},
        values={"spread": "max(size) - min(size)", "seen": "count(size)"},
        window=Hop("moment", size=60, slide=25),
    )
    assert_same(latest(stream.results(), 4), duckdb_rows(whole(batches), question.duckdb), 4)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT upper(kind) AS kind, count(*) AS n FROM events GROUP BY kind",  # the column, not its alias
        "SELECT upper(kind) AS kinds, count(*) AS n FROM events GROUP BY kinds",
        "SELECT size, KIND, count(*) AS n, sum(Size) FROM events GROUP BY Kind, SIZE",
        "SELECT count(*) + 1 AS kind, upper(name) FROM events GROUP BY 2",
    ],
)
def test_names_in_sql_mean_what_spark_says(spark, tmp_path, sql):
    rows = [row for _, batch in ODD for row in batch]
    stream = fed(spark, tmp_path, [(("hash", 2, 1), rows)], sql=sql)
    spark.createDataFrame(with_zones(table_of(SCHEMA, rows))).createOrReplaceTempView("events")
    results = stream.results()
    actual = rows_of(results.drop_columns(BATCH_ID))
    assert sorted(actual, key=repr) == sorted(rows_of(spark.sql(sql).toArrow()), key=repr)
