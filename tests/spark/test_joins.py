"""Joins of streams and tables by their own operators give the results that DuckDB has for the whole input."""

from collections import Counter

import pytest

from .joined import NEAR, duckdb_rows, joining, run

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]


@pytest.mark.parametrize(
    ("join", "spec"),
    [
        ("JOIN", {}),
        ("JOIN", {"emit": "OnWindowClose"}),
        ("LEFT JOIN", {"emit": "OnWindowClose"}),
        ("RIGHT JOIN", {"emit": "OnWindowClose"}),
        ("FULL JOIN", {}),
    ],
)
def test_a_join_of_two_streams_has_the_rows_of_duckdb(tmp_path, join, spec):
    sql = f"SELECT e.n, e.who, c.n AS m FROM events e {join} clicks c ON e.who = c.who AND {NEAR} AND c.n > 300"
    project, rows = run(tmp_path, sql, **spec)
    assert rows == duckdb_rows(project, sql)


def test_a_join_keeps_the_conditions_of_where_and_both_sides(tmp_path):
    sql = f"""
        SELECT e.n + c.n AS total, upper(who2) AS who FROM (SELECT events.at, who AS who2, n FROM events WHERE n % 7 < 5) e
        JOIN clicks c ON who2 = c.who AND {NEAR} WHERE e.n * 10 <> c.n AND c.n < 1500 AND e.n > 3"""
    project, rows = run(tmp_path, sql)
    assert rows == duckdb_rows(project, sql)


def test_a_chain_of_joins_has_the_rows_of_duckdb(tmp_path):
    sql = f"""
        SELECT e.n, c.n AS m, p.n AS price FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}
        JOIN prices p ON p.who = e.who"""
    project, rows = run(tmp_path, sql)
    # DuckDB's ASOF takes one column on each side
    nested = f"""
        SELECT x.n, x.m, p.n FROM (SELECT e.n, c.n AS m, e.who, greatest(e.at, c.at) AS at FROM events e
        JOIN clicks c ON e.who = c.who AND {NEAR}) x ASOF JOIN prices p ON p.who = x.who AND x.at >= p.at"""
    assert rows == duckdb_rows(project, nested)


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_a_stream_meets_the_version_of_a_table_at_its_own_time(tmp_path, join):
    sql = f"SELECT e.n, e.who, p.n AS price FROM events e {join} prices p ON p.who = e.who"
    project, rows = run(tmp_path, sql)
    asof = sql.replace(join, f"ASOF {join}").replace("ON p.who = e.who", "ON p.who = e.who AND e.at >= p.at")
    assert rows == duckdb_rows(project, asof)


def test_an_outer_join_compares_columns_of_both_streams(tmp_path):
    sql = f"""
        SELECT e.n, c.n AS m FROM events e FULL JOIN clicks c ON e.who = c.who AND {NEAR} AND abs(c.n - 700) > e.n * 2
        AND (e.n < 150 OR c.n % 3 = 0)"""
    project, rows = run(tmp_path, sql, emit="OnWindowClose")
    assert rows == duckdb_rows(project, sql)


def test_an_outer_join_compares_a_record_with_the_version_at_its_time(tmp_path):
    sql = "SELECT e.n, p.n AS price FROM events e LEFT JOIN prices p ON p.who = e.who AND e.n > 3 * p.n + 20"
    project, rows = run(tmp_path, sql)
    asof = """
        SELECT e.n, CASE WHEN e.n > 3 * p.n + 20 THEN p.n END AS price
        FROM events e ASOF LEFT JOIN prices p ON p.who = e.who AND e.at >= p.at"""
    expected = duckdb_rows(project, asof)
    assert rows == expected
    assert 0 < sum(price == "" for _, price in expected.elements()) < len(expected)


def test_a_full_join_with_a_table_has_the_versions_that_no_record_met(tmp_path):
    """Files have those that have ended: the newest one may still meet a record."""
    sql = "SELECT e.n, p.who, p.n AS price FROM events e FULL JOIN prices p ON p.who = e.who"
    project, rows = run(tmp_path, sql)
    asof = "SELECT e.n, p.who, p.n FROM events e ASOF FULL JOIN prices p ON p.who = e.who AND e.at >= p.at"
    newest = "SELECT NULL, who, max_by(n, prices.at) FROM prices GROUP BY who"
    expected = duckdb_rows(project, asof) - duckdb_rows(project, newest)
    assert rows == expected
    assert any(n == "" for n, *_ in expected)
    assert any(who == "" for _, who, _ in expected)


