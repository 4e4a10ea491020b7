"""Iceberg tables as sinks: catalogs, names, places, and which results they take."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from builders import a_query
from millrace_api.model.iceberg import IcebergSinkSpec
from millrace_api.model.sinks import SinkSpec
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checking import check_query

REST = {"uri": "https://catalog.example.org/iceberg"}
HIVE = {"uri": "thrift://metastore:9083"}
TABLE = {"catalog": {"rest": REST}, "table": "sales.trips"}
GROUPS = "SELECT window.start AS since, count(*) AS n FROM trips GROUP BY window(at, '1 minute')"
ROWS = "SELECT at, fare FROM trips"
SECRET = {"env": "SECRET"}


def sink(**fields: Any) -> SinkSpec:
    return SinkSpec.model_validate({"iceberg": TABLE | fields})


def problems(sql: str, emit: str, **fields: Any) -> list[str]:
    document = a_query("spec", "query", value={"sql": sql}).to_document()
    document["spec"] |= {"sink": {"iceberg": TABLE | fields}, "emit": emit}
    return [str(each) for each in check_query(StreamQuery.model_validate(document))]


def test_the_same_table_is_the_same_place():
    server = {"host": "db", "database": "lake", "user": "millrace"}
    assert sink().is_place_of(sink(key=["since"], catalog={"rest": REST | {"uri": f"{REST['uri']}/"}}))
    assert not sink().is_place_of(sink(table="sales.others"))
    assert not sink().is_place_of(sink(catalog={"rest": REST | {"warehouse": "other"}}))
    assert not sink().is_place_of(sink(catalog={"postgres": server}))
    hive = sink(catalog={"hive": HIVE})
    assert hive.is_place_of(sink(catalog={"hive": {"uri": "thrift://Metastore:9083"}}, table="Sales.trips"))
    assert sink(location="s3a://lake/a").is_place_of(sink(table="a.b", location="s3a://lake/a/"))
    assert sink(catalog={"postgres": server}).is_place_of(sink(catalog={"postgres": server | {"host": "DB:5432"}}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"table": "trips"}, "is not a table in a namespace; write namespace.table, such as sales.trips"),
        ({"catalog": {}}, "exactly one of rest, hive, postgres, file is needed"),
        ({"catalog": {"rest": {"uri": "https://me:hunter2@catalog"}}}, "is not the URL of a catalog"),
        (
            {"catalog": {"hive": {"uri": "metastore:9083"}}},
            "is not the URI of a Hive metastore; write thrift, host and",
        ),
        ({"catalog": {"hive": {"uri": "thrift://metastore"}}}, "is not the URI of a Hive metastore"),
        ({"catalog": {"hive": HIVE | {"principal": "hive/_HOST"}}}, "Extra inputs are not permitted"),
        ({"catalog": {"hive": HIVE}, "table": "lake.sales.trips"}, "a Hive metastore has no such table"),
        ({"catalog": {"hive": HIVE}, "table": "sales.my-trips"}, "write database.table, each of letters, digits and _"),
        ({"catalog": {"rest": REST | {"clientId": "a"}}}, "clientId and clientSecret belong together"),
        (
            {"catalog": {"rest": REST | {"token": SECRET, "clientId": "a", "clientSecret": SECRET}}},
            "exclude each other",
        ),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        IcebergSinkSpec.model_validate(TABLE | fields)


@pytest.mark.parametrize(
    ("sql", "emit", "fields", "problem"),
    [
        (GROUPS, "OnUpdate", {"key": ["since"]}, None),
        (GROUPS, "OnWindowClose", {"partitionBy": ["days(since)"]}, None),
        (ROWS, "OnUpdate", {"location": "s3a://lake/trips"}, None),
        (
            GROUPS,
            "OnUpdate",
            {},
            "spec.sink.iceberg: results change after they were emitted, and without a key they are",
        ),
        (GROUPS, "OnUpdate", {"key": ["n"]}, "spec.sink.iceberg.key: the key leaves out since, so rows of the table"),
        (
            ROWS,
            "OnUpdate",
            {"location": "s3a://lake"},
            'spec.sink.iceberg.location: "s3a://lake" is not a bucket and a',
        ),
        (
            ROWS,
            "OnUpdate",
            {"location": "gs://lake/trips"},
            "spec.sink.iceberg.location: the scheme gs: is not supported",
        ),
        (ROWS, "OnUpdate", {"catalog": {"file": "~/c.db"}}, "spec.sink.iceberg.catalog.file: "),
    ],
)
def test_the_table_has_to_suit_the_results(sql: str, emit: str, fields: dict[str, Any], problem: str | None) -> None:
    found = problems(sql, emit, **fields)
    assert len(found) == (problem is not None), found
    assert not problem or found[0].startswith(problem)
