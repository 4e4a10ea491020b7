"""UNION, DISTINCT, EXCEPT, INTERSECT, CTEs and many inputs come to what DuckDB has, in every version and in any order."""

import pytest
from hypothesis import given, settings
from pyspark.sql.types import StructType

from change_tables import disordered
from millrace_api.model.streamquery import Spec
from millrace_jobs.changes import FOREVER
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.tables.scopes import NotATableQueryError
from staged_queries import (
    GRACE,
    STREAMS,
    TABLES,
    StagedQuery,
    contents_at,
    duckdb_rows,
    events,
    query_of_records,
    versions_of,
)

BOTH = "SELECT k, n FROM p UNION ALL SELECT k, n FROM q"
OF_TABLES = [
    "SELECT DISTINCT n FROM p",
    "SELECT DISTINCT p.n, q.n AS m FROM p JOIN q ON p.k = q.k",
    "SELECT DISTINCT p.n, q.n AS m FROM p LEFT JOIN q ON p.n = q.n",
    BOTH,
    "SELECT k, n FROM p UNION SELECT k, n FROM q",
    "SELECT n, n AS m FROM p UNION ALL SELECT n, count(*) AS m FROM q GROUP BY n",
    f"SELECT n, count(*) AS c FROM ({BOTH}) GROUP BY n",
    f"SELECT x.k, x.n, q.n AS m FROM ({BOTH}) x JOIN q ON x.n = q.n",
    f"SELECT x.k, y.k AS j FROM ({BOTH}) x LEFT JOIN ({BOTH}) y ON x.n = y.n",
    "SELECT k, n FROM p EXCEPT SELECT k, n FROM q",
    "SELECT n FROM p EXCEPT SELECT n FROM q",
    "SELECT n FROM p INTERSECT SELECT n FROM q",
    "SELECT n % 2 AS h, count(*) AS c FROM (SELECT n FROM p INTERSECT SELECT n FROM q) GROUP BY n % 2",
    "SELECT n FROM p EXCEPT ALL SELECT n FROM q",
    "SELECT n FROM p INTERSECT ALL SELECT n FROM q",
    "SELECT n, count(*) AS c FROM (SELECT n FROM p EXCEPT ALL SELECT n FROM q WHERE n > 0) GROUP BY n",
    "SELECT x.n, q.k FROM (SELECT n FROM p INTERSECT ALL SELECT n FROM q) x JOIN q ON x.n = q.n",
    "SELECT n FROM p UNION SELECT n FROM q EXCEPT (SELECT n FROM p INTERSECT SELECT n FROM q)",
    "WITH x AS (SELECT n, count(*) AS c FROM p GROUP BY n) SELECT a.c, q.k FROM x a JOIN x b ON a.c = b.c JOIN q ON q.n = b.n",
    "WITH x(j, m) AS (SELECT k, n FROM p), y AS (SELECT j FROM x WHERE m > 0) SELECT q.n FROM y JOIN q ON q.k = y.j",
    "SELECT a.k, b.k AS j, c.k AS i FROM p a JOIN p b ON a.n = b.n LEFT JOIN p c ON c.k = b.k AND c.n > 0",
    "SELECT a.k, b.n FROM p a FULL JOIN q b ON a.k = b.k LEFT JOIN p c ON c.k = coalesce(a.k, b.k)",
    "SELECT a.k, c.n FROM p a, p b, q c WHERE a.n = c.n AND b.k = c.k",
    "SELECT p.k, q.k AS j, p.n FROM p JOIN q ON p.n < q.n",
    "SELECT x.k FROM p x JOIN (SELECT k AS kk, n AS id FROM q) y ON id > 0 JOIN (SELECT k AS kc, n AS id FROM p) z ON x.k = z.kc",
    "SELECT p.k, q.k AS j, c.k AS i FROM p JOIN q ON p.k = q.k FULL JOIN p c ON c.k = p.k WHERE p.n > 0",
    "SELECT k, n FROM p WHERE n > 0 AND EXISTS (SELECT 1 FROM q WHERE q.n = p.n)",
    "SELECT p.k, q.n FROM p LEFT JOIN q ON p.n > 0 AND q.n > 0",
    "SELECT a.k, c.n FROM p a LEFT JOIN (q b JOIN q c ON b.n = c.n) ON a.n = b.n",
]
"""Queries of the tables p and q."""


