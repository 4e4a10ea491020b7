"""The text of ``millrace explain``; MILLRACE_UPDATE_GOLDEN=1 rewrites it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from .cli import Project

pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).parent / "golden"
WINDOWED = "SELECT window.start AS since, {key} AS key, count(*) AS rows, avg(n) AS mean FROM events"
GROUPED = " WHERE n > 0 GROUP BY window(at, '10 minutes', '1 minute'), {key} HAVING count(*) > 1"
SQL = WINDOWED + GROUPED
EVENTS = {
    "files": {"path": "in", "format": "csv"},
    "schema": "at TIMESTAMP, who STRING, n INT",
    "watermark": {"column": "at", "delay": "10s"},
}
STREAMS = {"events": EVENTS, "people": EVENTS | {"schema": "at TIMESTAMP, who STRING, name STRING"}}
TABLE = STREAMS | {"people": STREAMS["people"] | {"table": {"keys": ["who"]}}}
TOWNS = {
    "files": {"path": "in", "format": "csv"},
    "schema": "who STRING, town STRING",
    "table": {"keys": ["who"], "static": True},
}
NEAR = "e.who = p.who AND p.at BETWEEN e.at AND e.at + INTERVAL 1 MINUTE"


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("routed-in-arrow", {"query": {"sql": SQL.format(key="who")}, "partitioner": {"algorithm": "pkg"}}),
        ("routed-by-spark", {"query": {"sql": SQL.format(key="trim(who)")}, "partitioner": {"algorithm": "hash"}}),
        ("native-by-plan", {"query": {"sql": SQL.format(key="who")}, "partitioner": {"algorithm": "native"}}),
        ("native-projection", {"query": {"sql": "SELECT who, n + 1 AS more FROM events WHERE n > 0"}}),
        (
            "native-join",
            {"sources": STREAMS, "query": {"sql": f"SELECT e.n FROM events e LEFT SEMI JOIN people p ON {NEAR}"}},
        ),
        (
            "join-of-streams",
            {"sources": STREAMS, "query": {"sql": f"SELECT e.n, p.name FROM events e JOIN people p ON {NEAR}"}},
        ),
        (
            "join-with-table",
            {
                "sources": TABLE,
                "query": {"sql": "SELECT e.n, p.name FROM events e JOIN people p ON e.who = p.who AND p.name <> 'x'"},
                "partitioner": {"algorithm": "wchoices"},
            },
        ),
        (
            "join-with-static-table",
            {
                "sources": {"events": EVENTS, "towns": TOWNS},
                "query": {"sql": "SELECT e.n, t.town FROM events e JOIN towns t ON e.who = t.who"},
            },
        ),
        (
            "join-with-both-tables",
            {
                "sources": TABLE | {"towns": TOWNS},
                "query": {
                    "sql": "SELECT e.n, p.name, t.town FROM events e JOIN people p ON e.who = p.who "
                    "LEFT JOIN towns t ON t.who = p.who"
                },
            },
        ),
        (
            "table-with-history",
            {
                "query": {"sql": "SELECT who, count(*) AS rows FROM events GROUP BY who HAVING count(*) > 1"},
                "sink": {
                    "table": {
                        "bootstrapServers": "kafka:9092",
                        "topic": "new",
                        "history": {"topic": "old", "retention": "1h"},
                    }
                },
            },
        ),
        (
            "python-aggregator",
            {
                "query": {"python": {"aggregator": "spark.broken_aggregators:Rows", "groupBy": ["who"]}},
                "partitioner": {"algorithm": "cam"},
            },
        ),
    ],
)
def test_explain_prints_the_golden_text(tmp_path: Path, name: str, spec: dict[str, Any]) -> None:
    project = Project(tmp_path)
    query = project.query(name=name, **spec)
    result = project.millrace("explain", query)
    assert (result.status, result.err) == (0, "")
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("MILLRACE_UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(result.out, encoding="utf-8")
    assert result.out == file.read_text(encoding="utf-8")
    assert not (tmp_path / "checkpoint").exists()
