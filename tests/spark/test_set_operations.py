"""CTEs and set operations of streams come to what DuckDB has for the whole input."""

import pytest

from .joined import NEAR, duckdb_rows, run

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]


def test_a_query_of_ctes_and_set_operations_has_the_rows_of_duckdb(tmp_path):
    query = f"""WITH near AS (SELECT e.who, e.at, c.n FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}),
                     chosen AS (SELECT near.who, near.at FROM near WHERE near.n % 4 = 0
                              UNION ALL SELECT e.who, e.at FROM events e WHERE e.n % 3 = 0)
                SELECT s.who, {{seconds}} AS since FROM (
                  SELECT DISTINCT chosen.who, chosen.at FROM chosen
                  EXCEPT SELECT c.who, c.at FROM clicks c) s"""
    project, rows = run(tmp_path, query.format(seconds="unix_seconds(s.at)"), emit="OnWindowClose")
    expected = duckdb_rows(project, query.format(seconds="epoch(s.at)::BIGINT"))
    assert rows == expected
    assert len(expected) > 20


def test_a_routed_aggregation_of_a_cte_has_the_rows_of_duckdb(tmp_path):
    query = """WITH doubled AS (SELECT e.at AS moment, upper(e.who) AS person, e.n * 2 AS m FROM events e WHERE e.n > 3)
               SELECT {since} AS since, person, sum(m) AS total, count(*) AS records FROM doubled
               WHERE m % 3 > 0 GROUP BY {window}, person HAVING sum(m) > 50"""
    project, rows = run(
        tmp_path,
        query.format(since="unix_seconds(window.start)", window="window(moment, '1 minute')"),
        emit="OnWindowClose",
        partitioner={"algorithm": "pkg"},
    )
    minute = "epoch(time_bucket(INTERVAL 1 MINUTE, moment))::BIGINT"
    assert rows == duckdb_rows(project, query.format(since=minute, window=minute))