@pytest.mark.parametrize("sql", OF_TABLES)
@settings(max_examples=3)
@given(batches=disordered(events(TABLES), GRACE))
def test_a_query_of_tables_has_duckdb_s_rows_in_every_version(sql, batches):
    last, versions, seen = StagedQuery(sql, TABLES), StagedQuery(sql, TABLES, versions=True), []
    for arrived, watermark in batches:
        seen += arrived
        for query in (last, versions):
            query.batch(arrived, watermark)
        assert last.version(FOREVER - 1) == duckdb_rows(sql, contents_at(seen, TABLES, FOREVER))
    for time, contents in versions_of(seen, TABLES).items():
        assert versions.version(time) == duckdb_rows(sql, contents), time


OF_BOTH = [
    "SELECT k, n FROM p UNION ALL SELECT k, n FROM s",
    "SELECT n, count(*) AS c FROM (SELECT k, n FROM s UNION ALL SELECT k, n FROM p) GROUP BY n",
    "SELECT n FROM p EXCEPT SELECT n FROM s",
    "SELECT n FROM s EXCEPT ALL SELECT n FROM p",
    "SELECT k, n FROM s UNION SELECT k, n FROM p",
]
"""Queries whose latest rows are those of DuckDB over all records and the latest rows of tables."""


@pytest.mark.parametrize("sql", OF_BOTH)
@settings(max_examples=3)
@given(batches=disordered(events([*TABLES, "s"]), GRACE))
def test_records_beside_rows_of_a_table_stay(sql, batches):
    sources = {"p": True, "s": False}
    query, seen = StagedQuery(sql, sources), []
    for arrived, watermark in batches:
        seen += arrived
        query.batch(arrived, watermark)
        assert query.version(FOREVER - 1) == duckdb_rows(sql, contents_at(seen, sources, FOREVER))


BETWEEN = "r.at BETWEEN s.at AND s.at + INTERVAL 3 MICROSECONDS"
OF_STREAMS = [
    "SELECT k, at FROM s EXCEPT SELECT k, at FROM r",
    "SELECT k, at FROM s INTERSECT SELECT k, at FROM r",
    "SELECT k, at FROM s EXCEPT ALL SELECT k, at FROM r",
    "SELECT k, at FROM s INTERSECT ALL SELECT k, at FROM r",
    f"SELECT DISTINCT s.k, s.at FROM s JOIN r ON s.k = r.k AND {BETWEEN}",
    f"SELECT s.k, s.n, r.n AS m FROM s LEFT JOIN r ON s.k = r.k AND {BETWEEN} UNION ALL SELECT k, n, n FROM r",
    f"SELECT at, count(*) AS c FROM (SELECT s.at FROM s LEFT JOIN r ON s.k = r.k AND {BETWEEN} UNION ALL "
    "SELECT at FROM r) GROUP BY at",
    "SELECT x.k, r.n FROM (SELECT k, at FROM s UNION ALL SELECT k, at FROM r) x JOIN r ON x.k = r.k "
    "AND r.at BETWEEN x.at AND x.at + INTERVAL 2 MICROSECONDS",
]
"""Queries of streams whose results are final."""


@pytest.mark.parametrize("sql", OF_STREAMS)
@settings(max_examples=3)
@given(batches=disordered(events(STREAMS), GRACE))
def test_a_query_of_streams_has_duckdb_s_rows_once_they_are_final(sql, batches):
    query, seen = StagedQuery(sql, STREAMS, final=True), []
    for arrived, watermark in batches:
        seen += arrived
        before = query.results
        query.batch(arrived, watermark)
        assert not before - query.results, "a final row was taken back"
    query.end()
    assert query.late == 0
    assert query.results == duckdb_rows(sql, contents_at(seen, STREAMS, FOREVER))


CHANGING = [
    OF_STREAMS[0],
    OF_STREAMS[2],
    f"SELECT k, count(*) AS c FROM (SELECT s.k, s.n FROM s LEFT JOIN r ON s.k = r.k AND {BETWEEN} UNION ALL "
    "SELECT k, n FROM r) GROUP BY k",
    f"SELECT DISTINCT s.k, r.n FROM s FULL JOIN r ON s.k = r.k AND {BETWEEN}",
]
"""Queries of streams whose rows change as records come."""


@pytest.mark.parametrize("sql", CHANGING)
@settings(max_examples=3)
@given(batches=disordered(events(STREAMS), GRACE))
def test_rows_that_change_are_those_of_duckdb_after_each_batch(sql, batches):
    query, seen = StagedQuery(sql, STREAMS), []
    for arrived, watermark in batches:
        seen += arrived
        query.batch(arrived, watermark)
        assert query.version(FOREVER - 1) == duckdb_rows(sql, contents_at(seen, STREAMS, FOREVER))


