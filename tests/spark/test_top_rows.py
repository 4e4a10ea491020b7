"""The first rows of partitions, through Spark, are those of DuckDB for the whole input."""

import pytest

from .joined import duckdb_rows, run

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]


def test_the_first_groups_and_the_last_records_of_each_window_are_those_of_duckdb(tmp_path):
    query = """SELECT x.who, {since} AS since, x.c, x.r FROM (
                 SELECT g.w, g.who, g.c, row_number() OVER (PARTITION BY g.w ORDER BY g.c DESC, g.who) AS r FROM (
                   SELECT {minute_of_e} AS w, e.who, count(*) AS c FROM events e GROUP BY {minute_of_e}, e.who) g) x
                 WHERE x.r <= 2
               UNION ALL SELECT c.who, {seconds} AS since, c.n AS c, 0 AS r FROM clicks c
                 QUALIFY row_number() OVER (PARTITION BY {minute_of_c}, c.who ORDER BY c.at DESC, c.n) = 1"""
    in_spark = {
        "minute_of_e": "window(e.at, '1 minute')",
        "minute_of_c": "window(c.at, '1 minute')",
        "since": "unix_seconds(x.w.start)",
        "seconds": "unix_seconds(c.at)",
    }
    in_duckdb = {
        "minute_of_e": "time_bucket(INTERVAL 1 MINUTE, e.at)",
        "minute_of_c": "time_bucket(INTERVAL 1 MINUTE, c.at)",
        "since": "epoch(x.w)::BIGINT",
        "seconds": "epoch(c.at)::BIGINT",
    }
    project, rows = run(tmp_path, query.format(**in_spark), emit="OnWindowClose")
    expected = duckdb_rows(project, query.format(**in_duckdb))
    assert rows == expected
    assert len(expected) > 20
