"""The queries of the benchmark, as StreamQueries from Kafka to Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.kafka.topics import SCHEMA
from millrace_api.model.query import Query
from millrace_api.model.streamquery import StreamQuery

DELAY = "5 seconds"
"""How late records may be, as Spark writes it; the same as the queries' own delay."""

QUERIES: Mapping[str, Mapping[str, object]] = {
    "count": {"sql": "SELECT window.start AS since, key, count(*) AS n FROM s GROUP BY window(at, '10 seconds'), key"},
    "python": {
        "python": {
            "aggregator": "bench.digests:Digests",
            "options": {"column": "value"},
            "groupBy": ["key"],
            "window": {"column": "at", "size": "10s"},
        }
    },
}
"""One query that is cheap per record and suits Spark, and one that is heavy per record."""

READINGS: Mapping[str, Mapping[str, object]] = {
    "raw": {"sql": "SELECT value FROM s"},
    "json": {"sql": "SELECT at, key, value FROM s"},
}
"""Queries that only read, by the format of the source: raw messages and decoded records, as rows in the JVM."""


def stream_query(
    name: str, servers: str, topics: tuple[str, str], checkpoint: Path, interval: str, **limits: object
) -> StreamQuery:
    """Return a query from the first topic to the second one. ``limits`` are settings of its Kafka source."""
    source, sink = topics
    body = {**QUERIES, **READINGS}[name]
    decoding: dict[str, object] = {"format": "raw"} if name == "raw" else {"schema": SCHEMA}
    if name in QUERIES:
        decoding["watermark"] = {"column": "at", "delay": "5s"}
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": f"bench-{name}"},
        "spec": {
            "sources": {
                "s": {
                    "kafka": {"bootstrapServers": servers, "topic": source, **limits},
                    **decoding,
                }
            },
            "query": body,
            "sink": {"kafka": {"bootstrapServers": servers, "topic": sink}},
            "batchInterval": interval,
            "partitioner": {"replicas": {"max": 8}},
            "checkpoint": {"uri": checkpoint.as_uri()},
        },
    }
    return StreamQuery.model_validate(document)


def query(name: str) -> Query:
    """Return the ``query`` part of the spec alone."""
    return Query.model_validate(QUERIES[name])
