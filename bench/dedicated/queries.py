"""The queries of the benchmark, from JSON in Kafka to updates in Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from millrace_api.model.streamquery import StreamQuery

_TIMES = "window.start AS since, key, count(*) AS n, max(at) AS latest"

QUERIES: Mapping[str, Mapping[str, object]] = {
    "copied": {"sql": f"SELECT {_TIMES}, max(value) AS v FROM s GROUP BY window(at, '10 seconds'), key"},
    "sql": {"sql": f"SELECT {_TIMES} FROM s GROUP BY window(at, '10 seconds', '2 seconds'), key"},
    "python": {
        "python": {
            "aggregator": "bench.dedicated.heavy:NewestDigests",
            "groupBy": ["key"],
            "window": {"column": "at", "size": "10s"},
        }
    },
}
"""``copied`` needs each column of a record, so that its replicas move as much as a loop that copies. ``sql`` counts by
key in hopping windows. ``python`` does heavy work for each record."""


def stream_query(
    name: str,
    servers: str,
    topics: tuple[str, str],
    folder: Path,
    *,
    query: str,
    interval: float,
    algorithm: str,
    placement: str,
    replicas: int,
    workers: int,
) -> StreamQuery:
    """Return a query from the first topic to the second, with a fixed plan; ``interval`` is in seconds."""
    source, sink = topics
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": name},
        "spec": {
            "sources": {
                "s": {
                    "kafka": {"bootstrapServers": servers, "topic": source},
                    "format": "json",
                    "schema": "at TIMESTAMP, key STRING, value STRING",
                    "watermark": {"column": "at", "delay": "5s"},
                }
            },
            "query": QUERIES[query],
            "sink": {"kafka": {"bootstrapServers": servers, "topic": sink}},
            "emit": "OnUpdate",
            "batchInterval": f"{round(interval * 1000)}ms",
            "partitioner": {"algorithm": algorithm, "placement": placement, "replicas": {"initial": replicas}},
            "parallelism": {"initial": workers, "max": workers},
            "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
        },
    }
    return StreamQuery.model_validate(document)
