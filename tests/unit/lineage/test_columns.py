"""Which columns a result comes from, as far as the SQL shows it; what cannot be followed is left out."""

from __future__ import annotations

import pytest

from millrace_api.sql.schema_ddl import parse_schema
from millrace_api.validation.loading import read_query
from millrace_jobs.lineage.columns import derived_columns
from millrace_jobs.lineage.datasets import Dataset

COLUMNS = {
    "trips": parse_schema("cell STRING, fare DOUBLE, pickup TIMESTAMP, user STRUCT<country: STRING>"),
    "zones": parse_schema("cell STRING, name STRING"),
}
DATASETS = {name: Dataset("kafka://kafka:9092", name) for name in COLUMNS}


def derived(sql, datasets=DATASETS):
    source = {"kafka": {"bootstrapServers": "kafka", "topic": "t"}, "schema": "a STRING"}
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "q"},
        "spec": {"sources": {"trips": source}, "query": {"sql": "SELECT * FROM trips"}, "sink": {"console": {}}},
    }
    spec = read_query(document).spec
    spec = spec.model_copy(update={"query": spec.query.model_copy(update={"sql": sql})})
    found = derived_columns(spec, COLUMNS, datasets)
    return {result: [f"{each.name}.{column}" for each, column in places] for result, places in found.items()}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT window.start AS since, cell, count(*) AS trips, avg(fare) AS fare FROM trips "
            "GROUP BY window(pickup, '10 minutes', '1 minute'), cell",
            {"since": ["trips.pickup"], "cell": ["trips.cell"], "fare": ["trips.fare"]},
        ),
        (
            "SELECT window, user.country, max(fare) AS most FROM trips GROUP BY window(pickup, '1 minute'), user.country",
            {"window": ["trips.pickup"], "country": ["trips.user"], "most": ["trips.fare"]},
        ),
        (
            "WITH a AS (SELECT cell AS c, fare * 2 AS f FROM trips WHERE fare > 1) "
            "SELECT a.c, sum(a.f) AS s, max(z.name) AS n FROM a JOIN zones z ON a.c = z.cell GROUP BY a.c",
            {"c": ["trips.cell"], "s": ["trips.fare"], "n": ["zones.name"]},
        ),
        ("SELECT * FROM zones", {"cell": ["zones.cell"], "name": ["zones.name"]}),
        ("SELECT cell FROM trips UNION ALL SELECT name FROM zones", {"cell": ["trips.cell", "zones.name"]}),
        ("SELECT t.user.country AS c, upper(Cell) AS x FROM trips t", {"c": ["trips.user"], "x": ["trips.cell"]}),
        ("SELECT count(*) AS n, 1 AS one FROM trips", {}),
        ("SELECT nothing AS n FROM trips", {}),
        ("SELECT FROM WHERE", {}),
    ],
)
def test_columns_are_followed(sql, expected):
    assert derived(sql) == expected


def test_a_source_that_is_not_one_dataset_is_left_out():
    sql = "SELECT t.cell AS c, z.name AS n FROM trips t JOIN zones z ON t.cell = z.cell"
    assert derived(sql, {"zones": DATASETS["zones"]}) == {"n": ["zones.name"]}
