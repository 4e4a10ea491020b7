"""Results that the driver fetches: all at once while they are few, and in parts, of which none is missing, when not."""

from __future__ import annotations

from contextlib import nullcontext

import pyarrow as pa
import pytest

from millrace_jobs.sinks.kafka import fetching
from millrace_jobs.sinks.kafka.fetching import PARTS, ResultFetcher

pytestmark = pytest.mark.spark

NAMES = "concat('k', id) AS key"


def fetched(fetcher, results):
    """The tables of some results, and all rows of these."""
    with fetcher.fetched(results) as tables:
        found = list(tables)
    rows = sorted(zip(*pa.concat_tables(found).select(["key", "value"]).to_pydict().values(), strict=True))
    return len(found), rows


def divided(results):
    return results.repartition(PARTS, "key")


@pytest.mark.parametrize(("rows", "at_once"), [(0, True), (10, True), (11, False), (40, False)])
@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_above_the_limit_come_in_parts(spark, monkeypatch, rows, at_once, partitions):
    monkeypatch.setattr(fetching, "MOST_ROWS", 10)
    results = spark.range(0, rows, 1, partitions).selectExpr(NAMES, "CAST(id AS STRING) AS value")
    tables, found = fetched(ResultFetcher(divided), results)
    assert found == sorted((f"k{n}", str(n)) for n in range(rows))
    assert (tables == 1) == at_once


@pytest.mark.parametrize(
    ("lengths", "at_once"),
    [([100] * 10, True), ([100] * 11, False), ([400, 1, 1], True), ([1, 1, 400], False), ([1_001], False), ([None] * 3, True)],
)  # fmt: skip
def test_values_above_the_limit_come_in_parts(spark, monkeypatch, lengths, at_once):
    """A value counts as often as there are rows up to it; Spark's own limit is larger here."""
    monkeypatch.setattr(fetching, "MOST_AT_ONCE", 1_000)
    monkeypatch.setattr(fetching, "_limit", lambda *_: nullcontext())
    given = [(f"k{n}", None if length is None else "x" * length) for n, length in enumerate(lengths)]
    results = spark.createDataFrame(given, "key STRING, value STRING").coalesce(1)
    tables, found = fetched(ResultFetcher(divided), results)
    assert sorted(found, key=str) == sorted(given, key=str)
    assert (tables == 1) == (at_once or len(given) == 1)


def test_structs_are_limited_by_their_number(spark, monkeypatch):
    monkeypatch.setattr(fetching, "MOST_ROWS", 10)
    results = spark.range(0, 25, 1, 2).selectExpr(NAMES, "struct(id, map('a', id) AS m) AS value")
    for fetcher in (ResultFetcher(), ResultFetcher(divided)):
        with fetcher.fetched(results) as tables:
            found = [row["value"]["id"] for table in tables for row in table.to_pylist()]
        assert sorted(found) == list(range(25))


def test_after_few_results_many_still_come_in_parts_and_then_all_at_once_again(spark, monkeypatch):
    monkeypatch.setattr(fetching, "MOST_ROWS", 10)
    monkeypatch.setattr(fetching, "SURELY_FEW", 5)
    fetcher, parts = ResultFetcher(divided, jumps=False), []
    for rows in (5, 0, 11, 11, 1, 1):
        results = spark.range(0, rows, 1, 2).selectExpr(NAMES, "CAST(id AS STRING) AS value")
        tables, found = fetched(fetcher, results)
        assert found == sorted((f"k{n}", str(n)) for n in range(rows))
        parts.append(tables > 1)
    assert parts == [False, False, True, True, False, False]
