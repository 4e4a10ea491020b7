"""Joins with static tables give the results that DuckDB has, from the table as it was at the start."""

import pytest

from .cli import Project
from .joined import NEAR, duckdb_rows, joining, run

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT e.n, t.town FROM events e JOIN towns t ON t.who = e.who",
        "SELECT e.n, t.town FROM events e LEFT JOIN towns t ON t.who = e.who AND e.n > 100",
        "SELECT e.n FROM events e WHERE e.who IN (SELECT who FROM towns WHERE town <> 'town 1')",
        "SELECT e.n, u.town FROM towns t JOIN towns u ON t.who = u.who JOIN events e ON e.who = t.who",
    ],
)
def test_a_stream_is_joined_with_a_static_table(tmp_path, sql):
    project, rows = run(tmp_path, sql)
    assert rows == duckdb_rows(project, sql)


@pytest.mark.parametrize(
    "sql",
    [
        f"""SELECT e.n, c.n AS m, t.town FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}
            JOIN towns t ON t.who = e.who AND c.n > 100""",
        f"""SELECT e.n, c.n AS m, t.town FROM towns t RIGHT JOIN events e ON t.who = e.who
            JOIN clicks c ON e.who = c.who AND {NEAR} WHERE t.town IS NULL OR c.n > 100""",
    ],
)
def test_a_join_of_two_streams_is_joined_with_a_static_table(tmp_path, sql):
    project, rows = run(tmp_path, sql)
    assert rows == duckdb_rows(project, sql)


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_a_table_that_a_stream_looks_up_is_joined_with_a_static_table(tmp_path, join):
    priced = f"SELECT p.at, p.who, p.n, t.town FROM prices p {join} towns t ON t.who = p.who"
    sql = f"SELECT e.n, p.n AS price, p.town FROM events e JOIN ({priced}) p ON p.who = e.who"
    project, rows = run(tmp_path, sql)
    asof = sql.replace("e JOIN", "e ASOF JOIN") + " AND e.at >= p.at"
    assert rows == duckdb_rows(project, asof)


def test_a_changed_file_counts_from_the_next_start(tmp_path):
    sql = "SELECT e.n, t.town FROM events e JOIN towns t ON t.who = e.who"
    project, file = joining(tmp_path, sql)
    assert project.millrace("run", file, "--once").status == 0
    before = project.results()
    project.write("towns.csv", "who,town\nuser 0,moved\n")
    project.write("events/more.csv", "at,who,n\n2024-01-02T00:00:00Z,user 0,1000\n2024-01-02T00:00:00Z,user 1,1001\n")
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert [row[:2] for row in (project.results() - before).elements()] == [("1000", "moved")]


def test_a_static_table_has_one_row_for_each_key(tmp_path):
    sql = "SELECT e.n, t.town FROM events e JOIN towns t ON t.who = e.who"
    project, file = joining(tmp_path, sql)
    project.write("towns.csv", "who,town\na,b\nb,c\na,d\n")
    project.millrace("run", file, "--once").assert_failed(
        "towns", "the static table has 2 rows with the key who = 'a'; keep one of them, or name more columns in keys"
    )
    project.write("towns.csv", "who,town\n,b\n,c\nuser 1,d\n")
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert {row[1] for row in project.results()} == {"d"}


def test_records_of_a_static_table_that_do_not_decode_follow_the_policy(tmp_path):
    project = Project(tmp_path)
    project.give("events.csv", "at,who,n\n2024-01-01T00:00:00Z,a,1\n2024-01-01T00:00:00Z,b,2\n")
    project.write("sizes.csv", "who,size\na,10\nb,large\n")
    stream = {"files": {"path": "in", "format": "csv"}, "schema": "at TIMESTAMP, who STRING, n INT"}
    sizes = {
        "files": {"path": "sizes.csv", "format": "csv"},
        "schema": "who STRING, size INT",
        "table": {"keys": ["who"], "static": True},
    }
    sql = "SELECT e.n, s.size FROM events e LEFT JOIN sizes s ON s.who = e.who"
    file = project.query(sql, sources={"events": stream, "sizes": sizes})
    project.millrace("run", file, "--once").assert_failed("sizes.csv", "large")
    sizes["corruptRecords"] = {"policy": "DeadLetter", "path": "letters"}
    result = project.millrace("run", project.query(sql, sources={"events": stream, "sizes": sizes}), "--once")
    assert (result.status, result.err) == (0, ""), result
    assert "source sizes: 1 records of the static table do not decode" in result.out
    assert {row[:2] for row in project.results()} == {("1", "10"), ("2", "")}
    assert "large" in (tmp_path / "letters" / "sizes-table.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT p.n FROM towns t LEFT JOIN prices p ON t.who = p.who", "its LEFT JOIN keeps rows of towns, which is"),
        ("SELECT p.n FROM prices p FULL JOIN towns t ON t.who = p.who", "its FULL JOIN keeps rows of towns, which is"),
        (
            "SELECT p.n FROM towns t JOIN towns u ON t.who = u.who LEFT JOIN prices p ON p.who = t.who",
            "towns and towns first",
        ),
        ("SELECT p.n FROM (SELECT who FROM towns) t JOIN prices p ON t.who = p.who", "towns without a join"),
        ("SELECT e.n FROM events e RIGHT JOIN towns t ON t.who = e.who", "a RIGHT JOIN needs all records"),
    ],
)
def test_queries_that_cannot_join_a_static_table_are_refused(tmp_path, sql, said):
    project, file = joining(tmp_path, sql)
    project.millrace("explain", file).assert_failed(said)
