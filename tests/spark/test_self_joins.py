"""One source in several places of a query, under each plan: DuckDB's rows, and each record counted once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest

from .cli import Project

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

RECORDS = [
    (f"2024-01-01 00:0{minute}:{second}", who, minute) for minute in range(4) for second in ("00", "30") for who in "ab"
]
TO_A_MINUTE = "a.who = b.who AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE"

QUERIES = {
    "join": f"SELECT a.who, a.n AS x, b.n AS y FROM events AS a JOIN events AS b ON {TO_A_MINUTE}",
    "thrice": f"SELECT a.who, a.n AS x, b.n AS y, c.n AS z FROM events AS a JOIN events AS b ON {TO_A_MINUTE} "
    "JOIN events AS c ON b.who = c.who AND c.at BETWEEN b.at AND b.at + INTERVAL 30 SECOND",
    "left": f"SELECT a.who, a.n AS x, b.n AS y FROM events AS a LEFT JOIN events AS b ON {TO_A_MINUTE} AND b.n = a.n + 9",
    "union": "SELECT who, n FROM events UNION ALL SELECT who, -n AS n FROM events",
    "subqueries": "SELECT a.who, a.n AS x, b.n AS y FROM (SELECT * FROM events WHERE n > 0) AS a "
    f"JOIN (SELECT * FROM events WHERE n < 3) AS b ON {TO_A_MINUTE}",
}


def expected(sql: str) -> Counter[tuple[str, ...]]:
    with duckdb.connect() as connection:
        connection.execute('CREATE TABLE events ("at" TIMESTAMP, who VARCHAR, n INT)')
        connection.executemany("INSERT INTO events VALUES (?, ?, ?)", RECORDS)
        rows = connection.execute(sql.replace(".at", '."at"')).fetchall()  # a keyword of DuckDB
    return Counter(tuple("" if value is None else str(value) for value in row) for row in rows)


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        *(("join", algorithm) for algorithm in ("native", "hash", "pkg")),
        ("thrice", "hash"),
        ("left", "hash"),
        ("union", "hash"),
        ("subqueries", "pkg"),
    ],
)
def test_a_source_that_is_read_twice_counts_each_record_once(tmp_path: Path, name: str, algorithm: str) -> None:
    project = Project(tmp_path)
    for number in range(2):  # two batches
        lines = (f"{at.replace(' ', 'T')}Z,{who},{n}\n" for at, who, n in RECORDS[number::2])
        project.give(f"{number}.csv", "at,who,n\n" + "".join(lines) + ("bad\n" if number else ""))
    source = {
        "files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1},
        "corruptRecords": {"policy": "Drop"},
        "watermark": {"column": "at", "delay": "5m"},
    }
    query = project.query(QUERIES[name], source=source, partitioner={"algorithm": algorithm})
    run = project.millrace("run", query, "--once")
    assert run.status == 0, run
    assert (run.summary["rows"], run.summary["rejected"], run.summary["late"]) == (str(len(RECORDS)), "1", "0")
    columns = len(next(iter(expected(QUERIES[name]))))
    found: Counter[tuple[str, ...]] = Counter()
    for row, times in project.results().items():  # each with the number of its batch
        found[row[:columns]] += times
    assert found == expected(QUERIES[name])
