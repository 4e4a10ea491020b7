"""Rows in a Delta table: values of every type, partitions, upserts by key, and attempts of tasks that do not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from millrace_api.errors import MillraceError
from millrace_jobs.changes import WEIGHT
from millrace_jobs.run.failures import explain_failure
from millrace_jobs.sinks.base import ADMITTED, LastBatch, ResultKeys
from millrace_jobs.sinks.lakehouse.delta_sink import DeltaSink

from .tables import FRESH, asked, content, delta_sink, delta_table, write
from .values import ROWS, TYPES, FailsAt, array, plain

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]


@pytest.mark.parametrize("key", [[], ["number"]], ids=["appended", "upserted"])
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(rows=ROWS)
def test_values_of_every_type_come_to_delta_unchanged(
    spark: SparkSession, tmp_path_factory, key: list[str], rows
) -> None:
    place = str(tmp_path_factory.mktemp("values") / "table")
    columns = {name: array(kind, [row[at] for row in rows]) for at, (name, (kind, _)) in enumerate(TYPES.items())}
    numbered = pa.table({"number": pa.array(range(len(rows)), pa.int32()), **columns})
    results = spark.createDataFrame(numbered)
    results = results.withColumn("a_timestamp_ntz", results["a_timestamp_ntz"].cast("timestamp_ntz"))
    sink = delta_sink(place, results, key)
    sink.prepare(FRESH)
    assert write(sink, results, 0) == len(rows)
    found = content(place).sort_by("number")
    for name in numbered.column_names:
        assert plain(found[name]) == plain(numbered[name]), name


def test_the_last_millisecond_of_the_calendar_has_no_bound_and_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    results = spark.sql("SELECT id, TIMESTAMP '9999-12-31 23:59:59.999001' AS at FROM range(2)")
    sink = delta_sink(place, results)
    sink.prepare(FRESH)
    assert write(sink, results.coalesce(1), 0) == 2
    table = delta_table(place)
    (bounds,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (bounds["max.id"], bounds.get("max.at")) == (1, None)
    assert pa.table(table.scan(predicate="at > TIMESTAMP '2200-01-01T00:00:00Z'").read_all()).num_rows == 2


def test_bounds_of_files_keep_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A reader that skips files by their statistics finds the rows at the very bounds."""
    place = str(tmp_path / "table")
    results = spark.sql(
        "SELECT id, CAST(id AS DOUBLE) / 0.0D AS x, repeat('z', 70) AS long, "
        "TIMESTAMP '2024-01-01 00:00:00.000999' + make_interval(0, 0, 0, id) AS at, "
        "CAST(id AS DECIMAL(20, 3)) / 1000 AS price FROM range(4)"
    ).withColumn("x", F.when(F.col("id") == 3, F.lit(float("nan"))).otherwise(F.col("id").cast("double")))
    sink = delta_sink(place, results)
    sink.prepare(FRESH)
    write(sink, results.coalesce(1), 0)
    table = delta_table(place)
    for condition, expected in {
        "id >= 3": 1,
        "at >= TIMESTAMP '2024-01-04T00:00:00.000999Z'": 1,
        "at <= TIMESTAMP '2024-01-01T00:00:00.000999Z'": 1,
        "at > TIMESTAMP '2024-01-04T00:00:00.000999Z'": 0,
        "price >= 0.003": 1,
        "long > 'a'": 4,
    }.items():
        assert pa.table(table.scan(predicate=condition).read_all()).num_rows == expected, condition
    (bounds,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert bounds["max.id"] == 3
    assert bounds["max.x"] is None, "NaN is larger than the largest number"


def test_a_table_is_partitioned_and_its_files_are_sorted(spark: SparkSession, place: str) -> None:
    results = spark.range(0, 40_000, 1, 3).selectExpr(
        "date_add(DATE '2024-01-01', CAST(id % 3 AS INT)) AS day",
        "CASE WHEN id % 5 < 4 THEN concat('k=/%', id % 5) END AS kind",
        "40000 - id AS n",
    )
    sink = delta_sink(place, results, partitionBy=["day", "kind"], sortBy=["n"])
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 40_000
    assert asked(place, "SELECT count(*), count(DISTINCT n), count(DISTINCT day), count(kind) FROM results") == [
        (40_000, 40_000, 3, 32_000)
    ]
    table = delta_table(place)
    assert table.metadata().partition_columns == ["day", "kind"]
    assert len(table.file_uris()) == 3 * 5 * 3
    if not place.startswith("s3"):
        found = pa.table(table.scan(predicate="day = DATE '2024-01-02' AND kind = 'k=/%3'").read_all())
        expected = sorted(40_000 - id for id in range(40_000) if id % 3 == 1 and id % 5 == 3)
        assert sorted(found["n"].to_pylist()) == expected
        for name in pa.table(table.get_add_actions(flatten=True))["path"].to_pylist():
            values = pq.read_table(Path(place) / name)["n"].to_pylist()
            assert values == sorted(values)


def counts(spark: SparkSession, *rows: tuple[Any, ...], columns: str = "k STRING, n BIGINT") -> DataFrame:
    return spark.createDataFrame(list(rows), columns)


def prepared(place: str, results: DataFrame, key: list[str], **more: Any) -> DeltaSink:
    sink = delta_sink(place, results, key, **more)
    sink.prepare(FRESH)
    return sink


ALL = "SELECT * FROM results ORDER BY ALL"


def test_a_result_replaces_the_row_with_its_key(spark: SparkSession, place: str) -> None:
    sink = prepared(place, counts(spark, ("a", 1)), ["k"])
    assert write(sink, counts(spark, ("a", 1), ("b", 2), ("it's", 0)), 0) == 3
    assert write(sink, counts(spark, ("a", 1)).where("n > 1"), 1) == 0
    assert write(sink, counts(spark, ("b", 3), ("c", 4)), 2) == 2
    assert asked(place, ALL) == [("a", 1), ("b", 3), ("c", 4), ("it's", 0)]
    assert write(sink, counts(spark, ("b", 99)), 2) == 0, "a replay is skipped"
    again = delta_sink(place, counts(spark, ("a", 1)), ["k"])
    again.prepare(LastBatch(3, 1))
    assert write(again, counts(spark, ("b", 99)), 2) == 0
    assert write(again, counts(spark, ("b", 5)), 3) == 1
    assert asked(place, ALL) == [("a", 1), ("b", 5), ("c", 4), ("it's", 0)]
    with pytest.raises(MillraceError, match="another driver has taken over"):
        write(sink, counts(spark, ("b", 99)), 3)


def test_the_last_row_of_a_key_counts_in_the_order_of_the_partitions(spark: SparkSession, tmp_path: Path) -> None:
    results = spark.range(0, 10_000, 1, 4).selectExpr("concat('k', id % 3) AS k", "id AS n")
    place = str(tmp_path / "table")
    assert write(prepared(place, results, ["k"]), results, 0) == 3
    assert asked(place, ALL) == [("k0", 9999), ("k1", 9997), ("k2", 9998)]


def test_results_that_are_taken_back_remove_rows(spark: SparkSession, tmp_path: Path) -> None:
    place, columns = str(tmp_path / "admitted"), f"k STRING, n BIGINT, {ADMITTED} BOOLEAN"
    sink = prepared(place, counts(spark, ("a", 1)), ["k"], keys=ResultKeys(("k",), retracts=True), hidden=[ADMITTED])
    write(sink, counts(spark, ("a", 1, True), ("b", 1, True), ("c", 1, False), columns=columns), 0)
    write(sink, counts(spark, ("a", 2, False), ("b", 2, True), columns=columns), 1)
    assert asked(place, ALL) == [("b", 2)]
    place, columns = str(tmp_path / "weighted"), f"k STRING, n BIGINT, {WEIGHT} BIGINT"
    sink = prepared(place, counts(spark, ("a", 1)), ["k"], keys=ResultKeys(("k",), weighted=True), hidden=[WEIGHT])
    write(sink, counts(spark, ("a", 1, 1), ("b", 1, 1), ("d", 1, 1), columns=columns), 0)
    write(sink, counts(spark, ("a", 1, -1), ("a", 2, 1), ("b", 1, -1), ("d", 1, 1), ("d", 1, -1), columns=columns), 1)
    assert asked(place, ALL) == [("a", 2), ("d", 1)]
    with pytest.raises(Exception, match="two rows of the result have the same k") as raised:
        write(sink, counts(spark, ("e", 1, 1), ("e", 2, 1), columns=columns), 2)
    assert str(explain_failure(str(raised.value))).startswith("spec.sink.delta.key: two rows of the result")
    with pytest.raises(Exception, match="a row of the result has NULL in the column k of its key"):
        write(sink, counts(spark, (None, 1, 1), columns=columns), 2)
    assert asked(place, ALL) == [("a", 2), ("d", 1)]
    assert not list(Path(place, "_millrace").rglob("*.parquet"))


def test_files_without_the_keys_of_a_batch_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Keys of every type that bounds files: each batch has keys of an hour of its own."""
    place = str(tmp_path / "table")

    def batch(hour: int, n: int) -> DataFrame:
        time = f"TIMESTAMP '2024-01-01 00:00:00.123456' + make_interval(0, 0, 0, 0, {hour})"
        number = f"concat('it''s ', {hour})"
        return spark.sql(f"SELECT {time} AS at, CAST({hour} AS SMALLINT) AS hour, {number} AS text, {n}L AS n")

    sink = prepared(place, batch(0, 0), ["at", "hour", "text"], maintenance={"compactEvery": 0})
    for hour in range(4):
        write(sink, batch(hour, 0), hour)
    assert len(delta_table(place).file_uris()) == 4
    write(sink, batch(2, 7), 4)
    assert asked(place, "SELECT hour, n FROM results ORDER BY hour") == [(0, 0), (1, 0), (2, 7), (3, 0)]
    (commit,) = delta_table(place).history(1)
    metrics = commit["operationMetrics"]
    assert (metrics["num_target_files_scanned"], metrics["num_target_files_removed"]) == (1, 1)


def test_columns_of_any_name_and_keys_of_several_columns_are_written(spark: SparkSession, tmp_path: Path) -> None:
    place, columns = str(tmp_path / "table"), "Day DATE, `a-Key` INT, `Größe` BIGINT, select STRING"
    first = counts(spark, *[(None, 1, 1, "x")], columns=columns).selectExpr(
        "DATE '2024-01-01' AS Day", "`a-Key`", "`Größe`", "select"
    )
    sink = prepared(place, first, ["Day", "a-Key"], partitionBy=["Day"])
    write(sink, first, 0)
    changed = first.selectExpr("Day", "`a-Key`", "7L AS `Größe`", "'y' AS select")
    other = first.selectExpr("date_add(Day, 1) AS Day", "`a-Key`", "8L AS `Größe`", "CAST(NULL AS STRING) AS select")
    assert write(sink, changed.union(other), 1) == 2
    assert asked(place, 'SELECT day::VARCHAR, "a-Key", "Größe", "select" FROM results ORDER BY ALL') == [
        ("2024-01-01", 1, 7, "y"),
        ("2024-01-02", 1, 8, None),
    ]


def test_files_of_attempts_that_fail_are_not_in_the_table(
    spark: SparkSession, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millrace_jobs.sinks.lakehouse import data_files

    class Failing(data_files.FileWriter):
        def __call__(self, batches):
            yield from FailsAt()(super().__call__(batches))

    monkeypatch.setattr("millrace_jobs.sinks.lakehouse.delta_sink.FileWriter", Failing)
    results = spark.range(0, 1000, 1, 2)
    sink = delta_sink(place, results)
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 1000
    assert asked(place, "SELECT count(*), count(DISTINCT id) FROM results") == [(1000, 1000)]
    assert len(delta_table(place).file_uris()) == 2
    if not place.startswith("s3"):
        assert len(list(Path(place).glob("*.parquet"))) == 4, "files of the first attempts are there, and invisible"
        removed = delta_table(place).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        assert len(removed) == 2
        assert asked(place, "SELECT count(*) FROM results") == [(1000,)]
