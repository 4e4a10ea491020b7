"""Versions of a query that are compared."""

from __future__ import annotations

from typing import Any

from millrace_api.model.streamquery import StreamQuery

SQL = "SELECT window.start AS since, city, count(*) AS n FROM trips GROUP BY window(at, '1 minute'), city"

UNBOUNDED = "SELECT city, count(*) AS n FROM trips GROUP BY city"


def query(checkpoint: dict[str, str], sql: str = SQL, name: str = "trips", **upgrade: Any) -> StreamQuery:
    """A version with this checkpoint; ``upgrade`` has fields of ``spec.upgrade``."""
    source = {
        "files": {"path": "in", "format": "csv"},
        "schema": "at TIMESTAMP, city STRING",
        "watermark": {"column": "at", "delay": "10s"},
    }
    spec: dict[str, Any] = {"sources": {"trips": source}, "query": {"sql": sql}, "sink": {"console": {}}}
    spec |= {"checkpoint": checkpoint} | ({"upgrade": upgrade} if upgrade else {})
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": name}}
    return StreamQuery.model_validate(document | {"spec": spec})