def test_records_without_a_row_in_a_table_are_those_of_not_exists(tmp_path):
    sql = "SELECT e.n FROM events e WHERE NOT EXISTS (SELECT 1 FROM prices p WHERE p.who = e.who AND p.n % 2 = 1)"
    project, rows = run(tmp_path, sql)
    asof = """
        SELECT e.n FROM events e ASOF LEFT JOIN prices p ON p.who = e.who AND e.at >= p.at
        WHERE p.n IS NULL OR p.n % 2 = 0"""
    assert rows == duckdb_rows(project, asof)


def test_late_records_are_counted_and_left_out(tmp_path):
    sql = f"SELECT e.n, c.n AS m FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}"
    project, file = joining(tmp_path, sql)
    expected = duckdb_rows(project, sql)
    with (tmp_path / "events" / "4.csv").open("a", encoding="utf-8") as last:
        last.write("2024-01-01T00:00:00Z,user 0,1\n2024-01-01T00:00:07Z,user 1,2\n")
    result = project.millrace("run", file, "--once")
    assert (result.status, result.summary["late"]) == (0, "2"), result
    assert Counter(row[:-1] for row in project.results().elements()) == expected


def test_keys_that_are_numbers_are_compared_as_spark_does(tmp_path):
    """NaN is equal to itself, and so are both zeros."""
    key = """CASE {0}.n % 50 WHEN 0 THEN CAST('NaN' AS DOUBLE) WHEN 10 THEN CAST('-0.0' AS DOUBLE)
        WHEN 20 THEN CAST(0 AS DOUBLE) ELSE CAST({0}.n % 50 AS DOUBLE) END"""
    sql = f"SELECT e.n, c.n AS m FROM events e JOIN clicks c ON {key.format('e')} = {key.format('c')} AND {NEAR}"
    project, rows = run(tmp_path, sql)
    assert rows == duckdb_rows(project, sql)


def test_a_table_is_never_final(tmp_path):
    sink = {"table": {"bootstrapServers": "localhost:1", "topic": "t", "key": ["who"]}}
    sql = "SELECT p.who, p.n, q.n AS plan FROM prices p JOIN plans q ON p.who = q.who"
    project, file = joining(tmp_path, sql, emit="OnWindowClose", sink=sink)
    result = project.millrace("explain", file)
    assert result.status == 1
    assert (
        "spec.emit: the result is a table of the latest rows, which is never final; write emit: OnUpdate" in result.err
    )


def test_a_stream_meets_the_versions_of_a_join_of_tables(tmp_path):
    sql = """
        SELECT e.n, x.price, x.plan FROM events e JOIN (SELECT p.who, p.n AS price, q.n AS plan FROM prices p
        JOIN plans q ON p.who = q.who) x ON x.who = e.who"""
    project, rows = run(tmp_path, sql)
    nested = """
        SELECT e.n, p.n, q.n FROM events e ASOF JOIN prices p ON p.who = e.who AND e.at >= p.at
        ASOF JOIN plans q ON q.who = e.who AND e.at >= q.at"""
    assert rows == duckdb_rows(project, nested)


def test_outer_results_meet_the_version_of_a_table_at_their_own_time(tmp_path):
    sql = f"""
        SELECT e.n, c.n AS m, p.n AS price FROM events e LEFT JOIN clicks c ON e.who = c.who AND {NEAR} AND c.n % 3 = 0
        LEFT JOIN prices p ON p.who = e.who"""
    project, rows = run(tmp_path, sql)
    nested = f"""
        SELECT x.n, x.m, p.n FROM (SELECT e.n, c.n AS m, e.who, greatest(e.at, c.at) AS at FROM events e
        LEFT JOIN clicks c ON e.who = c.who AND {NEAR} AND c.n % 3 = 0) x
        ASOF LEFT JOIN prices p ON p.who = x.who AND x.at >= p.at"""
    assert rows == duckdb_rows(project, nested)


def test_using_makes_one_column_of_two(tmp_path):
    sql = f"SELECT who, e.n, c.n AS m FROM events e JOIN clicks c USING (who) WHERE {NEAR} AND c.n > 300"
    project, file = joining(tmp_path, sql)
    assert "runs by operators on tables" in project.millrace("explain", file).out
    assert project.millrace("run", file, "--once").status == 0
    assert Counter(row[:-1] for row in project.results().elements()) == duckdb_rows(project, sql)
