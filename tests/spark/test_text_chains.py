"""Queries that read one another's text: what one writes, the next one reads, in CSV and JSON, however it is placed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from .cli import Project

pytestmark = pytest.mark.spark

EVENTS = [
    ("0001-01-01T00:00:00Z", 'C:\\data,old\\"', "NaN"),
    ("0001-01-01T00:10:00Z", 'C:\\data,old\\"', "1.5"),
    ("2024-05-01T12:30:00.5Z", "", "-Infinity"),
    ("2024-05-01T12:40:00Z", "two\r\nlines", "+0.5"),
    ("9999-12-31T23:59:59.999999Z", ' 5\\" pipe ', "-0.0"),
]
WINDOWS = [  # since, until, who, n, top: computed by hand
    ("0000-12-31T23:30:00.000000Z", "0001-01-01T00:30:00.000000Z", 'C:\\data,old\\"', 2, "NaN"),
    ("2024-05-01T12:30:00.000000Z", "2024-05-01T13:30:00.000000Z", "", 1, "-Infinity"),
    ("2024-05-01T12:30:00.000000Z", "2024-05-01T13:30:00.000000Z", "two\r\nlines", 1, 0.5),
    ("9999-12-31T23:30:00.000000Z", "+10000-01-01T00:30:00.000000Z", ' 5\\" pipe ', 1, -0.0),
]
GROUPED = (
    "SELECT window.start AS since, window.end AS until, who, count(*) AS n, max(x) AS top FROM events "
    "GROUP BY window(at, '1 hour', '1 hour', '30 minutes'), who"
)
SCHEMA = "since TIMESTAMP, until TIMESTAMP, who STRING, n BIGINT, top DOUBLE"


@pytest.mark.in_turn
@pytest.mark.parametrize("algorithm", ["hash", "native"])
def test_three_queries_read_one_anothers_text(tmp_path: Path, algorithm: str) -> None:
    project = Project(tmp_path)
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("at", "who", "x"), *EVENTS])
    project.give("1.csv", text.getvalue())
    events = {"schema": "at TIMESTAMP, who STRING, x DOUBLE", "watermark": None}
    plan = {"partitioner": {"algorithm": algorithm}}

    def run(name: str, sql: str, out: str, format: str, source: dict[str, object]) -> None:
        sink = {"files": {"path": out, "format": format}}
        checkpoint = {"uri": (tmp_path / f"checkpoint-{name}").as_uri()}
        query = project.query(sql, name=name, source=source, sink=sink, checkpoint=checkpoint, **plan)
        result = project.millrace("run", query, "--once")
        assert result.status == 0, result

    def results_of(out: str, format: str) -> dict[str, object]:
        return {"files": {"path": out, "format": format}, "schema": SCHEMA, "watermark": None}

    run("first", GROUPED, "one", "csv", events)
    copy = "SELECT since, until, who, n, top FROM events"
    run("second", copy, "two", "json", results_of("one", "csv"))
    run("third", copy, "three", "json", results_of("two", "json"))
    rows = [json.loads(line) for file in (tmp_path / "three").glob("*.json") for line in file.open(encoding="utf-8")]
    found = sorted((row["since"], row["until"], row["who"], row["n"], str(row.get("top"))) for row in rows)
    assert found == sorted((*window[:4], str(window[4])) for window in WINDOWS)
