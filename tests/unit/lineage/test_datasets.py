"""The names of datasets, by OpenLineage's naming convention: two queries give one topic, table or folder one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace_api.model.sources import SourceSpec
from millrace_api.validation.loading import read_query
from millrace_jobs.lineage.datasets import MOST_TOPICS, inputs, outputs
from unit.fields.documents import KAFKA, query

BROKERS = {"bootstrapServers": "kafka-b:9092, Kafka-A"}
SERVER = {"host": "db-b.example.org:6432,db-a.example.org", "database": "sales", "user": "millrace"}
METASTORE = {"table": "Sales.trips", "catalog": {"hive": {"uri": "thrift://Metastore.example.org:9083"}}}
ICEBERG = {"table": "sales.trips", "catalog": {"rest": {"uri": "https://catalog.example.org/iceberg/"}}}
SQL = "SELECT city, count(*) AS n FROM trips GROUP BY city"
AT = {"schema": "city STRING"}
STATIC = {"table": {"static": True, "keys": ["city"]}}
RATE = {"rate": {"recordsPerSecond": 10}}
LAKE = {**ICEBERG, "location": "s3a://lake/trips"}
SOURCES = [
    ({"kafka": {**BROKERS, "topic": "trips"}, **AT}, [("kafka://kafka-a:9092", "trips")]),
    (
        {"kafka": {**BROKERS, "topics": ["b", "a"]}, **AT},
        [("kafka://kafka-a:9092", "a"), ("kafka://kafka-a:9092", "b")],
    ),
    ({"kafka": {**BROKERS, "topicPattern": "trips-.*"}, **AT}, []),
    ({"files": {"path": "/data/day=*/*.csv", "format": "csv"}, **AT}, [("file", "/data")]),
    ({"files": {"path": "/data/trips.csv", "format": "csv"}, **AT}, [("file", "/data/trips.csv")]),
    ({"files": {"path": "s3a://lake/in/day=*/*.csv", "format": "csv"}, **AT}, [("s3://lake", "in")]),
    ({"files": {"path": "s3a://lake/*.csv", "format": "csv"}, **AT}, [("s3://lake", "/")]),
    (RATE, []),
    ({"nexmark": {"stream": "bid"}}, []),
    (
        {"replay": {"path": "/data/*.csv", "format": "csv", "timeColumn": "at"}, "schema": "at TIMESTAMP"},
        [("file", "/data")],
    ),
    ({"delta": {"path": "s3a://lake/trips"}, **AT}, [("s3://lake", "trips")]),
    ({"delta": {"path": "/data/trips"}, **AT}, [("file", "/data/trips")]),
    ({"iceberg": ICEBERG, **AT}, [("https://catalog.example.org/iceberg", "sales.trips")]),
    ({"iceberg": LAKE, **AT}, [("s3://lake", "trips")]),
    ({"iceberg": METASTORE, **AT}, [("hive://metastore.example.org:9083", "sales.trips")]),
]
STATIC_SOURCES = [
    ({"postgres": {**SERVER, "table": "cities"}}, [("postgres://db-a.example.org:5432", "sales.public.cities")]),
    ({"postgres": {**SERVER, "query": "SELECT city FROM a JOIN b USING (id)"}}, []),
    ({"mysql": {**SERVER, "table": "cities"}}, [("mysql://db-a.example.org:3306", "sales.cities")]),
    ({"delta": {"path": "/data/cities"}}, [("file", "/data/cities")]),
    ({"iceberg": ICEBERG}, [("https://catalog.example.org/iceberg", "sales.trips")]),
]


def names(datasets):
    return [(each.namespace, each.name) for each in datasets]


def read(source, topics=()):
    spec = read_query(query(source, query={"sql": "SELECT * FROM trips"})).spec
    return names(inputs(spec, {}, {"trips": topics})["trips"])


def written(sink, **source):
    spec = read_query(query({**KAFKA, **source}, query={"sql": SQL}, sink=sink)).spec
    return [(each.namespace, each.name, each.alias) for each in outputs(spec, ())]


@pytest.mark.parametrize(("source", "expected"), SOURCES)
def test_datasets_of_a_source_are_what_it_reads(source, expected):
    assert read(source) == expected


@pytest.mark.parametrize(("source", "expected"), STATIC_SOURCES)
def test_the_dataset_of_a_static_table_is_what_it_reads(source, expected):
    sources = {"trips": RATE, "cities": {**source, **AT, **STATIC}}
    spec = read_query(query(RATE, sources=sources, query={"sql": "SELECT key FROM trips"})).spec
    assert names(inputs(spec, {}, {})["cities"]) == expected


def test_a_table_is_known_in_its_catalog_too():
    spec = read_query(query({"iceberg": LAKE, **AT}, query={"sql": "SELECT * FROM trips"})).spec
    (dataset,) = inputs(spec, {}, {})["trips"]
    assert dataset.alias == ("https://catalog.example.org/iceberg", "sales.trips")


def test_each_kind_of_source_but_generators_and_own_code_is_a_dataset():
    kinds = next(rule for rule in SourceSpec.rules if "files" in rule.fields).fields
    found = {kind for source, expected in SOURCES + STATIC_SOURCES for kind in kinds if kind in source and expected}
    assert set(kinds) - found == {"rate", "nexmark", "python"}


def test_a_pattern_of_topics_is_those_that_were_read_from_and_not_too_many():
    source = {"kafka": {**BROKERS, "topicPattern": "trips-.*"}, **AT}
    assert read(source, ("trips-2", "trips-1")) == [("kafka://kafka-a:9092", f"trips-{n}") for n in (1, 2)]
    assert len(read(source, [f"trips-{n}" for n in range(500)])) == MOST_TOPICS


def test_a_relative_path_is_absolute():
    assert read({"files": {"path": "in/*.csv", "format": "csv"}, **AT}) == [("file", str(Path("in").absolute()))]


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ({"console": {}}, []),
        ({"kafka": {**BROKERS, "topic": "out"}}, [("kafka://kafka-a:9092", "out", None)]),
        ({"table": {**BROKERS, "topic": "out"}}, [("kafka://kafka-a:9092", "out", None)]),
        ({"files": {"path": "s3a://lake/out/"}}, [("s3://lake", "out", None)]),
        ({"delta": {"path": "s3a://lake/trips", "key": ["city"]}}, [("s3://lake", "trips", None)]),
        (
            {"postgres": {**SERVER, "table": "trips", "key": ["city"]}},
            [("postgres://db-a.example.org:5432", "sales.public.trips", None)],
        ),
        (
            {"postgres": {**SERVER, "table": "taxi.trips", "key": ["city"]}},
            [("postgres://db-a.example.org:5432", "sales.taxi.trips", None)],
        ),
        (
            {"mysql": {**SERVER, "table": "a.trips", "key": ["city"]}},
            [("mysql://db-a.example.org:3306", "a.trips", None)],
        ),
        ({"iceberg": {**ICEBERG, "key": ["city"]}}, [("https://catalog.example.org/iceberg", "sales.trips", None)]),
        (
            {"iceberg": {**ICEBERG, "location": "s3a://lake/trips", "key": ["city"]}},
            [("s3://lake", "trips", ("https://catalog.example.org/iceberg", "sales.trips"))],
        ),
    ],
)
def test_datasets_of_a_sink_are_what_it_writes(sink, expected):
    assert written(sink) == expected


def test_dead_letters_are_outputs_too():
    found = written({"console": {}}, corruptRecords={"policy": "DeadLetter", "topic": "trips-dead"})
    assert found == [("kafka://kafka:9092", "trips-dead", None)]
