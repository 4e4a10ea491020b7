"""What cannot be written to a Delta table is one sentence at the start, with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lab.store_proxy import Disturbance
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.run.failures import explain_failure
from millrace_jobs.sinks.lakehouse.delta_sink import DeltaSink

from .tables import FRESH, asked, delta_sink, delta_table, write

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

RESULTS = "k STRING, day DATE, n BIGINT"


class Columns:
    """Columns of results, of which a sink takes no rows in these tests."""

    def __init__(self, ddl: str) -> None:
        self.schema = StructType.fromDDL(ddl)

    def drop(self, *_: str) -> Columns:
        return self


def refused(place: str, ddl: str = RESULTS, key: list[str] | None = None, **fields: Any) -> str:
    sink: DeltaSink = delta_sink(place, Columns(ddl), key or [], **fields)  # type: ignore[arg-type]
    with pytest.raises(MillraceError) as raised:
        sink.prepare(FRESH)
    assert not isinstance(raised.value, TransientError), raised.value
    return str(raised.value)


def table(place: str, **columns: pa.DataType) -> None:
    schema = pa.schema([pa.field(name, kind) for name, kind in columns.items()])
    write_deltalake(place, schema.empty_table(), mode="error")


@pytest.mark.parametrize(
    ("ddl", "fields", "message"),
    [
        ("k STRING, i INTERVAL DAY TO SECOND", {}, "spec.sink.delta: column i is INTERVAL DAY TO SECOND, for which a "
         "table has no type; cast it in the SELECT list, as in CAST(i AS STRING) AS i"),
        ("k STRING, `total fare` INT", {}, 'a table cannot have a column with the name "total fare"; give it a name'),
        (RESULTS, {"partitionBy": ["city"]}, 'spec.sink.delta.partitionBy: the result has no column "city"; write one'),
        ("k STRING, x DOUBLE", {"partitionBy": ["x"]}, "cannot be partitioned by x, which is DOUBLE; partition it by"),
        ("k STRING", {"partitionBy": ["k"]}, "the table is partitioned by all of its columns; leave one out"),
        (RESULTS, {"sortBy": ["city"]}, 'spec.sink.delta.sortBy: the result has no column "city"'),
        ("k DOUBLE, n INT", {"key": ["k"]}, "spec.sink.delta.key: k is DOUBLE, whose values cannot identify a row"),
    ],
)  # fmt: skip
def test_results_that_no_table_takes_are_refused(
    tmp_path: Path, ddl: str, fields: dict[str, Any], message: str
) -> None:
    assert message in refused(str(tmp_path / "table"), ddl, **fields)
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(
    ("columns", "fields", "message"),
    [
        ({"k": pa.string(), "day": pa.string(), "n": pa.int64()}, {}, "column day of the table is STRING, and the result "
         "has DATE; write CAST(day AS STRING) AS day in the SELECT list, or ALTER TABLE delta.`"),
        ({"k": pa.string(), "day": pa.date32(), "n": pa.int32()}, {}, "column n of the table is INT, and the result has "
         "BIGINT; write CAST(n AS INT)"),
        ({"k": pa.string(), "n": pa.int64()}, {}, "the table has no column day, which is DATE in the result; "
         "ALTER TABLE delta.`"),
        ({"K": pa.string(), "day": pa.date32(), "n": pa.int64()}, {}, "the table has no column k, but K; write AS K"),
        ({"k": pa.string(), "day": pa.date32(), "n": pa.int64()}, {"partitionBy": ["day"]}, "is not partitioned, and not "
         "by day; leave partitionBy out"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_suit_the_results_is_refused(tmp_path: Path, columns, fields, message: str) -> None:
    place = str(tmp_path / "table")
    table(place, **columns)
    assert message in refused(place, **fields)
    assert delta_table(place).version() == 0


def test_columns_are_added_only_where_the_user_says_so(spark: SparkSession, place: str) -> None:
    first = spark.sql("SELECT 'a' AS k, 1 AS n")
    sink = delta_sink(place, first)
    sink.prepare(FRESH)
    write(sink, first, 0)
    more = spark.sql("SELECT 'b' AS k, named_struct('x', 1.5D) AS extra, CAST(2 AS TINYINT) AS n")
    other = {"checkpoint": "another", "query": "others"}
    with pytest.raises(
        MillraceError, match=r"ADD COLUMN `extra` STRUCT<x:DOUBLE>; or write schemaEvolution: AddColumns"
    ):
        delta_sink(place, more, **other).prepare(FRESH)
    sink = delta_sink(place, more, schemaEvolution="AddColumns", **other)
    sink.prepare(FRESH)
    write(sink, more, 0)
    assert asked(place, "SELECT k, n, extra.x FROM results ORDER BY k") == [("a", 1, None), ("b", 2, 1.5)]


def test_tables_with_rules_that_files_of_tasks_would_not_obey_are_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "checked")
    table(place, k=pa.string(), day=pa.date32(), n=pa.int64())
    DeltaTable(place).alter.add_constraint({"positive": "n > 0"})
    assert "has delta.constraints.positive, which files that tasks write would not obey" in refused(place)
    place = str(tmp_path / "required")
    columns = [pa.field("k", pa.string(), nullable=False), ("day", pa.date32()), ("n", pa.int64())]
    write_deltalake(place, pa.schema(columns).empty_table())
    assert "column k of the table is NOT NULL, and may be NULL in the result; ALTER TABLE delta.`" in refused(place)
    delta_sink(place, Columns(RESULTS), ["k"]).prepare(FRESH)  # type: ignore[arg-type]


def test_a_table_that_only_takes_new_rows_has_no_key(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    table(place, k=pa.string(), day=pa.date32(), n=pa.int64())
    DeltaTable(place).alter.set_table_properties({"delta.appendOnly": "true"})
    assert "only takes new rows, since delta.appendOnly is true; leave key out" in refused(place, key=["k"])


@pytest.mark.parametrize(
    ("bucket", "environment", "message"),
    [
        ("missing", {}, "because the bucket does not exist (NoSuchBucket"),
        ("lake", {"AWS_SECRET_ACCESS_KEY": "hunter2"}, "because the login is refused (SignatureDoesNotMatch"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_sentence(
    s3, monkeypatch, bucket: str, environment: dict[str, str], message: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    from millrace_jobs.stores import clients

    clients.s3_client.cache_clear()
    said = refused(f"s3a://{bucket}/table")
    clients.s3_client.cache_clear()
    assert message in said
    assert "hunter2" not in said
    assert "\n" not in said


def test_a_login_that_may_not_write_is_refused(s3, in_s3: str) -> None:
    with s3.disturbed(lambda request: Disturbance(status=403) if request.method == "PUT" else None):
        assert "because the login may not do that (AccessDenied" in refused(in_s3)


def test_tasks_that_cannot_write_say_so(spark: SparkSession, s3, in_s3: str) -> None:
    results = spark.range(10)
    sink = delta_sink(in_s3, results)
    sink.prepare(FRESH)

    def refuse(request):
        is_file = request.method == "PUT" and request.key.endswith(".parquet")
        return Disturbance(status=403) if is_file else None

    with s3.disturbed(refuse), pytest.raises(Exception, match="AccessDenied") as raised:
        write(sink, results, 0)
    said = str(explain_failure(str(raised.value)))
    assert said.startswith(f"spec.sink.delta: writing files of the table {in_s3} failed, because the login may not")
    assert write(sink, results, 0) == 10
    assert asked(in_s3, "SELECT count(*) FROM results") == [(10,)]


def test_a_store_that_refuses_for_a_while_is_tried_again(spark: SparkSession, s3, in_s3: str) -> None:
    results = spark.range(10)
    sink = delta_sink(in_s3, results)
    sink.prepare(FRESH)
    refusals = iter(range(3))
    with s3.disturbed(lambda request: Disturbance(status=503) if next(refusals, None) is not None else None):
        write(sink, results, 0)
    answers = iter(range(2))

    def lose(request):
        is_commit = request.method == "PUT" and "_delta_log" in request.key
        return Disturbance(loses_answer=True) if is_commit and next(answers, None) is not None else None

    with s3.disturbed(lose):
        write(sink, results, 1)
    assert next(answers, None) is None, "answers were lost"
    assert asked(in_s3, "SELECT count(*), count(DISTINCT id) FROM results") == [(20, 10)]
