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
