"""Rows in an Iceberg table: values of every type, partitions, upserts by key, and attempts of tasks that do not count."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import DataFrame, SparkSession

from millrace_api.errors import MillraceError
from millrace_jobs.changes import WEIGHT
from millrace_jobs.run.failures import explain_failure
from millrace_jobs.sinks.base import ADMITTED, LastBatch, ResultKeys
from millrace_jobs.sinks.lakehouse.iceberg_sink import IcebergSink

from .iceberg_tables import data_files, iceberg_asked, iceberg_content, iceberg_sink, iceberg_table
from .tables import FRESH, write
from .values import ROWS, TYPES, FailsAt, array, plain

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

Fields = dict[str, Any]

ALL = "SELECT * FROM results ORDER BY ALL"


def in_folder(folder: Path, name: str = "a.results") -> Fields:
    return {"catalog": {"file": str(folder / "catalog.db")}, "table": name, "location": str(folder / name)}


def prepared(fields: Fields, results: DataFrame, **more: Any) -> IcebergSink:
    sink = iceberg_sink(fields, results, **more)
    sink.prepare(FRESH)
    return sink


def counts(spark: SparkSession, *rows: tuple[Any, ...], columns: str = "k STRING, n BIGINT") -> DataFrame:
    return spark.createDataFrame(list(rows), columns)


@pytest.mark.parametrize("key", [[], ["number"]], ids=["appended", "upserted"])
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(rows=ROWS)
def test_values_of_every_type_come_to_iceberg_unchanged(
    spark: SparkSession, tmp_path_factory, key: list[str], rows
) -> None:
    fields = in_folder(tmp_path_factory.mktemp("values"))
    columns = {name: array(kind, [row[at] for row in rows]) for at, (name, (kind, _)) in enumerate(TYPES.items())}
    numbered = pa.table({"number": pa.array(range(len(rows)), pa.int32()), **columns})
    results = spark.createDataFrame(numbered)
    results = results.withColumn("a_timestamp_ntz", results["a_timestamp_ntz"].cast("timestamp_ntz"))
    sink = prepared(fields, results, key=key)
    assert write(sink, results, 0) == len(rows)
    other = results.limit(1).withColumn("number", results["number"] + 100)
    assert write(sink, results.where("number = 0").union(other) if key else other, 1) == len(key) + 1
    sink._target.compact()
    for found in (iceberg_content(fields), iceberg_table(fields).scan().to_arrow()):
        in_order = found.sort_by("number").slice(0, len(rows))
        for name in numbered.column_names:
            assert plain(in_order[name]) == plain(numbered[name]), name


def test_a_table_is_partitioned_and_its_files_are_sorted(spark: SparkSession, iceberg: Fields) -> None:
    results = spark.range(0, 4_000, 1, 3).selectExpr(
        "date_add(DATE '1969-12-31', CAST(id % 3 AS INT)) AS day",
        "CASE WHEN id % 5 < 4 THEN concat('k=/%', id % 5) END AS kind",
        "4000 - id AS n",
    )
    sink = prepared(iceberg, results, partitionBy=["day", "kind"], sortBy=["n"])
    assert write(sink, results, 0) == 4_000
    counted = "SELECT count(*), count(DISTINCT n), count(DISTINCT day), count(kind) FROM results"
    assert iceberg_asked(iceberg, counted) == [(4_000, 4_000, 3, 3_200)]
    table = iceberg_table(iceberg)
    assert [field.name for field in table.spec().fields] == ["day", "kind"]
    assert len(data_files(iceberg)) == 3 * 5 * 3
    found = table.scan(row_filter="day = '1970-01-01' and kind = 'k=/%3'")
    assert len(list(found.plan_files())) == 3, "other partitions are skipped"
    values = found.to_arrow()["n"].to_pylist()
    assert sorted(values) == sorted(4_000 - id for id in range(4_000) if id % 3 == 1 and id % 5 == 3)
    assert sum(one > two for one, two in pairwise(values)) < 3, "each file is in order"


@pytest.mark.parametrize("zone", ["UTC", "America/Santiago"])
def test_units_of_time_are_partitions(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """Times before and after 1970, at the very bounds of each unit, whatever the zone of the session."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        results = spark.sql(
            "SELECT id, timestamp_micros(id * 3600000000 * 500 - 1) AS at, "
            "timestamp_ntz '1969-12-31 23:59:59.999999' + make_dt_interval(0, CAST(id * 500 AS INT)) AS local, "
            "date_add(DATE '1970-01-01', CAST(id * 20 AS INT)) AS day FROM range(-40, 40)"
        )
        terms = ["hours(at)", "days(local)", "months(day)", "years(at)"]
        for number, term in enumerate(terms):
            fields = in_folder(tmp_path, f"a.b{number}")
            sink = prepared(fields, results.coalesce(1), partitionBy=[term])
            assert write(sink, results.coalesce(1), 0) == 80
            table = iceberg_table(fields)
            for task in table.scan().plan_files():
                rows = pq.read_table(task.file.file_path.removeprefix("file://"))
                column, transform = term.partition("(")[2][:-1], table.spec().fields[0].transform
                kind = rows[column].type
                raw = rows[column].cast(pa.int32() if pa.types.is_date(kind) else pa.int64()).to_pylist()
                expected = {transform.transform(table.schema().find_type(column))(each) for each in raw}
                assert expected == {task.file.partition[0]}, term
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_result_replaces_the_row_with_its_key(spark: SparkSession, iceberg: Fields) -> None:
    sink = prepared(iceberg, counts(spark, ("a", 1)), key=["k"])
    assert write(sink, counts(spark, ("a", 1), ("b", 2), ("it's", 0)), 0) == 3
    assert write(sink, counts(spark, ("a", 1)).where("n > 1"), 1) == 0
    assert write(sink, counts(spark, ("b", 3), ("c", 4)), 2) == 2
    assert iceberg_asked(iceberg, ALL) == [("a", 1), ("b", 3), ("c", 4), ("it's", 0)]
    assert write(sink, counts(spark, ("b", 99)), 2) == 0, "a replay is skipped"
    again = iceberg_sink(iceberg, counts(spark, ("a", 1)), key=["k"])
    again.prepare(LastBatch(3, 1))
    assert write(again, counts(spark, ("b", 99)), 2) == 0
    assert write(again, counts(spark, ("b", 5)), 3) == 1
    assert iceberg_asked(iceberg, ALL) == [("a", 1), ("b", 5), ("c", 4), ("it's", 0)]
    with pytest.raises(MillraceError, match="another driver has taken over"):
        write(sink, counts(spark, ("b", 99)), 3)


