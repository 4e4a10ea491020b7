"""Joins of two streams give the rows that DuckDB has for the whole input, by Spark's own plan and by operators on tables.

Spark's operator takes NULL for a key, keeps rows without an event time forever, and removes rows by what is no event
time; see ``queries.native.joins``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest

from .cli import Project, Result

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

LEFT = [
    [",NaN,00:00:00,00:10:00,1", "1,-0.0,00:00:00,00:10:00,2", "2,1.5,00:00:01,,3", "3,0.0,,00:10:00,4"],
    ["4,NaN,00:05:00,00:00:00,5", ",2.5,00:05:00,00:10:00,6", "1,7.0,,,7"],
    ["9,9.0,01:00:00,01:00:01,8"],
]
RIGHT = [
    [",NaN,00:00:02,10", "1,0.0,00:00:05,20", "2,-0.0,00:00:06,30", "3,8.0,,40", "7,NaN,00:00:01,50"],
    ["4,NaN,00:05:01,60", ",2.5,00:05:04,70", "1,1.5,00:09:00,80", ",,,90"],
    ["9,9.0,01:00:00,100"],
]
"""Files of both streams: id, d, the time of day, and of the left one also the time when it is due."""

SCHEMAS = {"l": "id INT, d DOUBLE, lt TIMESTAMP, due TIMESTAMP, v INT", "r": "id INT, d DOUBLE, rt TIMESTAMP, w INT"}
NEAR = "r.rt BETWEEN l.lt AND l.lt + INTERVAL 5 SECONDS"
ITEMS = "l.id, r.id AS id2, l.v, r.w"


def run(folder: Path, sql: str, algorithm: str) -> tuple[Project, Result, Result]:
    """Explain a query over both streams, and run it with one file of each per batch."""
    project, sources = Project(folder), {}
    for (name, schema), files in zip(SCHEMAS.items(), (LEFT, RIGHT), strict=True):
        (folder / name).mkdir()
        head = ",".join(column.split()[0] for column in schema.split(", "))
        for number, lines in enumerate(files):
            rows = "\n".join(",".join(f"2024-01-01T{each}Z" if ":" in each else each for each in line.split(","))
                             for line in lines)  # fmt: skip
            project.write(f"{name}/{number}.csv", f"{head}\n{rows}\n")
        sources[name] = {
            "files": {"path": name, "format": "csv", "maxFilesPerBatch": 1},
            "schema": schema,
            "watermark": {"column": f"{name}t", "delay": "1s"},
        }
    if "JOIN x" in sql:
        sources["x"] = sources["r"]
    file = project.query(sql, sources=sources, emit="OnWindowClose", partitioner={"algorithm": algorithm})
    return project, project.millrace("explain", file), project.millrace("run", file, "--once")


def expected(project: Project, sql: str) -> Counter[tuple[str, ...]]:
    with duckdb.connect() as connection:
        for name in SCHEMAS:
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{project.folder / name / '*.csv'}')")
        connection.execute("CREATE TABLE x AS SELECT * FROM r")
        rows = connection.execute(sql.replace("LEFT SEMI", "SEMI")).fetchall()
    return Counter(tuple("" if value is None else str(value) for value in row) for row in rows)


@pytest.mark.parametrize("algorithm", ["native", "hash"])
@pytest.mark.parametrize(
    "join",
    [
        f"FULL JOIN r ON l.id = r.id AND l.v > 1 AND r.w BETWEEN 20 AND 100 AND {NEAR}",
        f"RIGHT JOIN r ON nullif(l.id, 2) = nullif(r.id, 3) AND {NEAR}",
        f"LEFT JOIN r ON l.d = r.d AND l.v < 8 AND {NEAR}",
    ],
)
def test_null_matches_nothing(tmp_path, join, algorithm):
    sql = f"SELECT {ITEMS} FROM l {join}"
    project, explained, ended = run(tmp_path, sql, algorithm)
    says_so = "NULL matches nothing in its joins" in explained.out
    assert (ended.status, ended.err, says_so) == (0, "", algorithm == "native"), ended
    assert project.results() == expected(project, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, l.v, r.w FROM l FULL JOIN (SELECT id, rt AS lt, w FROM r) r USING (id, lt)",
        f"SELECT {ITEMS} FROM l, r WHERE nullif(l.id, 2) = nullif(r.id, 3) AND {NEAR}",
        f"SELECT l.id, l.v FROM l LEFT SEMI JOIN r ON nullif(l.id, 2) = nullif(r.id, 3) AND l.v < 6 AND {NEAR}",
    ],
)
def test_joins_that_only_spark_does_have_the_rows_of_duckdb(tmp_path, sql):
    project, _, ended = run(tmp_path, sql, "native")
    assert (ended.status, ended.err) == (0, ""), ended
    assert project.results() == expected(project, sql)


@pytest.mark.parametrize(
    ("join", "reason"),
    [
        ("LEFT JOIN r ON l.id = r.id AND r.rt BETWEEN l.lt AND l.due", "would not keep rows until l.due"),
        (
            f"JOIN r ON l.id = r.id AND {NEAR} JOIN x ON l.d = x.d AND {NEAR.replace('r.', 'x.')}",
            "takes no more than two streams",
        ),
    ],
)
def test_what_spark_does_wrong_is_not_left_to_it(tmp_path, join, reason):
    sql = f"SELECT {ITEMS} FROM l {join}"
    project, explained, ended = run(tmp_path, sql, "native")
    assert f"runs by operators on tables, as Spark's own join {reason};" in explained.out
    assert (ended.status, ended.err) == (0, ""), ended
    assert project.results() == expected(project, sql)


def test_a_join_that_nothing_runs_rightly_is_refused(tmp_path):
    sql = "SELECT l.id, l.v FROM l LEFT SEMI JOIN r ON l.id = r.id AND r.rt BETWEEN l.lt AND l.due"
    _, explained, ended = run(tmp_path, sql, "hash")
    for result in (explained, ended):
        result.assert_failed("LeftSemi join", "an appropriate range condition")


CHAIN = f"l FULL JOIN r ON l.id = r.id AND {NEAR}"
THEN = "LEFT JOIN x ON l.id = x.id AND x.rt BETWEEN l.lt AND l.lt + INTERVAL 1 MINUTE"


@pytest.mark.parametrize(
    ("sql", "algorithm"),
    [
        (f"SELECT {ITEMS}, second(l.lt) AS a, second(r.rt) AS b, x.w AS z FROM {CHAIN} {THEN}", "native"),
        (
            "SELECT second(y.rt) AS b, y.w, x.w AS z, count(*) AS n FROM "
            f"(SELECT l.lt, r.id, r.rt, r.w FROM {CHAIN}) y RIGHT JOIN x ON y.id = x.id AND y.rt BETWEEN x.rt - "
            "INTERVAL 1 SECOND AND x.rt WHERE x.rt IS NOT NULL AND (y.lt IS NULL OR y.lt < y.rt) "
            "GROUP BY x.rt, y.rt, y.w, x.w",
            "hash",
        ),
    ],
)
def test_the_rows_of_a_full_join_are_joined_and_grouped_by_one_of_their_event_times(tmp_path, sql, algorithm):
    project, explained, ended = run(tmp_path, sql, algorithm)
    assert "runs natively, by Spark's own plan" in explained.out
    assert (ended.status, ended.err) == (0, ""), ended
    assert project.results() == expected(project, sql)
