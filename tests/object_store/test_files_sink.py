"""The ``files`` sink below a prefix of S3: what readers see, after crashes and lost answers, judged by DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from lab.s3_server import BUCKET, S3Server
from lab.store_proxy import Disturbance, StoreRequest
from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.sinks import FilesSinkSpec
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.files import object_sink
from millrace_jobs.sinks.files.object_sink import ObjectFilesSink
from millrace_jobs.sinks.files.sink import FilesSink
from millrace_jobs.stores.objects import ObjectPath

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

FRESH = LastBatch(None, None)
ROWS = """
SELECT id AS n, id % 3 AS part, CASE WHEN id % 5 = 0 THEN NULL ELSE concat('ä "', id, ', x') END AS text,
       timestamp_micros(id * 1000001) AS at, CAST(id / 7 AS DECIMAL(12,2)) AS amount, id / 3D AS ratio, id % 2 = 0 AS even
FROM range({begin}, {end})
"""
ODD = ["a/b", "50%", "x=y", 'ü: "q"', "", None, "..", "plain"]


@pytest.fixture
def out(store: S3Server, place: ObjectPath) -> str:
    return f"{place}/results"


def sink(out: str, results: DataFrame, checkpoint: str = "a", *, updates: bool = False, **options: Any) -> Any:
    spec = FilesSinkSpec.model_validate({"path": out, **options})
    return ObjectFilesSink(spec, results.schema, checkpoint, updates=updates)


def numbers(begin: int, end: int) -> str:
    return ROWS.format(begin=begin, end=end)


def read(store: S3Server, pattern: str, reader: str = "read_parquet") -> duckdb.DuckDBPyRelation:
    """What DuckDB reads by a glob pattern, in the folder in which the server keeps its objects."""
    path = store.folder / "objects" / BUCKET / pattern.removeprefix(f"s3a://{BUCKET}/")
    return duckdb.sql(f"SELECT * FROM {reader}('{path}', hive_partitioning = false)")


def listed(out: str) -> list[str]:
    """Keys of the results, from the prefix on, as the server lists them."""
    return sorted(key for key, _ in ObjectPath.of(out).objects() if not key.startswith("_millrace/"))


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_a_prefix_has_the_same_rows_as_a_folder(
    store: S3Server,
    out: str,
    tmp_path: Path,
    spark: SparkSession,
    format: str,
) -> None:
    rows = spark.sql(numbers(0, 500))
    to = sink(out, rows, format=format, updates=True)
    to.prepare(FRESH)
    in_folder = FilesSink(str(tmp_path / "out"), format, "a", updates=True)
    in_folder.prepare(FRESH)
    for number in range(2):
        part = spark.sql(numbers(number * 250, number * 250 + 250))
        assert to.write(part, ResultBatch(number, 1, 0)) == 250
        in_folder.write(part, ResultBatch(number, 1, 0))
    objects = store.folder / "objects" / BUCKET / out.removeprefix(f"s3a://{BUCKET}/")
    if format == "parquet":
        found = read(store, f"{out}/**/*.parquet")
        same = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/out/*.parquet')")
        assert found.types == same.types
        assert sorted(found.fetchall()) == sorted(same.fetchall())
    else:
        lines = [sorted(line for file in place.glob(f"*.{format}") for line in file.read_bytes().splitlines()) for place in (objects, tmp_path / "out")]  # fmt: skip
        assert len(lines[0]) == 500 + (len(listed(out)) if format == "csv" else 0)
        assert set(lines[0]) == set(lines[1])


@pytest.mark.parametrize("local", [True, False], ids=["folder", "s3"])
def test_partitions_are_named_as_spark_names_them(
    store: S3Server,
    out: str,
    tmp_path: Path,
    spark: SparkSession,
    local: bool,
) -> None:
    values = [(number, city, None if number % 4 == 3 else number) for number, city in enumerate(ODD * 4)]
    rows = spark.createDataFrame(values, "n BIGINT, city STRING, `the day` INT").repartition(4)
    place = str(tmp_path / "out") if local else out
    to = FilesSink(place, "json", "a", updates=False, partition_by=["city"]) if local else sink(out, rows, format="json", partitionBy=["city"])  # fmt: skip
    to.prepare(FRESH)
    assert to.write(rows, ResultBatch(0, 1, 0)) == len(values)
    names = [str(each.relative_to(place)) for each in Path(place).rglob("*.json")] if local else listed(out)
    folders = [name.rpartition("/")[0] for name in names]
    expected = {f"city={value or '__HIVE_DEFAULT_PARTITION__'}" for value in ODD}
    assert {unquote(folder) for folder in folders} == expected
    assert len(folders) == len(set(folders)), "one file for each partition"
    theirs = tmp_path / "theirs"
    rows.write.partitionBy("city").json(str(theirs))
    assert set(folders) == {each.name for each in theirs.iterdir() if each.is_dir()}
    mine = spark.read.json(f"{place}" if local else str(store.folder / "objects" / BUCKET / out[11:]))
    assert sorted(mine.select("n", "city").collect(), key=str) == sorted(
        spark.read.json(str(theirs)).select("n", "city").collect(), key=str
    )


def test_a_batch_has_as_many_files_as_the_query_allows(store: S3Server, out: str, spark: SparkSession) -> None:
    rows = spark.sql(numbers(0, 1000)).repartition(7)
    for number, (options, most) in enumerate([({"filesPerPartition": 2}, 2), ({"partitionBy": ["part"]}, 3), ({"partitionBy": ["part"], "filesPerPartition": 2}, 6)]):  # fmt: skip
        to = sink(f"{out}{number}", rows, **options)
        to.prepare(FRESH)
        to.write(rows, ResultBatch(0, 1, 0))
        assert 1 <= len(listed(f"{out}{number}")) <= most
        assert read(store, f"{out}{number}/**/*.parquet").aggregate("count(DISTINCT n), count(n)").fetchall()[0] == (
            1000,
            1000,
        )


def test_a_batch_that_the_record_has_is_not_written_again(store: S3Server, out: str, spark: SparkSession) -> None:
    rows = spark.sql(numbers(0, 100))
    to = sink(out, rows)
    to.prepare(FRESH)
    to.write(rows, ResultBatch(0, 1, 0))
    before = listed(out)
    assert to.write(rows, ResultBatch(0, 1, 0)) == 0
    again = sink(out, rows)
    again.prepare(LastBatch(0, None))
    assert again.write(rows, ResultBatch(0, 1, 0)) == 0
    assert listed(out) == before
    assert sorted(read(store, f"{out}/*.parquet").project("n").fetchall()) == [(n,) for n in range(100)]


@pytest.mark.parametrize("copied", [0, 1, 2])
def test_a_crash_between_record_and_copies_is_made_up_for(
    store: S3Server,
    out: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    copied: int,
) -> None:
    rows = spark.sql(numbers(0, 300)).repartition(3)
    to = sink(out, rows)
    to.prepare(FRESH)
    to.write(rows.where("n < 100"), ResultBatch(0, 1, 0))
    left, copy = iter(range(copied)), ObjectPath.copy_to

    def some(one: ObjectPath, other: ObjectPath) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        copy(one, other)

    monkeypatch.setattr(ObjectPath, "copy_to", some)
    monkeypatch.setattr(object_sink, "_COPIES", 1)
    with pytest.raises(KeyboardInterrupt):
        to.write(rows.where("n >= 100"), ResultBatch(1, 1, 0))
    monkeypatch.undo()
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    seen = read(store, f"{out}/**/*.parquet").aggregate("count(DISTINCT n), count(n)").fetchall()[0]
    assert seen[0] == seen[1] < 300, "what is half published is there once"
    again = sink(out, rows)
    again.prepare(LastBatch(1, 0))
    assert again.write(rows.where("n >= 100"), ResultBatch(1, 1, 0)) == 0
    assert sorted(read(store, f"{out}/**/*.parquet").project("n").fetchall()) == [(n,) for n in range(300)]
    assert not list(ObjectPath.of(f"{out}/_millrace/staged").objects())


def test_a_driver_that_comes_back_cannot_publish(store: S3Server, out: str, spark: SparkSession) -> None:
    rows = spark.sql(numbers(0, 100))
    old, new = sink(out, rows), sink(out, rows)
    old.prepare(FRESH)
    new.prepare(LastBatch(0, None))
    with pytest.raises(MillraceError, match="another driver has written to the sink's record of batches"):
        old.write(rows, ResultBatch(0, 1, 0))
    assert listed(out) == []
    new.write(rows, ResultBatch(0, 1, 0))
    with pytest.raises(MillraceError, match="another driver"):
        old.write(rows, ResultBatch(1, 1, 0))
    assert sorted(read(store, f"{out}/*.parquet").project("n").fetchall()) == [(n,) for n in range(100)]


def test_results_are_there_once_although_answers_are_lost(store: S3Server, out: str, spark: SparkSession) -> None:
    rows = spark.sql(numbers(0, 100))
    lost: dict[str, int] = {}

    def lose(request: StoreRequest) -> Disturbance | None:
        lost[f"{request.method} {request.key}"] = times = lost.get(f"{request.method} {request.key}", 0) + 1
        return Disturbance(loses_answer=True) if request.is_change and times == 1 else None

    last = FRESH
    with store.disturbed(lose):
        for number in range(3):
            for _ in range(10):
                to = sink(out, rows)
                try:
                    to.prepare(last)
                    to.write(rows.selectExpr(f"n + {number * 100} AS n", "* EXCEPT (n)"), ResultBatch(number, 1, 0))
                    break
                except TransientError:
                    last = LastBatch(number, None if number == 0 else number - 1)
            last = LastBatch(number, number)
    assert sum(times > 1 for key, times in lost.items() if "commit.json" in key)
    assert sorted(read(store, f"{out}/**/*.parquet").project("n").fetchall()) == [(n,) for n in range(300)]


@pytest.mark.parametrize(
    ("checkpoint", "last", "said"),
    [
        ("b", FRESH, "belongs to another checkpoint"),
        ("a", FRESH, "has results up to batch 1, but the checkpoint knows of no batch; restore the newest copy"),
        ("a", LastBatch(0, 0), "has results up to batch 1, but the checkpoint knows of no batch after 0"),
    ],
)
def test_results_of_others_are_refused(
    store: S3Server,
    out: str,
    spark: SparkSession,
    checkpoint: str,
    last: LastBatch,
    said: str,
) -> None:
    rows = spark.sql(numbers(0, 10))
    to = sink(out, rows)
    to.prepare(FRESH)
    for number in range(2):
        to.write(rows, ResultBatch(number, 1, 0))
    with pytest.raises(MillraceError, match=f"spec.sink.files.path: {out} {said}"):
        sink(out, rows, checkpoint).prepare(last)


def test_results_without_a_record_are_refused(store: S3Server, out: str, spark: SparkSession) -> None:
    rows = spark.sql(numbers(0, 10))
    with pytest.raises(MillraceError, match="has no record of its batches, but the checkpoint has finished batch 4"):
        sink(out, rows).prepare(LastBatch(4, 4))
    sink(f"{out}-elsewhere", rows).prepare(LastBatch(4, 4, elsewhere=True))
    (ObjectPath.of(out) / "part=1/batch-0000000000-0000.parquet").write_bytes(b"x")
    with pytest.raises(MillraceError, match="has results of an earlier run, which began with another checkpoint"):
        sink(out, rows).prepare(FRESH)


def test_a_store_that_refuses_is_one_sentence(store: S3Server, spark: SparkSession) -> None:
    rows = spark.sql(numbers(0, 10))
    with pytest.raises(
        MillraceError, match=r"spec\.sink\.files\.path: opening s3a://no-such-bucket/a failed, because the buck"
    ):
        sink("s3a://no-such-bucket/a", rows).prepare(FRESH)


def test_too_many_files_are_refused(
    store: S3Server,
    out: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millrace_jobs.sinks.files.formats.MOST_FILES", 9)
    rows = spark.sql(numbers(0, 10))
    to = sink(out, rows, partitionBy=["n"])
    to.prepare(FRESH)
    with pytest.raises(MillraceError, match="batch 0 has rows for 10 files, and a batch may write 9; partition by"):
        to.write(rows, ResultBatch(0, 1, 0))
    assert listed(out) == []


def test_a_batch_costs_a_sink_four_requests(store: S3Server, out: str, spark: SparkSession) -> None:
    rows = spark.sql(numbers(0, 100)).coalesce(1)
    to = sink(out, rows)
    to.prepare(FRESH)
    to.write(rows, ResultBatch(0, 1, 0))
    before = store.requests
    to.write(rows, ResultBatch(1, 1, 0))
    assert store.requests - before == {"PUT": 3, "POST": 1}
