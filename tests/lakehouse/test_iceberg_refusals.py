"""What cannot be written to an Iceberg table is one sentence at the start, with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lab.ports import free_port
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.lakehouse.iceberg_catalog import ClientLogin, open_catalog

from .answers import answering
from .iceberg_tables import iceberg_asked, iceberg_sink, iceberg_spec, iceberg_table
from .tables import FRESH, write

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark"), pytest.mark.in_turn]

Fields = dict[str, Any]

RESULTS = "k STRING, day DATE, n BIGINT"


class Columns:
    """Columns of results, of which a sink takes no rows in these tests."""

    def __init__(self, ddl: str) -> None:
        self.schema = StructType.fromDDL(ddl)

    def drop(self, *_: str) -> Columns:
        return self


@pytest.fixture
def local(tmp_path: Path) -> Fields:
    return {
        "catalog": {"file": str(tmp_path / "catalog.db")},
        "table": "a.results",
        "location": str(tmp_path / "table"),
    }


def error_of(fields: Fields, ddl: str = RESULTS, **more: Any) -> MillraceError:
    with pytest.raises(MillraceError) as raised:
        iceberg_sink(fields, Columns(ddl), **more).prepare(FRESH)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
    return raised.value


def refused(fields: Fields, ddl: str = RESULTS, **more: Any) -> str:
    error = error_of(fields, ddl, **more)
    assert not isinstance(error, TransientError), error
    return str(error)


def create(fields: Fields, *columns: NestedField) -> None:
    catalog = open_catalog(iceberg_spec(fields))
    catalog.create_namespace("a")
    catalog.create_table(fields["table"], Schema(*columns), f"file://{fields['location']}")


@pytest.mark.parametrize(
    ("ddl", "more", "message"),
    [
        ("k STRING, i INTERVAL DAY TO SECOND", {}, "spec.sink.iceberg: column i is INTERVAL DAY TO SECOND, for which a "
         "table has no type; cast it in the SELECT list, as in CAST(i AS STRING) AS i"),
        (RESULTS, {"partitionBy": ["city"]}, 'spec.sink.iceberg.partitionBy: the result has no column "city"; write'),
        (RESULTS, {"partitionBy": ["days(city)"]}, 'spec.sink.iceberg.partitionBy: the result has no column "city"'),
        (RESULTS, {"partitionBy": ["days(k)"]}, "days(k) is no partition, because k is STRING; write a TIMESTAMP or"),
        (RESULTS, {"partitionBy": ["hours(day)"]}, "hours(day) is no partition, because day is DATE"),
        (RESULTS, {"sortBy": ["city"]}, 'spec.sink.iceberg.sortBy: the result has no column "city"'),
        ("k DOUBLE, n INT", {"key": ["k"]}, "spec.sink.iceberg.key: k is DOUBLE, whose values cannot identify a row"),
        (RESULTS, {"location": None}, "spec.sink.iceberg.location: the table a.results does not exist, and its catalog "
         "has no place for it; write location"),
    ],
)  # fmt: skip
def test_results_that_no_table_takes_are_refused(local: Fields, ddl: str, more: dict[str, Any], message: str) -> None:
    assert message in refused(local | more, ddl)
    assert not Path(local["location"]).exists()


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        ([("k", StringType()), ("day", StringType()), ("n", LongType())], {}, "column day of the table is STRING, and the "
         "result has DATE; write CAST(day AS STRING) AS day in the SELECT list, or ALTER TABLE a.results"),
        ([("k", StringType()), ("n", LongType())], {}, "the table has no column day, which is DATE in the result; "
         "ALTER TABLE a.results ADD COLUMN `day` DATE; or write schemaEvolution"),
        ([("K", StringType()), ("day", DateType()), ("n", LongType())], {}, "the table has no column k, but K; write AS K"),
        ([("k", StringType()), ("day", DateType()), ("n", LongType())], {"partitionBy": ["day"]}, "is not partitioned, and "
         "not by day; leave partitionBy out"),
        ([("k", StringType()), ("day", DateType()), ("n", LongType())], {"location": "/elsewhere"}, "the table a.results has "
         "files in file:///"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_suit_the_results_is_refused(local: Fields, columns, more, message: str) -> None:
    create(local, *(NestedField(at, name, kind, required=False) for at, (name, kind) in enumerate(columns, 1)))
    assert message in refused(local | more)
    assert iceberg_table(local).current_snapshot() is None


def test_required_columns_and_partitions_that_tasks_cannot_compute_are_refused(local: Fields) -> None:
    create(local, NestedField(1, "k", StringType(), required=True), NestedField(2, "n", LongType(), required=False))
    assert "column k of the table is NOT NULL, and may be NULL in the result" in refused(local, "k STRING, n BIGINT")
    iceberg_sink(local, Columns("k STRING, n BIGINT"), key=["k"]).prepare(FRESH)  # type: ignore[arg-type]
    with iceberg_table(local).update_spec() as update:
        update.add_field("n", BucketTransform(4), "n_bucket")
    message = "is partitioned by n_bucket (bucket[4]), which tasks cannot compute; write to a table"
    assert message in refused(local, "k STRING, n BIGINT", key=["k"])


def test_columns_are_added_only_where_the_user_says_so(spark: SparkSession, iceberg: Fields) -> None:
    first = spark.sql("SELECT 'a' AS k, 1 AS n")
    sink = iceberg_sink(iceberg, first)
    sink.prepare(FRESH)
    write(sink, first, 0)
    more = spark.sql("SELECT 'b' AS k, named_struct('x', 1.5D) AS extra, CAST(2 AS TINYINT) AS n")
    other = {"checkpoint": "another", "query": "others"}
    with pytest.raises(MillraceError, match=r"ADD COLUMN `extra` STRUCT<x:DOUBLE>; or write schemaEvolution: AddCol"):
        iceberg_sink(iceberg, more, **other).prepare(FRESH)
    sink = iceberg_sink(iceberg, more, schemaEvolution="AddColumns", **other)
    sink.prepare(FRESH)
    write(sink, more, 0)
    assert iceberg_asked(iceberg, "SELECT k, n, extra.x FROM results ORDER BY k") == [("a", 1, None), ("b", 2, 1.5)]


def test_a_login_that_postgres_refuses_is_an_error_without_the_password(
    postgres_catalog: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG", "hunter2")
    fields = {"table": "a.b", "location": "s3a://lake/a", "catalog": {"postgres": postgres_catalog}}
    wrong = {"catalog": {"postgres": postgres_catalog | {"password": {"env": "WRONG"}}}}
    said = refused(fields | wrong)
    assert said.startswith(
        "spec.sink.iceberg.catalog: opening the catalog failed, because the catalog refuses the login"
    )
    assert "hunter2" not in said
    missing = {"catalog": {"postgres": postgres_catalog | {"database": "missing"}}}
    assert "because the server has no such database" in refused(fields | missing)


def test_a_catalog_that_is_away_may_come_back() -> None:
    fields = {"table": "a.b", "catalog": {"rest": {"uri": f"http://127.0.0.1:{free_port()}"}}}
    error = error_of(fields)
    assert isinstance(error, TransientError)
    assert "because the catalog does not answer as it should" in str(error)


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "because the catalog refuses the login"), (403, "because the catalog does not allow it")],
)
def test_a_refused_token_is_an_error_without_the_token(
    monkeypatch: pytest.MonkeyPatch, status: int, message: str
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    with answering((status, '{"error": {"message": "no", "type": "x", "code": 401}}')) as (url, asked):
        said = refused({"table": "a.b", "catalog": {"rest": {"uri": url, "token": {"env": "TOKEN"}}}})
    assert message in said
    assert "hunter2" not in said
    assert asked[0][0] == "/v1/config Bearer hunter2"


def test_a_client_gets_a_token_and_the_next_one_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("millrace_jobs.lakehouse.iceberg_catalog.time.monotonic", lambda: now[0])
    tokens = [(200, f'{{"access_token": "t{number}", "expires_in": 100}}') for number in range(2)]
    with answering(*tokens, (401, "")) as (url, asked):
        login = ClientLogin(f"{url}/token", "me", "hunter2", "catalog")
        assert [login.auth_header() for _ in range(3)] == ["Bearer t0"] * 3
        now[0] += 81
        assert login.auth_header() == "Bearer t1"
    assert len(asked) == 2
    assert asked[0][1] == b"grant_type=client_credentials&client_id=me&client_secret=hunter2&scope=catalog"


def test_a_refused_client_is_an_error_without_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    with answering((401, "")) as (url, _):
        rest = {"uri": url, "clientId": "me", "clientSecret": {"env": "SECRET"}}
        said = refused({"table": "a.b", "catalog": {"rest": rest}})
    assert "because the catalog refuses the login (401 from http://127.0.0.1" in said
    assert "hunter2" not in said