def test_results_that_are_taken_back_remove_rows(spark: SparkSession, tmp_path: Path) -> None:
    fields, columns = in_folder(tmp_path, "a.admitted"), f"k STRING, n BIGINT, {ADMITTED} BOOLEAN"
    keys = ResultKeys(("k",), retracts=True)
    sink = prepared(fields, counts(spark, ("a", 1)), key=["k"], keys=keys, hidden=[ADMITTED])
    write(sink, counts(spark, ("a", 1, True), ("b", 1, True), ("c", 1, False), columns=columns), 0)
    write(sink, counts(spark, ("a", 2, False), ("b", 2, True), columns=columns), 1)
    assert iceberg_asked(fields, ALL) == [("b", 2)]
    write(sink, counts(spark, ("nothing", 2, False), columns=columns), 2)
    assert iceberg_asked(fields, ALL) == [("b", 2)]
    fields, columns = in_folder(tmp_path, "a.weighted"), f"k STRING, n BIGINT, {WEIGHT} BIGINT"
    keys = ResultKeys(("k",), weighted=True)
    sink = prepared(fields, counts(spark, ("a", 1)), key=["k"], keys=keys, hidden=[WEIGHT])
    write(sink, counts(spark, ("a", 1, 1), ("b", 1, 1), ("d", 1, 1), columns=columns), 0)
    write(sink, counts(spark, ("a", 1, -1), ("a", 2, 1), ("b", 1, -1), ("d", 1, 1), ("d", 1, -1), columns=columns), 1)
    assert iceberg_asked(fields, ALL) == [("a", 2), ("d", 1)]
    with pytest.raises(Exception, match="two rows of the result have the same k") as raised:
        write(sink, counts(spark, ("e", 1, 1), ("e", 2, 1), columns=columns), 2)
    assert str(explain_failure(str(raised.value))).startswith("spec.sink.iceberg.key: two rows of the result")


