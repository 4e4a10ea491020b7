"""Queries for a checkpoint, and changes of them."""

from __future__ import annotations

from copy import deepcopy

from millrace_api.model.streamquery import StreamQuery

SQL = (
    "SELECT window.start AS since, city, count(*) AS trips, sum(fare) AS fare FROM trips "
    "WHERE fare > 0 GROUP BY window(at, '10 minutes'), city HAVING count(*) > 1"
)
FILES = {
    "files": {"path": "data/*.csv", "format": "csv"},
    "schema": "at TIMESTAMP, city STRING, fare DOUBLE",
    "watermark": {"column": "at", "delay": "10m"},
}


def a_query(source=FILES, query=None, **spec):
    return StreamQuery.model_validate(
        {
            "apiVersion": "millrace.io/v1alpha1",
            "kind": "StreamQuery",
            "metadata": {"name": "fares"},
            "spec": {
                "sources": {"trips": source},
                "query": query or {"sql": SQL},
                "sink": {"files": {"path": "out"}},
            }
            | spec,
        }
    )


def changed(source, *path, value):
    """A source with one thing changed; None takes it away."""
    source = deepcopy(source)
    inner = source
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    if value is None:
        inner.pop(path[-1])
    else:
        inner[path[-1]] = value
    return source
