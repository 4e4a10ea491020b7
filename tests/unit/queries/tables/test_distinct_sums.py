"""Sums and averages of distinct values are those of DuckDB, in every version and in any order of arrival."""

import pytest
from hypothesis import given, settings

from change_tables import disordered
from millrace_jobs.changes import FOREVER
from staged_queries import GRACE, STREAMS, TABLES, StagedQuery, contents_at, duckdb_rows, events, versions_of

KEYS = "abcd"
OF_TABLES = [
    "SELECT n % 2 AS h, sum(DISTINCT n) AS s, avg(DISTINCT n) AS a, count(DISTINCT n) AS c, sum(n) AS t FROM p GROUP BY n % 2",
    "SELECT sum(DISTINCT n / 2) AS s, avg(DISTINCT n / 4) AS a FROM p",
    "SELECT k < 'c' AS h, sum(DISTINCT CAST(n AS DECIMAL(10, 2))) AS s, sum(DISTINCT -n) FILTER (WHERE n > 0) AS f FROM p "
    "GROUP BY k < 'c'",
    "SELECT q.n, sum(DISTINCT p.n) AS s FROM q LEFT JOIN p ON p.n = q.n GROUP BY q.n HAVING sum(DISTINCT p.n) > 0",
]


@pytest.mark.parametrize("sql", OF_TABLES)
@settings(max_examples=8)
@given(batches=disordered(events(TABLES, KEYS), GRACE))
def test_sums_of_distinct_values_of_tables_are_those_of_duckdb_in_every_version(sql, batches):
    last, versions, seen = StagedQuery(sql, TABLES), StagedQuery(sql, TABLES, versions=True), []
    for arrived, watermark in batches:
        seen += arrived
        for query in (last, versions):
            query.batch(arrived, watermark)
        if contents := contents_at(seen, TABLES, FOREVER)["p"]:
            assert last.version(FOREVER - 1) == duckdb_rows(sql, contents_at(seen, TABLES, FOREVER)), contents
    for time, contents in versions_of(seen, TABLES).items():
        if contents["p"]:
            assert versions.version(time) == duckdb_rows(sql, contents), time


OF_STREAMS = [
    "SELECT k, sum(DISTINCT n) AS s, avg(DISTINCT n) AS a FROM s GROUP BY k",
    "SELECT k, sum(DISTINCT n / 2) AS s FROM s GROUP BY k",
]


@pytest.mark.parametrize("sql", OF_STREAMS)
@settings(max_examples=8)
@given(batches=disordered(events(STREAMS, KEYS), GRACE))
def test_sums_of_distinct_values_of_streams_are_those_of_duckdb_after_each_batch(sql, batches):
    query, seen = StagedQuery(sql, STREAMS), []
    for arrived, watermark in batches:
        seen += arrived
        query.batch(arrived, watermark)
        assert query.version(FOREVER - 1) == duckdb_rows(sql, contents_at(seen, STREAMS, FOREVER))


def test_a_sum_is_null_without_values_and_is_what_remains_after_the_last_one():
    query = StagedQuery("SELECT sum(DISTINCT n) AS s, avg(DISTINCT n) AS a FROM p", TABLES)
    query.batch([(1, "p", "a", 2), (1, "p", "b", 2)], 0)
    assert query.results == {(2, 2.0): 1}
    query.batch([(2, "p", "a", None)], 0)
    assert query.results == {(2, 2.0): 1}


def test_parts_of_one_expression_share_its_values():
    query = StagedQuery("SELECT sum(DISTINCT n) AS s, count(DISTINCT n) AS c FROM s", STREAMS)
    query.batch([(1, "s", "a", number) for number in range(50)], 0)
    assert query.kept == 51