def test_random_changes_in_partitions_come_to_the_last_row_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    """Keys of several columns and types, some of them partitions, with compaction in between."""
    chance, fields = random.Random(7), in_folder(tmp_path)
    shown = 'day::VARCHAR, k, epoch_us("at"), n'
    expected: dict[tuple[int, int], int] = {}
    base = spark.sql("SELECT DATE '2024-01-01' AS day, 1 AS k, TIMESTAMP '2024-01-01 00:00:00' AS at, 1L AS n")
    sink = prepared(fields, base, key=["day", "k", "at"], partitionBy=["day"], maintenance={"compactEvery": 2})
    for number in range(5):
        changed = {(chance.randrange(3), chance.randrange(20)): chance.randrange(1000) for _ in range(15)}
        expected |= changed
        rows = spark.createDataFrame([(day, k, n) for (day, k), n in changed.items()], "d INT, k INT, n BIGINT")
        results = rows.selectExpr(
            "date_add(DATE '2024-01-01', d) AS day", "k", "timestamp_micros(k * 1000003) AS at", "n"
        )
        assert write(sink, results, number) == len(changed)
    found = iceberg_asked(fields, f"SELECT {shown} FROM results ORDER BY ALL")
    assert found == sorted((f"2024-01-0{day + 1}", k, k * 1000003, n) for (day, k), n in expected.items())


def test_files_without_the_keys_of_a_batch_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Keys of every type that bounds files: each batch has keys of an hour of its own."""
    fields = in_folder(tmp_path)

    def batch(hour: int, n: int) -> DataFrame:
        time = f"TIMESTAMP '2024-01-01 00:00:00.123456' + make_interval(0, 0, 0, 0, {hour})"
        return spark.sql(f"SELECT {time} AS at, CAST({hour} AS SMALLINT) AS hour, 'it''s {hour}' AS text, {n}L AS n")

    sink = prepared(fields, batch(0, 0), key=["at", "hour", "text"], maintenance={"compactEvery": 0})
    for hour in range(4):
        write(sink, batch(hour, 0), hour)
    before = {place: Path(place.removeprefix("file://")) for place in data_files(fields)}
    changed = {place for place, file in before.items() if pq.read_table(file)["hour"].to_pylist() == [2]}
    for place in before.keys() - changed:
        before[place].write_bytes(b"not read")
    write(sink, batch(2, 7), 4)
    assert before.keys() - data_files(fields) == changed


def test_files_of_attempts_that_fail_are_not_in_the_table(
    spark: SparkSession, iceberg: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millrace_jobs.sinks.lakehouse import data_files as written

    class Failing(written.FileWriter):
        def __call__(self, batches):
            yield from FailsAt()(super().__call__(batches))

    monkeypatch.setattr("millrace_jobs.sinks.lakehouse.iceberg_sink.FileWriter", Failing)
    results = spark.range(0, 1000, 1, 2)
    sink = prepared(iceberg, results)
    assert write(sink, results, 0) == 1000
    assert iceberg_asked(iceberg, "SELECT count(*), count(DISTINCT id) FROM results") == [(1000, 1000)]
    assert len(data_files(iceberg)) == 2
