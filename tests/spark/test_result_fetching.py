"""Results that the driver fetches: all at once while they are few, and in parts, of which none is missing, when not."""

from __future__ import annotations

from contextlib import nullcontext

import pyarrow as pa
import pytest

from millrace_jobs.changes import WEIGHT
from millrace_jobs.sinks import fetching
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sinks.fetching import PARTS, ResultFetcher, _limited
from millrace_jobs.sinks.kafka import table_results
from millrace_jobs.sinks.kafka.table_results import TableResults

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


@pytest.mark.parametrize(
    ("lengths", "at_once"),
    [([100] * 7, True), ([100] * 11, False), ([400, 1, 1], True), ([1, 1, 400], False), ([1_001], False), ([None] * 3, True)],
)  # fmt: skip
def test_structs_above_the_limit_come_in_parts(spark, monkeypatch, lengths, at_once):
    """A struct has the bytes of its JSON, which are 41 more than those of its text here."""
    monkeypatch.setattr(fetching, "MOST_AT_ONCE", 1_000)
    monkeypatch.setattr(fetching, "_limit", lambda *_: nullcontext())
    texts = [(n, None if length is None else "x" * length) for n, length in enumerate(lengths)]
    rows = spark.createDataFrame(texts, "n INT, text STRING").coalesce(1)
    results = rows.selectExpr("concat('k', n) AS key", "struct(n, text, map('a', array(1.5D, NULL)) AS more) AS value")
    computed = []
    with ResultFetcher(lambda results: computed.append(results) or divided(results)).fetched(results) as tables:
        found = [row["value"] for table in tables for row in table.to_pylist()]
    assert sorted((row["n"], row["text"]) for row in found) == texts
    assert {str(row["more"]) for row in found} == {"[('a', [1.5, None])]"}
    assert bool(computed) != at_once


def test_tasks_hold_no_more_of_large_structs_than_the_limit(spark, monkeypatch):
    monkeypatch.setattr(fetching, "MOST_AT_ONCE", 100_000)
    large = "struct(id, struct(repeat('x', 5000) AS text, transform(sequence(1, 500), n -> 1 / n) AS list) AS deep)"
    results = spark.range(0, 400, 1, 2).selectExpr(NAMES, f"{large} AS value")
    assert results.toArrow().nbytes > 3_000_000
    assert _limited(results).toArrow().nbytes < 2 * 100_000, "of two tasks"
    with ResultFetcher(divided).fetched(results) as tables:
        found = [row["value"] for table in tables for row in table.to_pylist()]
    assert sorted(row["id"] for row in found) == list(range(400))
    assert {(len(row["deep"]["text"]), len(row["deep"]["list"])) for row in found} == {(5_000, 500)}


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


def test_a_batch_without_results_is_no_sign_of_what_the_next_has(spark, monkeypatch):
    """Where windows close, many have no results between two that have many, each of which is computed once."""
    monkeypatch.setattr(fetching, "MOST_ROWS", 10)
    fetcher, limited = ResultFetcher(divided), []
    at_once = fetching._at_once
    monkeypatch.setattr(
        fetching, "_at_once", lambda *args, **how: limited.append(how["limited"]) or at_once(*args, **how)
    )
    for rows, may_be_any in ((0, False), (40, True), (0, False), (0, False), (40, True), (3, False)):
        results = spark.range(0, rows, 1, 2).selectExpr(NAMES, "CAST(id AS STRING) AS value")
        with fetcher.fetched(results, may_be_any=may_be_any) as tables:
            assert sum(table.num_rows for table in tables) == rows, "even if there are some against all certainty"
    assert limited == [False, True, False, False, False]


@pytest.mark.parametrize("division", [divided, TableResults(ResultKeys(("k",), weighted=True)).divided])
def test_a_batch_without_results_may_follow_a_large_one(spark, monkeypatch, division):
    monkeypatch.setattr(fetching, "MOST_ROWS", 10)
    fetcher, tables = ResultFetcher(division), []
    for rows in (40, 0, 3):
        results = spark.range(0, rows, 1, 2).selectExpr(NAMES, "'a' AS value", "9L AS end", f"1L AS {WEIGHT}")
        with fetcher.fetched(results.repartition(2)) as found:
            counts = [table.num_rows for table in found]
        assert sum(counts) == rows
        tables.append(len(counts))
    assert tables[0] > 1
    assert tables[1:] == [0, 1]


def test_after_a_large_batch_whose_changes_cancel_out_the_next_is_computed_once(spark, monkeypatch):
    """Each batch has two changes of each of its keys but the last three, which tasks leave out of large ones."""
    monkeypatch.setattr(fetching, "MOST_ROWS", 100)
    monkeypatch.setattr(table_results, "PARTS", 4)  # each takes a Python task
    read = spark.sparkContext.accumulator(0)

    def counting(batches):
        for batch in batches:
            read.add(batch.num_rows)
            yield batch

    table = TableResults(ResultKeys(("k",), weighted=True))
    fetcher, runs = ResultFetcher(table.divided), []
    for keys in (300, 300, 9, 9):
        weights = f"explode(IF(id < {keys - 3}, array(1L, -1L), array(1L))) AS {WEIGHT}"
        changes = spark.range(0, keys, 1, 2).selectExpr(NAMES, "CAST(id AS STRING) AS value", "9L AS end", weights)
        results = changes.mapInArrow(counting, changes.schema)
        before = read.value
        with fetcher.fetched(results) as tables:
            found = [row for each in tables for row in table.part_of(each).rows.to_pylist()]
        assert sorted(row["value"] for row in found) == sorted(str(keys - n) for n in (1, 2, 3))
        runs.append((read.value - before) / (2 * keys - 3))
    assert runs == [2, 1, 1, 1]


@pytest.mark.parametrize("value", ["repeat('x', length)", "named_struct('text', repeat('x', length))"])
def test_after_a_batch_with_one_large_value_the_next_is_computed_once(spark, monkeypatch, value):
    """A value that is too large where it comes, among others that are few and small."""
    monkeypatch.setattr(fetching, "MOST_AT_ONCE", 10_000)
    monkeypatch.setattr(fetching, "_limit", lambda *_: nullcontext())
    runs = spark.sparkContext.accumulator(0)

    def counting(batches):
        runs.add(1)
        yield from batches

    lengths = spark.range(0, 30, 1, 1).selectExpr("id", "int(if(id = 29, 500, 1)) AS length")
    results = lengths.mapInArrow(counting, lengths.schema).selectExpr(NAMES, f"{value} AS value")
    fetcher = ResultFetcher(divided)
    computations = []
    for _ in range(4):
        before = runs.value
        with fetcher.fetched(results) as tables:
            assert sum(table.num_rows for table in tables) == 30
        computations.append(runs.value - before)
    assert computations == [2, 1, 1, 1]