OF_RECORDS = [
    f"SELECT s.k, s.n, x.n AS m FROM s JOIN ({BOTH}) x ON x.k = s.k",
    "SELECT s.k, x.n FROM s LEFT JOIN (SELECT n FROM p EXCEPT SELECT n FROM q) x ON x.n = s.n",
    "SELECT s.k, x.n FROM s JOIN (SELECT DISTINCT n FROM p) x ON x.n = s.n",
    "SELECT s.k, s.n, p.n AS m FROM s CROSS JOIN p WHERE s.n < p.n",
    "SELECT s.n, p.n AS m, q.n AS o FROM s LEFT JOIN p ON p.k = s.k LEFT JOIN q ON q.n = p.n",
]


@pytest.mark.parametrize("sql", OF_RECORDS)
@settings(max_examples=3)
@given(batches=disordered(events([*TABLES, "s"]), GRACE))
def test_a_record_meets_the_version_of_its_own_time(sql, batches):
    query, expected = query_of_records(sql, batches)
    assert query.results == expected


def test_a_late_record_beside_rows_that_cannot_be_late_is_counted():
    sql = f"SELECT s.k FROM s JOIN r ON s.k = r.k AND {BETWEEN} UNION ALL SELECT k FROM r"
    query = StagedQuery(sql, STREAMS)
    query.batch([(10, "s", "a", 1), (10, "r", "a", 1)], 0)
    query.batch([(3, "r", "b", 1), (12, "r", "b", 1)], 8)
    assert (query.late, query.results) == (2, {("a",): 2, ("b",): 1})


@pytest.mark.parametrize("sql", OF_STREAMS[:2])
def test_the_state_of_a_row_ends_with_its_event_time(sql):
    query = StagedQuery(sql, STREAMS, final=True)
    for second in range(1, 16):
        query.batch([(second, "s", "a", 1), (second, "r", "b", 1)], second - 3)
        assert query.kept <= 2 * 4
    query.end()
    assert query.kept == 0


def test_the_state_of_distinct_rows_has_each_once():
    """The rows of the table itself are in a state of their own."""
    query = StagedQuery("SELECT DISTINCT n FROM p", TABLES)
    query.batch([(1, "p", f"key {number}", number % 3) for number in range(60)], 0)
    assert query.kept == 60 + 3


def test_rows_with_a_key_are_distinct_without_a_state():
    query = StagedQuery("SELECT DISTINCT k, n FROM p", TABLES)
    query.batch([(1, "p", "a", 1), (1, "p", "b", 1)], 0)
    assert (query.kept, query.query.key) == (2, (0,))


def test_explain_names_both_sides_of_a_set_operation():
    sql = "SELECT k, n FROM p EXCEPT SELECT k, n FROM (SELECT k, n FROM q UNION ALL SELECT k, n FROM s)"
    sources = {**TABLES, "s": False}
    kafka = {"kafka": {"bootstrapServers": "kafka:9092", "topic": "t"}, "schema": "at TIMESTAMP, k STRING, n BIGINT",
             "watermark": {"column": "at", "delay": "0s"}}  # fmt: skip
    spec = Spec.model_validate({
        "sources": {name: kafka | ({"table": {"keys": ["k"]}} if is_table else {}) for name, is_table in sources.items()},
        "query": {"sql": sql}, "sink": {"console": {}}, "emit": "OnUpdate",
    })  # fmt: skip
    _, steps = StagedQuery(sql, sources).query.explain(StructType(), spec, {}, Pin(1, "hash", 2, 4), None)
    assert [step for step in steps if not step.startswith(("source", "emit"))] == [
        "table    p by p.k; state of its rows",
        "table    q by q.k; state of its rows",
        "table    of records, each from its time on",
        "union    of the rows of 2 relations",
        "union    of the rows of 2 relations",
        "group    by k, n; state forever",
        "filter   rows of the left side > 0 AND rows of the right side = 0",
    ]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT k FROM s EXCEPT SELECT k FROM r", "its EXCEPT would keep rows of streams forever"),
        ("SELECT k FROM s EXCEPT ALL SELECT k FROM r", "its EXCEPT would keep rows of streams forever"),
        ("SELECT k, n FROM p UNION BY NAME SELECT n, k FROM q", "UNION BY NAME"),
        ("SELECT p.k FROM p JOIN (SELECT k FROM q UNION ALL SELECT k FROM s) x ON x.k = p.k", "kept forever"),
        ("SELECT k FROM p UNION ALL SELECT k FROM q ORDER BY k", "ORDER BY"),
    ],
)
def test_what_would_have_no_end_is_refused(sql, reason):
    with pytest.raises(NotATableQueryError, match=reason):
        StagedQuery(sql, {**TABLES, **STREAMS})
